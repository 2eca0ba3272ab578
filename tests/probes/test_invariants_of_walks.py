"""What holds of curves in time and of words beside them, whatever their numbers and axes, and of guided attention.

Their closed forms and slow loops: see test_decomposition_walks, test_decomposition_word_in_time and test_guidance.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from decomposition_examples import Tiny, random_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from lexical_examples import encoder_decoder
from torch.testing import assert_close

from attnscope.errors import AttnscopeError
from attnscope.probes.decomposition import ComponentAccumulator
from attnscope.probes.decomposition.trajectories import TemporalTrajectories
from attnscope.probes.decomposition.words import (
    DecomposedBatch,
    max_deviation_from_simplex,
    scores_around_word,
    states_by_preceding_word,
    variance_between_groups,
    word_time_products,
)
from attnscope.probes.word_alignment import attention_on_gold, mean_attention_on_gold

few = settings(max_examples=20, deadline=None)
SEEDS = st.integers(0, 10_000)
WORD, OTHER = 3, 4
BATCHES = [random_batch(8, seed=seed) for seed in range(2)]


def orthogonal(size, seed):
    return torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(seed)).double()).Q


@few
@given(SEEDS)
def test_matching_is_invariant_to_rotation_and_scale_and_a_trajectory_matches_itself(seed):
    random, turn = torch.Generator().manual_seed(seed), orthogonal(5, seed)
    encoder, decoder = torch.randn(2, 7, 5, generator=random).double()
    result, turned = TemporalTrajectories(encoder, decoder, 6), TemporalTrajectories(encoder @ turn, decoder @ turn, 6)
    shifted = TemporalTrajectories(3 * encoder + 1, 3 * decoder + 1, 6)
    for name in ("matching", "adjacent", "meeting_step"):
        assert getattr(turned, name) == pytest.approx(getattr(result, name))
        assert getattr(shifted, name) == pytest.approx(getattr(result, name))
    np.testing.assert_allclose(turned.attention, result.attention)
    np.testing.assert_allclose(result.attention.sum(1), 1)
    assert ((result.attention_near_diagonal >= 0) & (result.attention_near_diagonal <= 1 + 1e-12)).all()
    assert -1 <= result.matching <= 1
    assert TemporalTrajectories(decoder, encoder, 6).matching == pytest.approx(result.matching)
    assert TemporalTrajectories(encoder, encoder, 7).matching == pytest.approx(1)
    assert TemporalTrajectories(encoder, encoder, 7).meeting_step == 0
    shares = [result.variance_explained(axes) for axes in range(1, 6)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


@few
@given(SEEDS, st.integers(2, 6))
def test_distance_from_a_simplex_is_invariant_to_rotation_scale_shift_and_order(seed, count):
    random, turn = np.random.default_rng(seed), orthogonal(6, seed).numpy()
    words = random.normal(size=(count, 6))
    result = max_deviation_from_simplex(words)
    assert 0 <= result <= 2
    assert max_deviation_from_simplex(4 * random.permutation(words) @ turn + 1) == pytest.approx(result)
    assert max_deviation_from_simplex(3 * turn[:count] + 2) == pytest.approx(0, abs=1e-9)


@few
@given(SEEDS)
def test_variance_between_groups_is_a_share_and_merging_groups_never_increases_it(seed):
    random, turn = np.random.default_rng(seed), orthogonal(3, seed).numpy()
    one, two, three = (random.normal(size=(size, 3)) for size in (4, 5, 6))
    result = variance_between_groups({"one": one, "two": two, "three": three})
    assert 0 <= variance_between_groups({"one": one, "others": np.concatenate([two, three])}) <= result + 1e-12 <= 1
    assert variance_between_groups({"all": one}) == pytest.approx(0)
    turned = {"a": 2 * one @ turn - 1, "b": 2 * two @ turn - 1, "c": 2 * three @ turn - 1}
    assert variance_between_groups(turned) == pytest.approx(result)


def decomposed(batch, turn=None):
    trace = Tiny(heads=1)(batch)
    layer = trace.last
    fit = ComponentAccumulator()
    turn = torch.eye(layer.keys.shape[-1]).double() if turn is None else turn
    layer = replace(layer, queries=layer.queries.detach() @ turn, keys=layer.keys.detach() @ turn)
    fit.update(replace(trace, layers=(layer,)))
    fitted = fit.result()
    parts = fitted.decoder.split(layer.queries, trace.decoder_input), fitted.encoder.split(layer.keys, trace.source)
    return DecomposedBatch(trace.source, trace.source_mask, trace.target_mask, *parts)


def answers(sentences):
    """The measures of words in time, as one row of numbers."""
    after = states_by_preceding_word(sentences, WORD, {"other": OTHER, "itself": WORD})
    back, lean = (
        scores_around_word(sentences, WORD, range(-1, 2)),
        word_time_products(sentences, {"word": WORD}, range(-2, 3)),
    )
    numbers = [variance_between_groups(after), *map(len, after.values()), back.share, *lean.curves["word"]]
    return np.concatenate([numbers, *back.curves.values()])


def test_words_in_time_do_not_depend_on_axes_nor_on_the_order_of_sentences():
    plain = answers([decomposed(batch) for batch in BATCHES])
    turned = answers([decomposed(batch, orthogonal(8, seed=1)) for batch in reversed(BATCHES)])
    np.testing.assert_allclose(turned, plain)
    assert 0 <= plain[0] <= 1
    assert 0 <= plain[3] <= 1


def test_words_under_padding_are_ignored():
    sentences = [decomposed(batch) for batch in BATCHES]
    filled = [one._replace(source=one.source.where(one.source_mask, WORD)) for one in sentences]
    assert not all(one.source_mask.all() for one in sentences)
    np.testing.assert_allclose(answers(filled), answers(sentences))


@few
@given(SEEDS)
def test_attention_on_gold_is_a_share_and_uniform_for_uniform_attention(seed):
    random = torch.Generator().manual_seed(seed)
    weights = torch.randn(3, 4, 5, generator=random).softmax(-1)
    guide, everywhere = torch.randint(5, (3, 4), generator=random), torch.ones(3, 4).bool()
    result = attention_on_gold(weights, guide, everywhere)
    assert ((result >= 0) & (result <= 1)).all()
    every = [attention_on_gold(weights, torch.full_like(guide, place), everywhere) for place in range(5)]
    assert_close(sum(every), torch.ones(12))
    assert_close(attention_on_gold(torch.full_like(weights, 0.2), guide, everywhere), torch.full((12,), 0.2))


def test_attention_on_gold_ignores_the_order_of_sentences_and_needs_gold_attention():
    model = encoder_decoder().train()
    batches = [replace(batch, gold_attention=batch.gold_attention.clamp(max=1)) for batch in BATCHES]
    assert mean_attention_on_gold(model, reversed(batches)) == pytest.approx(mean_attention_on_gold(model, batches))
    assert model.training
    with pytest.raises(AttnscopeError, match="no gold attention"):
        mean_attention_on_gold(model, [replace(BATCHES[0], gold_attention=None)])
