"""Which input word does each output word look at, by which score? A table of shades; of long sentences, the top few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from attnscope.auditing.shades import Shades
from attnscope.report.wording import number
from attnscope.studies.claims import Number

LONGEST = 60  # words on a side of a matrix that can still be read
TOP = 3  # input words that are named for each output word of a longer sentence
Values = Sequence[Sequence[Number | None]]


class Cell(NamedTuple):
    shade: str
    number: str


@dataclass(frozen=True)
class Matrix:
    """A row an output word, a column an input word."""

    name: str
    said: str
    rows: list[tuple[str, list[Cell]]]


@dataclass(frozen=True)
class Pair:
    """An example of a translator: matrices, or where these are too large the strongest input words in words."""

    why: str
    source: list[str]
    special: list[bool]
    gold: str
    says: str
    matrices: list[Matrix]
    strongest: list[dict[str, str]]


def pair_of(example: dict[str, Any]) -> Pair:
    source, target, said = (
        [str(word) for word in words_of(example.get(name))] for name in ("source", "target", "said")
    )
    special = list(example.get("special") or [])
    special += [False] * (len(source) - len(special))
    scores = {name: values for name, values in (example.get("scores") or {}).items() if values}
    outputs = {name: rows_of(values, target, said) for name, values in scores.items()}
    long = max([len(source), *map(len, outputs.values())]) > LONGEST
    return Pair(
        example.get("why") or "", source, special, example.get("gold") or " ".join(target), " ".join(said),
        [] if long else [matrix(name, scores[name], outputs[name]) for name in scores],
        strongest(source, scores, outputs) if long else [],
    )  # fmt: skip


def words_of(words: Any) -> Sequence[str]:
    """A sentence may also come in one piece."""
    return words.split() if isinstance(words, str) else words or []


def rows_of(values: Values, *outputs: Sequence[str]) -> list[str]:
    """The first output that has as many words as there are rows; if none has, they are counted."""
    numbers = [str(i + 1) for i in range(len(values))]
    return next((list(words) for words in outputs if len(words) == len(values)), numbers)


def matrix(name: str, values: Values, output: Sequence[str]) -> Matrix:
    shades = Shades.over(value for row in values for value in row)
    rows = [(word, [cell(value, shades) for value in row]) for word, row in zip(output, values, strict=True)]
    return Matrix(name, shades.said, rows)


def cell(value: Number | None, shades: Shades) -> Cell:
    return Cell(shades(value), "" if value is None else number(value, 2))


def strongest(source: Sequence[str], scores: dict[str, Values], outputs: dict[str, list[str]]) -> list[dict[str, str]]:
    """For each output word of the longest score, the top input words of every score."""
    words = max(outputs.values(), key=len)
    return [
        {"output": word} | {name: top(source, values[i]) for name, values in scores.items() if i < len(values)}
        for i, word in enumerate(words)
    ]


def top(source: Sequence[str], row: Sequence[Number | None]) -> str:
    """The strongest, whichever way they point.

    >>> top(["a", "b", "c", "d"], [0.1, -0.5, None, 0.2])
    'b −0.5, d 0.2, a 0.1'
    """
    known = [(word, value) for word, value in zip(source, row, strict=False) if value is not None]
    return ", ".join(f"{word} {number(value, 2)}" for word, value in sorted(known, key=lambda x: -abs(x[1]))[:TOP])
