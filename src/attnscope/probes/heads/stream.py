"""Which sentences are heads asked about, and what does one pass show of all of them?"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import BadSetting, require
from attnscope.models.adapters import Texts, Words
from attnscope.models.asking import device_of
from attnscope.models.trace import Trace
from attnscope.tasks.batch import END, START, Batch
from attnscope.tasks.task import trimmed

Model = Callable[..., Trace]
Item = Batch | Texts
Stream = Iterable[Item] | Callable[[], Iterable[Item]]


@dataclass(frozen=True)
class Sentences:
    """A batch, and the words that its positions belong to where they are pieces of words."""

    batch: Batch
    source: Words | None = None
    target: Words | None = None

    @classmethod
    def of(cls, item: Item) -> "Sentences":
        return cls(item) if isinstance(item, Batch) else cls(item.batch, item.source, item.target)

    def __len__(self) -> int:
        return len(self.batch)

    def first(self, count: int) -> "Sentences":
        batch = trimmed(self.batch, slice(count))
        source, target = (None if words is None else some(words, count) for words in (self.source, self.target))
        return Sentences(
            batch,
            None if source is None else replace(source, unit=source.unit[:, : batch.source.shape[1]]),
            None if target is None else replace(target, unit=target.unit[:, : batch.target.shape[1]]),
        )


def some(words: Words, count: int) -> Words:
    return Words(
        words.names[:count], words.pieces[:count], words.places[:count], words.unit[:count], words.mask[:count]
    )


def taken(stream: Stream, model: Model, most: int | None = None) -> Iterator[Sentences]:
    """The first `most` sentences of a stream, or all, from its beginning, on the device of the model."""
    require(most is None or most > 0, f"most={most}: at least one sentence is needed")
    device, left = device_of(model), most
    for item in stream() if callable(stream) else stream:
        sentences = Sentences.of(item)
        if left is not None:
            sentences = sentences if len(sentences) <= left else sentences.first(left)
            left -= len(sentences)
        yield sentences if device is None else replace(sentences, batch=sentences.batch.to(device))
        if left == 0:
            return


def check_twice(stream: Stream, why: str) -> None:
    if isinstance(stream, Iterator):
        raise BadSetting(
            f"these batches are an iterator, which is spent after one pass, and two are needed, {why}; give a list, or "
            "a function that begins anew"
        )


@dataclass(frozen=True)
class Pass:
    """A pass, and what it may attend to, which only the model knows."""

    trace: Trace
    attended: Bool[Tensor, "batch source"]

    @classmethod
    def of(cls, model: Model, batch: Batch, forward: dict[str, Any]) -> "Pass":
        masks: list[Tensor] = []

        def look(weights: Tensor, mask: Tensor) -> Tensor:
            masks.append(mask)
            return weights

        trace = model(batch, **{"attention": look} | forward)
        return cls(trace, masks[0] if masks else batch.source_mask)

    @property
    def weights(self) -> Float[Tensor, "layers batch heads target source"]:
        return weights_of(self.trace)


def weights_of(trace: Trace) -> Float[Tensor, "layers batch heads target source"]:
    """Attention of every layer and head."""
    heads = {layer.weights.shape[1] for layer in (*trace.layers[:-1], trace.last)}
    require(len(heads) == 1, f"layers have different numbers of heads, {sorted(heads)}; heads are compared as a table")
    return torch.stack([layer.weights.detach() for layer in trace.layers])


def is_special(model: Model, batch: Batch, side: str = "source") -> Bool[Tensor, "batch positions"]:
    """Start and end tokens, and whatever else the model's own tokenizer calls special; not padding."""
    words: Int[Tensor, "batch positions"] = getattr(batch, side)
    mask: Bool[Tensor, "batch positions"] = getattr(batch, f"{side}_mask")
    reader: Any = getattr(model, "reader", None)
    numbering = getattr(reader, side, None)
    numbers = [END, START]
    if numbering is not None:
        ids = [i for i in reader.special_ids if i < numbering.size]
        numbers += numbering.numbers_of(torch.tensor(ids, dtype=torch.long)).tolist()
    return torch.isin(words, torch.tensor(numbers, device=words.device)) & mask
