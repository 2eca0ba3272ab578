"""The report of an audit: verdict, evidence and provenance; as a table, a figure, a page and JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, BadSetting, require
from attnscope.faithfulness.records import (
    FORMAT,
    Answer,
    Content,
    Part,
    ScoredExample,
    Test,
    Verdict,
    mapping,
    read_record,
    test_table,
    to_json,
)  # fmt: skip
from attnscope.faithfulness.verdict import decide
from attnscope.files import read_json, write_atomically, write_json
from attnscope.report.text import markdown_table
from attnscope.studies.naming import audit_name

ROUTE_AND_AGREEMENT = 3  # the first format whose verdicts follow from them
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
    truncated: int | None = None  # number of texts too long for the model
    rationales: bool = False
    alignments: bool = False


@dataclass(frozen=True)
class Provenance:
    """Settings, date, machine and versions of the audit."""

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
        """Either "yes", "with care", "no" or "undecided"."""
        return self.verdict.answer

    @property
    def headline(self) -> str:
        return self.verdict.headline

    @property
    def tests(self) -> tuple[Test, ...]:
        return self.verdict.tests

    def table(self) -> pd.DataFrame:
        """Return one row per test: answer, value with its interval, number of texts, bounds."""
        return test_table(self.tests)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each test's value and interval on a gauge from no to yes."""
        from attnscope.auditing.drawing import plot_gauges

        return plot_gauges(self.tests, ax)

    def display_name(self) -> tuple[str, str]:
        return self.verdict.answer, self.headline

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

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables to save as CSV: tests, heads, texts of the examples, and the scores of their words."""
        heads = [pd.DataFrame(dict(part.heads)) for part in self.parts.values() if part.heads]
        texts = [example for part in self.parts.values() for example in part.examples]
        tables = {"tests": self.table().reset_index()}
        if heads:
            tables["heads"] = reduce(lambda left, right: left.merge(right, "outer", on=["layer", "head"]), heads)
        if texts:
            tables |= {"texts": text_table(texts), "words": pd.concat(map(word_table, range(len(texts)), texts))}
        return tables

    def save_tables(self, folder: str | Path) -> list[Path]:
        """Write each table to a CSV file and return the paths; tables of an earlier audit are deleted."""
        tables, paths = self.tables(), {name: Path(folder) / f"{name}.csv" for name in TABLES}
        for name, path in paths.items():
            if name in tables:
                write_atomically(path, tables[name].to_csv(index=False).encode())
            else:
                path.unlink(missing_ok=True)
        return [paths[name] for name in tables]

    def to_dict(self) -> dict[str, object]:
        """Return the content of audit.json: the report, and its digest."""
        content = {"version": FORMAT, **dict(mapping(to_json(self)))}
        return {**content, "digest": digest_of(content)}

    def to_json(self) -> str:
        """Return the text of audit.json."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read audit.json, also of version 0.1; raise an error if the file was changed since."""
        return cls.from_dict(read_audit(Path(path)))

    @classmethod
    def from_dict(cls, content: Content) -> Report:
        """Read the content of audit.json, which may be incomplete."""
        parts = {OLD_PARTS.get(k, k): Part.from_json(mapping(v)) for k, v in mapping(content.get("parts")).items()}
        verdict, version = Verdict.from_json(mapping(content.get("verdict"))), content.get("version")
        former = verdict.former_rule or (isinstance(version, int) and version < ROUTE_AND_AGREEMENT)
        return cls(
            replace(verdict, former_rule=former), parts,
            read_record(ModelInfo, mapping(content.get("model"))), read_record(DataInfo, mapping(content.get("data"))),
            read_record(Provenance, mapping(content.get("provenance", content.get("made")))),
        )  # fmt: skip


def read_audit(path: Path) -> Content:
    """Return the content of audit.json; raise an error if it does not match its digest."""
    content = mapping(read_json(path))
    fits = content.get("digest", digest_of(content)) == digest_of(content)
    require(fits, f"{path} was changed after the audit: its content does not match its digest; audit the model again")
    return content


def digest_of(content: Content) -> str:
    """Return the SHA-256 of the content of audit.json, without its digest."""
    rest = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def verify_audits(folder: Path) -> tuple[int, list[str]]:
    """Return how many audits lie below a folder, and one sentence per audit that was changed.

    The digest must match the content, and the answer must follow from the tests. Audits of former formats have no
    digest, and those of the former rule another answer.
    """
    paths = sorted(folder.rglob("audit.json"))
    return len(paths), [f"{path}: {problem}" for path in paths if (problem := audit_problem(path))]


def audit_problem(path: Path) -> str | None:
    """Return what is wrong with a stored audit; None if nothing is."""
    try:
        content = mapping(read_json(path))
        report = Report.from_dict(content)
    except AttnscopeError as error:
        return str(error)
    former = content.get("version") in range(ROUTE_AND_AGREEMENT)
    if content.get("digest", digest_of(content) if former else None) != digest_of(content):
        return "the content does not match its digest"
    if not report.verdict.former_rule and decide(report.tests) != report.answer:
        return f"the answer is {report.answer!r}, but the tests give {decide(report.tests)!r}"
    return None


TABLES = ("tests", "heads", "texts", "words")


def text_table(examples: Sequence[ScoredExample]) -> pd.DataFrame:
    """Return one row per text that is shown as an example."""
    predicted = [text.predicted if isinstance(text.predicted, str) else " ".join(text.predicted) for text in examples]
    return pd.DataFrame(
        {
            "text": range(len(examples)), "source": [" ".join(text.source) for text in examples],
            "predicted": predicted, "gold": [text.gold or " ".join(text.target) for text in examples],
            "reason": [text.reason for text in examples],
        }
    )  # fmt: skip


def word_table(number: int, example: ScoredExample) -> pd.DataFrame:
    """Return one row per source word and, of a translator, output word, with its scores as columns."""
    scores = {name: np.array(values, dtype=float) for name, values in example.scores.items()}
    shape = max((values.shape for values in scores.values()), default=(len(example.source),))
    position = np.broadcast_to(np.arange(shape[-1]), shape).ravel()
    columns: dict[str, object] = {"text": number}
    if len(shape) > 1:
        columns["output_position"] = np.repeat(np.arange(shape[0]), shape[1])
    columns |= {
        "position": position, "word": np.array(example.source, dtype=object)[position],
        "special": np.array(example.special)[position],
    }  # fmt: skip
    columns |= {"marked": np.array(example.marks)[position]} if example.marks else {}
    return pd.DataFrame(columns | {name: values.ravel() for name, values in scores.items() if values.shape == shape})


# Tables of stored audits and of their calibration --------------------------------------------------------------------


DECIDING = ("route", "agreement")
LOWER_BOUND = ", lower bound"  # suffix of tests whose value comes from a search


def audited_models(folder: Path, link: str | None = None) -> str:
    """Return one row per audit in the folders below: model, quality, answer, and the tests that decide it.

    Args:
        folder: A folder such as results/audits, with one folder per audit. A file name.json in such a folder, such as
            {"model": "MiniLM, fine-tuned", "texts": "SST"}, names the model and the texts.
        link: The address of that folder as seen from the page; None: its path.
    """
    link = folder.as_posix() if link is None else link
    rows = [_audit_row(path.parent, Report.load(path), link) for path in sorted(folder.glob("*/audit.json"))]
    names = ["model", "texts", "accuracy (majority class)", "answer", *DECIDING, "texts per test", "layers × heads"]
    return "\n".join(markdown_table([*names, "audited"], rows))


def _audit_row(folder: Path, audit: Report, link: str) -> list[str]:
    tests = {test.name: test for test in audit.tests}
    counts = sorted({tests[name].texts or 0 for name in DECIDING if name in tests} - {0})
    name = audit_name(folder)
    return [
        f"[{name.model}]({link}/{folder.name}/audit.html)",
        f"{audit.data.texts or 0:,} of {name.texts or Path(audit.data.name).name}",
        _accuracy(audit),
        f"**{audit.answer}**{' (former rule)' if audit.verdict.former_rule else ''}",
        *deciding_values(tests),
        ", ".join(map(str, counts)) or "–",
        f"{audit.model.layers} × {audit.model.heads}",
        f"{audit.provenance.date}, {audit.provenance.attnscope}",
    ]


def _accuracy(audit: Report) -> str:
    """Return a classifier's accuracy, and that of always predicting the commonest class."""
    quality = audit.parts.get("quality")
    row = dict(quality.table[0]) if quality and quality.table else {}
    accuracy, commonest = row.get("accuracy"), row.get("commonest class")
    if not isinstance(accuracy, float) or not isinstance(commonest, float):
        return "–"
    return f"{accuracy:.1%} ({commonest:.1%})".replace("%", " %")


def deciding_values(tests: Mapping[str, Test]) -> list[str]:
    """Return route and agreement with their intervals, as text."""
    return [_value(tests.get(name)) for name in DECIDING]


def _value(test: Test | None) -> str:
    if test is None or not test.measured:
        return "–"
    return f"{test.value:z.2f} ({test.low:z.2f} to {test.high:z.2f})".replace("-", "−")


def tests_by_unit(audit: Report) -> dict[str, dict[str, Test]]:
    """Return route and agreement by the unit of a prompt that is removed; of words, the tests that decide."""
    tests = {"word": {test.name: test for test in audit.tests if test.name in DECIDING}}
    for row in audit.parts["units"].table if "units" in audit.parts else ():
        limits = {
            name: {"value": row[name], "low": row[f"{name} from"], "high": row[f"{name} to"]} for name in DECIDING
        }
        own = {name: Test.from_json({"name": name, "texts": row["prompts"], **limits[name]}) for name in DECIDING}
        tests.setdefault(str(row["unit"]), own)
    return tests


def audit_tests(folder: Path) -> str:
    """Return one row per audit by today's rule: the value of each test, with its number of texts.

    Args:
        folder: A folder such as results/audits, with one folder per audit.
    """
    audits = {audit_name(path.parent).model: Report.load(path) for path in sorted(folder.glob("*/audit.json"))}
    values = {
        name: {test.name.removesuffix(LOWER_BOUND): _value_of_texts(test) for test in audit.tests}
        for name, audit in audits.items()
        if not audit.verdict.former_rule
    }
    names = list(dict.fromkeys(test for tests in values.values() for test in tests))
    rows = [[name, *(tests.get(test, "–") for test in names)] for name, tests in values.items()]
    return "\n".join(markdown_table(["model", *names], rows))


def _value_of_texts(test: Test) -> str:
    if not test.measured:
        return "–"
    bound = "≥ " if test.name.endswith(LOWER_BOUND) else ""
    return f"{bound}{test.value:.2f} ({test.texts})".replace("-", "−")


def error_rates(calibration: Path) -> str:
    """Return the answers of the audit for models whose answer is known, and how often they are wrong.

    Args:
        calibration: The file calibration.json.
    """
    rows = [
        [f"{row['sealed']}, {row['certificate']}", *(str(row[name]) for name in ("models", *ANSWERS)), row["false"]]
        for row in read_json(calibration)["overall"]
    ]
    return "\n".join(markdown_table(["kinds of models", "models", *ANSWERS, "wrong (95 % interval)"], rows))


ANSWERS = ("yes", "with care", "no", "undecided")
