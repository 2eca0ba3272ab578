"""Which words of a text are marked, and by which score? The text again for each score, its words shaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from attnscope.auditing.shades import Shades
from attnscope.report.wording import number
from attnscope.studies.claims import Number

CHUNK = 200  # words that a browser lays out, or leaves for later, at once
NUMBERED = 400  # words; in longer texts the numbers would weigh more than the words
ALONE = "each word alone"  # probabilities: neutral is not zero, but what guessing gives
Values = Sequence[Number | None]


class Marked(NamedTuple):
    """A word of a text; without a shade it needs no element of its own."""

    word: str
    shade: str
    number: str


@dataclass(frozen=True)
class Strip:
    """A text as one score sees it."""

    name: str
    said: str  # what its colours stand for
    chunks: list[list[Marked]]


@dataclass(frozen=True)
class Text:
    """An example of a classifier."""

    why: str
    gold: str
    says: str
    right: bool
    strips: list[Strip]
    words: int
    long: bool


def text_of(example: dict[str, Any], classes: int) -> Text:
    words = [str(word) for word in example.get("source") or []]
    special = list(example.get("special") or [])
    special += [False] * (len(words) - len(special))
    scores = {name: values for name, values in (example.get("scores") or {}).items() if values}
    strips = [strip(name, words, special, values, classes) for name, values in scores.items()]
    gold, said = (str(example.get(name)) for name in ("gold", "said"))
    right = said == gold or said.startswith(f"{gold} (")  # how sure it is may follow in brackets
    count = len(words) - sum(special)
    return Text(example.get("why") or "", gold, said, right, strips, count, len(words) > NUMBERED)


def strip(name: str, words: Sequence[str], special: Sequence[bool], values: Values, classes: int) -> Strip:
    """Words are coloured as they are strong among words; special tokens, which often outweigh all, do not count."""
    among = [value for value, aside in zip(values, special, strict=False) if not aside] or values
    shades = Shades.over(among, 1 / max(classes, 2) if name == ALONE else None)
    few = len(words) <= NUMBERED
    marked = [mark(word, value, aside, shades, few) for word, value, aside in zip(words, values, special, strict=False)]
    chunks = [marked[start : start + CHUNK] for start in range(0, len(marked), CHUNK)]
    return Strip(name, shades.said + on_special(values, special, shades), chunks)


def mark(word: str, value: Number | None, special: bool, shades: Shades, numbered: bool) -> Marked:
    shade = " ".join(filter(None, (shades(value), "s" if special else "")))
    return Marked(word, shade, number(value) if numbered and value is not None else "")


def on_special(values: Values, special: Sequence[bool], shades: Shades) -> str:
    """How much of it lies on special tokens: of what has one side and can be shared out."""
    total = sum(value or 0.0 for value in values)
    aside = sum(value or 0.0 for value, is_special in zip(values, special, strict=False) if is_special)
    return f"; {aside / total:.0%} on special tokens" if aside and total and not shades.sides else ""
