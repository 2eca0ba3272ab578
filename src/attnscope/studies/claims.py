"""Does a claim hold in our runs? It holds, fails, is equivalent or undecided, by tests over seeds at 5 %.

A claim keeps the numbers of each seed and what they are compared with (`ClaimTest`), so that its verdict can be
recomputed. Means of bounded quantities have intervals inside their range: the t-interval of the logit of the mean,
which for correlations is Fisher's z. Proportions of seeds are judged by the exact binomial test, with Clopper and
Pearson's interval, and seeds that are all equal, which give no variance, by the sign test: both need six seeds.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import bdtr, bdtrc, betaincinv, expit, logit, stdtr, stdtrit

CONFIDENCE = 0.95
LEVEL = (1 - CONFIDENCE) / 2  # of each of the two one-sided tests of a claim: that it holds, that it fails
MAJORITY = 0.5  # a claim about single networks holds if it is true of more than this share of them
ROUNDING = 1e-12  # a standard deviation that is a smaller share of the largest value is rounding
VERDICTS = ("holds", "fails", "equivalent", "undecided", "not testable")
Kind = Literal["at least", "at most", "more than", "equal", "proportion", "exact", "none"]
Number = float | int
Values = np.ndarray | Sequence[Any]
Range = tuple[float, float]  # the smallest and the largest value that a quantity can have
UNIT, COSINE = (0.0, 1.0), (-1.0, 1.0)  # ranges of shares and of correlations
COUNT = (0.0, math.inf)  # of what has no largest value; in result files null stands for infinity
Tails = tuple[float, float]  # one-sided p-values: small if the claim holds, small if it fails


# What is judged ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClaimTest:
    """The numbers of each seed that a claim is judged by, and what they are compared with.

    Attributes:
        kind: How they are compared.
        values: One number per seed; None where it is not finite.
        threshold: What the mean, or its difference from that of `others`, is compared with.
        others: The numbers that `values` are compared with, each times `factor`.
        factor: See `others`.
        margin: Of an equivalence: the largest difference that counts as none.
        within: The range of the mean, or of the difference.
        unpaired: Why the difference is not taken seed by seed; empty if it is.
        testable: Whether what varies between `values` is what the claim is about.
    """

    kind: Kind
    values: tuple[float | None, ...] = ()
    threshold: float = 0.0
    others: tuple[float | None, ...] | None = None
    factor: float = 1.0
    margin: float = 0.0
    within: Range | None = None
    unpaired: str = ""
    testable: bool = True

    def estimate(self) -> Estimate:
        """Return the mean, share or difference that is compared with the threshold."""
        if self.kind == "proportion":
            return Proportion.of_flags(self.values)
        if self.others is None:
            return estimate(self.values, self.within)
        ours, theirs = _array(self.values), self.factor * _array(self.others)
        return welch(ours, theirs, self.within) if self.unpaired else estimate(ours - theirs, self.within)

    def tails(self) -> Tails:
        """Return the p-values of the two one-sided tests, that the claim holds and that it fails."""
        if self.kind == "none" or not self.testable:
            return 1.0, 1.0
        if self.kind == "exact":
            return (0.0, 1.0) if self.values and all(self.values) else (1.0, float(not self.values))
        summary = self.estimate()
        if self.kind == "equal":
            low, high = summary.sides(self.threshold - self.margin), summary.sides(self.threshold + self.margin)
            return max(low[0], high[1]) / 2, min(low[1], high[0])  # halved: both at 5 %
        above, below = summary.sides(self.threshold)
        return (below, above) if self.kind == "at most" else (above, below)

    def decide(self) -> str:
        """Return the verdict, one of `VERDICTS`, by one-sided tests at 2.5 %; an equivalence by two at 5 %."""
        p_holds, p_fails = self.tails()
        if not self.testable:
            return "not testable"
        if p_holds <= LEVEL:
            return "equivalent" if self.kind == "equal" else "holds"
        return "fails" if p_fails <= LEVEL else "undecided"


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, its verdict, the numbers as evidence, and why it is undecided.

    Attributes:
        text: The claim.
        verdict: One of `VERDICTS`.
        evidence: The numbers in words.
        why: Why it is neither decided nor equivalent; empty if it is.
        test: What it was judged by; None in results of an earlier schema.
        estimate: Mean, sd, n and the ends of the interval of what was tested.
        p: The p-values of `ClaimTest.tails`.
    """

    text: str
    verdict: str
    evidence: str
    why: str = ""
    test: ClaimTest | None = None
    estimate: dict[str, float | None] | None = None
    p: Tails | None = None

    @property
    def holds(self) -> bool | None:
        """Whether it holds; None if that is undecided."""
        return {"holds": True, "equivalent": True, "fails": False}.get(self.verdict)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> ClaimVerdict:
        """Return the claim of a result file, of this schema or of the first."""
        if "verdict" not in plain:
            word = {True: "holds", False: "fails", None: "undecided"}[plain["holds"]]
            word = "not testable" if plain["why"].startswith("not testable") else word
            return cls(**{name: value for name, value in plain.items() if name != "holds"}, verdict=word)
        test = plain.get("test")
        lists = {name: tuple(value) for name, value in (test or {}).items() if isinstance(value, list)}
        if lists.get("within"):
            lists["within"] = range_from(lists["within"])
        return cls(**{**plain, "test": test and ClaimTest(**{**test, **lists}), "p": plain["p"] and tuple(plain["p"])})


def judge(text: str, test: ClaimTest, criterion: str = "") -> ClaimVerdict:
    """Return the verdict of a test over seeds; `claimed` ends the sentence of evidence."""
    summary, verdict = test.estimate(), test.decide()
    why = summary.indecision(test) if verdict == "undecided" else ""
    evidence = _against(test) + str(summary) + (f"; claimed: {criterion}" if criterion else "")
    return ClaimVerdict(text, verdict, evidence, why, test, summary.numbers(), test.tails())


def _against(test: ClaimTest) -> str:
    """Return the two means that a difference is of, and how it was taken."""
    if test.others is None:
        return ""
    times = "" if test.factor == 1.0 else f"{short(test.factor)} times "
    means = [with_spread(*mean_and_sd(finite(side))) for side in (test.values, test.others)]
    how = f"{test.unpaired}, so difference of means" if test.unpaired else "difference seed by seed"
    return f"{means[0]} against {times}{means[1]}; {how} "


# Claims --------------------------------------------------------------------------------------------------------------


def at_least(text: str, values: Values, threshold: Number) -> ClaimVerdict:
    """Judge whether the mean is at least the threshold.

    >>> at_least("most of the alignment is temporal", [0.93, 0.95, 0.94], 0.77).verdict
    'holds'
    """
    test = ClaimTest("at least", _finite_or_none(values), threshold, within=range_of(values))
    return judge(text, test, f"at least {short(threshold)}")


def at_most(text: str, values: Values, threshold: Number) -> ClaimVerdict:
    """Judge whether the mean is at most the threshold."""
    test = ClaimTest("at most", _finite_or_none(values), threshold, within=range_of(values))
    return judge(text, test, f"at most {short(threshold)}")


def more_than(text: str, values: Values, others: Values, factor: Number = 1.0) -> ClaimVerdict:
    """Judge whether the mean is more than `factor` times that of `others`, seed by seed where both have the same."""
    return judge(text, _difference("more than", values, others, factor=factor))


def equivalent(text: str, values: Values, others: Values | Number, margin: Number) -> ClaimVerdict:
    """Judge by two one-sided tests whether the mean differs from that of `others`, or a number, by less than `margin`.

    >>> equivalent("as published", [0.81, 0.84, 0.79, 0.86, 0.83], 0.82, margin=0.05).verdict
    'equivalent'
    """
    if isinstance(others, int | float):
        test = ClaimTest("equal", _finite_or_none(values), others, margin=margin, within=range_of(values))
        return judge(text, test, f"from {short(others - margin)} to {short(others + margin)}")
    return judge(text, _difference("equal", values, others, margin=margin), f"within {short(margin)} of each other")


def no_lower(text: str, values: Values, others: Values, margin: Number) -> ClaimVerdict:
    """Judge whether the mean is at most `margin` lower than that of `others`, seed by seed."""
    if not have_same_seeds(values, others):
        return untested(text, f"seed by seed it takes the same ones, but {which_seeds(values, others)}")
    test = replace(_difference("at least", values, others), threshold=-margin)
    return judge(text, test, f"at least {short(-margin)}")


def proportion(text: str, flags: Values, threshold: float = MAJORITY) -> ClaimVerdict:
    """Judge whether the claim is true of more than this share of networks."""
    share = "half" if threshold == MAJORITY else f"{threshold:.0%}"
    test = ClaimTest("proportion", tuple(float(bool(flag)) for flag in flags), threshold)
    return judge(text, test, f"in more than {share}")


def exact(text: str, flags: Values, evidence: str = "") -> ClaimVerdict:
    """Judge a claim about what is not random, such as counts of a corpus: it holds if all flags are true."""
    test = ClaimTest("exact", tuple(float(bool(flag)) for flag in flags))
    evidence = evidence or f"in {sum(map(bool, test.values))} of {len(test.values)}"
    why = "" if test.values else "nothing was measured"
    return ClaimVerdict(text, test.decide(), evidence, why, test, p=test.tails())


def untested(text: str, why: str) -> ClaimVerdict:
    """Return a claim that these runs do not test, and why not."""
    test = ClaimTest("none")
    return ClaimVerdict(text, test.decide(), "not tested", why, test, p=test.tails())


def not_testable(claim: ClaimVerdict, why: str) -> ClaimVerdict:
    """Return a claim about more than our data vary: its numbers are kept, but the seeds cannot decide it."""
    assert claim.test is not None
    test = replace(claim.test, testable=False)
    return replace(claim, verdict=test.decide(), why=why, test=test, p=test.tails())


def _difference(kind: Kind, values: Values, others: Values, factor: Number = 1.0, margin: Number = 0.0) -> ClaimTest:
    unpaired = "" if have_same_seeds(values, others) else which_seeds(values, others)
    ours, theirs = range_of(values), range_of(others)
    within = None if ours is None or theirs is None else (ours[0] - factor * theirs[1], ours[1] - factor * theirs[0])
    return ClaimTest(kind, _finite_or_none(values), 0.0, _finite_or_none(others), factor, margin, within, unpaired)


# Seeds ---------------------------------------------------------------------------------------------------------------


class SeedValues(list[float]):
    """One number per seed, with the label of their experiment, the seeds, and the range of the quantity if known."""

    def __init__(self, values: Iterable[float], label: object, seeds: Sequence[int], within: Range | None = None):
        super().__init__(values)
        self.label = label
        self.seeds = seeds
        self.within = within

    def times(self, factor: float) -> SeedValues:
        """Return the values in another unit; the factor is positive."""
        within = None if self.within is None else (factor * self.within[0], factor * self.within[1])
        return SeedValues((factor * value for value in self), self.label, self.seeds, within)


def range_from(ends: Sequence[float | None]) -> Range:
    """Return the range of the two ends in a result file."""
    low, high = ends
    return -math.inf if low is None else low, math.inf if high is None else high


def range_of(values: Values) -> Range | None:
    return values.within if isinstance(values, SeedValues) else None


def have_same_seeds(values: Values, others: Values) -> bool:
    """Return whether both have the same seeds; where seeds are not known, whether there are equally many."""
    if isinstance(values, SeedValues) and isinstance(others, SeedValues):
        return values.seeds == others.seeds
    return len(values) == len(others)


def which_seeds(values: Values, others: Values) -> str:
    """
    >>> which_seeds(SeedValues([0.8, 0.9], "guided", (0, 2)), SeedValues([0.5], "baseline", (1,)))
    "'guided' has the seeds 0, 2 and 'baseline' has the seed 1"
    >>> which_seeds([0.8, 0.9], [])
    'one side has 2 seeds and the other has 0 seeds'
    """
    return f"{seeds_of(values, 'one side')} and {seeds_of(others, 'the other')}"


def seeds_of(values: Values, unlabelled: str) -> str:
    plural = "" if len(values) == 1 else "s"
    if not isinstance(values, SeedValues):
        return f"{unlabelled} has {len(values)} seed{plural}"
    seeds = f"the seed{plural} {', '.join(map(str, values.seeds))}" if values.seeds else "no seed"
    return f"{str(values.label)!r} has {seeds}"


# Estimates -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, or a difference of two, with its standard error; NaN where there are too few seeds."""

    mean: float
    sd: float
    n: int
    error: float
    degrees: float
    within: Range | None = None
    num_nan: int = 0

    @classmethod
    def of(cls, mean: float, sd: float, n: int, within: Range | None = None) -> Estimate:
        """Return the estimate by mean and standard deviation of n seeds."""
        degrees = max(n - 1, 1)
        return Estimate(mean, sd, n, sd / math.sqrt(degrees + 1), degrees, within)

    def __str__(self) -> str:
        interval = f", 95 % interval {short(self.low)} to {short(self.high)}" if self.n > 1 else ""
        interval = ", all equal" if self.error == 0 else interval
        omission = f", {self.num_nan} left out: not a number" if self.num_nan else ""
        return f"{with_spread(self.mean, self.sd)} (n = {self.n}{interval}){omission}"

    @property
    def reach(self) -> tuple[float, float]:
        """How far the interval reaches below and above the mean; 0 where there are too few seeds."""
        low, high = self.bounds()
        return (self.mean - low, high - self.mean) if math.isfinite(self.error) else (0.0, 0.0)

    @property
    def low(self) -> float:
        return self.bounds()[0]

    @property
    def high(self) -> float:
        return self.bounds()[1]

    def bounds(self) -> Range:
        """Return the ends of the 95 % interval, inside the range if there is one; the mean if all seeds are equal."""
        reach = float(stdtrit(self.degrees, 1 - LEVEL)) * self.error
        low, high = self.within or (-math.inf, math.inf)
        if self._transformed:
            ends = expit(self._scale(self.mean) + np.array([-reach, reach]) * self._slope)
            return float(low + (high - low) * ends[0]), float(low + (high - low) * ends[1])
        below, above = self.mean - reach, self.mean + reach
        return (max(below, low), min(above, high)) if low <= self.mean <= high else (below, above)

    def sides(self, threshold: float) -> tuple[float, float]:
        """Return one-sided p-values: that the mean is above the threshold, and that it is below.

        Where all n seeds are equal they are those of the sign test: 2 ** -n and 1, or both 1 if the seeds are at the
        threshold, which shows neither side.
        """
        if self.n < 2 or math.isnan(self.error):
            return 1.0, 1.0
        if self.error == 0:
            return self._sign_test if self.mean > threshold else 1.0, self._sign_test if self.mean < threshold else 1.0
        distance = (self._scale(self.mean) - self._scale(threshold)) / (self.error * self._slope)
        return float(stdtr(self.degrees, -distance)), float(stdtr(self.degrees, distance))

    @property
    def _sign_test(self) -> float:
        """The p-value of equal seeds on one side of a threshold; of two unpaired groups, that of the smaller one."""
        return math.pow(0.5, self.degrees + 1)

    @property
    def _transformed(self) -> bool:
        """Whether the interval is that of the logit, whose slope overflows at the ends of the range."""
        if self.within is None:
            return False
        low, high = self.within
        nearest = (high - low) * sys.float_info.min
        return min(self.mean - low, high - self.mean) > nearest and self.error > 0

    def _scale(self, value: float) -> float:
        if self.within is None or not self._transformed:
            return value
        low, high = self.within
        return float(logit(min(max((value - low) / (high - low), 0.0), 1.0)))

    @property
    def _slope(self) -> float:
        """The derivative of the scale at the mean, by which the standard error is multiplied."""
        if self.within is None or not self._transformed:
            return 1.0
        low, high = self.within
        return (high - low) / ((self.mean - low) * (high - self.mean))

    def numbers(self) -> dict[str, float | None]:
        """Return mean, sd, n and the ends of the interval; None where there are too few seeds."""
        numbers = {"mean": self.mean, "sd": self.sd, "n": self.n, "low": self.low, "high": self.high}
        return {name: number if math.isfinite(number) else None for name, number in numbers.items()}

    def indecision(self, test: ClaimTest) -> str:
        """Return why the seeds do not decide the claim."""
        if self.n == 0:
            return "no seed gave a number"
        if self.n == 1:
            return "one seed gives no interval"
        if self.error == 0 and self.mean == test.threshold:
            return f"every seed is exactly at {short(test.threshold)}, which shows neither side"
        if self.error == 0:
            return f"all {self.n} seeds are equal, of which the sign test gives p = {short(self._sign_test, 2)} only"
        edges = (test.threshold - test.margin, test.threshold + test.margin) if test.margin else (test.threshold,)
        return f"the interval from {short(self.low)} to {short(self.high)} contains {' or '.join(map(short, edges))}"


@dataclass(frozen=True)
class Proportion(Estimate):
    """The share of networks of which a claim is true, with Clopper and Pearson's interval and the binomial test."""

    @classmethod
    def of_flags(cls, flags: Values) -> Proportion:
        n = len(flags)
        return cls(sum(flags) / n if n else math.nan, math.nan, n, math.nan, math.inf)

    @property
    def count(self) -> int:
        return round(self.mean * self.n) if self.n else 0

    def __str__(self) -> str:
        seeds = f"in {self.count} of {self.n} seed{'' if self.n == 1 else 's'}"
        return seeds + (f" (95 % interval {self.low:.0%} to {self.high:.0%})" if self.n else "")

    def bounds(self) -> Range:
        if self.n == 0:
            return math.nan, math.nan
        true, false = self.count, self.n - self.count
        low = betaincinv(true, false + 1, LEVEL) if true else 0.0
        return float(low), float(betaincinv(true + 1, false, 1 - LEVEL) if false else 1.0)

    def sides(self, threshold: float) -> tuple[float, float]:
        if self.n == 0:
            return 1.0, 1.0
        above = bdtrc(self.count - 1, self.n, threshold) if self.count else 1.0
        return float(above), float(bdtr(self.count, self.n, threshold))

    def indecision(self, test: ClaimTest) -> str:
        return f"the interval contains {test.threshold:.0%}" if self.n else "there was no seed"


def estimate(values: Values, within: Range | None = None) -> Estimate:
    """Return the mean of the finite values, with its t-interval; `within` is the range of the mean.

    >>> str(estimate([1.0, 2.0, 3.0])), str(estimate([0.9, 1.0, 1.0], within=(0, 1)))
    ('2 ± 1 (n = 3, 95 % interval -0.484 to 4.48)', '0.967 ± 0.058 (n = 3, 95 % interval 0.253 to 1)')
    """
    numbers = finite(values)
    return replace(Estimate.of(*mean_and_sd(numbers), len(numbers), within), num_nan=np.size(values) - len(numbers))


def welch(values: Values, others: Values, within: Range | None = None) -> Estimate:
    """Return the difference of two means of unpaired seeds (Welch, Satterthwaite)."""
    ours, theirs = estimate(values), estimate(others)
    num_nan, fewest = ours.num_nan + theirs.num_nan, min(ours.n, theirs.n)
    gap = ours.mean - theirs.mean
    if fewest < 2:
        return Estimate(gap, math.nan, fewest, math.nan, 1.0, within, num_nan)
    a, b = ours.error**2, theirs.error**2
    error = math.sqrt(a + b)
    degrees = (a + b) ** 2 / (a**2 / (ours.n - 1) + b**2 / (theirs.n - 1)) if error > 0 else fewest - 1
    return Estimate(gap, math.hypot(ours.sd, theirs.sd), ours.n + theirs.n, error, degrees, within, num_nan)


def _array(values: Values) -> np.ndarray:
    return np.asarray(values, dtype=float)  # None becomes NaN


def _finite_or_none(values: Values) -> tuple[float | None, ...]:
    return tuple(float(value) if math.isfinite(value) else None for value in _array(values))


def finite(values: Values) -> list[float]:
    array = _array(values)
    return [float(value) for value in array[np.isfinite(array)]]


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation, exactly 0 for values that are equal up to rounding."""
    if len(values) < 2:
        return statistics.mean(values) if values else math.nan, math.nan
    sd = statistics.stdev(values)
    return statistics.mean(values), 0.0 if sd <= ROUNDING * max(map(abs, values)) else sd


def spread(values: Values) -> float:
    """Return the standard deviation over seeds; 0 for a single seed."""
    sd = mean_and_sd(finite(values))[1]
    return sd if math.isfinite(sd) else 0.0


def error_bar(values: Values, within: Range | None = None) -> tuple[float, float]:
    """Return how far the 95 % interval of the mean reaches below and above it; 0 for a single seed.

    >>> below, above = error_bar([0.9, 1.0, 1.0], UNIT)
    >>> short(below), short(above)
    ('0.714', '0.0329')
    """
    return estimate(values, within).reach


def short(number: Number, digits: int = 3) -> str:
    """Return the number with a few digits.

    >>> [short(x) for x in (0.81234, 12.345, 12345.6, -0.5, 0.0, 2.13e-7)]
    ['0.812', '12.3', '12,346', '-0.5', '0', '2.13e-07']
    """
    return f"{number:,.0f}" if abs(number) >= 10**digits else f"{number:.{digits}g}"


def with_spread(mean: Number, sd: Number | None) -> str:
    """
    >>> with_spread(0.81234, 0.02114), with_spread(0.8, None), with_spread(math.nan, None)
    ('0.812 ± 0.021', '0.8', 'no number')
    """
    if math.isnan(mean):
        return "no number"
    return short(mean) if sd is None or math.isnan(sd) else f"{short(mean)} ± {short(sd, digits=2)}"
