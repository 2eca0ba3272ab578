"""Records of an audit: tests with their answers, the verdict, and the parts of the evidence; to and from JSON.

Version 0.1 wrote other names (format 1), and version 0.2 judged by another rule (format 2); `from_json` reads all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import pandas as pd

Answer = Literal["yes", "with care", "no", "undecided", "not measurable", "information"]
Cell = float | str | bool | None
Row = Mapping[str, Cell]
Content = Mapping[str, object]  # a JSON object
ScoreValues = Sequence[float | None] | Sequence[Sequence[float | None]]

ANSWERS: tuple[Answer, ...] = get_args(Answer)
OLD_ANSWERS: dict[str, Answer] = {"partly": "with care", "unclear": "undecided"}  # of formats 1 and 2
FORMAT = 3  # of audit.json
OLD_NAMES = {
    "question": "asks", "agreement": "between", "reason": "why", "predicted": "said", "architecture": "what",
    "available": "of", "truncated": "cut", "alignments": "links",
}  # fmt: skip
T = TypeVar("T")


@dataclass(frozen=True)
class ClassValue:
    """The value of a test for one predicted class."""

    value: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    texts: int = 0
    reason: str = ""  # why the class is not judged


@dataclass(frozen=True)
class Test:
    """The result of one test of faithfulness of the attention shown to users."""

    __test__ = False  # not a test for pytest

    name: str = ""
    question: str = ""
    answer: Answer = "undecided"
    sentence: str = ""  # the answer with its numbers
    value: float = math.nan  # NaN where it could not be measured
    low: float = -math.inf  # 95 % interval; infinite where it is unknown
    high: float = math.inf
    bounds: tuple[float, float] | None = None  # "no" up to the first, "yes" from the second
    chance: float | None = None  # for random attention
    best: float | None = None  # for the best other score
    texts: int | None = None  # number of texts it was measured on
    classes: Mapping[str, ClassValue] = field(default_factory=dict)  # by predicted class
    reason: str = ""  # why it is not measurable
    lower_bound: str = ""  # why the true value may be as high as the end of the interval, whatever the texts

    @classmethod
    def from_json(cls, content: Content) -> Test:
        """Read a test, which may be incomplete; null stands for what is not a finite number."""
        bounds = sequence(content.get("bounds"))
        has_bounds = len(bounds) == 2 and None not in bounds
        classes = {k: read_record(ClassValue, mapping(v)) for k, v in mapping(content.get("classes")).items()}
        test = read_record(cls, content, answer=answer_of(content.get("answer")), bounds=None, classes=classes)
        return replace(test, bounds=cast("tuple[float, float]", tuple(bounds))) if has_bounds else test

    @property
    def measured(self) -> bool:
        return not math.isnan(self.value)


def test_table(tests: Sequence[Test]) -> pd.DataFrame:
    """Return one row per test: answer, value with its interval, number of texts, bounds, and why not measurable."""
    rows = {
        test.name: {
            "answer": test.answer, "value": test.value, "from": test.low, "to": test.high, "texts": test.texts,
            "no up to": test.bounds and test.bounds[0], "yes from": test.bounds and test.bounds[1],
            "random attention": test.chance, "best": test.best, "reason": test.reason,
        }
        for test in tests
    }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("test")


@dataclass(frozen=True)
class Verdict:
    """Whether this attention may be read as an explanation."""

    answer: Answer = "undecided"
    headline: str = ""
    paragraphs: tuple[str, ...] = ()
    tests: tuple[Test, ...] = ()
    former_rule: bool = False  # whether it precedes the rule by route and agreement

    @classmethod
    def from_json(cls, content: Content) -> Verdict:
        tests = tuple(map(Test.from_json, objects(content.get("tests"))))
        return read_record(cls, content, answer=answer_of(content.get("answer")), tests=tests)


@dataclass(frozen=True)
class RankAgreement:
    """Rank correlation (τ) of every two rankings."""

    names: tuple[str, ...] = ()
    values: Sequence[Sequence[float | None]] = ()


@dataclass(frozen=True)
class ScoredExample:
    """One text with the scores of its words: one per source word or, of a translator, per target and source word."""

    reason: str = ""  # why this text is shown
    source: tuple[str, ...] = ()
    special: tuple[bool, ...] = ()  # which source words are special tokens
    predicted: str | tuple[str, ...] = ""
    scores: Mapping[str, ScoreValues] = field(default_factory=dict)
    gold: str = ""
    target: tuple[str, ...] = ()
    marks: tuple[float, ...] = ()  # for each source word, the share of annotators who marked it; none without any

    @classmethod
    def from_json(cls, content: Content) -> ScoredExample:
        source, scores = sequence(content.get("source")), mapping(content.get("scores"))
        special = (*sequence(content.get("special")), *(False,) * len(source))[: len(source)]
        return read_record(cls, content, special=special, scores={k: v for k, v in scores.items() if v})


@dataclass(frozen=True)
class Part:
    """One part of the evidence: sentences, a table and tests, and fields of single parts."""

    sentences: Sequence[str] = ()
    table: Sequence[Row] = ()
    tests: Sequence[Test] = ()
    heads: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # columns; among them layer and head
    agreement: RankAgreement | None = None  # of the rankings of heads
    reference: str | None = None  # of word alignments
    histogram: Sequence[float | None] = ()
    examples: Sequence[ScoredExample] = ()
    failed: str | None = None  # why it could not be measured
    warning: str = ""  # shown before the verdict
    title: str = ""
    question: str = ""
    texts: int | None = None  # number of texts it was measured on
    seconds: float | None = None

    @classmethod
    def from_json(cls, content: Content) -> Part:
        agreement = mapping(renamed(content, "agreement"))
        return read_record(
            cls, content, tests=tuple(map(Test.from_json, objects(content.get("tests")))),
            examples=tuple(map(ScoredExample.from_json, objects(content.get("examples")))),
            agreement=read_record(RankAgreement, agreement) if agreement else None,
        )  # fmt: skip


def read_record(kind: type[T], content: Content, **values: object) -> T:
    """Return a record from the fields of a JSON object; those that are missing or null have their defaults.

    Args:
        kind: A dataclass.
        content: Fields by their names, or by those of format 1.
        values: Values of fields that are read elsewhere.
    """
    values = {f.name: renamed(content, f.name) for f in fields(cast("type[Any]", kind))} | values
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if v is not None})


def rows(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table, its index as first columns."""
    return cast(list[Row], table.reset_index().to_dict("records"))


def to_json(content: object) -> object:
    """Return a record as JSON holds it: numbers that are not finite are null, empty fields are left out."""
    if is_dataclass(content) and not isinstance(content, type):
        values = {f.name: getattr(content, f.name) for f in fields(content)}
        return {name: to_json(value) for name, value in values.items() if not is_empty(value)}
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
    return next((answer for answer in ANSWERS if answer == OLD_ANSWERS.get(str(value), value)), "undecided")


def renamed(content: Content, name: str) -> object:
    """Return a field by its name or by that of format 1."""
    return content.get(name, content.get(OLD_NAMES.get(name, name)))


def sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def mapping(value: object) -> Content:
    return value if isinstance(value, dict) else {}


def objects(value: object) -> Iterable[Content]:
    return map(mapping, sequence(value))
