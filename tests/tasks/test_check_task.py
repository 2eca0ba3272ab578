"""User-defined tasks: invalid ones are refused with a message that names the mistake, valid ones pass."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.lab.ensembles import train_all
from attnscope.lab.experiment import Experiment, train
from attnscope.lab.store import Store
from attnscope.models import EncoderDecoderSettings
from attnscope.tasks import (
    END,
    NOWHERE,
    PAD,
    SPECIALS,
    TASKS,
    Batch,
    Copying,
    Keyword,
    LookupTables,
    OneToOne,
    SyntheticTask,
    Task,
    Vocabulary,
    pad,
)  # fmt: skip
from attnscope.testing import check_task
from attnscope.training import TrainingSettings

WORDS = 5
ALL = slice(None)


def echoed(random, size, end=True):
    """Sentences of one to four words and the same again."""
    rows = [random.integers(len(SPECIALS), len(SPECIALS) + WORDS, length) for length in 1 + np.arange(size) % 4]
    source, source_mask = pad([np.append(row, END) for row in rows])
    target, target_mask = pad([np.append(row, END) if end else row for row in rows])
    guide, _ = pad([np.arange(len(row) + end) for row in rows], fill=NOWHERE)
    return Batch(source, source_mask, target, target_mask, guide)


@dataclass(frozen=True)
class Echo(SyntheticTask):
    """With `change`, a function of each batch, a mistake."""

    change: object = field(default=None, compare=False)

    @property
    def source_vocabulary(self):
        return Vocabulary.of("ABCDE")

    target_vocabulary = source_vocabulary

    def sample(self, random, size):
        batch = echoed(random, size)
        return batch if self.change is None else self.change(batch)


def tampered(batch, **tensors):
    """Another batch with these tensors, which nobody has checked."""
    other = replace(batch)
    for name, tensor in tensors.items():
        object.__setattr__(other, name, tensor)
    return other


def put(tensor, row, column, value):
    """The tensor with one number changed."""
    other = tensor.clone()
    other[row, column] = value
    return other


def refusal(task, **settings):
    with pytest.raises(BadSetting) as refused:
        check_task(task, **settings)
    beginning = f"{type(task).__name__} cannot be learned from: "
    assert str(refused.value).startswith(beginning)
    return str(refused.value).removeprefix(beginning)


@pytest.mark.parametrize("name", TASKS)
def test_every_registered_task_passes_the_check(name):
    check_task(TASKS[name]())


@pytest.mark.parametrize(
    "task",
    [
        Echo(),
        Echo(change=lambda batch: replace(batch, gold_attention=None)),
        Keyword(end=False),
        LookupTables(end=False),
        Copying(distribution="mixture", num_words=80, evaluation_distribution="repeated", permutation_seed=1),
        OneToOne(min_length=1, max_length=1, test_size=1),
    ],
)
def test_a_valid_task_raises_nothing(task):
    check_task(task, seed=3, size=7)


# By row, a mistake in the batch and what is said of it. The first sentence of a batch has one word and its end; the
# fourth, the longest, has four.
MISTAKES = {
    "a source word beyond the vocabulary": (
        lambda b: tampered(b, source=put(b.source, 1, 0, 8)),
        "in training batch 0, source has the id 8, but source_vocabulary has 8 tokens, 0 to 7",
    ),
    "a target word beyond the vocabulary": (
        lambda b: tampered(b, target=put(b.target, 1, 0, -3)),
        "in training batch 0, target has the id -3, but target_vocabulary has 8 tokens, 0 to 7",
    ),
    "no end": (
        lambda b: tampered(b, target=put(b.target, 2, 3, len(SPECIALS))),
        "in training batch 0, target sentence 2 does not end with END (1); append it, or, if no target is to have one, "
        "give the task the setting end = False",
    ),
    "an end too early": (
        lambda b: tampered(b, target=put(b.target, 2, 1, END)),
        "in training batch 0, target sentence 2 continues after END (1)",
    ),
    "a guide of too few columns": (
        lambda b: tampered(b, gold_attention=b.gold_attention[:, :-1]),
        "in training batch 0, gold_attention is (32, 4), but target is (32, 5): both are sentences x target words",
    ),
    "a guide of too few rows": (
        lambda b: tampered(b, gold_attention=b.gold_attention[:-1]),
        "in training batch 0, gold_attention is (31, 5), but target is (32, 5): both are sentences x target words",
    ),
    "a guide beyond the source": (
        lambda b: tampered(b, gold_attention=put(b.gold_attention, 3, 0, 5)),
        "in training batch 0, gold_attention of sentence 3 points at position 5, but its source has positions from 0 "
        "to 4; where nothing is known, it is NOWHERE (-1)",
    ),
    "a guide at padding": (
        lambda b: tampered(b, gold_attention=put(b.gold_attention, 0, 1, 2)),
        "in training batch 0, gold_attention of sentence 0 points at position 2, but its source has positions from 0 "
        "to 1; where nothing is known, it is NOWHERE (-1)",
    ),
    "a mask of another length": (
        lambda b: tampered(b, source_mask=b.source_mask[:, 1:]),
        "in training batch 0, source_mask is (32, 4), but source is (32, 5): both are sentences x source words",
    ),
    "a mask that hides a word": (
        lambda b: tampered(b, source_mask=put(b.source_mask, 1, 2, False)),
        "in training batch 0, source_mask is not true on the words of source sentence 1 and false on its padding (0)",
    ),
    "padding first": (
        lambda b: tampered(b, source=b.source.flip(1), source_mask=b.source_mask.flip(1)),
        "in training batch 0, source sentence 0 has padding before a word; it should come last",
    ),
    "a sentence of nothing": (
        lambda b: tampered(b, source=put(b.source, 2, ALL, PAD), source_mask=put(b.source_mask, 2, ALL, False)),
        "in training batch 0, source sentence 2 has no word at all, not even its end",
    ),
    "fewer targets than sources": (
        lambda b: tampered(b, **{name: getattr(b, name)[:-1] for name in ("target", "target_mask", "gold_attention")}),
        "in training batch 0, there are 32 source sentences, but 31 target sentences",
    ),
    "an empty batch": (
        lambda b: tampered(b, **{name: tensor[:0] for name, tensor in b.tensors().items()}),
        "in training batch 0, source is (0, 5): it should be sentences x words, with at least one of each",
    ),
    "fewer sentences than were asked for": (
        lambda b: tampered(b, **{name: tensor[:3] for name, tensor in b.tensors().items()}),
        "training batch 0 has 3 sentences instead of 32",
    ),
    "numbers of another kind": (
        lambda b: tampered(b, target=b.target.float()),
        "in training batch 0, target is of torch.float32; it should be of torch.int64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_batch_is_reported(mistake):
    change, sentence = MISTAKES[mistake]
    assert refusal(Echo(change=change)) == sentence


def test_targets_without_an_end_need_a_task_that_says_so():
    endless = Echo(change=lambda batch: echoed(np.random.default_rng(0), len(batch), end=False))
    assert "does not end with END (1)" in refusal(endless)
    object.__setattr__(endless, "end", False)
    check_task(endless)


def test_a_vocabulary_without_special_words_is_refused():
    class Bare(Echo):
        @property
        def target_vocabulary(self):
            return Vocabulary(("A", "B", "C", "D"))

    assert refusal(Bare()) == (
        "target_vocabulary must begin with <pad>, <end>, <start>, as Vocabulary.of makes it, not with A, B, C"
    )


def test_a_training_batch_that_is_not_reproducible_is_refused():
    shared = np.random.default_rng(0)
    task = Echo(change=lambda batch: echoed(shared, len(batch)))
    assert refusal(task, seed=4) == "the training batch of seed 4 and step 0 is another one when it is sampled again"


class Read(Task):
    """Not drawn but read: what a person writes who has data of their own."""

    source_vocabulary = target_vocabulary = Vocabulary.of("ABCDE")

    def __init__(self, splits, training=lambda size: echoed(np.random.default_rng(0), min(size, 9))):
        self.splits, self.training = splits, training

    def training_batch(self, seed, step, size):
        return self.training(size)

    def batches(self, split="test", size=128):
        return iter(self.splits(split))


def test_objects_other_than_batches_are_refused():
    assert (
        refusal(Read(None, training=lambda size: ([3, 1], [3, 1]))) == "training batch 0 is no Batch, but of type tuple"
    )


def test_more_sentences_than_were_asked_for_are_refused():
    endless = Read(None, training=lambda size: echoed(np.random.default_rng(0), 20))
    assert refusal(endless, size=16) == "training batch 0 has 20 sentences instead of 16"


def test_a_split_without_a_batch_is_refused():
    assert refusal(Read(lambda split: [])) == "the test split has no batch"


def test_a_split_that_is_not_reproducible_is_refused():
    shared = np.random.default_rng(0)
    task = Read(lambda split: [echoed(shared if split == "validation" else np.random.default_rng(0), 5)])
    assert refusal(task) == "the first validation batch is another one when it is read again"


def test_a_mistake_in_one_split_is_reported():
    batch = echoed(np.random.default_rng(0), 4)
    wrong = tampered(batch, target=put(batch.target, 0, 0, 99))
    task = Read(lambda split: [batch, wrong] if split == "validation" else [batch])
    assert refusal(task).startswith("in validation batch 1, target has the id 99")


def test_the_check_does_not_generate_a_large_test_set():
    sizes = []
    task = Echo(test_size=10_000, change=lambda batch: sizes.append(len(batch)) or batch)
    check_task(task, size=128)
    assert max(sizes) <= 64
    assert task.test_size == 10_000


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_of_an_invalid_task_is_refused_before_training(tmp_path, seeds):
    class Lost(Echo):
        def sample(self, random, size):
            return MISTAKES["a guide at padding"][0](super().sample(random, size))

    wrong = Experiment(Lost(), EncoderDecoderSettings(units=4), TrainingSettings(steps=1, batch_size=2))
    experiments = [replace(wrong, seed=seed) for seed in range(seeds)]
    with pytest.raises(
        BadSetting, match="Lost cannot be learned from: in training batch 0, gold_attention of sentence 0 "
    ):
        train_all(experiments, Store(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_finished_is_not_checked_again(tmp_path, monkeypatch):
    task = OneToOne(min_length=1, max_length=2, test_size=4)
    experiment = Experiment(task, EncoderDecoderSettings(units=4), TrainingSettings(steps=1, batch_size=2))
    train(experiment, Store(tmp_path))
    monkeypatch.setattr("attnscope.lab.experiment.check_task", None)
    train(experiment, Store(tmp_path))
