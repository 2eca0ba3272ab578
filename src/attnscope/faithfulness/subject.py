"""What is audited: a model, and texts that it is asked about, as the model reads them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnscope.models.adapters import Texts, Words
from attnscope.models.adapters.readers import NO_WORD, Pieced
from attnscope.probes.word_alignment import GoldAlignment
from attnscope.tasks import Task
from attnscope.tasks.batch import SPECIALS, Batch, Vocabulary
from attnscope.tasks.task import trimmed

CLASSIFIER, TRANSLATOR = "classifier", "translator"


@dataclass(frozen=True)
class Example:
    """A text from a file, what should be said of it, and what people said about that, if they did."""

    source: str | tuple[str, ...]
    target: str | tuple[str, ...]
    rationale: Float[np.ndarray, " words"] | None = None  # for each word, the share of people who marked it
    links: GoldAlignment | None = None


@dataclass(frozen=True)
class Subject:
    """A model and its texts."""

    model: nn.Module
    name: str
    kind: str  # classifier or translator
    what: str  # the class of the model
    classes: tuple[str, ...]
    count: int
    read: Callable[[slice], Texts]  # some of the texts, in their order
    links: tuple[GoldAlignment, ...] | None
    data: dict[str, Any]  # where the texts come from
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)  # what several questions need, made once

    def texts(self, size: int, most: int | None = None) -> Iterator[Texts]:
        """The first `most` texts, or all, so many at a time."""
        end = self.count if most is None else min(most, self.count)
        for start in range(0, end, size):
            yield self.read(slice(start, min(start + size, end)))

    @property
    def depth(self) -> int:
        """Layers of attention that can be changed one by one."""
        return int(getattr(self.model, "depth", 1))

    @property
    def has_rationales(self) -> bool:
        return self.read(slice(0, 1)).batch.rationale is not None


def from_examples(model: Any, examples: Sequence[Example]) -> Callable[[slice], Texts]:
    """Read by the model's own reader, batch by batch."""

    def read(rows: slice) -> Texts:
        some = examples[rows]
        texts: Texts = model.reader.read([example.source for example in some], [example.target for example in some])
        if any(example.rationale is None for example in some):
            return texts
        marks = pad_sequence([torch.from_numpy(np.asarray(e.rationale, dtype=np.float32)) for e in some], True)
        return replace(texts, batch=replace(texts.batch, rationale=marked(texts.source, marks)))

    return read


def marked(source: Words, marks: Float[Tensor, "batch words"]) -> Float[Tensor, "batch positions"]:
    """The marks of words, at each of their pieces; none on special tokens and padding."""
    places = source.places.gather(1, source.unit.clamp(min=0)).masked_fill(source.unit < 0, NO_WORD)
    inside = (places >= 0) & (places < marks.shape[1])
    found = marks.to(places.device).gather(1, places.clamp(0, marks.shape[1] - 1))
    return found.masked_fill(~inside, 0.0)


def from_task(task: Task, drawn: Batch) -> Callable[[slice], Texts]:
    """Sentences of a task, as it numbers them: a position is a word."""

    def read(rows: slice) -> Texts:
        batch = trimmed(drawn, rows)
        source = named(batch.source, batch.source_mask, task.source_vocabulary)
        return Texts(batch, source, named(batch.target, batch.target_mask, task.target_vocabulary), cut=0)

    return read


def named(
    numbers: Int[Tensor, "batch positions"], mask: Bool[Tensor, "batch positions"], vocabulary: Vocabulary
) -> Words:
    rows = [row[kept].tolist() for row, kept in zip(numbers.cpu(), mask.cpu(), strict=True)]
    return Words.of([pieced(row, tuple(vocabulary.decode(row))) for row in rows])


def pieced(numbers: Sequence[int], words: tuple[str, ...]) -> Pieced:
    """Every position a word of its own, but for special ones."""
    return Pieced(words, words, tuple(NO_WORD if i < len(SPECIALS) else place for place, i in enumerate(numbers)))


@dataclass(frozen=True)
class Sample:
    """The first texts of a subject, a batch at a time, from the beginning whenever asked."""

    subject: Subject
    most: int
    size: int = 32  # texts in a batch: how fast, and never what is found
    seed: int = 0
    quick: bool = False
    seen: Callable[[int], None] = lambda texts: None  # is told how many texts went by

    def __call__(self) -> Iterator[Texts]:
        for some in self.subject.texts(self.size, self.most):
            yield some
            self.seen(len(some.batch))

    def batches(self) -> Iterator[Batch]:
        return (texts.batch for texts in self())

    @property
    def texts(self) -> int:
        """How many the answer rests on."""
        return min(self.most, self.subject.count)
