"""Verdicts of claims follow statistical tests over seeds."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from attnscope.studies.claims import (
    COUNT,
    UNIT,
    SeedValues,
    at_least,
    at_most,
    equivalent,
    error_bar,
    estimate,
    exact,
    more_than,
    no_lower,
    not_testable,
    proportion,
    untested,
    welch,
)
from attnscope.studies.finding import Measurements, SeedMeasurements

VALUES = [0.81, 0.84, 0.79, 0.86, 0.83]


@pytest.mark.parametrize("n", [2, 3, 5, 20])
def test_the_interval_is_scipys_t_interval(n):
    values = np.random.default_rng(n).normal(3, 2, n)
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    actual = estimate(values)
    assert (actual.low, actual.high) == pytest.approx((low, high), rel=1e-12)
    assert actual.sd == pytest.approx(values.std(ddof=1))


@pytest.mark.parametrize("sizes", [(3, 5), (2, 20), (7, 4)])
def test_unequal_numbers_of_seeds_are_compared_as_in_scipys_welch_test(sizes):
    random = np.random.default_rng(0)
    values, others = random.normal(1, 1, sizes[0]), random.normal(0, 3, sizes[1])
    expected = stats.ttest_ind(values, others, equal_var=False).confidence_interval(0.95)
    actual = welch(values, others)
    assert (actual.low, actual.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_equal_numbers_of_seeds_are_compared_seed_by_seed():
    values, others = [1.0, 5.0, 9.0], [0.9, 4.85, 8.9]  # the seeds differ far more than the pairs do
    low = stats.ttest_rel(values, others).confidence_interval(0.95).low
    verdict = more_than("more", values, others)
    assert low > 0
    assert verdict.holds is True
    assert "seed by seed" in verdict.evidence
    assert more_than("more", values, [*others, 4.9]).holds is None, "without the pairs the spread hides it"


def test_unequal_numbers_of_seeds_are_said_with_the_labels_that_have_them():
    measured = Measurements({"guided": [{"loss": 2.1}, {"loss": 2.2}, {"loss": 2.3}], "baseline": [{"loss": 1.0}]})
    guided, baseline = (measured.values(label, "loss") for label in measured)
    assert more_than("more", guided, baseline).evidence == (
        "2.2 ± 0.1 against 1; 'guided' has the seeds 0, 1, 2 and 'baseline' has the seed 0, "
        "so difference of means 1.2 (n = 1)"
    )
    assert no_lower("no less", baseline, guided, 0.1).why == (
        "seed by seed it takes the same ones, but 'baseline' has the seed 0 and 'guided' has the seeds 0, 1, 2"
    )
    assert "one side has 2 seeds and the other has 0 seeds, so " in more_than("more", [1.0, 2.0], []).evidence


def test_the_same_number_of_other_seeds_is_not_compared_seed_by_seed():
    rows = [{"seen": 1.0}, {"seen": 5.0}, {"seen": 9.0}]
    measured = Measurements(
        {"first failed": SeedMeasurements(rows, (1, 2, 3)), "last failed": SeedMeasurements(rows, (0, 1, 2))}
    )
    first, last = (measured.values(label, "seen") for label in measured)
    assert "'first failed' has the seeds 1, 2, 3 and 'last failed' has the seeds 0, 1, 2, so difference of means" in (
        more_than("more", first, last).evidence
    )
    assert no_lower("no less", first, last, 0.1).evidence == "not tested"


def test_a_threshold_below_between_and_above_the_interval_gives_three_verdicts():
    assert [at_least("x", VALUES, t).verdict for t in (0.5, 0.83, 0.99)] == ["holds", "undecided", "fails"]
    assert [at_most("x", VALUES, t).verdict for t in (0.5, 0.83, 0.99)] == ["fails", "undecided", "holds"]


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8), st.floats(-1e3, 1e3))
def test_a_claim_and_its_opposite_never_both_fail(values, threshold):
    assert {at_least("x", values, threshold).holds, at_most("x", values, threshold).holds} != {False}


def test_the_factor_scales_the_others():
    assert more_than("twice", [2.1, 2.15, 2.2], [1.0, 1.0, 1.0], factor=2).holds is True
    assert more_than("thrice", [2.1, 2.15, 2.2], [1.0, 1.0, 1.0], factor=3).holds is False
    assert "3 times" in more_than("thrice", [2.1, 2.15, 2.2], [1.0, 1.0, 1.0], factor=3).evidence


def test_the_evidence_holds_mean_spread_number_and_interval():
    assert at_least("x", VALUES, 0.77).evidence == (
        "0.826 ± 0.027 (n = 5, 95 % interval 0.792 to 0.86); claimed: at least 0.77"
    )


@pytest.mark.parametrize("judge", [at_least, at_most])
def test_one_seed_decides_nothing(judge):
    verdict = judge("x", [0.9], 0.5)
    assert verdict.holds is None
    assert verdict.why == "one seed gives no interval"
    assert "0.9 (n = 1)" in verdict.evidence


def test_one_seed_against_many_decides_nothing():
    assert more_than("x", [9.0], [1.0]).why == "one seed gives no interval"
    assert more_than("x", [9.0], [1.0, 1.1]).why == "one seed gives no interval"


def test_nan_values_are_left_out_and_counted():
    with_nan = at_least("x", [*VALUES, math.nan, math.inf], 0.77)
    assert with_nan.holds is True
    assert "2 left out: not a number" in with_nan.evidence
    assert more_than("x", [2.0, math.nan, 2.2], [1.0, 1.0, 1.0]).evidence.endswith("1 left out: not a number")


@pytest.mark.parametrize("values", [[], [math.nan, math.nan]])
def test_no_number_at_all_decides_nothing(values):
    assert at_least("x", values, 0.5).why == "no seed gave a number"
    assert more_than("x", values, [1.0, 1.0, 1.0]).why == "no seed gave a number"


@pytest.mark.parametrize("n", [2, 3, 5, 6, 20])
def test_equal_seeds_are_judged_by_the_sign_test(n):
    same = [0.1] * n  # whose floating-point sum is not n times 0.1
    p = stats.binomtest(n, n, alternative="greater").pvalue
    above, below = at_least("x", same, 0.09), at_least("x", same, 0.11)
    assert (above.p, below.p) == ((p, 1.0), (1.0, p))
    assert at_most("x", same, 0.11).p == (p, 1.0)
    assert (above.holds, below.holds) == ((True, False) if n >= 6 else (None, None))
    assert f"(n = {n}, all equal)" in above.evidence
    assert more_than("x", same, [0.05] * (n + 1)).p == (p, 1.0)


def test_seeds_that_differ_by_rounding_are_equal():
    differences = more_than("x", [0.3 + 0.1 * i for i in range(5)], [0.1 + 0.1 * i for i in range(5)])
    assert (differences.estimate["sd"], differences.p) == (0.0, (1 / 32, 1.0))


def test_equal_seeds_that_decide_nothing_say_why():
    assert at_least("x", [1.0] * 5, 0.9).why == "all 5 seeds are equal, of which the sign test gives p = 0.031 only"


def test_five_equal_seeds_are_equivalent_at_five_percent():
    assert equivalent("x", [1.0] * 5, 1.0, margin=0.1).verdict == "equivalent"
    assert equivalent("x", [1.0] * 4, 1.0, margin=0.1).verdict == "undecided"


def test_a_tie_in_every_seed_decides_nothing():
    same = [0.1, 0.1, 0.1]
    ties = [at_least("x", same, 0.1), at_most("x", same, 0.1), more_than("x", same, same)]
    assert [(tie.verdict, tie.p) for tie in ties] == [("undecided", (1.0, 1.0))] * 3
    assert ties[0].why == "every seed is exactly at 0.1, which shows neither side"


# Proportions


@pytest.mark.parametrize(("true", "n"), [(0, 5), (3, 5), (5, 5), (19, 20), (1, 3)])
def test_a_proportion_has_the_exact_binomial_test_and_its_interval(true, n):
    flags = [True] * true + [False] * (n - true)
    low, high = stats.binomtest(true, n).proportion_ci(method="exact")
    for threshold in (0.5, 0.9):
        claim = proportion("x", flags, threshold)
        p = [stats.binomtest(true, n, threshold, alternative=side).pvalue for side in ("greater", "less")]
        assert claim.p == pytest.approx(p, abs=1e-12)
        assert (claim.estimate["low"], claim.estimate["high"]) == pytest.approx((low, high), abs=1e-12)
        assert (claim.p[0] <= 0.025, claim.p[1] <= 0.025) == (low >= threshold, high <= threshold)


def test_five_networks_decide_no_proportion_and_six_do():
    assert [proportion("x", [True] * n).verdict for n in (5, 6)] == ["undecided", "holds"]
    assert [proportion("x", [False] * n).verdict for n in (5, 6)] == ["undecided", "fails"]


def test_a_proportion_is_decided_with_mixed_outcomes():
    assert proportion("x", [True] * 18 + [False] * 2).verdict == "holds"
    assert proportion("x", [True] * 2 + [False] * 18).verdict == "fails"
    mixed = proportion("x", [True] * 4 + [False])
    assert mixed.verdict == "undecided"
    assert mixed.evidence == "in 4 of 5 seeds (95 % interval 28% to 99%); claimed: in more than half"
    assert mixed.why == "the interval contains 50%"


@pytest.mark.parametrize("flags", [[], [True], [False]])
def test_no_seed_and_one_seed_decide_no_proportion(flags):
    assert proportion("x", flags).holds is None


def test_what_is_not_random_is_decided_by_one_case():
    assert exact("x", [True]).verdict == "holds"
    assert exact("x", [True, False]).verdict == "fails"
    assert exact("x", []).verdict == "undecided"


# Equivalence


def test_equivalence_is_two_one_sided_tests_at_five_percent():
    values = np.array([0.02, -0.03, 0.05, 0.01, -0.02])
    low, high = stats.t.interval(0.90, 4, loc=values.mean(), scale=stats.sem(values))
    reach = max(abs(low), abs(high))
    assert equivalent("x", values, 0.0, margin=1.001 * reach).verdict == "equivalent"
    assert equivalent("x", values, 0.0, margin=0.999 * reach).verdict == "undecided"
    assert equivalent("x", values, 5.0, margin=1.0).verdict == "fails"
    assert equivalent("x", values, 0.0, margin=1.001 * reach).holds is True


def test_equivalence_of_two_groups_is_taken_seed_by_seed():
    values, others = [1.0, 5.0, 9.0], [1.01, 4.99, 9.0]
    assert equivalent("x", values, others, margin=0.1).verdict == "equivalent"
    assert equivalent("x", values, [9.0, 1.01, 4.99], margin=0.1).verdict == "undecided"


# Ranges


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
@example([5e-324, 0.0])  # the mean is 0, the standard deviation is not
@example([1e-310, 3e-310])  # the slope of the logit overflows
@example([1.0, 0.9999999999999999])  # the mean is 1
def test_an_interval_of_shares_stays_between_zero_and_one(values):
    actual = estimate(values, UNIT)
    assert 0 <= actual.low <= actual.mean + 1e-12
    assert actual.mean - 1e-12 <= actual.high <= 1


def test_shares_next_to_zero_have_p_values():
    p = estimate([5e-324, 1e-323], (0.0, 100.0)).sides(0.0)
    assert sum(p) == pytest.approx(1.0)
    assert p[0] < p[1]


def test_an_error_bar_reaches_to_the_ends_of_the_interval():
    below, above = error_bar([0.9, 1.0, 1.0], UNIT)
    actual = estimate([0.9, 1.0, 1.0], UNIT)
    assert (actual.mean - below, actual.mean + above) == pytest.approx((actual.low, actual.high))
    assert actual.mean + above <= 1
    assert error_bar([0.9], UNIT) == (0.0, 0.0)


def test_the_interval_of_a_correlation_is_that_of_fishers_z():
    values = [0.90, 0.97, 0.95, 0.99]
    actual = estimate(values, (-1.0, 1.0))
    error = stats.sem(values) / (1 - actual.mean**2)
    ends = np.tanh(np.arctanh(actual.mean) + np.array([-1, 1]) * stats.t.ppf(0.975, 3) * error)
    assert (actual.low, actual.high) == pytest.approx(tuple(ends))


def test_the_range_decides_the_verdict_too():
    """Nearly all correct: by the plain t-interval at least 0.98, but its upper end is above 1."""
    values = [1.0, 1.0, 1.0, 1.0, 0.985]
    assert estimate(values).high > 1
    assert at_least("x", values, 0.98).verdict == "holds"
    assert at_least("x", SeedValues(values, "AED", range(5), UNIT), 0.98).verdict == "undecided"


@given(st.lists(st.floats(0.01, 0.99), min_size=3, max_size=8), st.floats(0.05, 0.95))
def test_a_threshold_inside_the_interval_is_never_decided(values, threshold):
    claim = at_least("x", SeedValues(values, "x", range(len(values)), UNIT), threshold)
    actual = estimate(values, UNIT)
    if actual.low + 1e-9 < threshold < actual.high - 1e-9:
        assert claim.verdict == "undecided"


def test_ranges_follow_the_names_of_quantities():
    measured = Measurements({"AED": [{"word_accuracy": 0.9, "delta": 3.0}]}, {"*_accuracy": UNIT})
    assert measured.values("AED", "word_accuracy").within == UNIT
    assert measured.only("AED").values("AED", "word_accuracy").times(100).within == (0, 100)
    assert measured.values("AED", "delta").within is None


def test_an_interval_of_counts_is_not_negative():
    counts = SeedValues([1.0, 9.0, 0.0, 12.0], "x", range(4), COUNT)
    claim = at_most("few", counts, 40)
    assert (claim.estimate["low"], claim.verdict) == (0.0, "holds")
    assert claim.p == at_most("few", list(counts), 40).p
    differences = more_than("x", counts, SeedValues([0.0] * 4, "y", range(4), COUNT))
    assert differences.estimate["low"] < 0


def test_a_claim_about_what_does_not_vary_is_not_testable():
    claim = not_testable(at_least("x", VALUES, 0.5), "it is about corpora")
    assert (claim.verdict, claim.holds, claim.why) == ("not testable", None, "it is about corpora")
    assert claim.evidence == at_least("x", VALUES, 0.5).evidence


def test_an_untested_claim_says_why():
    assert untested("x", "the corpus is not here").why == "the corpus is not here"
    assert untested("x", "the corpus is not here").verdict == "undecided"
