"""The result of a finding: one JSON file, `<study>/<finding>.json`, from which reports are made."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypedDict

import attnscope
from attnscope.display import DataFrame, Displayed, Figure
from attnscope.errors import AttnscopeError, InputWarning, require
from attnscope.files import Malformed, read_json, write_atomically
from attnscope.studies.claims import (
    VERDICTS,
    ClaimVerdict,
    Number,
    Range,
    Values,
    estimate,
    range_from,
    range_of,
    with_spread,
)

SCHEMA = 2  # the first has no schema number, means only, and claims without what they were judged by
PARTIAL = ".partial.json"  # ends the name of a result beside a better one: of fewer seeds, or with runs that failed
NO_FINDINGS = ("audit.json", "calibration.json", "settings.json")  # other JSON files among results
Row = Mapping[str, Any]  # label columns (text), and the columns of `NUMBERS`
JSONObject: TypeAlias = dict[str, Any]
RUNS_FAILED = "Runs failed"  # how a note begins that says which, and why
NOT_MEASURED = "Not measured yet"  # how a note begins that says which runs a result of stored measurements lacks
KEPT = "A better result is kept"  # how the note of a partial result begins that says which, and why


class SeedRecord(TypedDict, total=False):
    """The numbers of one label and seed, and with what they were made."""

    label: str
    seed: int
    values: Mapping[str, float | bool | None]
    seconds: float
    commit: str | None
    machine: str  # of both training and measurement; older results have one for all seeds
    device: str
    torch: str
    tf32: bool


@dataclass(frozen=True)
class Result(Displayed):
    """A finding reproduced: its table, verdicts and figure data, and their provenance."""

    finding: str
    study: str
    title: str
    section: str
    profile: str
    seeds: Sequence[int]
    settings: JSONObject
    table: Sequence[Row]
    claims: Sequence[ClaimVerdict]
    notes: Sequence[str]
    seconds: Number
    machine: str
    versions: Mapping[str, str]
    commit: str | None
    figure: Any = None
    by_seed: Sequence[SeedRecord] | None = None  # some results of the first schema have means only
    schema: int = SCHEMA

    @property
    def failed(self) -> bool:
        """Whether runs failed."""
        return any(note.startswith(RUNS_FAILED) for note in self.notes)

    @property
    def incomplete(self) -> bool:
        """Whether runs failed, or were not measured yet."""
        return any(note.startswith((RUNS_FAILED, NOT_MEASURED)) for note in self.notes)

    def to_json(self) -> JSONObject:
        """Return the result as lists and dictionaries; refuse a field that is malformed."""
        plain: JSONObject = {"schema": SCHEMA, "digest": "", **vars(self)}
        plain |= {name: list(plain[name]) for name in ("seeds", "table", "notes")}
        plain["claims"] = [asdict(claim) for claim in self.claims]
        for test in (claim["test"] for claim in plain["claims"] if claim["test"]):
            test["within"] = test["within"] and _ends(test["within"])
        plain["counts"] = counts(claim.verdict for claim in self.claims)
        plain = json.loads(json.dumps(plain))  # tuples become lists, as in the file
        _refuse(problems(plain), f"{self.study}/{self.finding}")
        return plain

    @classmethod
    def from_json(cls, plain: Any, where: str = "result") -> Result:
        """Return the result of this JSON; `where` names the file in an error message."""
        _refuse(problems(plain), where)
        fields = {name: value for name, value in plain.items() if name not in ("digest", "counts")}
        claims = [ClaimVerdict.from_json(claim) for claim in plain["claims"]]
        return cls(**{"schema": 1, **fields, "claims": claims})

    def write(self, folder: Path, ending: str = ".json") -> Path:
        """Write the result with its digest; one of the first schema is not written again."""
        require(self.schema == SCHEMA, f"{self.study}/{self.finding} is a result of an earlier schema; re-run it")
        path = folder / self.study / f"{self.finding}{ending}"
        unsealed = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        sealed = DIGEST.sub(lambda field: field[1] + sha256(unsealed.encode()).hexdigest(), unsealed, count=1)
        write_atomically(path, sealed.encode())
        return path

    @classmethod
    def read(cls, path: Path) -> Result:
        """Return the result of a file; refuse one that was changed since it was written."""
        result = cls.from_json(read_json(path), where=str(path))
        if result.schema == SCHEMA and not has_its_digest(path):
            raise Malformed(f"{path}: was changed since it was written; `attnscope verify` says where")
        return result

    def display_name(self) -> tuple[str, str]:
        size = f"profile {self.profile}, seeds: {len(self.seeds)}"
        return f"{self.study} {self.finding}", f"{self.title} ({self.section}; {size})"

    def display_sentences(self) -> list[str]:
        return [f"{claim.verdict}: {claim.text} – {claim.why or claim.evidence}" for claim in self.claims]

    def display_tables(self) -> list[DataFrame]:
        """Return one table, published numbers beside ours."""
        import pandas as pd

        return [
            pd.DataFrame(
                {
                    **labels_of(line),
                    "published": line.get("published_text") or line["published"],
                    "ours": None if line["mean"] is None else with_spread(line["mean"], line["sd"]),
                    "n": line["n"],
                }
                for line in self.table
            )
        ]

    def display_figure(self) -> Figure | None:
        """Return the first figure of the report; None where there is none."""
        return next(iter(self.figures()), None)

    def figures(self) -> list[Figure]:
        """Return the figures of the report; none where a finding has none, or its study is not known here."""
        from attnscope.studies import STUDIES, study
        from attnscope.studies.naming import name_properly

        if not self.figure:
            return []
        if self.study not in STUDIES:
            message = f"{self.study}/{self.finding} has no figure here: run this in the folder of {self.study}.py"
            warnings.warn(InputWarning(message), stacklevel=2)
            return []
        drawn = [
            each.draw(self.figure) for each in study(self.study).findings if each.name == self.finding and each.draw
        ]
        figures = [figure for one in drawn for figure in (one if isinstance(one, Sequence) else [one])]
        return list(map(name_properly, figures))


def counts(verdicts: Iterable[str]) -> dict[str, int]:
    """Return how often each verdict was given."""
    tally = Counter(verdicts)
    return {word: tally[word] for word in VERDICTS}


def row(*, values: Values, published: Number | None = None, published_text: str | None = None, **labels: str) -> Row:
    """Return a row of the table: label columns, the published number, ours of each seed, and their statistics.

    >>> row(task="escan", model="AED", values=[0.75, 0.95], published=0.77, published_text="> 0.77")["mean"]
    0.85
    """
    text = {} if published_text is None else {"published_text": published_text}
    within = range_of(values)
    ours = [float(value) if math.isfinite(value) else None for value in values]
    statistics = statistics_of(ours, within)
    return {
        **labels, "published": published, **text, **statistics, "values": ours, "within": within and _ends(within),
    }  # fmt: skip


def statistics_of(values: Values, within: Sequence[float | None] | None) -> dict[str, float | None]:
    """Return mean, sd, n and the ends of the 95 % interval; None where there are too few seeds."""
    return estimate(values, range_from(within) if within else None).numbers()


def _ends(within: Range) -> list[float | None]:
    """Return the ends of a range, None where it has none, since JSON knows no infinity."""
    return [end if math.isfinite(end) else None for end in within]


def labels_of(line: Row) -> dict[str, str]:
    """Return the label columns of a row."""
    return {name: value for name, value in line.items() if name not in NEW_NUMBERS}


# The form of a result file -------------------------------------------------------------------------------------------


class Check(NamedTuple):
    """What a field should be, in words, and the test."""

    expected: str
    test: Callable[[object], bool]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool) or _is_number(value)


def _or_null(check: Check) -> Check:
    return Check(f"{check.expected} or null", lambda value: value is None or check.test(value))


def _all(what: str, check: Check) -> Check:
    return Check(f"a list of {what}", lambda value: isinstance(value, list) and all(map(check.test, value)))


TEXT = Check("text", lambda value: isinstance(value, str))
NAME = Check(
    "a name of letters, digits, '-', '_' and '.'",
    lambda value: isinstance(value, str) and re.fullmatch(r"\w[\w.-]*", value) is not None,
)
NUMBER = Check("a finite number", _is_number)
COUNT = Check("a whole number that is not negative", _is_count)
LIST = Check("a list", lambda value: isinstance(value, list))
PLAIN = Check("numbers, text, lists and dictionaries, without NaN", _is_plain)
OBJECT = Check(f"a dictionary of {PLAIN.expected}", lambda value: isinstance(value, Mapping) and _is_plain(value))
TEXTS = Check(
    "a dictionary of texts",
    lambda value: isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair),
)
TRUTH = Check("true, false or null", lambda value: value is None or isinstance(value, bool))
DURATION = Check(
    "a number that is not negative",
    lambda value: isinstance(value, int | float) and _is_number(value) and value >= 0,
)
VERDICT = Check(f"one of {', '.join(VERDICTS)}", lambda value: value in VERDICTS)
SEED_VALUES = _all("numbers and nulls", _or_null(NUMBER))
BY_SEED = Check("a list with the numbers of each label and seed", lambda v: isinstance(v, list) and _is_plain(v))

FIELDS: dict[str, Check] = {
    "finding": NAME, "study": NAME, "title": TEXT, "section": TEXT, "profile": TEXT,
    "seeds": _all("whole numbers", COUNT), "settings": OBJECT, "table": LIST, "claims": LIST,
    "notes": _all("texts", TEXT), "seconds": DURATION, "machine": TEXT, "versions": TEXTS,
    "commit": _or_null(TEXT), "figure": PLAIN, "by_seed": _or_null(BY_SEED),
}  # fmt: skip
NEW_FIELDS = {"schema": COUNT, "digest": TEXT, "counts": OBJECT}
OPTIONAL = ("published_text", "by_seed")
CLAIM: dict[str, Check] = {"text": TEXT, "holds": TRUTH, "evidence": TEXT, "why": TEXT}
NEW_CLAIM: dict[str, Check] = {
    "text": TEXT, "verdict": VERDICT, "evidence": TEXT, "why": TEXT,
    "test": _or_null(OBJECT), "estimate": _or_null(OBJECT), "p": _or_null(_all("numbers", NUMBER)),
}  # fmt: skip
NUMBERS: dict[str, Check] = {
    "published": _or_null(NUMBER), "published_text": TEXT, "mean": _or_null(NUMBER), "sd": _or_null(NUMBER), "n": COUNT,
}  # fmt: skip
NEW_NUMBERS: dict[str, Check] = NUMBERS | {
    "low": _or_null(NUMBER), "high": _or_null(NUMBER), "values": SEED_VALUES, "within": _or_null(SEED_VALUES),
}  # fmt: skip
DIGEST = re.compile(r'^( "digest": ")([0-9a-f]*)', re.MULTILINE)


def problems(plain: object) -> list[str]:
    """Return what is wrong with the content of a result file, one sentence per field; empty if it is well formed."""
    if not isinstance(plain, dict):
        return [f"should be a dictionary, but is {_excerpt(plain)}"]
    new = "schema" in plain
    messages = list(_field_problems(plain, NEW_FIELDS | FIELDS if new else FIELDS, ""))
    if new and plain["schema"] != SCHEMA:
        messages.append(f"field 'schema' should be {SCHEMA}, or missing in older results, but is {plain['schema']!r}")
    rows, claims = (plain[part] if isinstance(plain.get(part), list) else [] for part in ("table", "claims"))
    for number, line in enumerate(rows, start=1):
        messages += _row_problems(line, rows[0], f"table row {number}, ", NEW_NUMBERS if new else NUMBERS)
    for number, claim in enumerate(claims, start=1):
        messages += _claim_problems(claim, f"claim {number}, ", NEW_CLAIM if new else CLAIM)
    return messages


def _field_problems(plain: object, fields: Mapping[str, Check], place: str) -> Iterator[str]:
    if not isinstance(plain, Mapping):
        yield f"{place}should be a dictionary, but is {_excerpt(plain)}"
        return
    for name in fields:
        if name not in plain and name not in OPTIONAL:
            yield f"{place}field '{name}' is missing"
    for name, value in plain.items():
        if name not in fields:
            yield f"{place}field '{name}' is unknown; the fields are {', '.join(fields)}"
        elif not fields[name].test(value):
            yield f"{place}field '{name}' should be {fields[name].expected}, but is {_excerpt(value)}"


def _row_problems(line: object, first: object, place: str, numbers: Mapping[str, Check]) -> Iterator[str]:
    labels = labels_of(line) if isinstance(line, Mapping) else {}
    yield from _field_problems(line, {**numbers, **dict.fromkeys(labels, TEXT)}, place)
    if not isinstance(line, Mapping):
        return
    if isinstance(first, Mapping) and labels.keys() != labels_of(first).keys():
        yield f"{place}the label columns are {', '.join(labels)}, but {', '.join(labels_of(first))} in row 1"
    n = line.get("n")
    if isinstance(n, int) and _is_count(n) and (line.get("mean") is None, line.get("sd") is None) != (n == 0, n < 2):
        yield f"{place}'mean' should be null only if n = 0 and 'sd' only if n < 2, but n = {n}"


def _claim_problems(claim: object, place: str, fields: Mapping[str, Check]) -> Iterator[str]:
    yield from _field_problems(claim, fields, place)
    if not isinstance(claim, Mapping):
        return
    open_ = claim.get("holds", True) is None or claim.get("verdict") in ("undecided", "not testable")
    if open_ and claim.get("why") == "":
        yield f"{place}field 'why' should say why the claim is undecided, but is empty"


def _excerpt(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(messages: Sequence[str], where: str) -> None:
    if messages:
        raise Malformed(f"{where}: {'; '.join(messages)}")


# What can be recomputed ----------------------------------------------------------------------------------------------


def has_its_digest(path: Path) -> bool:
    """Return whether a result file is as it was written, to the last digit."""
    text = path.read_text(encoding="utf-8")
    field = DIGEST.search(text)
    return field is not None and sha256(DIGEST.sub(r"\1", text, count=1).encode()).hexdigest() == field[2]


def differences(plain: JSONObject) -> Iterator[str]:
    """Yield what differs from what its seeds give, in a well-formed result of this schema, one sentence per field."""
    for number, line in enumerate(plain["table"], start=1):
        yield from _field_differences(line, statistics_of(line["values"], line["within"]), f"table row {number}, ")
    for number, claim in enumerate(plain["claims"], start=1):
        yield from _field_differences(claim, _recompute(claim), f"claim {number}, ")
    yield from _field_differences(plain["counts"], counts(claim["verdict"] for claim in plain["claims"]), "counts, ")
    records = plain["by_seed"] or []
    if any(record["seconds"] < 0 for record in records):
        yield "by_seed, field 'seconds' should not be negative"
    if plain["by_seed"] is not None:
        seconds = round(sum(record["seconds"] for record in records), 1)
        yield from _field_differences(plain, {"seconds": seconds}, "")
        if stray := sorted({record["seed"] for record in records} - set(plain["seeds"])):
            yield f"by_seed, seeds {', '.join(map(str, stray))} are not in 'seeds'"


def _recompute(claim: JSONObject) -> JSONObject:
    """Return verdict, estimate and p-values of a claim by the numbers that it was judged by."""
    test = ClaimVerdict.from_json(claim).test
    if test is None:
        return {"test": "what the claim was judged by"}
    again = {"verdict": test.decide(), "p": list(test.tails())}
    return again if test.kind in ("exact", "none") else {**again, "estimate": test.estimate().numbers()}


def _field_differences(stored: JSONObject, computed: Mapping[str, Any], place: str) -> Iterator[str]:
    for name, value in computed.items():
        if not _agree(stored.get(name), value):
            yield f"{place}field '{name}' is {_excerpt(stored.get(name))}, but its seeds give {_excerpt(value)}"


def _agree(stored: Any, value: Any) -> bool:
    """Return whether two values are the same, numbers up to the rounding of another machine."""
    if isinstance(value, dict) and isinstance(stored, dict):
        return stored.keys() == value.keys() and all(_agree(stored[key], value[key]) for key in value)
    if isinstance(value, list) and isinstance(stored, list):
        return len(stored) == len(value) and all(map(_agree, stored, value))
    if _is_number(value) and _is_number(stored):
        return math.isclose(stored, value, rel_tol=1e-9, abs_tol=1e-12)
    return bool(stored == value)


# A folder of results -------------------------------------------------------------------------------------------------


def result_files(folder: Path) -> list[Path]:
    """Return the result files of a folder, or of a store's `results`: `<study>/<finding>.json`, of any study."""
    root = folder / "results" if (folder / "results").is_dir() else folder
    audits = {path.parent for path in root.rglob("audit.json")}
    return sorted(
        path for path in root.rglob("*.json") if path.name not in NO_FINDINGS and audits.isdisjoint(path.parents)
    )


def load_results(folder: Path) -> list[Result]:
    """Return the results of a folder or store, by study, in the order in which the study names its findings.

    A user's study is loaded if its module is in the current folder; without it, its results have no figures.
    """
    from attnscope.studies import STUDIES, study

    root = folder / "results" if (folder / "results").is_dir() else folder
    paths = [path for path in sorted(root.glob("*/*.json")) if path.name not in NO_FINDINGS]
    results = [Result.read(path) for path in paths if not path.name.endswith(PARTIAL)]
    if not results:
        raise AttnscopeError(f"there are no results (<study>/<finding>.json) in {folder}")
    order: dict[tuple[str, str], int] = {}
    for name in {result.study for result in results}:
        if name in STUDIES or Path(f"{name}.py").is_file():
            order |= {(name, finding.name): place for place, finding in enumerate(study(name).findings)}
    return sorted(results, key=lambda result: (result.study, order.get((result.study, result.finding), 0)))


def verify(folder: Path) -> list[str]:
    """Return what is wrong with the result files of a folder or store; empty if all are well formed and recomputed."""
    if not folder.is_dir():
        return [f"there is no folder {folder}"]
    paths = result_files(folder)
    if not paths:
        return [f"there is no result file (<study>/<finding>.json) under {folder}"]
    return [f"{path.relative_to(folder).as_posix()}: {problem}" for path in paths for problem in _problems_of(path)]


def _problems_of(path: Path) -> list[str]:
    try:
        plain = read_json(path)
    except Malformed as error:
        return [str(error).removeprefix(f"{path} ")]
    messages = problems(plain)
    place = (path.resolve().parent.name, path.name.removesuffix(PARTIAL).removesuffix(".json"))
    if not messages and place != (plain["study"], plain["finding"]):
        messages = [f"should lie at {plain['study']}/{plain['finding']}.json, after its fields 'study' and 'finding'"]
    if not messages and "schema" in plain:
        messages = list(differences(plain))
        if not has_its_digest(path):
            messages.append("field 'digest' does not match: the file was changed since it was written")
    return messages


def not_recomputable(folder: Path) -> list[str]:
    """Return the result files of the first schema, which has no values of seeds: they have to be re-run."""
    old = [path for path in result_files(folder) if "schema" not in read_json(path)]
    return [path.relative_to(folder).as_posix() for path in old]


# Provenance ----------------------------------------------------------------------------------------------------------


class Provenance(TypedDict):
    """Machine, versions and commit; no host names, no paths."""

    machine: str
    versions: dict[str, str]
    commit: str | None


def provenance(device: str = "cpu") -> Provenance:
    return {"machine": machine(device), "versions": versions(), "commit": commit()}


def machine(device: str = "cpu") -> str:
    """Return the processor, its cores, and the GPU if it was used."""
    parts = [_processor(), f"{os.cpu_count()} cores"]
    if device.startswith("cuda"):
        import torch

        parts.append(torch.cuda.get_device_name(device))
    return ", ".join(parts)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model.group(1).strip() if model else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    numbers = {"python": platform.python_version(), "attnscope": attnscope.__version__}
    for name in ("torch", "numpy", "scipy", "scikit-learn"):
        try:
            numbers[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return numbers


def commit() -> str | None:
    """Return the commit of the checkout that the package runs from, `+changes` if the package differs from it.

    Elsewhere return that of the environment variable ATTNSCOPE_COMMIT, or None.
    """
    package = Path(attnscope.__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:  # installed, or inside another project
        return os.environ.get("ATTNSCOPE_COMMIT")
    head = _git(package, "rev-parse", "HEAD")
    return head and head + ("+changes" if _git(package, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        process = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None
