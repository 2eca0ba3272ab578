"""Are the vocabularies and batches of a task valid? A wrong batch often trains all the same, so it is checked before.

>>> from attnscope.tasks import OneToOne
>>> check_task(OneToOne())  # raises nothing for a valid task
"""

from collections.abc import Callable, Iterator
from copy import copy
from itertools import islice

import torch
from torch import Tensor

from attnscope.errors import BadSetting
from attnscope.tasks.batch import END, NOWHERE, PAD, SPECIALS, Batch, Vocabulary
from attnscope.tasks.task import SPLITS, SyntheticTask, Task

FEW = 2  # steps of training, and batches of each split
FEW_SENTENCES = 32  # of a batch, where the task can draw any number
SHAPED_LIKE = {
    "source_mask": "source", "target_mask": "target", "gold_attention": "target", "rationale": "source",
    "source_special": "source",
}  # fmt: skip
TYPES = {
    "source": torch.int64, "target": torch.int64, "gold_attention": torch.int64, "source_mask": torch.bool,
    "target_mask": torch.bool, "source_special": torch.bool,
}  # fmt: skip


def check_task(task: Task, seed: int = 0, size: int = 32) -> None:
    """Refuse a task whose vocabularies or batches are not what they must be; a few of each split are sampled, twice."""
    if isinstance(task, SyntheticTask):
        task, size = with_small_splits(task), min(size, FEW_SENTENCES)
    mistake = next(mistakes(task, seed, size), None)
    if mistake is not None:
        raise BadSetting(f"{type(task).__name__} cannot be learned from: {mistake}")


def with_small_splits(task: SyntheticTask) -> SyntheticTask:
    """The same task with a few sentences to measure on, for it draws a split as a whole, which may take a while."""
    small = copy(task)  # and not `replace`: what it keeps is kept, and a constructor of its own is not called
    object.__setattr__(small, "test_size", min(task.test_size, FEW * FEW_SENTENCES))
    return small


def mistakes(task: Task, seed: int, size: int) -> Iterator[str]:
    for name in ("source_vocabulary", "target_vocabulary"):
        yield from (f"{name} {sentence}" for sentence in begins_with_the_special_words(getattr(task, name)))
    yield from in_training(task, seed, size)
    for split in SPLITS:
        yield from in_split(task, split, size)


def in_training(task: Task, seed: int, size: int) -> Iterator[str]:
    batches = [task.training_batch(seed, step, size) for step in range(FEW)]
    for step, batch in enumerate(batches):
        yield from flaws(batch, task, f"training batch {step}")
        if len(batch) > size or (isinstance(task, SyntheticTask) and len(batch) < size):
            yield f"training batch {step} has {len(batch)} sentences, but {size} were asked for"
    if not same(batches[0], task.training_batch(seed, 0, size)):
        yield f"the training batch of seed {seed} and step 0 is another one when it is sampled again"


def in_split(task: Task, split: str, size: int) -> Iterator[str]:
    batches = list(islice(task.batches(split, size), FEW))
    if not batches:
        yield f"the {split} split has no batch"
    for number, batch in enumerate(batches):
        yield from flaws(batch, task, f"{split} batch {number}")
    if not same(batches[0], next(task.batches(split, size))):
        yield f"the first {split} batch is another one when it is read again"


def flaws(batch: object, task: Task, name: str) -> Iterator[str]:
    if not isinstance(batch, Batch):
        yield f"{name} is no Batch, but of type {type(batch).__name__}"
        return
    for clause in CLAUSES:
        yield from (f"in {name}, {sentence}" for sentence in clause(batch, task))


def same(one: Batch, other: Batch) -> bool:
    ours, theirs = one.tensors(), other.tensors()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# What must hold of a vocabulary, and of each batch; a clause may rely on those before it -----------------------------


def begins_with_the_special_words(words: Vocabulary) -> Iterator[str]:
    if words.tokens[: len(SPECIALS)] != SPECIALS:
        given = ", ".join(words.tokens[: len(SPECIALS)])
        yield f"must begin with {', '.join(SPECIALS)}, as Vocabulary.of makes it, not with {given}"


def has_sentences(batch: Batch, task: Task) -> Iterator[str]:
    for name in ("source", "target"):
        shape = tuple(getattr(batch, name).shape)
        if len(shape) != 2 or 0 in shape:
            yield f"{name} is {shape}: it should be sentences x words, with at least one of each"
    if len(batch.source) != len(batch.target):
        yield f"there are {len(batch.source)} source sentences, but {len(batch.target)} target sentences"


def has_shapes_and_kinds_that_match(batch: Batch, task: Task) -> Iterator[str]:
    for name, value in batch.tensors().items():
        like = SHAPED_LIKE.get(name, name)
        shape, expected = tuple(value.shape), tuple(getattr(batch, like).shape)
        if shape != expected:
            yield f"{name} is {shape}, but {like} is {expected}: both are sentences x {like} words"
        if value.dtype != TYPES.get(name, value.dtype):
            yield f"{name} is of {value.dtype}; it should be of {TYPES[name]}"


def has_words_of_the_vocabulary(batch: Batch, task: Task) -> Iterator[str]:
    for side in ("source", "target"):
        numbers, words = getattr(batch, side), len(getattr(task, f"{side}_vocabulary"))
        strange = numbers[(numbers < 0) | (numbers >= words)]
        if len(strange):
            yield f"{side} has the id {int(strange[0])}, but {side}_vocabulary has {words} tokens, 0 to {words - 1}"


def masks_padding_and_nothing_else(batch: Batch, task: Task) -> Iterator[str]:
    for side in ("source", "target"):
        numbers, mask = getattr(batch, side), getattr(batch, f"{side}_mask")
        row = first(~mask.any(1))
        if row is not None:
            yield f"{side} sentence {row} has no word at all, not even its end"
        row = first(((numbers != PAD) != mask).any(1))
        if row is not None:
            yield f"{side}_mask is not true on the words of {side} sentence {row} and false on its padding ({PAD})"
        row = first((mask[:, 1:] & ~mask[:, :-1]).any(1))
        if row is not None:
            yield f"{side} sentence {row} has padding before a word; it should come last"


def ends_its_targets(batch: Batch, task: Task) -> Iterator[str]:
    """Unless each is a single word, as of a classification, or the task has a setting `end` that is false."""
    ends = (batch.target == END) & batch.target_mask
    row = first(ends[:, :-1].any(1) & (batch.target_mask.sum(1) > ends.int().argmax(1) + 1))
    if row is not None:
        yield f"target sentence {row} goes on after END ({END})"
    single = bool((batch.target_mask.sum(1) == 1).all())
    if ends.any() or not (single or getattr(task, "end", True) is False):
        row = first(~ends.any(1))
        if row is not None:
            yield (
                f"target sentence {row} does not end with END ({END}); append it, or, if no target is to have one, "
                "give the task the setting end = False"
            )


def points_at_source_words(batch: Batch, task: Task) -> Iterator[str]:
    if batch.gold_attention is None:
        return
    lengths = batch.source_mask.sum(1, keepdim=True)
    lost = (
        batch.target_mask
        & (batch.gold_attention != NOWHERE)
        & ((batch.gold_attention < 0) | (batch.gold_attention >= lengths))
    )
    row = first(lost.any(1))
    if row is not None:
        place = int(batch.gold_attention[row][lost[row]][0])
        yield (
            f"gold_attention of sentence {row} points at position {place}, but its source has positions from 0 to "
            f"{int(lengths[row]) - 1}; where nothing is known, it is NOWHERE ({NOWHERE})"
        )


def first(rows: Tensor) -> int | None:
    """The number of the first row of which it is true."""
    return int(rows.int().argmax()) if bool(rows.any()) else None


CLAUSES: tuple[Callable[[Batch, Task], Iterator[str]], ...] = (
    has_sentences, has_shapes_and_kinds_that_match, has_words_of_the_vocabulary, masks_padding_and_nothing_else,
    ends_its_targets, points_at_source_words,
)  # fmt: skip
