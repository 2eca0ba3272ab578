"""Which sentences are heads asked about, and what does one pass show of all of them?"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import require
from attnscope.models.adapters import Texts, Words
from attnscope.models.asking import device_of
from attnscope.models.trace import Trace
from attnscope.probes.reweighing import looked
from attnscope.probes.stream import Model, Stream
from attnscope.tasks.batch import END, START, Batch
from attnscope.tasks.task import trimmed

Item = Batch | Texts


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
        sides = (self.source, batch.source), (self.target, batch.target)
        return Sentences(batch, *(None if words is None else some(words, *numbers.shape) for words, numbers in sides))


def some(words: Words, count: int, width: int) -> Words:
    unit, first = words.unit[:count, :width], slice(count)
    return Words(words.names[first], words.pieces[first], words.places[first], unit, words.mask[first])


def taken(stream: Stream[Item], model: Model, most: int | None = None) -> Iterator[Sentences]:
    """The first `most` sentences of a stream, or all, from its beginning, on the device of the model."""
    require(most is None or most > 0, f"most={most}: at least one sentence is needed")
    device, left = device_of(model), most
    for item in stream() if callable(stream) else stream:
        sentences = Sentences.of(item)
        if left is not None:
            sentences = sentences if len(sentences) <= left else sentences.first(left)
            left -= len(sentences)
        yield replace(sentences, batch=sentences.batch.to(device))
        if left == 0:
            return


@dataclass(frozen=True)
class Pass:
    """A pass, and what it may attend to, which only the model knows."""

    trace: Trace
    attended: Bool[Tensor, "batch source"]

    @classmethod
    def of(cls, model: Model, batch: Batch, forward: dict[str, Any]) -> "Pass":
        return cls(*looked(model, batch, **forward))

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
