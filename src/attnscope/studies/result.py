"""What does a finding leave behind? One JSON file, `<study>/<finding>.json`, that the report is drawn from."""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict

import attnscope
from attnscope.display import DataFrame, Displayed, Figure
from attnscope.files import Malformed, read_json, write_json
from attnscope.studies.claims import ClaimVerdict, Number, Values, finite, mean_and_sd, with_spread

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Result(Displayed):
    """One table or figure of a paper, measured again: the numbers, the verdicts, and where they come from."""

    finding: str
    study: str
    title: str
    section: str
    profile: str
    seeds: Sequence[int]
    settings: Mapping[str, Any]
    table: Sequence[Row]
    claims: Sequence[ClaimVerdict]
    notes: Sequence[str]
    seconds: Number
    machine: str
    versions: Mapping[str, str]
    commit: str | None
    figure: Any = None
    by_seed: Sequence[Mapping[str, Any]] | None = None  # what each seed gave; older results have means only

    def to_json(self) -> dict[str, Any]:
        """As plain lists and dictionaries; refused if a field is not what a reader of the file will expect."""
        plain: dict[str, Any] = {**vars(self), "claims": [asdict(claim) for claim in self.claims]}
        plain |= {name: list(plain[name]) for name in ("seeds", "table", "notes")}
        _refuse(problems(plain), f"{self.study}/{self.finding}")
        return plain

    @classmethod
    def from_json(cls, plain: Any, where: str = "result") -> Result:
        """The other way round; `where` names the file in what is said if a field is wrong."""
        _refuse(problems(plain), where)
        return cls(**{**plain, "claims": [ClaimVerdict(**claim) for claim in plain["claims"]]})

    def write(self, folder: Path) -> Path:
        path = folder / self.study / f"{self.finding}.json"
        write_json(path, self.to_json())
        return path

    @classmethod
    def read(cls, path: Path) -> Result:
        return cls.from_json(read_json(path), where=str(path))

    def display_name(self) -> tuple[str, str]:
        size = f"profile {self.profile}, seeds: {len(self.seeds)}"
        return f"{self.study} {self.finding}", f"{self.title} ({self.section}; {size})"

    def display_sentences(self) -> list[str]:
        return [f"{claim.word}: {claim.text} – {claim.why or claim.evidence}" for claim in self.claims]

    def display_tables(self) -> list[DataFrame]:
        """Published against ours."""
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
        """As in the report; none where a finding has none, or is not of a study that is known here."""
        from attnscope.studies import STUDIES, study

        if not self.figure or self.study not in STUDIES:
            return None
        found = [finding for finding in study(self.study).findings if finding.name == self.finding]
        return found[0].draw(self.figure) if found and found[0].draw else None


def row(*, values: Values, published: Number | None = None, published_text: str | None = None, **labels: str) -> Row:
    """A row of the table: what it is about, the published number, and ours over the seeds that gave one.

    >>> row(task="escan", model="AED", values=[0.75, 0.95], published=0.77, published_text="> 0.77")["mean"]
    0.85
    """
    kept = finite(values)
    mean, sd = (number if math.isfinite(number) else None for number in mean_and_sd(kept))
    stated = {} if published_text is None else {"published_text": published_text}
    return {**labels, "published": published, **stated, "mean": mean, "sd": sd, "n": len(kept)}


def labels_of(line: Row) -> dict[str, str]:
    """The columns of a row that say what it is about."""
    return {name: value for name, value in line.items() if name not in NUMBERS}


# What a file must hold -------------------------------------------------------------------------------------------

Check = tuple[str, Callable[[Any], bool]]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\w[\w.-]*", value) is not None


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool) or _is_number(value)


def _or_null(check: Check) -> Check:
    return f"{check[0]} or null", lambda value: value is None or check[1](value)


def _all(what: str, check: Check) -> Check:
    return f"a list of {what}", lambda value: isinstance(value, list) and all(map(check[1], value))


TEXT: Check = ("text", lambda value: isinstance(value, str))
NAME: Check = ("a name of letters, digits, '-', '_' and '.'", _is_name)
NUMBER: Check = ("a finite number", _is_number)
COUNT: Check = ("a whole number that is not negative", _is_count)
LIST: Check = ("a list", lambda value: isinstance(value, list))
PLAIN: Check = ("numbers, text, lists and dictionaries, without NaN", _is_plain)
OBJECT: Check = (f"a dictionary of {PLAIN[0]}", lambda value: isinstance(value, Mapping) and _is_plain(value))
TEXTS: Check = (
    "a dictionary of texts",
    lambda value: isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair),
)
TRUTH: Check = ("true, false or null", lambda value: value is None or isinstance(value, bool))

BY_SEED: Check = ("a list with the numbers of each label and seed", lambda v: isinstance(v, list) and _is_plain(v))

FIELDS: dict[str, Check] = {
    "finding": NAME, "study": NAME, "title": TEXT, "section": TEXT, "profile": TEXT,
    "seeds": _all("whole numbers", COUNT), "settings": OBJECT, "table": LIST, "claims": LIST,
    "notes": _all("texts", TEXT), "seconds": NUMBER, "machine": TEXT, "versions": TEXTS,
    "commit": _or_null(TEXT), "figure": PLAIN, "by_seed": _or_null(BY_SEED),
}  # fmt: skip
OPTIONAL = ("published_text", "by_seed")
CLAIM: dict[str, Check] = {"text": TEXT, "holds": TRUTH, "evidence": TEXT, "why": TEXT}
NUMBERS: dict[str, Check] = {
    "published": _or_null(NUMBER), "published_text": TEXT, "mean": _or_null(NUMBER), "sd": _or_null(NUMBER), "n": COUNT,
}  # fmt: skip


def problems(plain: Any) -> list[str]:
    """What is wrong with the content of a result file, a sentence a field; nothing if it is well formed."""
    if not isinstance(plain, dict):
        return [f"should be a dictionary, but is {_shown(plain)}"]
    found = list(_wrong(plain, FIELDS, ""))
    lines = plain["table"] if isinstance(plain.get("table"), list) else []
    claims = plain["claims"] if isinstance(plain.get("claims"), list) else []
    for number, line in enumerate(lines, start=1):
        found += _wrong_row(line, lines[0], f"table row {number}, ")
    for number, claim in enumerate(claims, start=1):
        found += _wrong_claim(claim, f"claim {number}, ")
    return found


def _wrong(plain: Any, fields: Mapping[str, Check], place: str) -> Iterator[str]:
    if not isinstance(plain, Mapping):
        yield f"{place}should be a dictionary, but is {_shown(plain)}"
        return
    for name in fields:
        if name not in plain and name not in OPTIONAL:
            yield f"{place}field '{name}' is missing"
    for name, value in plain.items():
        if name not in fields:
            yield f"{place}field '{name}' is unknown; the fields are {', '.join(fields)}"
        elif not fields[name][1](value):
            yield f"{place}field '{name}' should be {fields[name][0]}, but is {_shown(value)}"


def _wrong_row(line: Any, first: Any, place: str) -> Iterator[str]:
    if not isinstance(line, Mapping):
        yield f"{place}should be a dictionary, but is {_shown(line)}"
        return
    labels = labels_of(line)
    yield from _wrong(line, {**NUMBERS, **dict.fromkeys(labels, TEXT)}, place)
    if isinstance(first, Mapping) and labels.keys() != labels_of(first).keys():
        yield f"{place}the label columns are {', '.join(labels)}, but {', '.join(labels_of(first))} in row 1"
    n: Any = line.get("n")
    if _is_count(n) and (line.get("mean") is None, line.get("sd") is None) != (n == 0, n < 2):
        yield f"{place}'mean' should be null only if n = 0 and 'sd' only if n < 2, but n = {n}"


def _wrong_claim(claim: Any, place: str) -> Iterator[str]:
    yield from _wrong(claim, CLAIM, place)
    if isinstance(claim, Mapping) and claim.get("holds", True) is None and claim.get("why") == "":
        yield f"{place}field 'why' should say why the claim is undecided, but is empty"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(found: Sequence[str], where: str) -> None:
    if found:
        raise Malformed(f"{where}: {'; '.join(found)}")


def verify(folder: Path) -> list[str]:
    """What is wrong with the result files under a folder; nothing if every one can be read and lies in its place."""
    if not folder.is_dir():
        return [f"there is no folder {folder}"]
    paths = sorted(path for path in folder.rglob("*.json") if path.name != "audit.json")  # that is no finding
    if not paths:
        return [f"there is no result file (<study>/<finding>.json) under {folder}"]
    return [f"{path.relative_to(folder).as_posix()}: {problem}" for path in paths for problem in _problems_of(path)]


def _problems_of(path: Path) -> list[str]:
    try:
        plain = read_json(path)
    except Malformed as error:
        return [str(error).removeprefix(f"{path} ")]
    found = problems(plain)
    place = (path.resolve().parent.name, path.stem)
    if not found and place != (plain["study"], plain["finding"]):
        found = [f"should lie at {plain['study']}/{plain['finding']}.json, after its fields 'study' and 'finding'"]
    return found


# Where numbers come from -----------------------------------------------------------------------------------------


class Provenance(TypedDict):
    """On what, with what, and from which commit; no host names, no paths."""

    machine: str
    versions: dict[str, str]
    commit: str | None


def provenance(device: str = "cpu") -> Provenance:
    return {"machine": machine(device), "versions": versions(), "commit": commit()}


def machine(device: str = "cpu") -> str:
    """The processor, its cores, and the GPU if it was used."""
    parts = [_processor(), f"{os.cpu_count()} cores"]
    if device == "cuda":
        import torch

        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model.group(1).strip() if model else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "attnscope": attnscope.__version__}
    for name in ("torch", "numpy", "scipy", "scikit-learn"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the checkout that the package runs from, `+changes` if the package differs from it.

    Elsewhere the one that the environment variable ATTNSCOPE_COMMIT states, or None.
    """
    package = Path(attnscope.__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:  # installed, or inside another project
        return os.environ.get("ATTNSCOPE_COMMIT")
    head = _git(package, "rev-parse", "HEAD")
    return head and head + ("+changes" if _git(package, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
