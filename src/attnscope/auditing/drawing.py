"""Drawings of an audit: tables, token heat maps, colour scales, threshold gauges, figures of heads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnscope import plots
from attnscope.faithfulness.examples import ALONE
from attnscope.faithfulness.records import Answer, Cell, Part, RankAgreement, Row, ScoredExample, Test
from attnscope.plots.style import axes
from attnscope.probes.adversary import histogram
from attnscope.probes.heads.ranking import RANKINGS
from attnscope.probes.heads.sentences import MAX_COLUMNS, plot_columns
from attnscope.report.html import Picture, embed_figure, panel_texts
from attnscope.report.wording import number
from attnscope.studies.claims import Number

# Tables: the numbers of a column have as many digits as distinguish them.

NOTHING = "–"
MAX_DECIMALS = 4  # of numbers that are not minute


@dataclass(frozen=True)
class Column:
    name: str
    numbers: bool
    cells: list[str]


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """Return the columns of a table in their order; rows may lack some, and empty ones are left out."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    return [column(name.replace("_", " "), [row.get(name) for row in rows]) for name in names]


def column(name: str, values: Sequence[Cell]) -> Column:
    """Return a column with its cells as text.

    >>> column("τ", [0.12345, -0.5, None]).cells, column("texts", [1234, 5]).cells, column("gold", [True]).cells
    (['0.123', '−0.500', '–'], ['1,234', '5'], ['yes'])
    """
    present = [value for value in values if value is not None]
    numbers = [value for value in present if is_number(value)]
    if len(numbers) < len(present):
        return Column(name, False, [cell_text(value) for value in values])
    digits = decimals(cast(list[Number], numbers) or [0])
    return Column(name, True, [format_cell(cast("Number | None", value), digits) for value in values])


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def decimals(values: Sequence[Number]) -> int:
    """Return the decimals that give three digits of the largest value.

    >>> decimals([1, 20]), decimals([0.5]), decimals([12.5]), decimals([0.012])
    (0, 3, 1, 4)
    """
    if all(float(value).is_integer() for value in values):
        return 0
    largest = max(map(abs, values))
    return next((n for n, least in enumerate((100, 10, 1, 0.1)) if largest >= least), MAX_DECIMALS)


def format_cell(value: Number | None, digits: int) -> str:
    """Return a number as text; a small number is not rounded to zero.

    >>> format_cell(0.00002, 3), format_cell(-0.2, 3), format_cell(0.0, 3)
    ('< 0.001', '−0.200', '0.000')
    """
    if value is None:
        return NOTHING
    text = f"{value:,.{digits}f}"
    if value and not text.strip("-0.,"):
        return f"< {10**-digits:.{digits}f}" if value > 0 else f"> −{10**-digits:.{digits}f}"
    return text.replace("-", "−")


def cell_text(value: object) -> str:
    """Return any value as the text of a cell."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell_text, value))
    return number(cast(Number, value)) if is_number(value) else str(value)


# Token heat maps: one text per score, its words coloured; of a translator, one matrix per score.

LEVELS = 12
MAGNITUDE, FOR, AGAINST, MISSING = "a", "p", "m", "x"  # initials of the classes in the style sheet
CHUNK = 200  # words that a browser lays out, or defers, together
MAX_NUMBERED = 400  # words; longer texts are shown without numbers, to limit the size of the page
MARKED = 0.5  # share of annotators from which a word is underlined
MAX_SIDE = 60  # words on a side of a legible matrix
NUM_STRONGEST = 3  # source words that are named for each output word of a longer sentence
Values = Sequence[Number | None]


@dataclass(frozen=True)
class ColourScale:
    """White in the middle, full colour at `maximum` from it; two colours where there are two sides."""

    maximum: Number
    middle: Number = 0.0
    diverging: bool = False

    @classmethod
    def over(cls, values: Iterable[Number | None], middle: Number | None = None) -> ColourScale:
        """Return the scale whose full colour is the strongest of these values.

        Args:
            values: Numbers; None is left out.
            middle: The neutral value. With one, or with a negative value, the scale is diverging.
        """
        numbers = [value for value in values if value is not None]
        white = middle or 0.0
        maximum = max((abs(value - white) for value in numbers), default=0.0) or 1.0
        return cls(maximum, white, middle is not None or any(value < 0 for value in numbers))

    def __call__(self, value: Number | None) -> str:
        """Return the style class of a value; none where it is white.

        >>> scale = ColourScale.over([0.0, 0.25, 0.5])
        >>> scale(0.5), scale(0.25), scale(0.001), scale(None)
        ('a12', 'a6', '', 'x')
        >>> scale = ColourScale.over([-1.0, 2.0])
        >>> scale(-1.0), scale(2.0)
        ('m6', 'p12')
        """
        if value is None:
            return MISSING
        distance = value - self.middle
        level = min(round(LEVELS * abs(distance) / self.maximum), LEVELS)
        colour = (FOR if distance > 0 else AGAINST) if self.diverging else MAGNITUDE
        return f"{colour}{level}" if level else ""

    @property
    def legend(self) -> str:
        """What the full colour stands for."""
        if not self.diverging:
            return f"full colour: {number(self.maximum)}"
        return f"full colour: ±{number(self.maximum)}" + (f" from {number(self.middle)}" if self.middle else "")


class ColouredWord(NamedTuple):
    """A word of a text; words without a colour need no element."""

    word: str
    colour: str
    number: str


@dataclass(frozen=True)
class HeatMapRow:
    """A text coloured by one score."""

    name: str
    legend: str
    chunks: list[list[ColouredWord]]


@dataclass(frozen=True)
class ClassifierExample:
    reason: str
    gold: str
    predicted: str
    correct: bool
    rows: list[HeatMapRow]
    num_words: int
    long: bool
    numbers: list[Row]  # the same scores as a table, one row per word; none of a long text


def text_scales(examples: Sequence[ScoredExample], num_classes: int) -> dict[str, ColourScale]:
    """Return one colour scale per score for several texts; special tokens, often the largest, do not count."""
    scales: dict[str, ColourScale] = {}
    for name in dict.fromkeys(name for example in examples for name in example.scores):
        scored = [(cast(Values, text.scores[name]), text.special) for text in examples if name in text.scores]
        words = [v for values, special in scored for v, s in zip(values, special, strict=False) if not s]
        among = words or [value for values, _ in scored for value in values]
        # The neutral value of a probability is that of guessing.
        scales[name] = ColourScale.over(among, 1 / max(num_classes, 2) if name in (ALONE, "each word alone") else None)
    return scales


def classifier_example(
    example: ScoredExample, num_classes: int, scales: dict[str, ColourScale] | None = None
) -> ClassifierExample:
    """Return a text to draw, with the colour scales of all texts of a page, or its own."""
    predicted, count = str(example.predicted), len(example.source) - sum(example.special)
    correct = predicted == example.gold or predicted.startswith(f"{example.gold} (")  # the confidence may follow
    scales = scales or text_scales([example], num_classes)
    rows = [heat_map_row(name, example, cast(Values, row), scales[name]) for name, row in example.scores.items()]
    long = len(example.source) > MAX_NUMBERED
    scores = cast("dict[str, Values]", dict(example.scores))
    marked = {"marked by people": example.marks} if example.marks else {}
    numbers: list[Row] = [
        {"word": word, **{name: values[i] for name, values in (marked | scores).items() if i < len(values)}}
        for i, word in enumerate(example.source if not long else ())
    ]
    return ClassifierExample(example.reason, example.gold, predicted, correct, rows, count, long, numbers)


def heat_map_row(name: str, example: ScoredExample, values: Values, scale: ColourScale) -> HeatMapRow:
    """Return a text coloured by one score, with what people marked underlined."""
    tokens = list(zip(example.source, values, example.special, strict=False))
    marks = (*example.marks, *(0.0,) * len(tokens))
    numbered = len(example.source) <= MAX_NUMBERED
    words = [
        ColouredWord(
            word, " ".join(filter(None, (scale(value), "s" if special else "", "u" if mark >= MARKED else ""))),
            number(value, 2) if numbered and value is not None else "",
        )
        for (word, value, special), mark in zip(tokens, marks, strict=False)
    ]  # fmt: skip
    chunks = [words[start : start + CHUNK] for start in range(0, len(words), CHUNK)]
    total, on_special = (sum(v or 0.0 for _, v, special in tokens if special or not only) for only in (False, True))
    share = f"; {on_special / total:.0%} on special tokens" if on_special and total and not scale.diverging else ""
    return HeatMapRow(name, scale.legend + share, chunks)


class MatrixCell(NamedTuple):
    colour: str
    number: str


@dataclass(frozen=True)
class HeatMapMatrix:
    """One row per output word, one column per source word."""

    name: str
    legend: str
    rows: list[tuple[str, list[MatrixCell]]]


@dataclass(frozen=True)
class TranslatorExample:
    """Matrices, unless these are too large, and the strongest source words as text."""

    reason: str
    source: tuple[str, ...]
    special: tuple[bool, ...]
    gold: str
    predicted: str
    matrices: list[HeatMapMatrix]
    strongest: list[Row]


def matrix_scales(examples: Sequence[ScoredExample]) -> dict[str, ColourScale]:
    """Return one colour scale per score for several translations."""
    values: dict[str, list[Number | None]] = {}
    for example in examples:
        for name, rows in example.scores.items():
            values.setdefault(name, []).extend(value for row in cast(Sequence[Values], rows) for value in row)
    return {name: ColourScale.over(numbers) for name, numbers in values.items()}


def translator_example(example: ScoredExample, scales: dict[str, ColourScale] | None = None) -> TranslatorExample:
    """Return a translation to draw, with the colour scales of all translations of a page, or its own."""
    scales = scales or matrix_scales([example])
    predicted = example.predicted.split() if isinstance(example.predicted, str) else example.predicted
    scores = {name: cast(Sequence[Values], values) for name, values in example.scores.items()}
    outputs = {name: output_words(values, example.target, predicted) for name, values in scores.items()}
    long = max([len(example.source), *map(len, outputs.values())]) > MAX_SIDE
    return TranslatorExample(
        example.reason, example.source, example.special, example.gold or " ".join(example.target), " ".join(predicted),
        [] if long else [heat_map_matrix(name, scores[name], outputs[name], scales[name]) for name in scores],
        strongest(example.source, scores, outputs),
    )  # fmt: skip


def output_words(values: Sequence[Values], *outputs: Sequence[str]) -> list[str]:
    """Return the first output that has one word per row; if none has, numbers."""
    numbers = [str(i + 1) for i in range(len(values))]
    return next((list(words) for words in outputs if len(words) == len(values)), numbers)


def heat_map_matrix(name: str, values: Sequence[Values], output: Sequence[str], scale: ColourScale) -> HeatMapMatrix:
    rows = [
        (word, [MatrixCell(scale(value), "" if value is None else number(value, 2)) for value in row])
        for word, row in zip(output, values, strict=True)
    ]
    return HeatMapMatrix(name, scale.legend, rows)


def strongest(source: Sequence[str], scores: dict[str, Sequence[Values]], outputs: dict[str, list[str]]) -> list[Row]:
    """Return, for each output word of the longest score, the strongest source words of every score."""
    words = max(outputs.values(), key=len)
    return [
        {"output": word} | {name: top(source, values[i]) for name, values in scores.items() if i < len(values)}
        for i, word in enumerate(words)
    ]


def top(source: Sequence[str], row: Values) -> str:
    """Return the words with the largest values of either sign.

    >>> top(["a", "b", "c", "d"], [0.1, -0.5, None, 0.2])
    'b −0.5, d 0.2, a 0.1'
    """
    pairs = [(word, value) for word, value in zip(source, row, strict=False) if value is not None]
    first = sorted(pairs, key=lambda pair: -abs(pair[1]))[:NUM_STRONGEST]
    return ", ".join(f"{word} {number(value, 2)}" for word, value in first)


# Threshold gauges: the value of a test on a line from no, on the left, to yes.

WIDTH, MARGIN = 320.0, 10.0  # of the drawing, in its own units; marks at an end need room
PADDING = 0.15  # of the span of all marks, beyond the outermost
ZONES: tuple[Answer, ...] = ("no", "with care", "yes")
ZONE_COLOURS = {"no": "#d9a09a", "with care": "#e6d9a8", "yes": "#a9cfa8"}


@dataclass(frozen=True)
class Gauge:
    """Positions on the line, from 0 to WIDTH; None for what was not measured."""

    zones: list[tuple[Answer, float, float]]  # answer, start, width
    bounds: list[tuple[float, str, str]]  # position, number, text anchor
    value: float | None
    interval: tuple[float, float] | None
    chance: float | None
    best: float | None
    less_is_better: bool


def gauge_of(test: Test) -> Gauge | None:
    """Return the gauge of a test; None where it has no bounds."""
    if test.bounds is None or test.bounds[0] == test.bounds[1]:
        return None
    no, yes = test.bounds
    place = GaugeAxis.around(test, no, yes)
    ends = [MARGIN, place(no), place(yes), WIDTH - MARGIN]
    marks = (test.value, test.chance, test.best)
    value, chance, best = (None if x is None or math.isnan(x) else place(x) for x in marks)
    low_high = sorted((place(test.low), place(test.high)))
    return Gauge(
        zones=[(name, ends[i], ends[i + 1] - ends[i]) for i, name in enumerate(ZONES)],
        bounds=[(ends[1], number(no), "end"), (ends[2], number(yes), "start")],
        value=value, chance=chance, best=best, less_is_better=no > yes,
        interval=None if value is None else (low_high[0], low_high[1]),
    )  # fmt: skip


@dataclass(frozen=True)
class GaugeAxis:
    """The numbers at both ends of the line; the smaller one is on the right where less is better."""

    left: Number
    right: Number

    @classmethod
    def around(cls, test: Test, no: float, yes: float) -> GaugeAxis:
        """Return an axis with all marks, and as much of the interval as keeps the zones visible."""
        marks = (no, yes, test.value, test.chance, test.best)
        shown = [x for x in marks if x is not None and not math.isnan(x)]
        span = max(shown) - min(shown)
        low, high = (end if math.isfinite(end) else None for end in (test.low, test.high))
        lowest = max(min(shown) if low is None else min(*shown, low), min(shown) - span) - PADDING * span
        highest = min(max(shown) if high is None else max(*shown, high), max(shown) + span) + PADDING * span
        if min(no, yes) > 0 and min(shown) >= 0 and (low is None or low >= 0):
            lowest = max(lowest, 0.0)  # no room for negative values
        return cls(lowest, highest) if no < yes else cls(highest, lowest)

    def __call__(self, x: Number) -> float:
        """Return the position of a number, within the drawing."""
        share = (x - self.left) / (self.right - self.left)
        return round(MARGIN + min(max(share, 0.0), 1.0) * (WIDTH - 2 * MARGIN), 1)


def value_text(test: Test) -> str:
    """Return the value of a test with its interval."""
    if not test.measured:
        return "not measured"
    has_interval = math.isfinite(test.low) and math.isfinite(test.high)
    return f"{number(test.value)} ({f'{number(test.low)} to {number(test.high)}' if has_interval else 'no interval'})"


def plot_gauges(tests: Sequence[Test], ax: Axes | None = None) -> Axes:
    """Draw the gauge of each test, one below the other."""
    ax = axes(ax, size=(6.4, 0.6 + 0.5 * len(tests)))
    shown = [(test, gauge) for test in reversed(tests) if (gauge := gauge_of(test)) is not None]
    for row, (_, gauge) in enumerate(shown):
        for answer, start, width in gauge.zones:
            ax.barh(row, width, left=start, height=0.45, color=ZONE_COLOURS[answer])
        if gauge.interval is not None:
            ax.plot(gauge.interval, (row, row), color="black", linewidth=1.5)
        if gauge.value is not None:
            ax.plot(gauge.value, row, "o", color="black")
    ax.set_yticks(range(len(shown)), [f"{test.name}\n{value_text(test)}" for test, _ in shown])
    ax.set_xticks([MARGIN, WIDTH - MARGIN], ["no", "yes"])
    ax.set_title("tests: no, with care, yes")
    return ax


# Figures of heads and adversaries.

NUM_NAMED_HEADS = 10  # the best mean rank first
FEW_HEADS, FEW_ACROSS = 6, 2  # panels of more heads in a layer are wider
MEANINGS = {
    "time": "share of the attention score that depends on positions alone (temporal)",
    "word": "share that depends on the two tokens (lexical)",
    "rest": "share that depends on the rest of the texts",
    "entropy": "0: all weight on one position, 1: uniform",
    "offset": "positions behind the diagonal (of a classifier: behind the middle of the text)",
    "spread": "standard deviation of the offset",
    "on specials": "weight on special tokens such as [CLS] or the end of the sentence",
    "alignment error": "against gold word alignments or IBM Model 1; less is better",
    "loss if ablated": "loss without the head, ± its standard error",
    "loss if uniform": "loss with uniform attention of the head, ± its standard error",
    "τ with saliency": "rank correlation of its attention with gradient × input",
}


def head_table(part: Part) -> pd.DataFrame:
    """Return one row per layer and head; columns without any number are left out."""
    if not part.heads.get("layer"):
        return pd.DataFrame()
    table = pd.DataFrame(dict(part.heads)).set_index(["layer", "head"]).sort_index()
    return table.astype(float).dropna(axis="columns", how="all")


def formation_columns(heads: pd.DataFrame) -> list[str]:
    return [str(name) for name in heads.columns if not str(name).endswith("common words")]


def ranking_columns(heads: pd.DataFrame) -> list[str]:
    return [column for column, _ in RANKINGS.values() if column in heads]


def small_multiples(heads: pd.DataFrame, columns: Sequence[str]) -> list[Picture]:
    """Return a panel per column; none where there is one head, which is shown as a table."""
    if len(heads) < 2:
        return []
    across = FEW_ACROSS if len(heads.index.unique("head")) > FEW_HEADS else MAX_COLUMNS
    rows = [columns[start : start + across] for start in range(0, len(columns), across)]
    return [described(plot_columns(heads, row), "Every layer and head") for row in rows]


def best_heads(heads: pd.DataFrame, columns: Sequence[str]) -> list[Row]:
    """Return the heads by their mean rank, the best first."""
    ranks = heads[[name for name in heads.columns if str(name).startswith("rank by ")]]
    measured = [name for column in columns for name in dict.fromkeys((column, column.replace("loss", "±")))]
    shown = heads[[name for name in measured if name in heads]]
    if len(heads) > 1 and len(ranks.columns):
        shown = shown.assign(**{"mean rank": ranks.mean(axis="columns")}).sort_values("mean rank", kind="stable")
        shown = shown[["mean rank", *shown.columns.drop("mean rank")]]
    rows = shown.head(NUM_NAMED_HEADS).reset_index().to_dict("records")
    return [
        {"head": f"layer {int(row.pop('layer'))}, head {int(row.pop('head'))}"}
        | {str(name): None if pd.isna(value) else value for name, value in row.items()}
        for row in rows
    ]


def agreement_figure(agreement: RankAgreement | None) -> Picture | None:
    """Return the rank correlation of every two rankings; None where fewer than two rank the heads at all."""
    values = np.array(agreement.values if agreement is not None else [[]], dtype=float)
    if agreement is None or values.shape[0] < 2 or np.isfinite(values).sum() < 2:
        return None
    figure, (ax,) = plots.panels(size=(3.4, 2.8))
    plots.heatmap(values, rows=agreement.names, columns=agreement.names, ax=ax, diverging=True, annotate=True,
                  title="agreement of rankings (τ)")  # fmt: skip
    return described(figure, "Rank correlation of the rankings of heads")


def adversary_figure(part: Part) -> Picture | None:
    """Return the histogram of the distances of adversaries."""
    distances = np.array([value for value in part.histogram if value is not None])
    if not len(distances):
        return None
    figure, (ax,) = plots.panels(size=(5.2, 2.6))
    with plots.style():
        histogram(ax, distances)
    ax.spines[["top", "right"]].set_visible(False)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return described(figure, f"{len(distances)} texts; the adversary's mean distance is {distances.mean():.2f}")


def described(figure: Figure, description: str) -> Picture:
    content = panel_texts(figure)
    return embed_figure(figure, f"{description}{': ' if content else ''}{content}.")
