"""What holds of states and attention, whatever their numbers: decomposition, heads, gates, activations, lexical probe.

That parts sum to states, terms to alignments and shares to one, that halves merge, that neither batches nor padding
change anything: see test_decomposition_*, test_heads, test_gates and test_activations.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from decomposition_examples import WORDS, Tiny, random_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from lexical_examples import Added, encoder_decoder
from torch.testing import assert_close

from attnscope.probes.decomposition import (
    ComponentAccumulator,
    MeasureAccumulator,
    decompose,
    offset_profile,
    principal_axes,
    readout_alignment,
)
from attnscope.probes.gates import activations, saturation
from attnscope.probes.heads import HeadRankingAccumulator, Sentences, head_formation
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.word_alignment import GoldAlignment

few, fewer = (settings(max_examples=examples, deadline=None) for examples in (20, 4))
SEEDS = st.integers(0, 10_000)
BATCHES = [random_batch(6, seed=seed, longest=6) for seed in range(2)]


def orthogonal(size, seed):
    return torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(seed)).double()).Q


def decomposed(traces):
    fit = ComponentAccumulator()
    for trace in traces:
        fit.update(trace)
    measure = MeasureAccumulator(fit.result())
    for trace in traces:
        measure.update(trace)
    return fit.result(), measure.result()


def with_vectors(trace, queries, keys):
    layer = replace(trace.last, queries=queries, keys=keys, scores=queries @ keys.mT)
    return replace(trace, layers=(layer,))


def numbers(measured):
    """What must not depend on axes or on the names of words."""
    shares, sides = measured.attention.shares, (measured.encoder, measured.decoder)
    return {
        "absolute": shares.absolute, "signed": shares.signed, "by step": shares.absolute_by_step,
        "predictability": measured.attention.predictability.overall, "cosine": measured.attention.cosine,
        "lengths": torch.stack([side.geometry.lengths for side in sides]),
        "cosines": torch.stack([side.geometry.cosines for side in sides]),
        "left": torch.stack([side.variance.mean_over(side.variance.counts > 0) for side in sides]),
        "explained": torch.stack([axes.explained for side in sides for axes in side.principal]),
    }  # fmt: skip


def assert_alike(one, other):
    theirs = numbers(other)
    for name, values in numbers(one).items():
        assert_close(values, theirs[name], equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")


# Decomposition


@fewer
@given(SEEDS, st.integers(1, 8))
def test_deltas_average_to_zero_per_word_and_per_time_step(seed, sentences):
    trace = Tiny(seed=seed)(random_batch(sentences, seed=seed))
    fitted, _ = decomposed([trace])
    encoder = fitted.encoder, trace.last.keys, trace.source, trace.source_mask
    decoder = fitted.decoder, trace.last.queries, trace.decoder_input, trace.target_mask
    for side, vectors, words, mask in (encoder, decoder):
        parts = side.split(vectors, words)
        delta, input_delta = (part.transpose(1, 2) for part in (parts.delta, parts.input_delta))
        for word in words[mask].unique():
            assert delta[(words == word) & mask].mean(0).abs().max() < 1e-12
        assert (input_delta * mask[:, :, None, None]).sum(0).abs().max() < 1e-12
        assert (side.input * side.word_counts[:, None]).sum(1).abs().max() < 1e-11


@fewer
@given(SEEDS)
def test_decomposition_is_invariant_to_rotation_and_scale(seed):
    traces = [Tiny(seed=seed)(batch) for batch in BATCHES]
    turn = orthogonal(traces[0].last.keys.shape[-1], seed)
    _, plain = decomposed(traces)
    _, turned = decomposed([with_vectors(one, one.last.queries @ turn, one.last.keys @ turn) for one in traces])
    _, scaled = decomposed([with_vectors(one, one.last.queries / 3, 3 * one.last.keys) for one in traces])
    assert_alike(turned, plain)
    assert_close(scaled.attention.shares.absolute, plain.attention.shares.absolute)
    assert_close(scaled.encoder.geometry.lengths, 3 * plain.encoder.geometry.lengths)
    assert_close(scaled.decoder.geometry.cosines, plain.decoder.geometry.cosines, equal_nan=True)


@fewer
@given(SEEDS)
def test_decomposition_is_invariant_to_token_ids_and_the_order_of_sentences(seed):
    traces = [Tiny(seed=seed)(batch) for batch in BATCHES]
    order = np.random.default_rng(seed).permutation(np.arange(3, WORDS))
    names = torch.tensor([0, 1, 2, *order])
    fitted, plain = decomposed(traces)
    renamed, other = decomposed(
        [replace(one, source=names[one.source], decoder_input=names[one.decoder_input]) for one in reversed(traces)]
    )
    assert_alike(other, plain)
    assert_close(renamed.encoder.temporal, fitted.encoder.temporal)
    assert_close(renamed.encoder.input[:, names[: fitted.encoder.input.shape[1]]], fitted.encoder.input)
    readout = torch.randn(WORDS, fitted.encoder.input.shape[-1], generator=torch.Generator().manual_seed(seed)).double()
    one, two = readout_alignment(readout, fitted.encoder), readout_alignment(7 * readout, renamed.encoder)
    assert {output: int(names[word]) for output, word in one.dictionary().items()} == two.dictionary()


def test_results_of_the_decomposition_are_in_range():
    result = decompose(Tiny(), BATCHES, BATCHES[:1])
    for measured in result.measures.values():
        between, principal = measured.attention, (*measured.encoder.principal, *measured.decoder.principal)
        for share in (between.predictability.overall, between.shares.temporal_query, between.cosine):
            assert ((share >= 0) & (share <= 1)).all()
        assert all((axes.explained.diff() <= 1e-12).all() and axes.explained.sum() <= 1 + 1e-12 for axes in principal)
        assert all(torch.allclose(axes.axes @ axes.axes.T, torch.eye(3).double()) for axes in principal)
    ratio = result.in_sample.encoder.variance
    assert (ratio.after[:, ratio.counts > 1] >= 0).all()
    near, far = (offset_profile(result.decoder, result.encoder, max_offset=reach).values for reach in (2, 5))
    assert_close(far[..., 3:-3], near, equal_nan=True)
    assert_close(result.mean_attention.weights.sum(-1), torch.ones(2, len(result.mean_attention.steps)).double())


@fewer
@given(SEEDS)
def test_principal_axes_rotate_with_their_vectors(seed):
    vectors = torch.randn(20, 5, generator=torch.Generator().manual_seed(seed)).double() * torch.tensor([9, 5, 3, 2, 1])
    plain, turned = principal_axes(vectors), principal_axes(vectors @ orthogonal(5, seed) + 4)
    assert_close(turned.explained, plain.explained)
    assert_close(turned.project(vectors @ orthogonal(5, seed) + 4).abs(), plain.project(vectors).abs())


# Heads


def translator():
    return encoder_decoder(heads=2, attention="query_key_value", inputs="learned")


def test_statistics_of_heads_are_in_range_and_do_not_depend_on_token_ids():
    model, names = translator(), torch.tensor([0, 1, 2, 6, 3, 5, 4])
    result, rank = head_formation(model, BATCHES), HeadRankingAccumulator(model)
    for batch in BATCHES:
        rank.update(Sentences(batch))
    table = result.table()
    assert np.allclose(table[["time", "word", "rest"]].sum(axis=1), 1)
    assert (
        table[["entropy", "on specials", "time", "word", "rest"]]
        .apply(lambda column: column.between(0, 1 + 1e-9))
        .all(axis=None)
    )
    ranked = rank.result()
    assert all(((effect.changed >= 0) & (effect.changed <= 1)).all() for effect in (ranked.ablated, ranked.uniform))
    assert (ranked.ranks() >= 1).all(axis=None)
    other = translator()
    other.source_inputs.table.data[names] = model.source_inputs.table.data
    renamed = head_formation(other, [replace(batch, source=names[batch.source]) for batch in BATCHES])
    pd.testing.assert_frame_equal(renamed.table(), table)


def test_merging_leaves_the_merged_accumulator_unchanged():
    model = translator()
    one, other = (
        HeadRankingAccumulator(model, lambda some: [GoldAlignment.of([(0, 0)])] * len(some)) for _ in range(2)
    )
    other.update(Sentences(BATCHES[0]))
    before = other.result().table()
    one.merge(other)
    one.update(Sentences(BATCHES[1]))
    pd.testing.assert_frame_equal(other.result().table(), before)
    counts = other.alignments.counts.layers[0][0]
    assert other.alignments.result()[0, 0].item() == counts.result().error_rate  # to the last digit


# Gates and activations


@few
@given(SEEDS, st.floats(0, 0.4), st.floats(0.6, 1))
def test_a_gate_is_closed_open_or_undecided_and_the_other_way_round_when_reversed(seed, low, high):
    random = torch.Generator().manual_seed(seed)
    gate, mask = torch.rand(4, 6, 5, generator=random), torch.rand(4, 6, generator=random) < 0.8
    mask[0, 0] = True
    result, reversed_ = saturation(gate, mask, low, high), saturation(1 - gate.double(), mask, 1 - high, 1 - low)
    assert ((result.closed >= 0) & (result.open >= 0) & (result.closed + result.open <= 1)).all()
    undecided = ((gate >= low) & (gate <= high))[mask].double().mean(0)
    assert_close(result.closed + undecided + result.open, torch.ones(5).double())
    assert_close(reversed_.closed, result.open, atol=1e-6, rtol=0)
    assert 0 <= result.from_axes <= 0.5
    wider = saturation(gate, mask, low + 0.05, high - 0.05)
    assert (wider.closed >= result.closed).all()
    assert (wider.open >= result.open).all()
    assert np.isnan(result.one_sided) or 0 <= result.one_sided <= 1 + 1e-12


@few
@given(SEEDS, st.floats(-0.5, 0.5))
def test_concentration_is_invariant_to_shifts_and_the_order_of_steps(seed, by):
    random = torch.Generator().manual_seed(seed)
    states, mask = torch.rand(3, 7, 4, generator=random).double() / 2 - 0.25, torch.ones(3, 7).bool()
    result, moved = activations(states, mask, None), activations((states + by).flip(0, 1), mask, None)
    assert np.allclose(moved.concentration, result.concentration)
    assert np.allclose(moved.covered, result.covered)
    assert ((result.concentration > 0) & (result.concentration <= 1)).all()
    assert (result.covered <= 0.25).all()


# The lexical probe


@pytest.mark.parametrize("model", [encoder_decoder(), encoder_decoder(cell="lstm", heads=2), Added()])
def test_lexical_probabilities_sum_to_one_at_every_position(model):
    trace = model(BATCHES[0])
    targets = [torch.full_like(trace.target, word) for word in range(WORDS)]
    scores = [lexical_scores(model, replace(trace, target=target)) for target in targets]
    total = sum(one.probability for one in scores)
    assert_close(total, torch.ones_like(total).masked_fill(scores[0].values.isnan(), torch.nan), equal_nan=True)


def test_the_lexical_probe_of_a_single_word_is_the_prediction():
    model = Added()
    batch = replace(BATCHES[0], source=BATCHES[0].source[:, :1], source_mask=BATCHES[0].source_mask[:, :1])
    trace = model(batch)
    own = trace.logits.softmax(-1).gather(-1, trace.target[..., None])
    assert_close(lexical_scores(model, trace).probability[batch.target_mask], own[batch.target_mask])
