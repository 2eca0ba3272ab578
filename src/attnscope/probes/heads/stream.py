"""Which sentences are heads asked about, and what does one pass show of all of them?"""

# TODO(docstring) join:
#   What does the model itself say? Its own output in the place of the gold one, to be heard with teacher forcing.
#   How is something gathered for each layer and head apart?
#   How is a number of every layer and head drawn? A layer a row, a head a column; several numbers, several panels.
#   How is a pass made again with one head changed, at the least cost?
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Generic, TypeVar

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.display import Axes, Figure
from attnscope.errors import choose, require
from attnscope.models.adapters import HFEncoderDecoder, Texts, Words
from attnscope.models.inference import device_of, evaluating, with_predicted_target
from attnscope.probes.accumulator import Accumulator, Model, Stream
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


def is_special(model: Model, batch: Batch, side: str = "source") -> Bool[Tensor, "batch positions"]:
    """Start and end tokens, and whatever else the model's own tokenizer calls special; not padding."""
    if side == "source":
        return batch.source_mask & ~batch.word_mask
    special = [END, START]
    if isinstance(model, HFEncoderDecoder):
        ids = [i for i in model.reader.special_ids if i < model.reader.target.vocab_size]
        special += model.reader.target.from_tokenizer(torch.tensor(ids, dtype=torch.long)).tolist()
    return torch.isin(batch.target, torch.tensor(special, device=batch.target.device)) & batch.target_mask


def replayed(model: Model, sentences: Sentences) -> Sentences:
    with evaluating(model):
        batch = with_predicted_target(model, sentences.batch)
    reader: Any = getattr(model, "reader", None)
    target = sentences.target
    if target is not None and hasattr(reader, "said"):
        target = reader.said(batch.target, batch.target_mask)
    return Sentences(batch, sentences.source, target)


Heads = Float[Tensor, "layers heads"]
A = TypeVar("A", bound=Accumulator[Any])
T = TypeVar("T")


class PerHead(Generic[A]):
    """An accumulator for every layer and head; how many there are is seen when the first batch comes by."""

    def __init__(self, make: Callable[[], A]):
        self.make = make
        self.layers: list[list[A]] = []

    def beside(self, values: Iterable[Iterable[T]]) -> Iterator[tuple[A, T]]:
        """The accumulator of each head, and the value of that head."""
        given = [list(layer) for layer in values]
        self.layers = self.layers or [[self.make() for _ in layer] for layer in given]
        for mine, layer in zip(self.layers, given, strict=True):
            yield from zip(mine, layer, strict=True)

    def merge(self, other: "PerHead[A]") -> None:
        for mine, theirs in self.beside(other.layers) if other.layers else ():
            mine.merge(theirs)

    def numbers(self, number: Callable[[A], float]) -> Heads:
        return torch.tensor([[number(head) for head in layer] for layer in self.layers], dtype=torch.float64)


ACROSS = 4  # panels in a row
WRITTEN = 16  # cells with their number in them


def by_head(columns: dict[str, Float[Tensor, "layers heads"]]) -> pd.DataFrame:
    """A row a layer and head, counted from 0, as attention={(layer, head): ...} counts them."""
    layers, heads = next(iter(columns.values())).shape
    index = pd.MultiIndex.from_product([range(layers), range(heads)], names=["layer", "head"])
    values = {name: tensor.detach().cpu().to(torch.float64).flatten().numpy() for name, tensor in columns.items()}
    return pd.DataFrame(values, index)


def grid(table: pd.DataFrame, column: str, ax: Axes | None = None) -> Axes:
    """One column of such a table; what may be negative has white at zero."""
    from attnscope import plots

    choose("column", column, map(str, table.columns))
    layers, heads = (table.index.unique(level) for level in ("layer", "head"))
    cells = table[column].to_numpy(dtype=float).reshape(len(layers), len(heads))
    return plots.heatmap(
        cells, rows=layers, columns=heads, ax=ax, title=column, xlabel="head", ylabel="layer",
        diverging=bool((cells < 0).any()), annotate=cells.size <= WRITTEN,
    )  # fmt: skip


def grids(table: pd.DataFrame, columns: Sequence[str]) -> Figure:
    """Small multiples, a panel a column."""
    from attnscope import plots

    across = min(ACROSS, len(columns))
    layers, heads = (len(table.index.unique(level)) for level in ("layer", "head"))
    size = (1.8 + 0.22 * max(heads, 4), 1.2 + 0.22 * max(layers, 3))
    figure, panels = plots.panels(ceil(len(columns) / across), across, size)
    for column, ax in zip(columns, panels, strict=False):
        grid(table, column, ax)
    for ax in panels[len(columns) :]:
        ax.set_axis_off()
    return figure
