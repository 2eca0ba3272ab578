"""Which tests must attention pass to be read as an explanation, and where is the line drawn?

The bounds are conventions, the same for every model, and were set before any was audited.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnscope.faithfulness.records import Test

Z = 1.96  # standard errors to each side of a mean: 95 %


@dataclass(frozen=True)
class Interval:
    """A mean over texts with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> "Interval":
        """Of numbers, one a text; NaN is left out. One text has no interval: it is as wide as can be.

        >>> Interval.of([0.4, 0.6])
        Interval(value=0.5, low=0.304, high=0.696)
        """
        known = np.asarray(values, dtype=float)
        known = known[~np.isnan(known)]
        if len(known) < 2:
            value = float(known[0]) if len(known) else float("nan")
            return cls(value, float("-inf"), float("inf"))
        value, error = float(known.mean()), float(known.std(ddof=1) / len(known) ** 0.5)
        return cls(value, round(value - Z * error, 12), round(value + Z * error, 12))

    @classmethod
    def ratio(cls, of: np.ndarray, to: np.ndarray) -> "Interval":
        """The ratio of two means over the same texts; its error is that of their linear approximation.

        >>> Interval.ratio(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
        Interval(value=0.5, low=0.5, high=0.5)
        """
        known = ~(np.isnan(of) | np.isnan(to))
        of, to = of[known], to[known]
        if len(of) < 2 or to.mean() <= 0:
            return cls(float("nan"), float("-inf"), float("inf"))
        value = float(of.mean() / to.mean())
        error = float((of - value * to).std(ddof=1) / len(of) ** 0.5 / to.mean())
        return cls(value, round(value - Z * error, 12), round(value + Z * error, 12))


@dataclass(frozen=True)
class Bounds:
    """From where on the answer is no, and from where on yes; partly lies between. Less may be better."""

    no: float
    yes: float

    def answer(self, found: Interval) -> str:
        """Unclear where the interval reaches from no to yes, or nothing was measured.

        >>> Bounds(no=0.05, yes=0.2).answer(Interval(0.3, 0.25, 0.35))
        'yes'
        >>> Bounds(no=0.5, yes=0.1).answer(Interval(0.3, 0.0, 0.6))
        'unclear'
        """
        if np.isnan(found.value):
            return "unclear"
        sign = 1 if self.yes > self.no else -1
        ends = sorted(sign * end for end in (found.low, found.high))
        if ends[0] <= sign * self.no and ends[1] >= sign * self.yes:
            return "unclear"
        if sign * found.value <= sign * self.no:
            return "no"
        return "yes" if sign * found.value >= sign * self.yes else "partly"


@dataclass(frozen=True)
class Question:
    """A test: its name, what it asks, and from where on the answer is no and yes."""

    name: str
    asks: str
    bounds: Bounds

    def answered(self, sentence: str, found: Interval, chance: float | None = None, best: float | None = None) -> Test:
        bounds = (self.bounds.no, self.bounds.yes)
        answer = self.bounds.answer(found)
        return Test(self.name, self.asks, answer, sentence, found.value, found.low, found.high, bounds, chance, best)


DEPENDS = Question(
    "the output depends on it", "Does the output change when its weights are shuffled among the words?",
    Bounds(no=0.05, yes=0.2),
)  # fmt: skip
NO_OTHER = Question(
    "no other attention would do", "How far away is an attention that leads to the same output?",
    Bounds(no=0.5, yes=0.1),
)  # fmt: skip
POINTS = Question(
    "it points at what decides", "Are the words it points at those that decide?", Bounds(no=0.1, yes=0.5)
)  # fmt: skip
RANKS = Question(
    "it ranks words as their removal does", "Does it rank words as leaving them out does?", Bounds(no=0.1, yes=0.5)
)  # fmt: skip
NOT_ALONE = Question(
    "words alone do not decide", "How many words would lead to the same output alone?", Bounds(no=0.5, yes=0.2)
)  # fmt: skip
SPEAKS = Question(
    "states speak of their words", "Does the state at a word still tell the word?", Bounds(no=0.25, yes=0.5)
)  # fmt: skip
NEEDED = (DEPENDS.name, POINTS.name, RANKS.name)  # none of which may fail
