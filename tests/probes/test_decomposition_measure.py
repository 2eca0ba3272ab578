"""The second pass: merging, padding, rare words, held-out data; variances, angles, principal axes, predictability."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from decomposition_examples import (
    WORDS,
    Tiny,
    batch_of,
    padded,
    random_batch,
    rows_of,
    slow_components,
    states_of,
)
from sklearn.decomposition import PCA

from attnscope.models.trace import Trace
from attnscope.probes.decomposition import (
    ComponentAccumulator,
    DecompositionMeasures,
    FittedComponents,
    MeasureAccumulator,
    cosines,
    principal_axes,
    readout_alignment,
)


def fitted(*traces: Trace, of: str = "attention") -> FittedComponents:
    fit = ComponentAccumulator(of)
    for trace in traces:
        fit.update(trace)
    return fit.result()


def measured(components: FittedComponents, *traces: Trace, **settings: int) -> DecompositionMeasures:
    return gathered(components, *traces, **settings).result()


def gathered(components: FittedComponents, *traces: Trace, **settings: int) -> MeasureAccumulator:
    measure = MeasureAccumulator(components, **settings)
    for trace in traces:
        measure.update(trace)
    return measure


def flat(result: object, path: str = "") -> dict[str, torch.Tensor]:
    """Every tensor of a result by its path."""
    if isinstance(result, torch.Tensor):
        return {path: result}
    if isinstance(result, tuple):
        return {k: v for i, item in enumerate(result) for k, v in flat(item, f"{path}[{i}]").items()}
    if hasattr(result, "__dataclass_fields__"):
        names = result.__dataclass_fields__
        return {k: v for name in names for k, v in flat(getattr(result, name), f"{path}.{name}").items()}
    return {path: torch.tensor(result)} if isinstance(result, int) else {}


def assert_same(one: DecompositionMeasures, other: DecompositionMeasures) -> None:
    mine, theirs = flat(one), flat(other)
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        torch.testing.assert_close(values, theirs[name], equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")


def some_batches() -> list:
    return [random_batch(5, seed=i, longest=3 + i) for i in range(5)]


def test_two_halves_merged_equal_the_whole() -> None:
    traces = [Tiny().eval()(batch) for batch in some_batches()]
    components = fitted(*traces)
    first, second = gathered(components, *traces[:2]), gathered(components, *traces[2:])
    first.merge(second)
    assert_same(first.result(), measured(components, *traces))


def test_two_halves_merged_fill_the_cloud_as_the_whole_does() -> None:
    traces = [Tiny().eval()(batch) for batch in some_batches()]
    components = fitted(*traces)
    first, second = gathered(components, *traces[:1], max_points=40), gathered(components, *traces[1:], max_points=40)
    first.merge(second)
    whole = measured(components, *traces, max_points=40)
    assert len(whole.encoder.cloud.words) == len(whole.decoder.cloud.words) == 40
    assert_same(first.result(), whole)


def test_a_batch_equals_its_sequences_one_by_one() -> None:
    model, batch = Tiny().eval(), random_batch(7, seed=3)
    singles = [model(rows_of(batch, slice(i, i + 1))) for i in range(7)]
    components = fitted(model(batch))
    assert_same(measured(components, model(batch)), measured(components, *singles))


def test_padding_changes_nothing() -> None:
    model, batch = Tiny().eval(), random_batch(7, seed=4)
    trace, wider = model(batch), model(padded(batch, 4))
    assert_same(measured(fitted(trace), trace), measured(fitted(wider), wider))


def test_single_precision_gives_the_same_numbers_to_rounding() -> None:
    batches = some_batches()
    double, single = Tiny().eval(), Tiny().eval().float()
    one = [double(batch) for batch in batches]
    other = [single(batch) for batch in batches]
    in_double, in_single = measured(fitted(*one), *one), measured(fitted(*other), *other)
    torch.testing.assert_close(
        in_double.attention.shares.absolute, in_single.attention.shares.absolute, atol=1e-5, rtol=0
    )
    ratios = (result.encoder.variance.ratio[:, 3:] for result in (in_double, in_single))
    torch.testing.assert_close(*ratios, atol=1e-4, rtol=0)


def test_word_variance_equals_numpy_on_all_states_of_the_word() -> None:
    trace = Tiny().eval()(random_batch(30, seed=5))
    variance = measured(fitted(trace), trace).encoder.variance
    for head in (0, 1):
        states = states_of(trace, "encoder", head)
        temporal, _ = slow_components(states)
        for word in range(3, 7):
            before = np.array([h for w, _, h in states if w == word])
            after = np.array([h - temporal[t] for w, t, h in states if w == word])
            expected = after.var(axis=0).sum() / before.var(axis=0).sum()
            assert variance.ratio[head, word].item() == pytest.approx(expected, rel=1e-9)
            assert variance.before[head, word].item() == pytest.approx(before.var(axis=0).sum(), rel=1e-9)
            assert int(variance.counts[word]) == len(before)
    torch.testing.assert_close(variance.mean, variance.ratio[:, 3:7].mean(1))  # of words proper


def test_special_tokens_are_those_the_batch_marks_where_token_ids_are_a_models_own() -> None:
    """Words have the ids 0 to 3 and the end token 6, as in a tokenizer of its own."""
    model, own_ids = Tiny().eval(), torch.tensor([4, 6, 5, 0, 1, 2, 3])
    traces = [model(random_batch(30, seed=seed)) for seed in (5, 6)]
    renamed = [replace(one, source=own_ids[one.source], source_special=one.source < 3) for one in traces]
    components, own = fitted(*traces), fitted(*renamed)
    plain, variance = (measured(*one).encoder.variance for one in ((components, *traces), (own, *renamed)))
    assert variance.is_word.tolist() == [True] * 4 + [False] * 3
    torch.testing.assert_close(variance.mean, plain.mean)
    torch.testing.assert_close(variance.mean, variance.ratio[:, :4].mean(1))
    readout = torch.randn(WORDS, 4, generator=torch.Generator().manual_seed(0)).double()
    expected = readout_alignment(readout, components.encoder).dictionary()
    alignment = readout_alignment(readout, own.encoder)
    assert alignment.inputs == [0, 1, 2, 3]
    assert alignment.dictionary() == {output: int(own_ids[word]) for output, word in expected.items()}


def test_word_variance_of_held_out_states_is_numpys_around_their_own_mean() -> None:
    model = Tiny().eval()
    trace, other = model(random_batch(30, seed=5)), model(random_batch(30, seed=6))
    variance = measured(fitted(trace), other).encoder.variance
    temporal, _ = slow_components(states_of(trace, "encoder", 0))
    states = [(t, h) for w, t, h in states_of(other, "encoder", 0) if w == 4]
    after = np.array([h - temporal[t] for t, h in states])
    assert variance.after[0, 4].item() == pytest.approx(after.var(axis=0).sum(), rel=1e-9)


def test_rare_words_are_reported_apart() -> None:
    """The only 6 is at the second source position of one sentence, so pairs with it are rare and all others common."""
    batch = batch_of([[3, 4, 5, 4]] * 9 + [[3, 6, 5, 4]] + [[3, 4, 5, 4]] * 5, [[3, 3]] * 15)
    trace = Tiny().eval()(batch)
    components = fitted(trace)
    between = measured(components, trace).attention
    assert between.shares.steps[:, 0].tolist() == [15, 15, 15]
    assert between.common.steps[:, 0].tolist() == [15, 15, 15]
    assert between.rare.steps[:, 0].tolist() == [1, 1, 1]
    everything = measured(components, trace, min_count=1).attention
    assert int(everything.rare.steps.sum()) == 0
    assert everything.rare.absolute.isnan().all()
    torch.testing.assert_close(everything.common.absolute, everything.shares.absolute)
    variance = measured(components, trace).encoder.variance
    assert variance.rare.tolist() == [True, False, True, False, False, False, True]


def test_a_rare_pair_has_no_delta_of_its_word() -> None:
    batch = batch_of([[3, 4]] * 9 + [[3, 6]] + [[3, 4]] * 5, [[3]] * 15)
    trace = Tiny().eval()(batch)
    rare = measured(fitted(trace), trace, top_k=1, min_count=2).attention.rare.absolute
    assert rare.isnan().all() or rare[:, :, 2].abs().max() < 1e-12


def test_held_out_words_and_times_that_the_fit_never_saw_are_counted_and_rare() -> None:
    model = Tiny().eval()
    components = fitted(model(batch_of([[3, 4, 3]] * 12, [[3, 4]] * 12)))
    other = measured(components, model(batch_of([[3, 6, 3, 4, 4]], [[3, 5, 4]])))
    assert other.encoder.unseen == 3  # the word 6, and two steps beyond the fourth
    assert other.decoder.unseen == 2  # the word 5, and a fourth step (where 5 is not fed, but 4)
    assert int(other.attention.rare.steps.sum()) > 0
    assert not other.attention.shares.absolute.isnan().any()
    assert other.attention.predictability.steps.tolist() == [1, 1, 1, 0]


def test_predictability_is_one_where_all_sequences_attend_alike() -> None:
    trace = Tiny().eval()(batch_of([[3, 4, 5]] * 4, [[5, 6]] * 4))
    predictability = measured(fitted(trace), trace).attention.predictability
    torch.testing.assert_close(predictability.overall, torch.ones_like(predictability.overall))


def test_predictability_is_one_less_the_mean_total_variation_distance() -> None:
    model = Tiny().eval()
    long, short = model(random_batch(6, seed=7, longest=7)), model(random_batch(6, seed=8, longest=3))
    predictability = measured(fitted(long), short).attention.predictability
    distances = []
    for b in range(6):
        for s in np.flatnonzero(short.target_mask[b]):
            rows = long.attention[:, 0, s][long.target_mask[:, s]].detach()
            row = torch.zeros(rows.shape[1]).double()
            row[: short.attention.shape[-1]] = short.attention[b, 0, s].detach()
            distances.append(0.5 * (row - rows.mean(0)).abs().sum().item())
    assert predictability.overall[0].item() == pytest.approx(1 - np.mean(distances))


def test_lengths_and_angles_equal_an_explicit_loop() -> None:
    trace = Tiny().eval()(random_batch(12, seed=9))
    components = fitted(trace)
    geometry = measured(components, trace).decoder.geometry
    parts = components.decoder.split(trace.last.queries, trace.decoder_input)
    temporal, input_, delta = (
        getattr(parts, name)[:, 1][trace.target_mask].detach() for name in ("temporal", "input", "delta")
    )
    rms = [part.square().sum(1).mean().sqrt() for part in (temporal, input_, delta, input_ + delta)]
    torch.testing.assert_close(geometry.lengths[1], torch.stack(rms))
    for kind, other in {"input": input_, "delta": delta, "input-delta": input_ + delta}.items():
        exists = other.norm(dim=1) > 1e-6  # at the start, where all states are alike, there is a temporal part only
        angle = torch.cosine_similarity(temporal, other)[exists].abs().mean()
        torch.testing.assert_close(geometry.cosine("temporal", kind)[1], angle)
    assert not exists.all()


def test_the_angle_between_encoder_and_decoder_equals_an_explicit_loop() -> None:
    trace = Tiny().eval()(random_batch(5, seed=10))
    components = fitted(trace)
    queries = components.decoder.split(trace.last.queries, trace.decoder_input).temporal[:, 0].detach()
    keys = components.encoder.split(trace.last.keys, trace.source).input_delta[:, 0].detach()
    angles = [
        torch.cosine_similarity(queries[b, s], keys[b, t], dim=0).abs().item()
        for b in range(5)
        for s in np.flatnonzero(trace.target_mask[b])
        for t in np.flatnonzero(trace.source_mask[b])
        if keys[b, t].norm() > 1e-6  # a time step that one sequence alone reaches has no input-delta
    ]
    assert measured(components, trace).attention.cosine[0].item() == pytest.approx(np.mean(angles))


def test_principal_axes_of_a_stream_are_scikit_learns_on_all_its_vectors() -> None:
    traces = [Tiny().eval()(batch) for batch in some_batches()]
    components = fitted(*traces)
    vectors = np.concatenate(
        [
            components.encoder.split(trace.last.keys, trace.source).input_delta[:, 1][trace.source_mask].detach()
            for trace in traces
        ]
    )
    reference = PCA(3).fit(vectors)
    result = measured(components, *traces).encoder.principal[1]
    np.testing.assert_allclose(result.explained, reference.explained_variance_ratio_, atol=1e-9)
    np.testing.assert_allclose(np.abs((result.axes.numpy() * reference.components_).sum(1)), 1, atol=1e-6)
    np.testing.assert_allclose(
        np.abs(result.project(torch.tensor(vectors)).numpy()), np.abs(reference.transform(vectors)), atol=1e-6
    )


def test_principal_axes_of_a_set_at_hand_are_scikit_learns_and_never_more_than_its_vectors() -> None:
    vectors = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    result = principal_axes(vectors, 10)
    assert len(result.axes) == 4
    np.testing.assert_allclose(result.explained, PCA().fit(vectors.numpy()).explained_variance_ratio_, atol=1e-6)
    assert (result.axes.gather(1, result.axes.abs().argmax(1, keepdim=True)) > 0).all()


def test_the_cloud_holds_the_first_input_delta_vectors_of_the_stream() -> None:
    traces = [Tiny().eval()(batch) for batch in some_batches()]
    components = fitted(*traces)
    cloud = measured(components, *traces, max_points=30).encoder.cloud
    parts = [components.encoder.split(trace.last.keys, trace.source) for trace in traces]
    vectors = [p.input_delta.transpose(1, 2)[t.source_mask] for p, t in zip(parts, traces, strict=True)]
    words = torch.cat([trace.source[trace.source_mask] for trace in traces])
    torch.testing.assert_close(cloud.vectors, torch.cat(vectors)[:30].detach())
    assert torch.equal(cloud.words, words[:30])


def test_cosines_between_sets_are_pairwise_and_leave_out_what_is_zero() -> None:
    one, other = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[3.0, 3.0], [0.0, 0.0]])
    torch.testing.assert_close(cosines(one, other)[:, 0], torch.full((2,), 0.5**0.5))


def test_states_are_measured_without_attention() -> None:
    trace = Tiny().eval()(random_batch(12, seed=11))
    result = measured(fitted(trace, of="states"), trace)
    assert result.attention is None
    assert result.encoder.geometry.lengths.shape == (1, 4)
    assert "temporal share" not in result.table()


def test_no_position_at_all_is_refused() -> None:
    trace = Tiny().eval()(random_batch(2, seed=0))
    with pytest.raises(ValueError, match="at least one position"):
        MeasureAccumulator(fitted(trace), top_k=0)


def test_a_component_that_is_rounding_error_has_no_angle() -> None:
    """One sequence alone reaches the last steps: there its input-delta is zero, though neither χ nor Δ is."""
    trace = Tiny().float().eval()(batch_of([[3, 4], [4, 3], [3, 4, 3, 4, 3]], [[3]] * 3))
    components = fitted(trace)
    sums = gathered(components, trace).total.encoder.geometry
    assert int(sums.states) == 12
    assert sums.angles.tolist() == [[12, 12, 9, 12]] * 2  # three steps without an angle of time and input-delta
