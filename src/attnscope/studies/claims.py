"""Does a claim hold in our runs? By the 95 % interval over seeds it holds, fails, or is undecided."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
Number = float | int
Values = np.ndarray | Sequence[Any]


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, whether it holds (None: undecided), the numbers as evidence, and why it is undecided."""

    text: str
    holds: bool | None
    evidence: str
    why: str = ""

    @property
    def word(self) -> str:
        return {True: "holds", False: "fails", None: "undecided"}[self.holds]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the ends of its 95 % t-interval; NaN where there are too few seeds."""

    mean: float
    sd: float
    n: int
    low: float
    high: float
    left_out: int = 0

    def __str__(self) -> str:
        interval = f", 95 % interval {short(self.low)} to {short(self.high)}" if self.n > 1 else ""
        return f"{with_spread(self.mean, self.sd)} (n = {self.n}{interval}){self.omission}"

    @property
    def omission(self) -> str:
        return f", {self.left_out} left out: not a number" if self.left_out else ""

    def indecision(self, threshold: Number) -> str:
        """Return why the seeds do not decide on which side of the threshold the mean lies."""
        if self.n == 0:
            return "no seed gave a number"
        if self.n == 1:
            return "one seed gives no interval"
        return f"the interval from {short(self.low)} to {short(self.high)} contains {short(threshold)}"


def at_least(text: str, values: Values, threshold: Number) -> ClaimVerdict:
    """Judge whether the mean is at least the threshold.

    >>> at_least("most of the alignment is temporal", [0.93, 0.95, 0.94], 0.77).word
    'holds'
    """
    interval = estimate(values)
    return _verdict(text, interval, "at least", threshold, interval.low >= threshold, interval.high < threshold)


def at_most(text: str, values: Values, threshold: Number) -> ClaimVerdict:
    """Judge whether the mean is at most the threshold."""
    interval = estimate(values)
    return _verdict(text, interval, "at most", threshold, interval.high <= threshold, interval.low > threshold)


def more_than(text: str, values: Values, others: Values, factor: Number = 1.0) -> ClaimVerdict:
    """Judge whether the mean is more than `factor` times that of `others`, seed by seed where both have the same."""
    ours, theirs = np.asarray(values, dtype=float), np.asarray(others, dtype=float)
    paired = have_same_seeds(values, others)
    gap = estimate(ours - factor * theirs) if paired else welch(ours, factor * theirs)
    times = "" if factor == 1.0 else f"{short(factor)} times "
    compared = "difference seed by seed" if paired else f"{which_seeds(values, others)}, so difference of means"
    evidence = (
        f"{with_spread(*mean_and_sd(finite(values)))} against {times}{with_spread(*mean_and_sd(finite(others)))}; "
        f"{compared} {gap}"
    )
    holds = True if gap.low > 0 else False if gap.high <= 0 else None
    return ClaimVerdict(text, holds, evidence, gap.indecision(0.0) if holds is None else "")


def no_lower(text: str, values: Values, others: Values, margin: Number) -> ClaimVerdict:
    """Judge whether the mean is at most `margin` lower than that of `others`, seed by seed."""
    if not have_same_seeds(values, others):
        return untested(text, f"seed by seed it takes the same ones, but {which_seeds(values, others)}")
    return at_least(text, np.asarray(values, dtype=float) - np.asarray(others, dtype=float), -margin)


def always(text: str, flags: Values) -> ClaimVerdict:
    """Judge whether the flags of all seeds are true."""
    n, true = np.size(flags), int(np.sum(np.asarray(flags, dtype=bool)))
    evidence = f"in {true} of {n} seeds" if n != 1 else f"in {true} of 1 seed (n = 1)"
    if n == 0:
        return ClaimVerdict(text, None, evidence, "there was no seed")
    if 0 < true < n:
        return ClaimVerdict(text, None, evidence, f"true {evidence}")
    return ClaimVerdict(text, true == n, evidence)


class SeedValues(list[float]):
    """One number per seed, with the label of their experiment and the seeds."""

    def __init__(self, values: Iterable[float], label: object, seeds: Sequence[int]):
        super().__init__(values)
        self.label = label
        self.seeds = seeds


def have_same_seeds(values: Values, others: Values) -> bool:
    """Return whether both have the same seeds; where seeds are not known, whether there are equally many."""
    if isinstance(values, SeedValues) and isinstance(others, SeedValues):
        return values.seeds == others.seeds
    return len(values) == len(others)


def which_seeds(values: Values, others: Values) -> str:
    """
    >>> which_seeds(SeedValues([0.8, 0.9], "told", (0, 2)), SeedValues([0.5], "not told", (1,)))
    "'told' has the seeds 0, 2 and 'not told' has the seed 1"
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


def untested(text: str, why: str) -> ClaimVerdict:
    """Return a claim that these runs cannot test, and why not."""
    return ClaimVerdict(text, None, "not tested", why)


def estimate(values: Values) -> Estimate:
    """Return the mean of the finite values and its t-interval.

    >>> str(estimate([1.0, 2.0, 3.0]))
    '2 ± 1 (n = 3, 95 % interval -0.484 to 4.48)'
    """
    kept = finite(values)
    mean, sd = mean_and_sd(kept)
    degrees = max(len(kept) - 1, 1)
    reach = _quantile(degrees) * sd / math.sqrt(degrees + 1)
    return Estimate(mean, sd, len(kept), mean - reach, mean + reach, np.size(values) - len(kept))


def welch(values: Values, others: Values) -> Estimate:
    """Return the difference of two means of unpaired seeds, and its interval (Welch, Satterthwaite)."""
    ours, theirs = estimate(values), estimate(others)
    left_out, fewest = ours.left_out + theirs.left_out, min(ours.n, theirs.n)
    gap = ours.mean - theirs.mean
    if fewest < 2:
        return Estimate(gap, math.nan, fewest, math.nan, math.nan, left_out)
    a, b = ours.sd**2 / ours.n, theirs.sd**2 / theirs.n
    error = math.sqrt(a + b)
    degrees = (a + b) ** 2 / (a**2 / (ours.n - 1) + b**2 / (theirs.n - 1)) if error > 0 else 1.0
    reach = _quantile(degrees) * error
    spread = math.hypot(ours.sd, theirs.sd)
    return Estimate(gap, spread, ours.n + theirs.n, gap - reach, gap + reach, left_out)


def finite(values: Values) -> list[float]:
    given = np.asarray(values, dtype=float)
    return [float(value) for value in given[np.isfinite(given)]]


def mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation, exactly 0 for equal values, where floating-point sums are not."""
    mean = statistics.mean(values) if values else math.nan
    return mean, statistics.stdev(values) if len(values) > 1 else math.nan


def spread(values: Values) -> float:
    """Return the standard deviation over seeds, for an error bar; 0 for a single seed."""
    sd = mean_and_sd(finite(values))[1]
    return sd if math.isfinite(sd) else 0.0


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


def _verdict(text: str, interval: Estimate, side: str, threshold: Number, holds: bool, fails: bool) -> ClaimVerdict:
    evidence = f"{interval}; claimed: {side} {short(threshold)}"
    if holds or fails:
        return ClaimVerdict(text, bool(holds), evidence)
    return ClaimVerdict(text, None, evidence, interval.indecision(threshold))


def _quantile(degrees: Number) -> float:
    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
