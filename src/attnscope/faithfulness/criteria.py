"""The tests that attention must pass to be read as an explanation, with the bounds of their answers.

The bounds are conventions, the same for every model, and were set before any model was audited.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attnscope.faithfulness.records import Answer, Test

Z = 1.96  # standard errors to each side of a mean: 95 %


@dataclass(frozen=True)
class Interval:
    """A mean over texts with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float] | Float[np.ndarray, " texts"]) -> "Interval":
        """Return the mean of one number per text, NaN left out. A single text has an infinite interval.

        >>> Interval.of([0.4, 0.6])
        Interval(value=0.5, low=0.304, high=0.696)
        """
        known = np.asarray(values, dtype=float)
        known = known[~np.isnan(known)]
        if len(known) < 2:
            return cls.unknown(float(known[0]) if len(known) else float("nan"))
        return cls.around(float(known.mean()), float(known.std(ddof=1) / len(known) ** 0.5))

    @classmethod
    def ratio(cls, of: Float[np.ndarray, " texts"], to: Float[np.ndarray, " texts"]) -> "Interval":
        """Return the ratio of two means over the same texts, with the error of its linear approximation.

        >>> Interval.ratio(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
        Interval(value=0.5, low=0.5, high=0.5)
        """
        known = ~(np.isnan(of) | np.isnan(to))
        of, to = of[known], to[known]
        if len(of) < 2 or to.mean() <= 0:
            return cls.unknown(float("nan"))
        value = float(of.mean() / to.mean())
        return cls.around(value, float((of - value * to).std(ddof=1) / len(of) ** 0.5 / to.mean()))

    @classmethod
    def around(cls, value: float, error: float) -> "Interval":
        """Return a value with the interval of its standard error."""
        return cls(value, round(value - Z * error, 12), round(value + Z * error, 12))

    @classmethod
    def unknown(cls, value: float) -> "Interval":
        return cls(value, float("-inf"), float("inf"))

    @property
    def limits(self) -> dict[str, float]:
        """The interval as columns of a table."""
        return {"from": self.low, "to": self.high}


@dataclass(frozen=True)
class Bounds:
    """The values up to which the answer is no and from which it is yes. Smaller values may be better."""

    no: float
    yes: float

    def answer(self, found: Interval) -> Answer:
        """Return the answer: unclear if the interval reaches from no to yes, or if nothing was measured.

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
class Criterion:
    """A test: its name, its question, and the bounds of its answers."""

    name: str
    question: str
    bounds: Bounds

    def judge(self, sentence: str, found: Interval, chance: float | None = None, best: float | None = None) -> Test:
        """Return the test's result.

        Args:
            sentence: The result in words.
            found: The measured value with its interval.
            chance: The value of random attention.
            best: The value of the best other score.
        """
        bounds, answer = (self.bounds.no, self.bounds.yes), self.bounds.answer(found)
        return Test(
            self.name, self.question, answer, sentence, found.value, found.low, found.high, bounds, chance, best
        )


DEPENDENCE = Criterion(
    "dependence on attention", "Does the output change when attention weights are shuffled among the tokens?",
    Bounds(no=0.05, yes=0.2),
)  # fmt: skip
UNIQUENESS = Criterion(
    "uniqueness", "How far away is another attention that leads to the same output?", Bounds(no=0.5, yes=0.1)
)  # fmt: skip
COMPREHENSIVENESS = Criterion(
    "comprehensiveness", "Does removing the attended tokens change the output?", Bounds(no=0.1, yes=0.5)
)
RANK_CORRELATION = Criterion(
    "rank correlation with leave-one-out", "Does attention rank tokens as leave-one-out does?", Bounds(no=0.1, yes=0.5)
)
SINGLE_TOKEN = Criterion(
    "single-token sufficiency", "How many tokens would lead to the same output alone?", Bounds(no=0.5, yes=0.2)
)
TOKEN_IDENTITY = Criterion(
    "token identity in states", "Does the state at a token still identify the token?", Bounds(no=0.25, yes=0.5)
)
REQUIRED = (DEPENDENCE.name, COMPREHENSIVENESS.name, RANK_CORRELATION.name)  # none of which may fail
