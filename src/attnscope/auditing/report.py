"""The report of an audit: verdict, evidence, and what was audited how; as a table, a figure, a page and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting
from attnscope.faithfulness.records import (
    FORMAT,
    Answer,
    Content,
    Part,
    Test,
    Verdict,
    mapping,
    read_record,
    to_json,
)  # fmt: skip
from attnscope.files import read_json, write_json

OLD_PARTS = {"formed": "formation", "tokens": "single_tokens", "between": "another_seed"}  # names of format 1


@dataclass(frozen=True)
class ModelInfo:
    """The model that was audited."""

    name: str = ""
    kind: str = ""  # classifier or translator
    architecture: str = ""
    classes: tuple[str, ...] = ()
    layers: int | None = None
    heads: int | None = None


@dataclass(frozen=True)
class DataInfo:
    """The texts that it was audited on."""

    name: str = ""
    split: str | None = None
    texts: int | None = None
    available: int | None = None  # texts before sampling
    truncated: int | None = None  # texts that were too long for the model
    rationales: bool = False
    alignments: bool = False


@dataclass(frozen=True)
class Provenance:
    """How and when the audit was made."""

    settings: Mapping[str, object] = field(default_factory=dict)
    seconds: float | None = None
    date: str = ""
    machine: str = ""
    attnscope: str = ""
    torch: str = ""
    transformers: str = ""


@dataclass(frozen=True)
class Report(Displayed):
    """May this attention be read as an explanation? The answer of an audit, with its evidence."""

    verdict: Verdict
    parts: Mapping[str, Part]
    model: ModelInfo
    data: DataInfo
    provenance: Provenance

    @property
    def answer(self) -> Answer:
        """The answer as it is stored: "yes", "partly" (displayed as "with care"), "no" or "unclear"."""
        return self.verdict.answer

    @property
    def headline(self) -> str:
        return self.verdict.headline

    @property
    def tests(self) -> tuple[Test, ...]:
        return self.verdict.tests

    def table(self) -> pd.DataFrame:
        """Return one row per test: answer, value with its interval, bounds, values of random attention and the best."""
        rows = {
            test.name: {
                "answer": test.label, "value": test.value, "from": test.low, "to": test.high,
                "no up to": test.bounds and test.bounds[0], "yes from": test.bounds and test.bounds[1],
                "random attention": test.chance, "best other score": test.best,
            }
            for test in self.tests
        }  # fmt: skip
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("test")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each test's value and interval on a gauge from no to yes."""
        from attnscope.auditing.drawing import plot_gauges

        return plot_gauges(self.tests, ax)

    def display_name(self) -> tuple[str, str]:
        return self.verdict.label, self.headline

    def save(self, path: str | Path) -> Path:
        """Write the report as a page (.html) or as JSON (.json), and return the path."""
        from attnscope.auditing.page import write_page

        place = Path(path)
        if place.suffix == ".html":
            return write_page(self, place)
        if place.suffix != ".json":
            raise BadSetting(f"a report is saved as .html or .json, not as {place.name!r}")
        write_json(place, self.to_dict())
        return place

    def to_dict(self) -> dict[str, object]:
        """Return what audit.json holds."""
        return {"version": FORMAT, **dict(mapping(to_json(self)))}

    def to_json(self) -> str:
        """Return the text of audit.json."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read audit.json, also as version 0.1 wrote it."""
        return cls.from_dict(mapping(read_json(Path(path))))

    @classmethod
    def from_dict(cls, content: Content) -> Report:
        """Read what audit.json holds, which may be incomplete."""
        parts = {OLD_PARTS.get(k, k): Part.from_json(mapping(v)) for k, v in mapping(content.get("parts")).items()}
        return cls(
            Verdict.from_json(mapping(content.get("verdict"))), parts,
            read_record(ModelInfo, mapping(content.get("model"))), read_record(DataInfo, mapping(content.get("data"))),
            read_record(Provenance, mapping(content.get("provenance", content.get("made")))),
        )  # fmt: skip
