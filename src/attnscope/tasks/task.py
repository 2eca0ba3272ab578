"""The interface of a task: vocabularies, and batches for training and evaluation, determined by a seed.

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
    """Source and target vocabularies, a stream of training batches, and fixed evaluation splits."""

    @property
    @abstractmethod
    def source_vocabulary(self) -> Vocabulary: ...

    @property
    @abstractmethod
    def target_vocabulary(self) -> Vocabulary: ...

    @abstractmethod
    def training_batch(self, seed: int, step: int, size: int) -> Batch:
        """Return the batch of one training step. It depends on the arguments alone, so a run can resume at any step.

        Args:
            seed: The seed of the training run.
            step: The training step, from 0.
            size: Sentences in the batch.
        """

    @abstractmethod
    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        """Yield the batches of an evaluation split, the same for every training seed.

        Args:
            split: The name of the split, such as "test" or "validation".
            size: Sentences per batch; the last batch may be smaller.
        """

    def resolved(self: SameTask) -> SameTask:
        """Return complete settings, from which a run's key is computed; those of a corpus include its checksum."""
        return self


@dataclass(frozen=True)
class SyntheticTask(Task):
    """A task that samples fresh sentences from a random generator."""

    test_size: int = 1000  # aitken2021, author's code: components from 1000 fresh sequences

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.test_size > 0, f"test_size must be positive, not {self.test_size}")

    @abstractmethod
    def sample(self, random: np.random.Generator, size: int) -> Batch:
        """Return `size` fresh sentences."""

    def training_batch(self, seed: int, step: int, size: int) -> Batch:
        return self.sample(np.random.default_rng((0, seed, step)), size)

    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        check_size(size)
        stream = 1 + SPLITS.index(choose("split", split, SPLITS))
        # Sampled at once, then cut, so that the sentences do not depend on the batch size.
        everything = self.sample(np.random.default_rng((stream, 0)), self.test_size)
        for start in range(0, self.test_size, size):
            yield everything.rows(slice(start, start + size))


def check_size(size: int) -> None:
    require(size > 0, f"a batch needs at least one sentence, not {size}")


def check_lengths(min_length: int, max_length: int) -> None:
    require(min_length >= 1, f"a sentence needs at least one word: min_length is {min_length}")
    require(min_length <= max_length, f"min_length ({min_length}) must not be more than max_length ({max_length})")


# Tasks with a fixed set of sentences ---------------------------------------------------------------------------------


NOISE = 0.1  # relative noise on lengths before sorting
CACHED_EPOCHS = 32  # one per seed, where seeds are trained as one batched model

Epoch = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Buckets:
    """The batches of every epoch of training, for sentences of these lengths."""

    lengths: np.ndarray

    def batch(self, seed: int, step: int, size: int) -> np.ndarray:
        """Return the indices of the sentences in the batch of one step; every epoch has each sentence once."""
        epoch, number = divmod(step, self.steps(size))
        return self._cached_epoch(seed, epoch, size)[number]

    def steps(self, size: int) -> int:
        """Return the number of batches per epoch; the last one may be smaller."""
        return -(-len(self.lengths) // size)

    @cached_property
    def _cached_epoch(self) -> Callable[[int, int, int], Epoch]:
        return lru_cache(maxsize=CACHED_EPOCHS)(self.epoch)

    def epoch(self, seed: int, number: int, size: int) -> Epoch:
        random = np.random.default_rng((seed, number))
        noisy = self.lengths * random.uniform(1 - NOISE, 1 + NOISE, len(self.lengths))
        batches = np.array_split(np.argsort(noisy), np.arange(size, len(noisy), size))
        return tuple(batches[i] for i in random.permutation(len(batches)))


def by_length(lengths: np.ndarray) -> np.ndarray:
    """Return the order from the shortest sentence to the longest; ties stay in their order."""
    return np.argsort(lengths, kind="stable")


@dataclass(frozen=True)
class Sentence:
    """Token ids of both sides and, where known, the source position that each target token comes from."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    gold_attention: tuple[int, ...] = ()

    def without_end(self) -> "Sentence":
        """Return the sentence without the end token of its target."""
        assert self.target[-1] == END
        return Sentence(self.source, self.target[:-1], self.gold_attention[:-1])


@dataclass(frozen=True, eq=False, repr=False)
class Sentences:
    """One split as token ids, special tokens included; gold attention is there for all sentences or for none."""

    source: Sequence[np.ndarray]
    target: Sequence[np.ndarray]
    gold_attention: Sequence[np.ndarray] = ()  # each as long as the target
    rationale: Sequence[np.ndarray] = ()  # each as long as the source; empty without annotations

    @classmethod
    def of(cls, rows: Sequence[Sentence]) -> "Sentences":
        gold = [np.array(row.gold_attention) for row in rows if row.gold_attention]
        return cls([np.array(row.source) for row in rows], [np.array(row.target) for row in rows], gold)

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
        """The order of the sentences in evaluation."""
        return np.arange(len(self))

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        source, source_mask = pad([self.source[i] for i in indices])
        target, target_mask = pad([self.target[i] for i in indices])
        gold = pad([self.gold_attention[i] for i in indices], NOWHERE)[0] if self.gold_attention else None
        rationale = pad([self.rationale[i] for i in indices], kind=np.float32)[0] if self.rationale else None
        return Batch(source, source_mask, target, target_mask, gold, rationale)


@dataclass(frozen=True)
class FiniteTask(Task):
    """A task with fixed training, validation and test sentences."""

    @abstractmethod
    def part(self, split: str) -> Sentences:
        """Return the sentences of a split; "training" is one of them."""

    @cached_property
    def _resolved(self: SameTask) -> SameTask:
        """Complete settings, cached because the checksum of a large file takes a while."""
        return self.resolved()

    def training_batch(self, seed: int, step: int, size: int) -> Batch:
        """Return one batch of an epoch, which has each sentence once, in batches of similar lengths."""
        check_size(size)
        training = self.part("training")
        return training.batch(training.buckets.batch(seed, step, size))

    def steps(self, size: int) -> int:
        """Return the number of training steps per epoch with batches of `size` sentences."""
        check_size(size)
        return self.part("training").buckets.steps(size)

    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        """Yield the whole split in order; for a representative few sentences, use `sample_batch`."""
        check_size(size)
        part = self.part(split)
        for start in range(0, len(part), size):
            yield part.batch(part.order[start : start + size])

    def sample_batch(self, split: str, count: int, seed: int = 0) -> Batch:
        """Return sentences sampled without replacement, as one batch.

        Args:
            split: The name of the split.
            count: How many sentences; all of them if the split has no more.
            seed: Random seed of the sample.
        """
        part = self.part(split)
        return part.batch(np.random.default_rng(seed).permutation(len(part))[:count])


def subsample(rows: Sequence[Sentence], max_rows: int | None) -> Sequence[Sentence]:
    """Return at most `max_rows` rows, sampled with a fixed seed, in their order."""
    if max_rows is None or len(rows) <= max_rows:
        return rows
    indices = np.sort(np.random.default_rng(0).choice(len(rows), max_rows, replace=False))
    return [rows[i] for i in indices]


def check_test_size(test_size: int | None) -> None:
    require(test_size is None or test_size > 0, f"test_size must be positive or None, not {test_size}")
