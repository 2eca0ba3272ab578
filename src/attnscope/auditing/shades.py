"""How strongly is a word coloured? One of a few levels, which a page can name in a letter and a number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from attnscope.report.wording import number
from attnscope.studies.claims import Number

LEVELS = 12
SIZE, FOR, AGAINST, MISSING = "a", "p", "m", "x"  # what the classes of the style sheet begin with


@dataclass(frozen=True)
class Shades:
    """White in the middle, full colour at `most` from it; two colours where there are two sides."""

    most: Number
    middle: Number = 0.0
    sides: bool = False

    @classmethod
    def over(cls, values: Iterable[Number | None], middle: Number | None = None) -> Shades:
        """The strongest of these values has the full colour; with a middle, or a negative value, there are sides."""
        known = [value for value in values if value is not None]
        white = middle or 0.0
        most = max((abs(value - white) for value in known), default=0.0) or 1.0
        return cls(most, white, middle is not None or any(value < 0 for value in known))

    def __call__(self, value: Number | None) -> str:
        """The class of a value; none where it is white.

        >>> shades = Shades.over([0.0, 0.25, 0.5])
        >>> shades(0.5), shades(0.25), shades(0.001), shades(None)
        ('a12', 'a6', '', 'x')
        >>> shades = Shades.over([-1.0, 2.0])
        >>> shades(-1.0), shades(2.0)
        ('m6', 'p12')
        """
        if value is None:
            return MISSING
        away = value - self.middle
        level = min(round(LEVELS * abs(away) / self.most), LEVELS)
        colour = (FOR if away > 0 else AGAINST) if self.sides else SIZE
        return f"{colour}{level}" if level else ""

    @property
    def said(self) -> str:
        """What the fullest colour stands for."""
        if not self.sides:
            return f"full colour: {number(self.most)}"
        return f"full colour: ±{number(self.most)}" + (f" from {number(self.middle)}" if self.middle else "")
