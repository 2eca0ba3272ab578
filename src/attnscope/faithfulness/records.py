"""Records of an audit: tests with their answers, the verdict, and the parts of the evidence; to and from JSON.

Version 0.1 wrote other names (format 1); `from_json` reads both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Literal, cast, get_args

import numpy as np
import pandas as pd

Answer = Literal["yes", "partly", "no", "unclear"]
Cell = float | str | bool | None
Row = Mapping[str, Cell]
Content = Mapping[str, object]  # a JSON object
ScoreValues = Sequence[float | None] | Sequence[Sequence[float | None]]

ANSWERS: tuple[Answer, ...] = get_args(Answer)
LABELS: dict[Answer, str] = {"yes": "yes", "partly": "with care", "no": "no", "unclear": "unclear"}  # as displayed
FORMAT = 2  # of audit.json
OLD_NAMES = {"question": "asks", "agreement": "between", "reason": "why", "predicted": "said"}  # of format 1


@dataclass(frozen=True)
class Test:
    """The result of one test of faithfulness of the attention shown to users."""

    __test__ = False  # not a test for pytest

    name: str
    question: str
    answer: Answer
    sentence: str  # the answer with its numbers
    value: float  # NaN where it could not be measured
    low: float  # 95 % interval; infinite where it is unknown
    high: float
    bounds: tuple[float, float] | None  # "no" up to the first, "yes" from the second
    chance: float | None = None  # for random attention
    best: float | None = None  # for the best other score

    @classmethod
    def from_json(cls, content: Content) -> Test:
        """Read a test, which may be incomplete; null stands for what is not a finite number."""
        bounds = [number(bound) for bound in sequence(content.get("bounds"))]
        known = [bound for bound in bounds if bound is not None]
        value, low, high = (number(content.get(name)) for name in ("value", "low", "high"))
        return cls(
            name=text(content.get("name")), question=text(content.get("question")),
            answer=answer_of(content.get("answer")), sentence=text(content.get("sentence")),
            value=math.nan if value is None else value, low=-math.inf if low is None else low,
            high=math.inf if high is None else high, bounds=(known[0], known[1]) if len(known) == 2 else None,
            chance=number(content.get("chance")), best=number(content.get("best")),
        )  # fmt: skip

    @property
    def label(self) -> str:
        """The answer as it is displayed."""
        return LABELS[self.answer]

    @property
    def measured(self) -> bool:
        return not math.isnan(self.value)


@dataclass(frozen=True)
class Verdict:
    """Whether this attention may be read as an explanation."""

    answer: Answer = "unclear"
    headline: str = ""
    paragraphs: tuple[str, ...] = ()
    tests: tuple[Test, ...] = ()

    @classmethod
    def from_json(cls, content: Content) -> Verdict:
        return cls(
            answer_of(content.get("answer")),
            text(content.get("headline")),
            tuple(map(text, sequence(content.get("paragraphs")))),
            tuple(map(Test.from_json, objects(content.get("tests")))),
        )

    @property
    def label(self) -> str:
        """The answer as it is displayed."""
        return LABELS[self.answer]


@dataclass(frozen=True)
class RankAgreement:
    """Rank correlation (τ) of every two rankings."""

    names: tuple[str, ...]
    values: Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class ScoredExample:
    """One text with the scores of its words: one per source word or, of a translator, per target and source word."""

    reason: str  # why this text is shown
    source: tuple[str, ...]
    special: tuple[bool, ...]  # which source words are special tokens
    predicted: str | tuple[str, ...]
    scores: Mapping[str, ScoreValues]
    gold: str = ""
    target: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, content: Content) -> ScoredExample:
        source, target = (words(content.get(name)) for name in ("source", "target"))
        special = tuple(map(bool, sequence(content.get("special"))))
        predicted = renamed(content, "predicted")
        return cls(
            reason=text(renamed(content, "reason")), source=source,
            special=(special + (False,) * len(source))[: len(source)],
            predicted=words(predicted) if isinstance(predicted, list) else text(predicted),
            scores={k: cast(ScoreValues, v) for k, v in mapping(content.get("scores")).items() if v},
            gold=text(content.get("gold")), target=target,
        )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One part of the evidence: sentences, a table and tests, and what else some parts have."""

    sentences: Sequence[str] = ()
    table: Sequence[Row] = ()
    tests: Sequence[Test] = ()
    heads: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # columns; among them layer and head
    agreement: RankAgreement | None = None  # of the rankings of heads
    reference: str | None = None  # of word alignments
    histogram: Sequence[float | None] = ()
    examples: Sequence[ScoredExample] = ()
    failed: str | None = None  # why it could not be measured
    title: str = ""
    question: str = ""
    texts: int | None = None  # on which it was measured
    seconds: float | None = None

    @classmethod
    def from_json(cls, content: Content) -> Part:
        between, texts, failed = (mapping(renamed(content, "agreement")), content.get("texts"), content.get("failed"))
        matrix = [[number(x) for x in sequence(row)] for row in sequence(between.get("values"))]
        return cls(
            sentences=list(map(text, sequence(content.get("sentences")))),
            table=[cast(Row, row) for row in objects(content.get("table"))],
            tests=list(map(Test.from_json, objects(content.get("tests")))),
            heads={k: [number(x) for x in sequence(v)] for k, v in mapping(content.get("heads")).items()},
            agreement=RankAgreement(words(between.get("names")), matrix) if between else None,
            reference=cast("str | None", content.get("reference")),
            histogram=[number(x) for x in sequence(content.get("histogram"))],
            examples=list(map(ScoredExample.from_json, objects(content.get("examples")))),
            failed=None if failed is None else text(failed), title=text(content.get("title")),
            question=text(renamed(content, "question")),
            texts=texts if isinstance(texts, int) else None, seconds=number(content.get("seconds")),
        )  # fmt: skip


def rows(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table, its index as first columns."""
    return cast(list[Row], table.reset_index().to_dict("records"))


def to_json(content: object) -> object:
    """Return a record as JSON holds it: numbers that are not finite are null, empty fields are left out."""
    if is_dataclass(content) and not isinstance(content, type):
        given = {one.name: getattr(content, one.name) for one in fields(content)}
        return {name: to_json(value) for name, value in given.items() if not is_empty(value)}
    if isinstance(content, Mapping):
        return {str(name): to_json(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [to_json(value) for value in content]
    if isinstance(content, np.ndarray | np.generic):
        return to_json(content.tolist())
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    return content


def is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


def answer_of(value: object) -> Answer:
    return next((answer for answer in ANSWERS if answer == value), "unclear")


def renamed(content: Content, name: str) -> object:
    """Return a field by its name or by that of format 1."""
    return content.get(name, content.get(OLD_NAMES[name]))


def number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def text(value: object) -> str:
    return "" if value is None else str(value)


def words(value: object) -> tuple[str, ...]:
    """Return words, which may be given as one string."""
    return tuple(value.split()) if isinstance(value, str) else tuple(map(text, sequence(value)))


def sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def mapping(value: object) -> Content:
    return value if isinstance(value, dict) else {}


def objects(value: object) -> Iterable[Content]:
    return map(mapping, sequence(value))
