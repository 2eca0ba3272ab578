from math import factorial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import BadSetting
from attnscope.tasks import END, SPECIALS, Copying

EVERY = {"permutations": 6, "sampled": 9, "mixture": 12, "repeated": 4}  # a number of words that each can do with


def words(batch):
    """The words of the source, counted from 0, without the end token."""
    return batch.source[:, :-1].numpy() - len(SPECIALS)


@pytest.mark.parametrize("distribution", EVERY)
def test_the_target_repeats_the_source_and_both_end(distribution):
    batch = Copying(distribution=distribution, num_words=EVERY[distribution], length=6).training_batch(0, 0, 50)
    assert torch.equal(batch.source, batch.target)
    assert (batch.source[:, -1] == END).all()
    assert batch.source.shape == (50, 7)


def test_permutations_hold_the_same_words_in_every_sentence():
    rows = np.sort(words(Copying().training_batch(3, 5, 64)), axis=1)
    assert (rows == np.arange(40)).all()


def test_sampled_sentences_repeat_no_word_and_leave_some_out():
    rows = words(Copying(distribution="sampled", num_words=60).training_batch(0, 0, 200))
    assert all(len(set(row)) == 40 for row in rows)
    assert set(rows.ravel()) == set(range(60))
    assert len({frozenset(row) for row in rows}) > 190  # hardly ever the same 40 words twice


def test_a_mixture_is_all_of_one_vocabulary_or_all_of_the_other():
    rows = np.sort(words(Copying(distribution="mixture", num_words=80).training_batch(1, 0, 400)), axis=1)
    first = (rows == np.arange(40)).all(1)
    assert (first | (rows == np.arange(40, 80)).all(1)).all()
    assert abs(first.mean() - 0.5) < 4 * 0.5 / 400**0.5  # four standard errors


def test_repeated_words_are_as_many_as_in_independent_draws():
    rows = words(Copying(distribution="repeated", num_words=40).training_batch(0, 0, 2000))
    distinct = np.mean([len(set(row)) for row in rows])
    assert distinct == pytest.approx(40 * (1 - (1 - 1 / 40) ** 40), abs=0.2)


def test_every_permutation_is_equally_frequent():
    rows = words(Copying(num_words=4, length=4).training_batch(0, 0, 4800))
    _, counts = np.unique(rows, axis=0, return_counts=True)
    expected = len(rows) / factorial(4)
    assert len(counts) == factorial(4)
    assert ((counts - expected) ** 2 / expected).sum() < 50  # chi-squared with 23 degrees of freedom: p < 0.001


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 30))
def test_a_reordering_is_one_permutation_for_every_sentence_and_the_guide_follows_it(seed, length):
    task = Copying(distribution="sampled", num_words=length + 5, length=length, permutation_seed=seed)
    assert sorted(task.order) == list(range(length))
    batch = task.training_batch(0, 0, 8)
    assert torch.equal(batch.source.gather(1, batch.gold_attention), batch.target)
    assert torch.equal(batch.target[:, :-1], batch.source[:, task.order])
    assert (batch.gold_attention == batch.gold_attention[0]).all()


def test_the_reordering_depends_on_its_own_seed_only():
    orders = [Copying(permutation_seed=seed).order for seed in (0, 0, 1)]
    assert (orders[0] == orders[1]).all()
    assert (orders[0] != orders[2]).any()
    batch, other = (Copying(permutation_seed=0).training_batch(seed, 0, 2) for seed in (1, 2))
    assert torch.equal(batch.gold_attention, other.gold_attention)


def test_evaluation_is_on_its_own_distribution_and_training_is_not():
    task = Copying(distribution="permutations", evaluation_distribution="mixture", num_words=80, length=40)
    assert (words(task.training_batch(0, 0, 50)) < 40).all()
    assert (words(next(task.batches(size=50))) >= 40).any()
    assert task._evaluation_distribution == "mixture"


def test_without_a_name_evaluation_is_on_the_training_distribution():
    assert (np.sort(words(next(Copying().batches())), axis=1) == np.arange(40)).all()


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"distribution": "shuffled"}, "no distribution 'shuffled'; choose one of permutations, sampled"),
        ({"evaluation_distribution": "fixed"}, "no distribution 'fixed'"),
        ({"num_words": 39}, "'permutations' need at least 40 words; num_words is 39"),
        ({"distribution": "mixture", "num_words": 79}, "'mixture' need at least 80 words"),
        ({"evaluation_distribution": "mixture"}, "'mixture' need at least 80 words"),
        ({"length": 0}, "at least one word"),
        ({"permutation_seed": -1}, "permutation_seed must be a seed"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(settings_, message):
    with pytest.raises(BadSetting, match=message):
        Copying(**settings_)
