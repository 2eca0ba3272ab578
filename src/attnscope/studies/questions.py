"""What is asked of trained networks, and who answers? What the store does not have, workers train and measure."""

import json
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

import attnscope
from attnscope.errors import AttnscopeError, require
from attnscope.files import write_atomically
from attnscope.lab.configuration import describe
from attnscope.lab.engines.worker import error_message
from attnscope.lab.experiment import Experiment, Run, load_run, train_all
from attnscope.lab.store import Store, key
from attnscope.studies import study
from attnscope.studies.finding import ExperimentOrCase, Measurement, MissingData, TrainedCase, plain
from attnscope.studies.result import commit
from attnscope.tasks import MissingCorpus

SHARED = "store.json"
MEASUREMENTS = "measurements"


@dataclass(frozen=True, eq=False)
class Question:
    """What is to be measured, for one finding and seed."""

    study: str
    finding: str
    wanted: ExperimentOrCase
    seed: int
    device: str
    store: str

    @property
    def experiments(self) -> list[Experiment]:
        return [self.wanted] if isinstance(self.wanted, Experiment) else list(self.wanted.runs.values())

    @property
    def config(self) -> Any:
        """What is trained and measured, as JSON."""
        return described(self.wanted)

    @property
    def key(self) -> str:
        """The same for findings that measure the same runs in the same way; another one after any change of code."""
        measure = study(self.study).finding(self.finding).measure
        how = {"measure": f"{measure.__module__}.{measure.__qualname__}", "source": source(measure.__module__)}
        return key({"what": self.config, "seed": self.seed, "device": self.device, **how})

    @property
    def path(self) -> Path:
        """Where the answer is kept."""
        return Path(self.store) / MEASUREMENTS / f"{self.key}.json"


@dataclass(frozen=True)
class Answer:
    """What was measured, the seconds of computing behind it, and with what: commit, device, torch, TF32."""

    measurement: Measurement
    seconds: float
    origin: Mapping[str, Any] = field(default_factory=dict)


def name_or_failure(question: Question) -> tuple[str, str | None]:
    """The key of a question; or, where its data are missing or its settings cannot be stored, why it has none."""
    try:
        return question.key, None
    except Exception as error:
        return f"failed: {error}", error_message(error)


# In a worker, on whichever machine ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """Experiments that are trained by one worker: one, or on a GPU all seeds of a configuration at once."""

    study: str
    experiments: tuple[Experiment, ...]
    store: str


def carry_out(training: Training) -> None:
    """Train, or find trained."""
    if not (Path(training.store) / SHARED).exists():
        raise AttnscopeError(
            f"this node does not see the store {training.store}; it must be on a disk that all nodes share"
        )
    study(training.study)  # an attention that it makes known is known here as well
    train_all(training.experiments, Store(training.store))


def answer(question: Question) -> Answer:
    """Measure, or find measured."""
    path = question.path
    if not path.exists():
        started = time.monotonic()
        store = Store(question.store)
        runs = {experiment.key: load_run(experiment, store) for experiment in question.experiments}
        measure = study(question.study).finding(question.finding).measure
        measurement = plain(measure(subject(question, runs)))
        require(
            isinstance(measurement, dict),
            f"the measure of {question.study}/{question.finding} should give a dictionary, numbers by name, such as "
            f"{{'accuracy': 0.9}}, but gave {textwrap.shorten(repr(measurement), 80, placeholder=' …')}",
        )
        seconds = time.monotonic() - started + sum(run.summary["seconds"] for run in runs.values())
        # Not by write_json: a measurement may hold NaN, where a claim has nothing to say.
        kept = {"measurement": measurement, "seconds": seconds, "origin": origin(question.device)}
        write_atomically(path, json.dumps(kept).encode())
    return Answer(**json.loads(path.read_bytes()))


def origin(device: str) -> dict[str, Any]:
    """With what a network was trained and measured; products of matrices have TF32 on a GPU while it is trained."""
    return {"commit": commit(), "device": device, "torch": torch.__version__, "tf32": device.startswith("cuda")}


def subject(question: Question, runs: Mapping[str, Run]) -> Run | TrainedCase:
    if isinstance(question.wanted, Experiment):
        return runs[question.wanted.key]
    if isinstance(question.wanted.settings, MissingData):
        raise MissingCorpus(question.wanted.settings.message)
    by_part = {part: runs[experiment.key] for part, experiment in question.wanted.runs.items()}
    return TrainedCase(by_part, question.wanted.settings, question.seed, question.device)


def described(wanted: ExperimentOrCase) -> Any:
    if isinstance(wanted, Experiment):
        return wanted.config()
    runs = {part: experiment.config() for part, experiment in wanted.runs.items()}
    return {"runs": runs, "settings": describe(wanted.settings)}


@cache
def source(module: str) -> str:
    """A checksum of the package, and of a module from elsewhere: what other code has measured is measured again."""
    package, own = (Path(sys.modules[name].__file__ or "") for name in (attnscope.__name__, module))
    files = sorted({own, *(path for path in package.parent.rglob("*") if path.suffix in (".py", ".toml"))})
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
