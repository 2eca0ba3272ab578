"""What if all there is to learn from can be counted? Then an epoch has every sentence once, in an order of its seed."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnscope.errors import require
from attnscope.tasks.batch import END, NOWHERE, Batch, pad
from attnscope.tasks.task import Task
from attnscope.tasks.text.buckets import Buckets


@dataclass(frozen=True)
class Sentence:
    """Words of both sides as numbers, and for each target word the source position that it comes from, where known."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    guide: tuple[int, ...] | None = None

    def without_end(self) -> "Sentence":
        """The same without the end token of the target, which every sentence comes with."""
        assert self.target[-1] == END
        return Sentence(self.source, self.target[:-1], None if self.guide is None else self.guide[:-1])


@dataclass(frozen=True, eq=False, repr=False)
class Sentences:
    """One split; either all of its sentences have a guide or none has."""

    rows: Sequence[Sentence]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def buckets(self) -> Buckets:
        return Buckets(np.array([max(len(row.source), len(row.target)) for row in self.rows]))

    @cached_property
    def guided(self) -> bool:
        return all(row.guide is not None for row in self.rows)

    def batch(self, chosen: Sequence[int] | np.ndarray) -> Batch:
        rows = [self.rows[i] for i in chosen]
        source, source_mask = pad([np.array(row.source) for row in rows])
        target, target_mask = pad([np.array(row.target) for row in rows])
        guide = pad([np.array(row.guide) for row in rows], NOWHERE)[0] if self.guided else None
        return Batch(source, source_mask, target, target_mask, guide)


@dataclass(frozen=True)
class FiniteTask(Task):
    """A task with a fixed set of sentences to train on, and others to measure on."""

    @abstractmethod
    def part(self, split: str) -> Sentences:
        """The sentences of a split; "training" is one of them."""

    def training_batch(self, seed: int, step: int, size: int) -> Batch:
        """Every epoch has each sentence once, in batches of similar lengths; the last sentences make a smaller one."""
        require(size > 0, f"a batch needs at least one sentence, not {size}")
        training = self.part("training")
        return training.batch(training.buckets.batch(seed, step, size))

    def steps(self, size: int) -> int:
        """Training steps in an epoch."""
        return self.part("training").buckets.steps(size)

    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        require(size > 0, f"a batch needs at least one sentence, not {size}")
        part = self.part(split)
        for start in range(0, len(part), size):
            yield part.batch(range(start, min(start + size, len(part))))


def some(rows: Sequence[Sentence], most: int | None) -> Sequence[Sentence]:
    """At most so many of them, drawn once and for all, in their order."""
    if most is None or len(rows) <= most:
        return rows
    chosen = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
    return [rows[i] for i in chosen]
