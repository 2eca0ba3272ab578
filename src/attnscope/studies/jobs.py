"""Jobs of a study, which workers carry out: training experiments and measuring trained networks.

A measurement is stored under a key. The key changes with the code that it depends on (`code_checksum`), so that other
code measures again.
"""

import ast
import json
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, TypedDict

import torch

import attnscope
from attnscope.errors import AttnscopeError, require
from attnscope.files import read_checked, write_checked
from attnscope.lab.configuration import describe
from attnscope.lab.engines.local import error_message
from attnscope.lab.ensembles import train_all
from attnscope.lab.experiment import Experiment, Run, load_run
from attnscope.lab.store import Store, key
from attnscope.studies import study
from attnscope.studies.finding import Case, ExperimentOrCase, Measurement, MissingData, TrainedCase, plain
from attnscope.studies.result import JSONObject, commit, machine, versions
from attnscope.tasks import MissingCorpus

SHARED = "store.json"
MEASUREMENTS = "measurements"
PACKAGE = Path(attnscope.__file__).parent
Import = tuple[str, str | None]  # a module, and a name that is imported from it
# What draws, judges and writes numbers: it changes no measurement.
NOT_MEASURING = (
    "attnscope.plots", "attnscope.display", "attnscope.report", "attnscope.studies.bars", "attnscope.studies.claims",
    "attnscope.studies.result",
)  # fmt: skip


class Origin(TypedDict, total=False):
    """With what a network was trained and measured; on a GPU, training uses TF32 for products of matrices."""

    commit: str | None
    machine: str
    device: str
    torch: str
    tf32: bool


@dataclass(frozen=True, eq=False)
class MeasurementJob:
    """What is measured for one finding and seed."""

    stage: ClassVar = "measured"
    study: str
    finding: str
    subject: ExperimentOrCase
    seed: int
    device: str
    store: str

    @property
    def experiments(self) -> list[Experiment]:
        return [self.subject] if isinstance(self.subject, Experiment) else list(self.subject.runs.values())

    @property
    def config(self) -> JSONObject:
        """What is trained and measured, as JSON."""
        if isinstance(self.subject, Experiment):
            return self.subject.config()
        runs = {role: experiment.config() for role, experiment in self.subject.runs.items()}
        return {"runs": runs, "settings": describe(self.subject.settings)}

    @property
    def key(self) -> str:
        """The same for findings that measure the same runs with the same code."""
        measure = study(self.study).finding(self.finding).measure
        how = {"measure": f"{measure.__module__}.{measure.__qualname__}", "source": code_checksum(measure.__module__)}
        return key({"what": self.config, "seed": self.seed, "device": self.device, **how})

    @property
    def path(self) -> Path:
        """The file of the measurement."""
        return Path(self.store) / MEASUREMENTS / f"{self.key}.json"

    @property
    def stored(self) -> bytes | None:
        """The stored measurement; None if there is none or it is damaged."""
        return read_checked(self.path)


@dataclass(frozen=True)
class JobResult:
    """A measurement, the seconds of computing behind it, where it comes from, and the versions of packages there."""

    measurement: Measurement
    seconds: float
    origin: Origin = field(default_factory=Origin)
    versions: dict[str, str] = field(default_factory=dict)


def key_or_failure(job: MeasurementJob) -> tuple[str, str | None]:
    """Return the key of a job; where its data are missing or its settings cannot be stored, a stand-in and why."""
    try:
        return job.key, None
    except Exception as error:
        return f"failed: {error}", error_message(error)


# In a worker, on whichever machine -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingJob:
    """Experiments that one worker trains: one, or on a GPU all seeds of a configuration as an ensemble."""

    stage: ClassVar = "trained"
    study: str
    experiments: tuple[Experiment, ...]
    store: str


Job = TrainingJob | MeasurementJob


def run_job(job: Job) -> JobResult | None:
    """Train, or measure."""
    if isinstance(job, MeasurementJob):
        return run_measurement(job)
    run_training(job)
    return None


def run_training(job: TrainingJob) -> None:
    """Train the experiments that the store does not have."""
    if not (Path(job.store) / SHARED).exists():
        raise AttnscopeError(f"this node does not see the store {job.store}; it must be on a disk that all nodes share")
    study(job.study)  # registers what the study adds, such as an attention of its own
    train_all(job.experiments, Store(job.store))


def run_measurement(job: MeasurementJob) -> JobResult:
    """Return the stored measurement; where there is none, measure and store it."""
    stored = job.stored
    if stored is None:
        start = time.monotonic()
        store = Store(job.store)
        runs = {experiment.key: load_run(experiment, store) for experiment in job.experiments}
        measurement = plain(study(job.study).finding(job.finding).measure(trained_subject(job, runs)))
        require(
            isinstance(measurement, dict),
            f"the measure of {job.study}/{job.finding} should give a dictionary, numbers by name, such as "
            f"{{'accuracy': 0.9}}, but gave {textwrap.shorten(repr(measurement), 80, placeholder=' …')}",
        )
        seconds = time.monotonic() - start + sum(run.summary["seconds"] for run in runs.values())
        record = {
            "measurement": measurement, "seconds": seconds, "origin": origin(job.device), "versions": versions()
        }  # fmt: skip
        stored = json.dumps(record).encode()  # not by write_json: a measurement may hold NaN
        write_checked(job.path, stored)
    return JobResult(**json.loads(stored))


def origin(device: str) -> Origin:
    """Return the commit, machine, device, torch version and TF32 flag of this process."""
    on_gpu = device.startswith("cuda")
    return {
        "commit": commit(), "machine": machine(device), "device": device, "torch": torch.__version__, "tf32": on_gpu
    }  # fmt: skip


def trained_subject(job: MeasurementJob, runs: Mapping[str, Run]) -> Run | TrainedCase:
    """Return what `measure` receives, from runs by the key of their experiment."""
    if isinstance(job.subject, Experiment):
        return runs[job.subject.key]
    case: Case = job.subject
    if isinstance(case.settings, MissingData):
        raise MissingCorpus(case.settings.message)
    by_role = {role: runs[experiment.key] for role, experiment in case.runs.items()}
    return TrainedCase(by_role, case.settings, job.seed, job.device)


# The code that a measurement depends on ------------------------------------------------------------------------------


@cache
def code_checksum(module: str) -> str:
    """Return a checksum of the code of a module and of the modules it imports, transitively.

    Modules are those of attnscope and those beside the given one. Docstrings, comments, drawing and judging count for
    nothing; TOML files beside a module count as its data.
    """
    waiting, code = [module], dict[Path, bytes]()
    while waiting:
        name = waiting.pop()
        path = _source_of(name, module)
        if path is None or path in code or name.startswith(NOT_MEASURING):
            continue
        code[path], imports = _code_and_imports(path, name)
        waiting += [_definer(source, imported, module) for source, imported in imports]
    data = sorted({file for path in code for file in path.parent.glob("*.toml")})
    return sha256(b"".join([*(code[path] for path in sorted(code)), *map(Path.read_bytes, data)])).hexdigest()


def _source_of(module: str, start: str) -> Path | None:
    """Return the file of a module of attnscope, or of one beside the module `start`."""
    package, _, last = module.rpartition(".")
    if module.startswith(f"{attnscope.__name__}."):  # the top of the package only gives names to what is inside
        base = PACKAGE.joinpath(*module.split(".")[1:])
    elif package == start.rpartition(".")[0]:
        base = Path(sys.modules[start].__file__ or "").parent / last
    else:
        return None
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@cache
def _code_and_imports(path: Path, module: str) -> tuple[bytes, list[Import]]:
    """Return a checksum of a file's code without docstrings, and what it imports."""
    tree = ast.parse(path.read_bytes())
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    imports = list(_imports(tree, package))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [line for line in node.body if not _is_text(line)]
    return sha256(repr(_structure(tree)).encode()).digest(), imports


def _structure(node: object) -> object:
    """Return a syntax tree as tuples. `ast.dump` shows empty fields, which depend on the version of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return type(node).__name__, *((name, _structure(value)) for name, value in fields)
    return [_structure(each) for each in node] if isinstance(node, list) else node


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _imports(node: ast.AST, package: str) -> Iterator[Import]:
    """Yield the modules, and the names from them, that code imports when it runs."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")
        above = parents[: len(parents) - node.level + 1] if node.level else []
        yield from ((".".join([*above, node.module or ""]).rstrip("."), alias.name) for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package)


def _definer(module: str, name: str | None, start: str) -> str:
    """Return the module in which a name is defined: a submodule, or where a package's `__init__` has it from."""
    path = _source_of(module, start)
    if name is None or path is None:
        return module
    if _source_of(f"{module}.{name}", start) is not None:
        return f"{module}.{name}"
    if path.name == "__init__.py":
        source = next((source for source, known in _code_and_imports(path, module)[1] if known == name), module)
        return _definer(source, name, start) if source != module else module
    return module
