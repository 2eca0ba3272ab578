"""What does an audit say? Tests with their answers, and the verdict that follows from them.

An audit is a JSON file: `model`, `data`, `made`, `verdict`, and `parts`, the evidence by its name. A part holds, as far
as they mean anything to it: `texts` (how many it was measured on), `seconds`, `sentences` (in plain words), `table`
(rows with the same columns) and `tests`. The page is drawn from this file alone.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

ANSWERS = ("yes", "partly", "no", "unclear")
Z = 1.96  # standard errors to each side of a mean: 95 %
Part = dict[str, Any]


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
class Test:
    """One question about faithfulness, asked of the attention that would be shown."""

    __test__ = False  # no test of ours, whatever pytest thinks of the name

    name: str  # "decisions depend on it"
    question: str
    answer: str  # one of ANSWERS
    sentence: str  # the answer in plain words, with its numbers
    value: float
    low: float
    high: float
    bounds: tuple[float, float]  # no up to the first, yes from the second
    chance: float | None = None  # what random attention gets
    best: float | None = None  # what the best other score gets

    @classmethod
    def read(cls, content: dict[str, Any]) -> "Test":
        """From JSON, where null stands for what is no finite number."""
        unknown = {name: float("nan") for name in ("value", "low", "high") if content[name] is None}
        return cls(**content | unknown | {"bounds": tuple(content["bounds"])})


@dataclass(frozen=True)
class Verdict:
    """May this attention be read as an explanation?"""

    answer: str  # one of ANSWERS
    headline: str
    paragraphs: tuple[str, ...]  # for what, how sure, why
    tests: tuple[Test, ...]


def plain(content: Any) -> Any:
    """As JSON has it: dataclasses are dictionaries, and what is no finite number is null."""
    if isinstance(content, dict):
        return {str(name): plain(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    if isinstance(content, Test | Verdict):
        return plain(asdict(content))
    if isinstance(content, np.ndarray):
        return plain(content.tolist())
    if isinstance(content, float | np.floating):
        return float(content) if np.isfinite(content) else None
    return int(content) if isinstance(content, np.integer) else content
