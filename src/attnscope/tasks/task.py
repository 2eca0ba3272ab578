"""What a task is: vocabularies, and batches for training and evaluation that follow from a seed.

Where the sentences are a fixed set, an epoch has every sentence once, in batches of similar length: the sentences
sorted by their length with some noise, cut into batches, and the batches shuffled.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from attnscope.errors import check_kinds, choose, require
from attnscope.tasks.batch import END, NOWHERE, Batch, Vocabulary, lengths, pad

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


# Tasks with a fixed set of sentences ---------------------------------------------------------------------------------


NOISE = 0.1  # a sentence may be taken for one that is this share longer or shorter
CACHED_EPOCHS = 32  # epochs: as many seeds may be trained side by side

Epoch = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Buckets:
    """The batches of every epoch of training, for sentences of these lengths."""

    lengths: np.ndarray

    def batch(self, seed: int, step: int, size: int) -> np.ndarray:
        """The numbers of the sentences in the batch of one step; every epoch has each sentence once."""
        epoch, number = divmod(step, self.steps(size))
        return self._remembered(seed, epoch, size)[number]

    def steps(self, size: int) -> int:
        """Batches in an epoch; the last sentences make a smaller one."""
        return -(-len(self.lengths) // size)

    @cached_property
    def _remembered(self) -> Callable[[int, int, int], Epoch]:
        return lru_cache(maxsize=CACHED_EPOCHS)(self.epoch)

    def epoch(self, seed: int, number: int, size: int) -> Epoch:
        random = np.random.default_rng((seed, number))
        noisy = self.lengths * random.uniform(1 - NOISE, 1 + NOISE, len(self.lengths))
        batches = np.array_split(np.argsort(noisy), np.arange(size, len(noisy), size))
        return tuple(batches[i] for i in random.permutation(len(batches)))


def by_length(lengths: np.ndarray) -> np.ndarray:
    """The shortest sentence first; those of the same length stay in their order."""
    return np.argsort(lengths, kind="stable")


@dataclass(frozen=True)
class Sentence:
    """Words of both sides as numbers, and for each target word the source position that it comes from, where known."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    gold_attention: tuple[int, ...] = ()

    def without_end(self) -> "Sentence":
        """The same without the end token of the target, which every sentence comes with."""
        assert self.target[-1] == END
        return Sentence(self.source, self.target[:-1], self.gold_attention[:-1])


@dataclass(frozen=True, eq=False, repr=False)
class Sentences:
    """One split in numbers, with its special words; either all of its sentences have a guide or none has."""

    source: Sequence[np.ndarray]
    target: Sequence[np.ndarray]
    gold_attention: Sequence[np.ndarray] = ()  # each as long as the target
    rationale: Sequence[np.ndarray] = ()  # each as long as the source; none where nobody marked any

    @classmethod
    def of(cls, rows: Sequence[Sentence]) -> "Sentences":
        guides = [np.array(row.gold_attention) for row in rows if row.gold_attention]
        return cls([np.array(row.source) for row in rows], [np.array(row.target) for row in rows], guides)

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def lengths(self) -> np.ndarray:
        """The length of the longer side of each sentence."""
        longer: np.ndarray = np.maximum(lengths(self.source), lengths(self.target))
        return longer

    @cached_property
    def buckets(self) -> Buckets:
        return Buckets(self.lengths)

    @cached_property
    def order(self) -> np.ndarray:
        """In which order they are measured on."""
        return np.arange(len(self))

    def batch(self, chosen: Sequence[int] | np.ndarray) -> Batch:
        source, source_mask = pad([self.source[i] for i in chosen])
        target, target_mask = pad([self.target[i] for i in chosen])
        gold = pad([self.gold_attention[i] for i in chosen], NOWHERE)[0] if self.gold_attention else None
        rationale = pad([self.rationale[i] for i in chosen], kind=np.float32)[0] if self.rationale else None
        return Batch(source, source_mask, target, target_mask, gold, rationale)


@dataclass(frozen=True)
class FiniteTask(Task):
    """A task with a fixed set of sentences to train on, and others to measure on."""

    @abstractmethod
    def part(self, split: str) -> Sentences:
        """The sentences of a split; "training" is one of them."""

    @cached_property
    def _resolved(self: SameTask) -> SameTask:
        """These settings complete, asked for once: the checksum of a large file takes a while."""
        return self.resolved()

    def training_batch(self, seed: int, step: int, size: int) -> Batch:
        """Every epoch has each sentence once, in batches of similar lengths; the last sentences make a smaller one."""
        check_size(size)
        training = self.part("training")
        return training.batch(training.buckets.batch(seed, step, size))

    def steps(self, size: int) -> int:
        """Training steps in an epoch."""
        check_size(size)
        return self.part("training").buckets.steps(size)

    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        """The whole split in its order; to look at a few sentences, `draw` them, for the first ones may be special."""
        check_size(size)
        part = self.part(split)
        for start in range(0, len(part), size):
            yield part.batch(part.order[start : start + size])

    def sample_batch(self, split: str, count: int, seed: int = 0) -> Batch:
        """Some sentences at random, none twice; all of them if there are no more."""
        part = self.part(split)
        return part.batch(np.random.default_rng(seed).permutation(len(part))[:count])


def subsample(rows: Sequence[Sentence], most: int | None) -> Sequence[Sentence]:
    """Return at most so many rows, sampled with a fixed seed, in their order."""
    if most is None or len(rows) <= most:
        return rows
    chosen = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
    return [rows[i] for i in chosen]


def check_test_size(test_size: int | None) -> None:
    require(test_size is None or test_size > 0, f"test_size must be positive or None, not {test_size}")
