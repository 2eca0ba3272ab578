"""Are the vocabularies and batches of a task valid? Checked before training, since a wrong batch often raises nothing.

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
