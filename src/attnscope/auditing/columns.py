"""How is a table of any kind written? Numbers of a column with as many digits as tell them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnscope.report.wording import number
from attnscope.studies.claims import Number

NOTHING = "–"
MOST = 4  # decimals, of numbers that are not minute


@dataclass(frozen=True)
class Column:
    name: str
    numbers: bool
    cells: list[str]


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """In the order in which they come; a row may lack some."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [column(name.replace("_", " "), [row.get(name) for row in rows]) for name in names]


def column(name: str, values: Sequence[Any]) -> Column:
    """
    >>> column("τ", [0.12345, -0.5, None]).cells, column("texts", [1234, 5]).cells, column("gold", [True]).cells
    (['0.123', '−0.500', '–'], ['1,234', '5'], ['yes'])
    """
    known = [value for value in values if value is not None]
    if not all(is_number(value) for value in known):
        return Column(name, False, [in_words(value) for value in values])
    digits = decimals(known or [0])
    return Column(name, True, [written(value, digits) for value in values])


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def decimals(values: Sequence[Number]) -> int:
    """Three digits of the largest.

    >>> decimals([1, 20]), decimals([0.5]), decimals([12.5]), decimals([0.012])
    (0, 3, 1, 4)
    """
    if all(float(value).is_integer() for value in values):
        return 0
    largest = max(map(abs, values))
    return next((n for n, least in enumerate((100, 10, 1, 0.1)) if largest >= least), MOST)


def written(value: Number | None, digits: int) -> str:
    """What is not zero is not written as zero.

    >>> written(0.00002, 3), written(-0.2, 3), written(0.0, 3)
    ('< 0.001', '−0.200', '0.000')
    """
    if value is None:
        return NOTHING
    text = f"{value:,.{digits}f}"
    if value and not text.strip("-0.,"):
        return f"< {10**-digits:.{digits}f}" if value > 0 else f"> −{10**-digits:.{digits}f}"
    return text.replace("-", "−")


def in_words(value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value))
    return number(value) if is_number(value) else str(value)
