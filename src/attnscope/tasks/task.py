"""What a task is: vocabularies, and batches for training and evaluation that follow from a seed."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from attnscope.errors import choose, require
from attnscope.kinds import check_kinds
from attnscope.tasks.batch import Batch, Vocabulary

SPLITS = ("test", "validation")
SameTask = TypeVar("SameTask", bound="Task")


class Task(ABC):
    """Source and target words, a stream of training batches, and fixed sets to measure on."""

    @property
    @abstractmethod
    def source_vocabulary(self) -> Vocabulary: ...

    @property
    @abstractmethod
    def target_vocabulary(self) -> Vocabulary: ...

    @abstractmethod
    def training_batch(self, seed: int, step: int, size: int) -> Batch:
        """The batch of one training step. It depends on its arguments alone, so a run can resume at any step."""

    @abstractmethod
    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        """A fixed set of sentences, the same for every seed of training."""

    def resolved(self: SameTask) -> SameTask:
        """Complete settings, which a run's key is made of: those of a corpus include a checksum of its data."""
        return self


@dataclass(frozen=True)
class SyntheticTask(Task):
    """A task that makes fresh sentences from a random generator."""

    test_size: int = 1000  # aitken2021, author's code: components from 1000 fresh sequences

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.test_size > 0, f"test_size must be positive, not {self.test_size}")

    @abstractmethod
    def sample(self, random: np.random.Generator, size: int) -> Batch:
        """`size` fresh sentences."""

    def training_batch(self, seed: int, step: int, size: int) -> Batch:
        return self.sample(np.random.default_rng((0, seed, step)), size)

    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        check_size(size)
        stream = 1 + SPLITS.index(choose("split", split, SPLITS))
        # All at once, then cut: the batch size changes nothing.
        everything = self.sample(np.random.default_rng((stream, 0)), self.test_size)
        for start in range(0, self.test_size, size):
            yield everything.rows(slice(start, start + size))


def check_size(size: int) -> None:
    require(size > 0, f"a batch needs at least one sentence, not {size}")


def check_lengths(min_length: int, max_length: int) -> None:
    require(min_length >= 1, f"a sentence needs at least one word: min_length is {min_length}")
    require(min_length <= max_length, f"min_length ({min_length}) must not be more than max_length ({max_length})")
