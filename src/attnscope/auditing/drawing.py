"""Drawings of an audit: tables, token heat maps, colour scales, threshold gauges, figures of heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnscope import plots
from attnscope.probes.adversary import histogram
from attnscope.probes.heads.ranking import RANKINGS
from attnscope.probes.heads.stream import ACROSS, grids
from attnscope.report.html import Picture, embed_figure, panel_texts
from attnscope.report.wording import number
from attnscope.studies.claims import Number

NOTHING = "–"
MAX_DECIMALS = 4  # decimals, of numbers that are not minute


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
    return next((n for n, least in enumerate((100, 10, 1, 0.1)) if largest >= least), MAX_DECIMALS)


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


LONGEST = 60  # words on a side of a matrix that can still be read
TOP = 3  # input words that are named for each output word of a longer sentence
MatrixValues = Sequence[Sequence[Number | None]]


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


def rows_of(values: MatrixValues, *outputs: Sequence[str]) -> list[str]:
    """The first output that has as many words as there are rows; if none has, they are counted."""
    numbers = [str(i + 1) for i in range(len(values))]
    return next((list(words) for words in outputs if len(words) == len(values)), numbers)


def matrix(name: str, values: MatrixValues, output: Sequence[str]) -> Matrix:
    shades = Shades.over(value for row in values for value in row)
    rows = [(word, [cell(value, shades) for value in row]) for word, row in zip(output, values, strict=True)]
    return Matrix(name, shades.said, rows)


def cell(value: Number | None, shades: Shades) -> Cell:
    return Cell(shades(value), "" if value is None else number(value, 2))


def strongest(
    source: Sequence[str], scores: dict[str, MatrixValues], outputs: dict[str, list[str]]
) -> list[dict[str, str]]:
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


BELIEVED = 10  # heads that are named, the most believed first
FEW_HEADS, FEW_ACROSS = 6, 2  # panels of more heads in a layer are wider
MEANINGS = {
    "time": "share of the alignment that is known before any word is read",
    "word": "share that is known once the two words are",
    "rest": "share that depends on what else was read",
    "entropy": "0 looks at one position, 1 at all alike",
    "offset": "positions behind the diagonal (of a classifier: behind the middle of the text)",
    "spread": "standard deviation of that; 0 always looks equally far",
    "on specials": "weight on special tokens such as [CLS] or the end of the sentence",
    "alignment error": "against gold links or IBM Model 1; less is better",
    "loss if ablated": "what is lost without the head, ± its standard error",
    "loss if uniform": "what is lost if it looks at all positions alike, ± its standard error",
    "τ with saliency": "how far it ranks words as their influence on the output does",
}


def heads_of(part: dict[str, Any]) -> pd.DataFrame:
    """A row a layer and head; columns without any number are left out."""
    columns = part.get("heads") or {}
    if not columns.get("layer"):
        return pd.DataFrame()
    table = pd.DataFrame(columns).set_index(["layer", "head"]).sort_index()
    return table.astype(float).dropna(axis="columns", how="all")


def formed_columns(heads: pd.DataFrame) -> list[str]:
    return [str(name) for name in heads.columns if not str(name).endswith("common words")]


def ranked_columns(heads: pd.DataFrame) -> list[str]:
    return [column for column, _ in RANKINGS.values() if column in heads]


def small_multiples(heads: pd.DataFrame, columns: Sequence[str]) -> list[Picture]:
    """As many side by side as can be read; none where there is but one head, of which a table says more."""
    if len(heads) < 2:
        return []
    across = FEW_ACROSS if len(heads.index.unique("head")) > FEW_HEADS else ACROSS
    rows = [columns[start : start + across] for start in range(0, len(columns), across)]
    return [described(grids(heads, row), "Every layer and head") for row in rows]


def believed(heads: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The heads by the mean of their ranks, the most believed first; all rankings count alike."""
    ranks = heads[[name for name in heads.columns if str(name).startswith("rank by ")]]
    measured = [name for column in columns for name in dict.fromkeys((column, column.replace("loss", "±")))]
    shown = heads[[name for name in measured if name in heads]]
    if len(heads) > 1 and len(ranks.columns):
        shown = shown.assign(**{"mean rank": ranks.mean(axis="columns")}).sort_values("mean rank", kind="stable")
        shown = shown[["mean rank", *shown.columns.drop("mean rank")]]
    rows = shown.head(BELIEVED).reset_index().to_dict("records")
    return [{"head": f"layer {row.pop('layer')}, head {row.pop('head')}", **known(row)} for row in rows]


def known(row: dict[Any, Any]) -> dict[str, Any]:
    """What is not known is None, as in JSON."""
    return {str(name): None if pd.isna(value) else value for name, value in row.items()}


def agreement(part: dict[str, Any]) -> Picture | None:
    """How far every two rankings agree; None where fewer than two rank the heads at all."""
    between = part.get("between") or {}
    values = np.array(between.get("values") or [[]], dtype=float)
    if values.shape[0] < 2 or np.isfinite(values).sum() < 2:
        return None
    figure, (ax,) = plots.panels(size=(3.4, 2.8))
    plots.heatmap(values, rows=between["names"], columns=between["names"], ax=ax, diverging=True, annotate=True,
                  title="agreement of rankings (τ)")  # fmt: skip
    return described(figure, "Rank correlation of the rankings of heads")


def adversaries(part: dict[str, Any]) -> Picture | None:
    """How many texts have an adversary how far away."""
    distances = np.array([value for value in part.get("histogram") or [] if value is not None])
    if not len(distances):
        return None
    figure, (ax,) = plots.panels(size=(5.2, 2.6))
    with plots.style():
        histogram(ax, distances)
    ax.spines[["top", "right"]].set_visible(False)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return described(
        figure, f"{len(distances)} texts, of which the adversary lies {distances.mean():.2f} away on average"
    )


def described(figure: Figure, said: str) -> Picture:
    drawn = panel_texts(figure)
    return embed_figure(figure, f"{said}{': ' if drawn else ''}{drawn}.")
