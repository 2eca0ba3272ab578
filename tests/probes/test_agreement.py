"""Eq. 10 in integers, Kendall's τ against scipy, their means over a stream, and ξ on the checkpoints of A.8."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lexical_examples import encoder_decoder, one_by_one, random_batch, wider
from scipy.stats import kendalltau

from attnscope import plots
from attnscope.errors import AttnscopeError, BadSetting
from attnscope.probes.agreement import (
    Agreement,
    AgreementAccumulator,
    LearningCurve,
    OverTraining,
    chance_agreement,
    classification_checkpoints,
    in_top,
    kendall,
    top_agreement,
    translation_checkpoints,
)
from attnscope.probes.scores import attention_scores
from attnscope.tasks.batch import END


def slow_agreement(u: list[float], v: list[float]) -> float:
    """Eq. 10 word for word, averaged over tied highest positions of u."""
    peaks = [i for i, value in enumerate(u) if value == max(u)]
    return sum(100 * sum(other > v[i] for other in v) < 5 * len(v) for i in peaks) / len(peaks)


def slow_chance(v: list[float]) -> float:
    return sum(100 * sum(other > value for other in v) < 5 * len(v) for value in v) / len(v)


def scipy_tau(u: list[float], v: list[float]) -> float:
    return float(kendalltau(u, v).statistic) if len(u) > 1 else math.nan


def scored(rows: int, places: int, seed: int, levels: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two scores with many ties, and a mask with gaps that leaves at least one position."""
    random = torch.Generator().manual_seed(seed)
    u, v = (torch.randint(levels, (rows, places), generator=random).double() for _ in range(2))
    mask = torch.rand(rows, places, generator=random) < 0.7
    mask[:, 0] = True
    return u, v, mask


# eq. 10


@pytest.mark.parametrize("places", [1, 5, 19, 20, 21, 40, 41, 130])
def test_it_is_equation_10_with_ties_and_masks(places):
    u, v, mask = scored(50, places, seed=places, levels=max(2, places // 2))
    result, by_chance = top_agreement(u, v, mask), chance_agreement(v, mask)
    for i in range(50):
        kept_u, kept_v = u[i, mask[i]].tolist(), v[i, mask[i]].tolist()
        assert result[i].item() == pytest.approx(slow_agreement(kept_u, kept_v))
        assert by_chance[i].item() == pytest.approx(slow_chance(kept_v))


@pytest.mark.parametrize(("length", "size"), [(1, 1), (20, 1), (21, 2), (40, 2), (41, 3), (60, 3)])
def test_the_top_holds_the_positions_with_20_k_less_than_the_length(length, size):
    """5 % of 20 is 1, and 0.05 * 20 is no less in floating point: integers decide."""
    everywhere = torch.ones(length, dtype=torch.bool)
    assert in_top(torch.randperm(length).double(), everywhere).sum() == size


def test_a_tied_highest_position_is_averaged_over():
    v = torch.tensor([3.0, 1.0, 2.0, 0.0])
    everywhere = torch.ones(4, dtype=torch.bool)
    assert top_agreement(torch.tensor([1.0, 1.0, 0.0, 0.0]), v, everywhere) == 0.5
    assert top_agreement(torch.zeros(4), v, everywhere) == 0.25


def test_a_constant_score_agrees_with_everything_and_so_does_chance():
    u, _, mask = scored(20, 30, seed=0)
    v = torch.zeros_like(u)
    assert (top_agreement(u, v, mask) == 1).all()
    assert (chance_agreement(v, mask) == 1).all()


def test_chance_is_the_mean_over_all_orders_of_v():
    u, v = torch.tensor([0.1, 0.5, 0.5, 0.2, 0.0]), [2.0, 1.0, 2.0, 0.0, 1.0]
    orders = torch.tensor(list(permutations(v)))
    everywhere = torch.ones_like(orders, dtype=torch.bool)
    mean = top_agreement(u.expand_as(orders), orders, everywhere).mean()
    torch.testing.assert_close(mean, chance_agreement(torch.tensor(v), everywhere[0]))


finite = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=50, deadline=None)
@given(st.lists(finite, min_size=1, max_size=60, unique=True))
def test_a_score_with_one_highest_position_agrees_with_itself(values):
    v = torch.tensor(values)
    assert top_agreement(v, v, torch.ones_like(v, dtype=torch.bool)) == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 45), st.integers(0, 10_000))
def test_agreement_lies_between_0_and_1_and_only_the_order_counts(places, seed):
    u, v, mask = scored(5, places, seed)
    result = top_agreement(u, v, mask)
    assert ((result >= 0) & (result <= 1)).all()
    torch.testing.assert_close(top_agreement(u.exp(), v**3 - 7, mask), result)


# Kendall's τ-b


@pytest.mark.parametrize(("places", "levels"), [(2, 2), (7, 3), (40, 5), (40, 1000), (300, 20)])
def test_tau_is_that_of_scipy(places, levels):
    u, v, mask = scored(40, places, seed=places, levels=levels)
    result = kendall(u, v, mask)
    for i in range(len(u)):
        expected = scipy_tau(u[i, mask[i]].tolist(), v[i, mask[i]].tolist())
        assert result[i].item() == pytest.approx(expected, abs=1e-15, nan_ok=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tau_needs_no_more_precision_than_the_scores_have(dtype):
    u, v = torch.randn(3, 2, 30).to(dtype), torch.randn(3, 2, 30).to(dtype)
    result = kendall(u, v)
    assert result.shape == (3, 2)
    assert result.dtype == torch.float64
    for i, j in np.ndindex(3, 2):
        assert result[i, j].item() == pytest.approx(kendalltau(u[i, j].double(), v[i, j].double()).statistic, abs=1e-15)


def test_tau_of_blocks_equals_tau_of_the_whole(monkeypatch):
    u, v, mask = scored(30, 12, seed=3)
    whole = kendall(u, v, mask)
    monkeypatch.setattr("attnscope.probes.agreement.BLOCK", 50)
    torch.testing.assert_close(kendall(u, v, mask), whole, equal_nan=True)


def test_tau_has_no_meaning_for_a_constant_score_or_a_single_position():
    v = torch.tensor([[1.0, 2.0, 3.0]])
    assert kendall(torch.ones(1, 3), v).isnan().all()
    assert kendall(v, v, torch.tensor([[True, False, False]])).isnan().all()


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 45), st.integers(0, 10_000))
def test_tau_lies_between_minus_1_and_1_and_is_symmetric(places, seed):
    u, v, mask = scored(5, places, seed)
    result = kendall(u, v, mask)
    assert ((result.abs() <= 1) | result.isnan()).all()
    torch.testing.assert_close(kendall(v, u, mask), result, equal_nan=True, rtol=0, atol=1e-15)
    torch.testing.assert_close(kendall(u, -v, mask), -result, equal_nan=True, rtol=0, atol=1e-15)


# means over a stream


def random_scores(batch, seed):
    random = torch.Generator().manual_seed(seed)
    shape = (len(batch), batch.target.shape[1], batch.source.shape[1])
    u, v = (torch.randint(5, shape, generator=random).double() for _ in range(2))
    padding = ~(batch.target_mask[:, :, None] & batch.source_mask[:, None])
    return u.masked_fill(padding, torch.nan), v.masked_fill(padding, torch.nan)


def gathered(batches, **options) -> Agreement:
    agree = AgreementAccumulator(**options)
    for i, batch in enumerate(batches):
        agree.update(*random_scores(batch, i), batch)
    return agree.result()


BATCHES = [random_batch(6, seed=i, longest=2 + 3 * i) for i in range(3)]


@pytest.mark.parametrize("source_specials", [True, False])
@pytest.mark.parametrize("target_specials", [True, False])
def test_means_are_over_output_words_and_say_whether_start_and_end_took_part(source_specials, target_specials):
    result = gathered(BATCHES, source_specials=source_specials, target_specials=target_specials)
    tops, chances, taus = [], [], []
    for i, batch in enumerate(BATCHES):
        u, v = random_scores(batch, i)
        for b, t in batch.target_mask.nonzero().tolist():
            keep = batch.source_mask[b] & ((batch.source[b] != END) | source_specials)
            if batch.target[b, t] == END and not target_specials:
                continue
            rows = u[b, t, keep].tolist(), v[b, t, keep].tolist()
            tops.append(slow_agreement(*rows))
            chances.append(slow_chance(rows[1]))
            taus.append(scipy_tau(*rows))
    assert result.words == len(tops)
    assert result.ranked == np.isfinite(taus).sum()
    assert result.top == pytest.approx(np.mean(tops))
    assert result.chance == pytest.approx(np.mean(chances))
    assert result.kendall == pytest.approx(np.nanmean(taus))
    assert (result.source_specials, result.target_specials) == (source_specials, target_specials)
    assert ("without those of the source" in result.tokens) is not source_specials


def test_two_halves_merged_equal_the_whole():
    whole, first, second = AgreementAccumulator(), AgreementAccumulator(), AgreementAccumulator()
    for i, batch in enumerate(BATCHES):
        whole.update(*random_scores(batch, i), batch)
        (first if i < 1 else second).update(*random_scores(batch, i), batch)
    first.merge(second)
    assert vars(first.result()) == pytest.approx(vars(whole.result()))


def test_results_over_different_tokens_do_not_merge():
    with pytest.raises(AttnscopeError, match="different tokens"):
        AgreementAccumulator().merge(AgreementAccumulator(source_specials=False))


def test_a_batch_equals_its_sentences_one_by_one_and_padding_changes_nothing():
    model, batch = encoder_decoder(attention="bilinear"), random_batch(5, seed=9)

    def result(batches):
        agree = AgreementAccumulator()
        for some in batches:
            trace = model(some)
            agree.update(attention_scores(trace).values, trace.scores[:, 0] ** 2, trace)
        return vars(agree.result())

    assert result(one_by_one(batch)) == pytest.approx(result([batch]))
    assert result([wider(batch)]) == pytest.approx(result([batch]))


def test_a_score_that_is_nan_at_a_word_is_refused():
    batch = BATCHES[0]
    u, v = random_scores(batch, 0)
    v[0, 0, 0] = torch.nan
    with pytest.raises(AttnscopeError, match="the score v is NaN"):
        AgreementAccumulator().update(u, v, batch)


def test_an_empty_stream_has_no_result():
    with pytest.raises(AttnscopeError, match="there is no data yet"):
        AgreementAccumulator().result()


def test_labels_of_a_classifier_are_no_special_tokens():
    """Class 1 bears the number of the end token."""
    batch = BATCHES[0]
    label = torch.full_like(batch.target[:, :1], END)
    one = replace(batch, target=label, target_mask=torch.ones_like(label, dtype=torch.bool), gold_attention=None)
    agree = AgreementAccumulator(source_specials=False)
    agree.update(*random_scores(one, 0), one)
    assert agree.result().words == len(batch)


# ξ and the course of training


def test_the_checkpoints_are_those_of_appendix_8():
    assert classification_checkpoints()[:9] == (0, 10, 50, 100, 150, 200, 250, 500, 750)
    assert classification_checkpoints()[-1] == 4000
    assert len(classification_checkpoints()) == 22
    assert translation_checkpoints(20_000) == (0, 50, 100, 500, 1000, 1500, *range(2000, 20_001, 2000))
    assert translation_checkpoints(100) == (0, 50, 100)


CURVE = LearningCurve((0, 10, 50, 100), (0.05, 0.2, 0.4, 0.5), (0.5, 0.6, 0.8, 0.9))


def test_xi_is_the_performance_at_the_first_step_that_agrees_strictly_more():
    result = CURVE.contextualise(0.3)
    assert (result.value, result.step, str(result)) == (0.8, 50, "0.8")
    assert CURVE.contextualise(0.4).step == 100
    assert CURVE.contextualise(0.0).step == 0


def test_a_threshold_never_exceeded_gives_the_final_performance_and_an_asterisk():
    """Table 5, AG News: ξ(β^uf, β^px) is 96.05*, and ξ* is 96.05."""
    curve = LearningCurve((0, 4000), (0.1, 0.5), (50.0, 96.05))
    assert str(curve.contextualise(0.5513)) == "96.05*"
    assert curve.final == 96.05
    assert str(curve.contextualise(0.3)) == "96.05"


def test_xi_does_not_need_a_curve_that_only_rises():
    curve = LearningCurve((0, 1, 2), (0.1, 0.6, 0.3), (1.0, 2.0, 3.0))
    assert curve.contextualise(0.2).value == 2.0


def test_more_checkpoints_would_find_an_earlier_step_so_only_those_asked_for_count():
    finer = LearningCurve((0, 10, 30, 50, 100), (0.05, 0.2, 0.35, 0.4, 0.5), (0.5, 0.6, 0.7, 0.8, 0.9))
    assert finer.contextualise(0.3).step == 30
    assert finer.on(CURVE.steps) == CURVE
    with pytest.raises(AttnscopeError, match="lacks the steps 20, 70"):
        finer.on((0, 20, 70, 100))


def test_curves_of_several_seeds_are_averaged_step_by_step():
    other = LearningCurve(CURVE.steps, (0.15, 0.2, 0.2, 0.7), (0.5, 0.6, 0.6, 1.0))
    mean = LearningCurve.mean([CURVE, other])
    assert mean.agreement == pytest.approx((0.1, 0.2, 0.3, 0.6))
    assert mean.performance == pytest.approx((0.5, 0.6, 0.7, 0.95))
    with pytest.raises(BadSetting, match="same steps"):
        LearningCurve.mean([CURVE, CURVE.on((0, 10))])


def test_the_best_checkpoint_and_the_last_are_told_apart():
    course = OverTraining((0, 10, 50, 100), (0.1, 0.5, 0.5, 0.3))
    assert (course.best, course.best_step, course.last) == (0.5, 10, 0.3)
    assert course.table()["best"].tolist() == [False, True, False, False]


def test_an_invalid_curve_is_refused():
    with pytest.raises(BadSetting, match="steps must rise"):
        OverTraining((0, 5, 5), (0.1, 0.2, 0.3))
    with pytest.raises(BadSetting, match="a number for each of 2 steps"):
        OverTraining((0, 5), (0.1,))
    with pytest.raises(BadSetting, match="not finite"):
        OverTraining((0, 5), (0.1, math.nan))
    with pytest.raises(BadSetting, match="must be finite"):
        CURVE.contextualise(math.nan)


def test_results_have_tables_and_figures():
    result = gathered(BATCHES)
    assert result.table()["top"].tolist() == [result.top]
    assert CURVE.table().loc[50, "performance"] == 0.8
    _, axes = plots.panels(columns=4)
    result.plot(axes[0])
    CURVE.plot(axes[1], agreements={"A(α, β)": 0.3, "A(β^uf, β^px)": 0.9})
    OverTraining((0, 10), (0.1, 0.2)).plot(axes[2])
    attention_scores(encoder_decoder()(BATCHES[0])).plot(axes[3])
