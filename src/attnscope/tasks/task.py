"""The interface of a task (vocabularies, and batches for training and evaluation, determined by a seed), and its check.

Where the sentences are a fixed set, an epoch has every sentence once, in batches of similar length: the sentences
sorted by their length with some noise, cut into batches, and the batches shuffled.

Vocabularies and batches are checked before training, since a wrong batch often raises nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from attnscope.errors import BadSetting, check_kinds, choose, require
from attnscope.tasks.batch import END, NOWHERE, PAD, SPECIALS, Batch, Vocabulary, lengths, pad

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


# Is a task valid? ----------------------------------------------------------------------------------------------------

NUM_BATCHES = 2  # checked of training and of each split
MAX_BATCH_SIZE = 32  # of a synthetic task
SHAPED_LIKE = {
    "source_mask": "source", "target_mask": "target", "gold_attention": "target", "rationale": "source",
    "source_special": "source",
}  # fmt: skip
TYPES = {
    "source": torch.int64, "target": torch.int64, "gold_attention": torch.int64, "source_mask": torch.bool,
    "target_mask": torch.bool, "source_special": torch.bool,
}  # fmt: skip


def check_task(task: Task, seed: int = 0, size: int = 32) -> None:
    """Raise BadSetting if the vocabularies or batches of a task are invalid.

    >>> from attnscope.tasks import OneToOne
    >>> check_task(OneToOne())  # raises nothing for a valid task

    Args:
        task: The task to check.
        seed: The training seed of the batches that are checked.
        size: Sentences per batch.
    """
    if isinstance(task, SyntheticTask):
        task, size = with_small_splits(task), min(size, MAX_BATCH_SIZE)
    mistake = next(mistakes(task, seed, size), None)
    if mistake is not None:
        raise BadSetting(f"{type(task).__name__} cannot be learned from: {mistake}")


def with_small_splits(task: SyntheticTask) -> SyntheticTask:
    """Return the same task with small evaluation splits: a synthetic task samples a split as a whole, which is slow."""
    small = copy(task)  # not `replace`, which would call the constructor and lose cached values
    object.__setattr__(small, "test_size", min(task.test_size, NUM_BATCHES * MAX_BATCH_SIZE))
    return small


def mistakes(task: Task, seed: int, size: int) -> Iterator[str]:
    for name in ("source_vocabulary", "target_vocabulary"):
        yield from (f"{name} {mistake}" for mistake in check_special_tokens(getattr(task, name)))
    yield from check_training(task, seed, size)
    for split in SPLITS:
        yield from check_split(task, split, size)


def check_training(task: Task, seed: int, size: int) -> Iterator[str]:
    batches = [task.training_batch(seed, step, size) for step in range(NUM_BATCHES)]
    for step, batch in enumerate(batches):
        yield from check_batch(batch, task, f"training batch {step}")
        if len(batch) > size or (isinstance(task, SyntheticTask) and len(batch) < size):
            yield f"training batch {step} has {len(batch)} sentences instead of {size}"
    if not same(batches[0], task.training_batch(seed, 0, size)):
        yield f"the training batch of seed {seed} and step 0 is another one when it is sampled again"


def check_split(task: Task, split: str, size: int) -> Iterator[str]:
    batches = list(islice(task.batches(split, size), NUM_BATCHES))
    if not batches:
        yield f"the {split} split has no batch"
    for number, batch in enumerate(batches):
        yield from check_batch(batch, task, f"{split} batch {number}")
    if not same(batches[0], next(task.batches(split, size))):
        yield f"the first {split} batch is another one when it is read again"


def check_batch(batch: object, task: Task, name: str) -> Iterator[str]:
    if not isinstance(batch, Batch):
        yield f"{name} is no Batch, but of type {type(batch).__name__}"
        return
    for check in BATCH_CHECKS:
        yield from (f"in {name}, {mistake}" for mistake in check(batch, task))


def same(one: Batch, other: Batch) -> bool:
    ours, theirs = one.tensors(), other.tensors()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# Checks of a vocabulary and of each batch; a check may rely on those before it ---------------------------------------


def check_special_tokens(vocabulary: Vocabulary) -> Iterator[str]:
    first_tokens = vocabulary.tokens[: len(SPECIALS)]
    if first_tokens != SPECIALS:
        yield f"must begin with {', '.join(SPECIALS)}, as Vocabulary.of makes it, not with {', '.join(first_tokens)}"


def check_not_empty(batch: Batch, task: Task) -> Iterator[str]:
    for name in ("source", "target"):
        shape = tuple(getattr(batch, name).shape)
        if len(shape) != 2 or 0 in shape:
            yield f"{name} is {shape}: it should be sentences x words, with at least one of each"
    if len(batch.source) != len(batch.target):
        yield f"there are {len(batch.source)} source sentences, but {len(batch.target)} target sentences"


def check_shapes_and_types(batch: Batch, task: Task) -> Iterator[str]:
    for name, value in batch.tensors().items():
        like = SHAPED_LIKE.get(name, name)
        shape, expected = tuple(value.shape), tuple(getattr(batch, like).shape)
        if shape != expected:
            yield f"{name} is {shape}, but {like} is {expected}: both are sentences x {like} words"
        if value.dtype != TYPES.get(name, value.dtype):
            yield f"{name} is of {value.dtype}; it should be of {TYPES[name]}"


def check_token_ids(batch: Batch, task: Task) -> Iterator[str]:
    for side in ("source", "target"):
        ids, words = getattr(batch, side), len(getattr(task, f"{side}_vocabulary"))
        invalid = ids[(ids < 0) | (ids >= words)]
        if len(invalid):
            yield f"{side} has the id {int(invalid[0])}, but {side}_vocabulary has {words} tokens, 0 to {words - 1}"


def check_masks(batch: Batch, task: Task) -> Iterator[str]:
    for side in ("source", "target"):
        ids, mask = getattr(batch, side), getattr(batch, f"{side}_mask")
        row = first(~mask.any(1))
        if row is not None:
            yield f"{side} sentence {row} has no word at all, not even its end"
        row = first(((ids != PAD) != mask).any(1))
        if row is not None:
            yield f"{side}_mask is not true on the words of {side} sentence {row} and false on its padding ({PAD})"
        row = first((mask[:, 1:] & ~mask[:, :-1]).any(1))
        if row is not None:
            yield f"{side} sentence {row} has padding before a word; it should come last"


def check_end_tokens(batch: Batch, task: Task) -> Iterator[str]:
    """Targets end with END, unless each is a single label or the task has the setting `end = False`."""
    ends = (batch.target == END) & batch.target_mask
    row = first(ends[:, :-1].any(1) & (batch.target_mask.sum(1) > ends.int().argmax(1) + 1))
    if row is not None:
        yield f"target sentence {row} continues after END ({END})"
    single = bool((batch.target_mask.sum(1) == 1).all())
    if ends.any() or not (single or getattr(task, "end", True) is False):
        row = first(~ends.any(1))
        if row is not None:
            yield (
                f"target sentence {row} does not end with END ({END}); append it, or, if no target is to have one, "
                "give the task the setting end = False"
            )


def check_gold_attention(batch: Batch, task: Task) -> Iterator[str]:
    if batch.gold_attention is None:
        return
    lengths = batch.source_mask.sum(1, keepdim=True)
    invalid = (
        batch.target_mask
        & (batch.gold_attention != NOWHERE)
        & ((batch.gold_attention < 0) | (batch.gold_attention >= lengths))
    )
    row = first(invalid.any(1))
    if row is not None:
        place = int(batch.gold_attention[row][invalid[row]][0])
        yield (
            f"gold_attention of sentence {row} points at position {place}, but its source has positions from 0 to "
            f"{int(lengths[row]) - 1}; where nothing is known, it is NOWHERE ({NOWHERE})"
        )


def first(rows: Tensor) -> int | None:
    """Return the index of the first true row, or None."""
    return int(rows.int().argmax()) if bool(rows.any()) else None


BATCH_CHECKS: tuple[Callable[[Batch, Task], Iterator[str]], ...] = (
    check_not_empty, check_shapes_and_types, check_token_ids, check_masks, check_end_tokens, check_gold_attention,
)  # fmt: skip
