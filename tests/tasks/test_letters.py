import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import BadSetting
from attnscope.tasks import END, NOWHERE, PAD, TASKS, OneToOne, ReversedOneToOne, Sorting

LETTERS = {"one_to_one": OneToOne, "reversed_one_to_one": ReversedOneToOne, "sorting": Sorting}


def sentences(task, count=50):
    batch = next(task.batches(size=count))
    for row in range(count):
        length = int(batch.source_mask[row].sum()) - 1
        source = task.source_vocabulary.decode(batch.source[row, :length].tolist())
        target = task.target_vocabulary.decode(batch.target[row, :length].tolist())
        yield source, target


def test_each_letter_becomes_its_number():
    for source, target in sentences(OneToOne(num_words=5)):
        assert target == [str("ABCDE".index(letter) + 1) for letter in source]


def test_reversed_gives_the_numbers_last_first():
    for source, target in sentences(ReversedOneToOne()):
        assert target == [str("ABC".index(letter) + 1) for letter in reversed(source)]


def test_sorting_gives_the_letters_in_order():
    for source, target in sentences(Sorting(num_words=8, min_length=3, max_length=9)):
        assert target == sorted(source)


@pytest.mark.parametrize("name", LETTERS)
def test_gold_attention_is_on_the_letter_that_is_translated(name):
    task = LETTERS[name](num_words=4, min_length=2, max_length=7)
    batch = next(task.batches(size=50))
    looked_at = batch.source.gather(1, batch.gold_attention.clamp(min=0))
    assert (looked_at == batch.target)[batch.target_mask].all()  # same number on both sides, the end token included
    assert (batch.gold_attention[~batch.target_mask] == NOWHERE).all()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(TASKS)), st.integers(0, 2**40), st.integers(0, 10**6))
def test_a_training_batch_follows_from_seed_and_step_alone(name, seed, step):
    first, second = (TASKS[name]().training_batch(seed, step, 4) for _ in range(2))
    other = TASKS[name]().training_batch(seed, step + 1, 4)
    assert torch.equal(first.source, second.source)
    assert torch.equal(first.target, second.target)
    assert first.source.shape != other.source.shape or not torch.equal(first.source, other.source)


@pytest.mark.parametrize("name", TASKS)
def test_sentences_end_once_and_then_are_padding(name):
    batch = next(TASKS[name]().batches(size=64))
    sides = [(batch.source, batch.source_mask), (batch.target, batch.target_mask)]
    for words, mask in sides[:1] if name == "keyword" else sides:  # a class is a single word, without an end
        assert ((words == END).sum(1) == 1).all()
        assert (words[~mask] == PAD).all()
        assert (words[mask] != PAD).all()
        last = mask.sum(1) - 1
        assert (words[torch.arange(len(words)), last] == END).all()


@pytest.mark.parametrize("name", TASKS)
def test_the_batch_size_does_not_change_the_test_set(name):
    task = TASKS[name](test_size=10)
    whole = next(task.batches(size=10))
    for i, single in enumerate(task.batches(size=1)):
        width = single.source.shape[1]
        assert torch.equal(single.source[0], whole.source[i, :width])
        assert not whole.source_mask[i, width:].any()


def test_test_and_validation_sets_differ():
    task = OneToOne()
    assert not torch.equal(next(task.batches("test")).source[:, :15], next(task.batches("validation")).source[:, :15])


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"min_length": 9, "max_length": 3}, "min_length .9. must not be more than max_length .3."),
        ({"min_length": 0}, "at least one word"),
        ({"num_words": 0}, "num_words must be from 1 to 26"),
        ({"num_words": 27}, "num_words must be from 1 to 26"),
        ({"test_size": -1}, "test_size must be positive"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(settings_, message):
    with pytest.raises(BadSetting, match=message):
        OneToOne(**settings_)


def test_an_unknown_split_lists_the_known_ones():
    with pytest.raises(BadSetting, match="choose one of test, validation"):
        next(OneToOne().batches("train"))
