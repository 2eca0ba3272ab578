"""The sentences that heads are probed on, values for each layer and head, and their tables and figures."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Generic, TypeVar, cast

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.display import Axes, Figure
from attnscope.errors import choose, require
from attnscope.models.adapters import HFEncoderDecoder, HFLanguageModel, Texts, Words
from attnscope.models.capabilities import ReadsTexts
from attnscope.models.inference import Model, device_of, module_of, with_predicted_target
from attnscope.models.inputs import Data, Inputs, as_batches
from attnscope.probes.accumulator import Accumulator
from attnscope.tasks.batch import END, START, Batch
from attnscope.tasks.task import Task

MAX_COLUMNS = 4  # panels side by side
MAX_ANNOTATED = 16  # cells that show their value

HeadValues = Float[Tensor, "layers heads"]
A = TypeVar("A", bound=Accumulator[Any])
T = TypeVar("T")


@dataclass(frozen=True)
class Sentences:
    """A batch, and the words that its tokens belong to where they are subwords."""

    batch: Batch
    source: Words | None = None
    target: Words | None = None

    @classmethod
    def of(cls, item: Batch | Texts) -> "Sentences":
        return cls(item) if isinstance(item, Batch) else cls(item.batch, item.source, item.target)

    def __len__(self) -> int:
        return len(self.batch)

    def first(self, count: int) -> "Sentences":
        batch = self.batch.rows(slice(count))
        sides = (self.source, batch.source), (self.target, batch.target)
        return Sentences(batch, *(None if words is None else first_words(words, *ids.shape) for words, ids in sides))


def first_words(words: Words, count: int, width: int) -> Words:
    unit, first = words.unit[:count, :width], slice(count)
    return Words(words.names[first], words.tokens[first], words.places[first], unit, words.mask[first])


def read_sentences(model: Model, data: Data, max_sentences: int | None = None) -> Iterator[Sentences]:
    """Yield the first sentences of the data, or all, on the device of the model."""
    require(max_sentences is None or max_sentences > 0, f"max_sentences={max_sentences}: at least one is needed")
    device, left = device_of(model), max_sentences
    for item in batches_or_texts(model, data):
        sentences = Sentences.of(item)
        if left is not None:
            sentences = sentences if len(sentences) <= left else sentences.first(left)
            left -= len(sentences)
        yield replace(sentences, batch=sentences.batch.to(device))
        if left == 0:
            return


def batches_or_texts(model: Model, data: Data) -> Iterable[Batch | Texts]:
    """Return Texts, which have word boundaries, where the data are texts; else Batches."""
    data = data() if callable(data) else data
    if isinstance(data, Iterator):
        return cast(Iterator[Batch | Texts], data)
    items = [data] if isinstance(data, Batch | Texts) else data if isinstance(data, list | tuple) else [None]
    batches = [item for item in items if isinstance(item, Batch | Texts)]
    if len(batches) == len(items):
        return batches
    return as_batches(model, data) if isinstance(data, Task) else Inputs.of(model, data).texts()


@dataclass(frozen=True)
class SpecialTokens:
    """Masks of start and end tokens, and of the tokenizer's other special tokens; not of padding."""

    source: Bool[Tensor, "batch source"]
    target: Bool[Tensor, "batch target"]

    @classmethod
    def of(cls, model: Model, batch: Batch) -> "SpecialTokens":
        module, special = module_of(model), [END, START]
        if isinstance(module, HFEncoderDecoder | HFLanguageModel):
            ids = [i for i in module.reader.special_ids if i < module.reader.target.vocab_size]
            special += module.reader.target.from_tokenizer(torch.tensor(ids, dtype=torch.long)).tolist()
        target = torch.isin(batch.target, torch.tensor(special, device=batch.target.device))
        return cls(batch.source_mask & ~batch.word_mask, batch.target_mask & target)


def with_own_output(model: Model, sentences: Sentences) -> Sentences:
    """Return the sentences with the model's own output in place of the gold one, to be teacher-forced."""
    module, target = module_of(model), sentences.target
    batch = with_predicted_target(model, sentences.batch)
    if target is not None and isinstance(module, ReadsTexts):
        target = module.reader.target_words(batch.target, batch.target_mask)
    return Sentences(batch, sentences.source, target)


# Values of each layer and head ---------------------------------------------------------------------------------------


class PerHead(Generic[A]):
    """One accumulator per layer and head, created at the first batch."""

    def __init__(self, make: Callable[[], A]):
        self.make = make
        self.layers: list[list[A]] = []

    def zip(self, values: Iterable[Iterable[T]]) -> Iterator[tuple[A, T]]:
        """Yield the accumulator and the value of each head."""
        layers = [list(layer) for layer in values]
        self.layers = self.layers or [[self.make() for _ in layer] for layer in layers]
        for accumulators, layer in zip(self.layers, layers, strict=True):
            yield from zip(accumulators, layer, strict=True)

    def merge(self, other: "PerHead[A]") -> None:
        for own, added in self.zip(other.layers) if other.layers else ():
            own.merge(added)

    def values(self, value: Callable[[A], float]) -> HeadValues:
        return torch.tensor([[value(head) for head in layer] for layer in self.layers], dtype=torch.float64)


def head_table(columns: dict[str, HeadValues]) -> pd.DataFrame:
    """Return one row per layer and head, counted from 0 as attention={(layer, head): ...} counts them."""
    layers, heads = next(iter(columns.values())).shape
    index = pd.MultiIndex.from_product([range(layers), range(heads)], names=["layer", "head"])
    values = {name: tensor.detach().cpu().to(torch.float64).flatten().numpy() for name, tensor in columns.items()}
    return pd.DataFrame(values, index)


def plot_heads(table: pd.DataFrame, column: str, ax: Axes | None = None) -> Axes:
    """Draw one column of such a table, one row per layer; where values may be negative, white is zero."""
    from attnscope import plots

    choose("column", column, map(str, table.columns))
    layers, heads = (table.index.unique(level) for level in ("layer", "head"))
    cells = table[column].to_numpy(dtype=float).reshape(len(layers), len(heads))
    return plots.heatmap(
        cells, rows=layers, columns=heads, ax=ax, title=column, xlabel="head", ylabel="layer",
        diverging=bool((cells < 0).any()), annotate=cells.size <= MAX_ANNOTATED,
    )  # fmt: skip


def plot_columns(table: pd.DataFrame, columns: Sequence[str]) -> Figure:
    """Draw small multiples, one panel per column."""
    from attnscope import plots

    across = min(MAX_COLUMNS, len(columns))
    layers, heads = (len(table.index.unique(level)) for level in ("layer", "head"))
    size = (1.8 + 0.22 * max(heads, 4), 1.2 + 0.22 * max(layers, 3))
    figure, panels = plots.panels(ceil(len(columns) / across), across, size)
    for column, ax in zip(columns, panels, strict=False):
        plot_heads(table, column, ax)
    for ax in panels[len(columns) :]:
        ax.set_axis_off()
    return figure
