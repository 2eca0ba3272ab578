"""Where between no and yes does the value of a test lie? Its place on a line, drawn with no on the left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnscope.report.wording import number
from attnscope.studies.claims import Number

WIDTH, MARGIN = 320.0, 10.0  # of the drawing, in its own units; marks at an end need room
PAD = 0.15  # of the span of all marks, beyond the outermost


@dataclass(frozen=True)
class Scale:
    """Places on the line, from 0 to WIDTH; None for what was not measured."""

    zones: list[tuple[str, float, float]]  # answer, from, width
    bounds: list[tuple[float, str, str]]  # place, number, which end of the number stands there
    value: float | None
    interval: tuple[float, float] | None
    chance: float | None
    best: float | None
    less: bool  # is better
    said: str


def scale_of(test: dict[str, Any]) -> Scale | None:
    """None where nobody said what would be a no and what a yes."""
    bounds = test.get("bounds") or []
    if len(bounds) != 2 or None in bounds or bounds[0] == bounds[1]:
        return None
    line = Line.around(test)
    ends = [MARGIN, line.place(bounds[0]), line.place(bounds[1]), WIDTH - MARGIN]
    answers = ("no", "partly", "yes")
    zones = [(name, ends[i], ends[i + 1] - ends[i]) for i, name in enumerate(answers)]
    numbers = [(ends[1], number(bounds[0]), "end"), (ends[2], number(bounds[1]), "start")]
    value, chance, best = (line.known(test.get(name)) for name in ("value", "chance", "best"))
    return Scale(zones, numbers, value, line.interval(test), chance, best, bounds[0] > bounds[1], said(test))


@dataclass(frozen=True)
class Line:
    """From the number at its left end to that at its right, which is the smaller one where less is better."""

    left: Number
    right: Number

    @classmethod
    def around(cls, test: dict[str, Any]) -> Line:
        """All marks, and as much of the interval as leaves the zones in sight."""
        no, yes = test["bounds"]
        known = [x for x in (no, yes, test.get("value"), test.get("chance"), test.get("best")) if x is not None]
        span = max(known) - min(known)
        low, high = test.get("low"), test.get("high")
        least = max(min(known) if low is None else min(*known, low), min(known) - span) - PAD * span
        most = min(max(known) if high is None else max(*known, high), max(known) + span) + PAD * span
        if min(no, yes) > 0 and min(known) >= 0 and (low is None or low >= 0):
            least = max(least, 0.0)  # what is never negative needs no room there
        return cls(least, most) if no < yes else cls(most, least)

    def place(self, x: Number) -> float:
        """Within the drawing, whatever the number."""
        share = (x - self.left) / (self.right - self.left)
        return round(MARGIN + min(max(share, 0.0), 1.0) * (WIDTH - 2 * MARGIN), 1)

    def known(self, x: Number | None) -> float | None:
        return None if x is None else self.place(x)

    def interval(self, test: dict[str, Any]) -> tuple[float, float] | None:
        """An end that is not known lies at the end of the line."""
        if test.get("value") is None:
            return None
        low, high = test.get("low"), test.get("high")
        smallest, largest = min(self.left, self.right), max(self.left, self.right)
        ends = sorted((self.place(smallest if low is None else low), self.place(largest if high is None else high)))
        return ends[0], ends[1]


def said(test: dict[str, Any]) -> str:
    """The value with its interval.

    >>> said({"value": 0.31, "low": 0.25, "high": 0.372}), said({"value": 0.31}), said({"value": None})
    ('0.31 (0.25 to 0.372)', '0.31 (no interval)', 'not measured')
    """
    value, low, high = (test.get(name) for name in ("value", "low", "high"))
    if value is None:
        return "not measured"
    return f"{number(value)} ({'no interval' if low is None or high is None else f'{number(low)} to {number(high)}'})"
