"""Temporal, input and delta components: eq. 1 and 2 of aitken2021."""

import numpy as np
import pytest
import torch
from decomposition_examples import WORDS, Tiny, batch_of, padded, random_batch, rows_of, slow_components, states_of
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.probes.decomposition import ComponentAccumulator, Components, FittedComponents
from attnscope.tasks.batch import END, PAD, START


def fitted(*traces, of: str = "attention") -> FittedComponents:
    fit = ComponentAccumulator(of)
    for trace in traces:
        fit.update(trace)
    return fit.result()


def assert_same(one: FittedComponents, other: FittedComponents) -> None:
    for side in ("encoder", "decoder"):
        mine, theirs = getattr(one, side), getattr(other, side)
        torch.testing.assert_close(mine.temporal, theirs.temporal)
        torch.testing.assert_close(mine.input, theirs.input)
        assert torch.equal(mine.counts, theirs.counts)
    torch.testing.assert_close(one.attention.weights, other.attention.weights)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), heads=st.sampled_from([1, 2, 4]), size=st.integers(1, 6))
def test_three_parts_sum_to_the_state(seed: int, heads: int, size: int) -> None:
    trace = Tiny(heads=heads, seed=seed).eval()(random_batch(size, seed))
    components = fitted(trace).encoder
    parts = components.split(trace.last.keys, trace.source)
    torch.testing.assert_close(parts.temporal + parts.input + parts.delta, trace.last.keys)
    torch.testing.assert_close(parts.input + parts.delta, parts.input_delta)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("head", [0, 1])
def test_components_are_those_of_equation_1(side: str, head: int) -> None:
    trace = Tiny()(random_batch(9, seed=1))
    components: Components = getattr(fitted(trace), side)
    temporal, input_ = slow_components(states_of(trace, side, head))
    assert components.temporal.shape[1] == len(temporal)
    for time, vector in temporal.items():
        np.testing.assert_allclose(components.temporal[head, time].numpy(), vector, atol=1e-12)
    for word, vector in input_.items():
        np.testing.assert_allclose(components.input[head, word].numpy(), vector, atol=1e-12)


def test_components_of_single_precision_states_are_summed_in_double() -> None:
    traces = [Tiny().float().eval()(random_batch(40, seed)) for seed in range(3)]
    components = fitted(*traces).encoder
    temporal, input_ = slow_components(
        [(w, t, h.astype(float)) for trace in traces for w, t, h in states_of(trace, "encoder", 0)]
    )
    assert components.temporal.dtype == torch.float64
    for word, vector in input_.items():
        np.testing.assert_allclose(components.input[0, word].numpy(), vector, atol=1e-6)
    for time, vector in temporal.items():
        np.testing.assert_allclose(components.temporal[0, time].numpy(), vector, atol=1e-6)


def test_two_halves_merged_equal_the_whole() -> None:
    model = Tiny().eval()
    batches = [random_batch(4, seed=i, longest=3 + 2 * i) for i in range(4)]  # later halves reach further
    first, second = ComponentAccumulator(), ComponentAccumulator()
    for batch in batches[:2]:
        first.update(model(batch))
    for batch in batches[2:]:
        second.update(model(batch))
    first.merge(second)
    assert_same(first.result(), fitted(*(model(batch) for batch in batches)))


def test_halves_of_different_length_can_be_merged() -> None:
    model = Tiny().eval()
    short, long = model(random_batch(3, seed=0, longest=2)), model(random_batch(3, seed=1, longest=7))
    first, second = ComponentAccumulator(), ComponentAccumulator()
    first.update(long)
    second.update(short)
    first.merge(second)
    assert_same(first.result(), fitted(short, long))


def test_a_batch_equals_its_sequences_one_by_one() -> None:
    model, batch = Tiny().eval(), random_batch(6, seed=3)
    singles = [model(rows_of(batch, slice(i, i + 1))) for i in range(6)]
    assert_same(fitted(model(batch)), fitted(*singles))


def test_padding_changes_nothing() -> None:
    model, batch = Tiny().eval(), random_batch(6, seed=4)
    assert_same(fitted(model(batch)), fitted(model(padded(batch, 5))))


def test_the_end_token_counts_and_padding_does_not() -> None:
    batch = random_batch(6, seed=4)
    counts = fitted(Tiny()(batch)).encoder.counts
    assert int(counts[END].sum()) == 6
    assert int(counts[PAD].sum()) == 0
    assert int(counts.sum()) == int(batch.source_mask.sum())


def test_the_start_of_the_decoder_is_a_class_of_its_own_without_an_input_component() -> None:
    decoder = fitted(Tiny()(random_batch(6, seed=4))).decoder
    assert decoder.counts[START].tolist() == [6] + [0] * (decoder.counts.shape[1] - 1)
    torch.testing.assert_close(decoder.input[:, START], torch.zeros_like(decoder.input[:, START]))


def test_a_word_seen_once_has_no_delta() -> None:
    batch = batch_of([[3, 4, 3], [3, 3, 3]], [[3], [3]])  # the only 4 comes second
    trace = Tiny().eval()(batch)
    delta = fitted(trace).encoder.split(trace.last.keys, trace.source).delta
    torch.testing.assert_close(delta[0, :, 1], torch.zeros_like(delta[0, :, 1]))
    assert delta[1, :, 1].abs().max() > 1e-3


def test_unseen_words_and_times_have_zero_components() -> None:
    model = Tiny().eval()
    components = fitted(model(batch_of([[3, 4]], [[3]]))).encoder  # words 3, 4 and the end; three time steps
    trace = model(batch_of([[3, 6, 4, 4]], [[3]]))
    parts = components.split(trace.last.keys, trace.source)
    assert components.fit_counts(trace.source).tolist() == [[1, 0, 1, 0, 0]]
    assert torch.equal(parts.input[:, :, 1], torch.zeros_like(parts.input[:, :, 1]))
    assert torch.equal(parts.temporal[:, :, 3:], torch.zeros_like(parts.temporal[:, :, 3:]))
    torch.testing.assert_close(parts.stacked.sum(-2), trace.last.keys)


def test_states_are_decomposed_as_one_head() -> None:
    trace = Tiny(heads=1)(random_batch(5, seed=6))
    of_states, of_attention = fitted(trace, of="states"), fitted(trace)
    torch.testing.assert_close(of_states.encoder.temporal, of_attention.encoder.temporal)
    torch.testing.assert_close(of_states.decoder.input, of_attention.decoder.input)
    assert of_states.attention is None


def test_merging_passes_of_different_models_is_refused() -> None:
    first, second = ComponentAccumulator(), ComponentAccumulator()
    first.update(Tiny(heads=1)(random_batch(2, seed=0)))
    second.update(Tiny(heads=2)(random_batch(2, seed=0)))
    with pytest.raises(AttnscopeError, match="merge totals of one model only"):
        first.merge(second)


def test_a_result_without_data_is_refused() -> None:
    with pytest.raises(AttnscopeError, match="at least one batch"):
        ComponentAccumulator().result()


def test_the_size_of_the_sums_is_that_of_the_vocabulary_not_of_the_stream() -> None:
    model, fit = Tiny().eval(), ComponentAccumulator()
    for seed in range(10):
        fit.update(model(random_batch(8, seed)))
    assert fit.total.encoder.by_word.shape == (WORDS, 2, 4)
    assert fit.total.encoder.by_time.shape == (8, 2, 4)


def test_a_stream_with_gradients_keeps_no_graph() -> None:
    fit = ComponentAccumulator()
    fit.update(Tiny()(random_batch(2, seed=0)))
    assert not fit.result().encoder.temporal.requires_grad
