"""One table or figure of a paper: what it trains, what it measures, what it claims, how it looks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.claims import Verdict
from attnscope.studies.result import Row, row
from attnscope.tasks import MissingCorpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measurement = Mapping[str, Any]  # what one run says: numbers, and arrays for pictures
Stated = Callable[[str, str], dict[str, Any]]  # the published number of an experiment's quantity


@dataclass(frozen=True)
class Profile:
    """A size at which a study is run: `quick` on two cores, `paper` as published. Studies add their own sizes."""

    name: str
    seeds: int


@dataclass(frozen=True)
class Case:
    """What is measured together: several runs, by the parts they play, or none; and settings of the measurement.

    The seed of an experiment is where its seeds begin: two runs of one part must not be each other's copies.
    """

    runs: Mapping[str, Experiment] = field(default_factory=dict)
    settings: Any = None  # a task, or a frozen dataclass

    def seeded(self, seed: int, device: str) -> "Case":
        runs = {part: seeded(experiment, seed, device) for part, experiment in self.runs.items()}
        return Case(runs, self.settings)


@dataclass(frozen=True)
class Absent:
    """A corpus that is not on this machine, and where it was looked for."""

    message: str


def unless_absent(make: Callable[[], Case]) -> Case:
    """What needs a corpus stays among the cases where that is missing, to be reported as failed."""
    try:
        return make()
    except MissingCorpus as missing:
        return Case(settings=Absent(str(missing)))


@dataclass(frozen=True)
class Subject:
    """A case whose runs are trained, for one seed."""

    runs: Mapping[str, Run]
    settings: Any
    seed: int
    device: str


Wanted = Experiment | Case
ForSeed = Callable[[int], Wanted]  # where a seed changes more than the seed


def seeded(experiment: Experiment, seed: int, device: str) -> Experiment:
    return replace(experiment, seed=experiment.seed + seed, device=device)


@dataclass(frozen=True)
class Measured:
    """What the runs of each experiment of a finding say, one measurement a seed."""

    by_label: Mapping[str, Sequence[Measurement]]

    def __getitem__(self, label: str) -> Sequence[Measurement]:
        return self.by_label[label]

    def __iter__(self) -> Any:
        return iter(self.by_label)

    def values(self, label: str, name: str) -> list[float]:
        """One number a seed."""
        return [float(measurement[name]) for measurement in self[label]]

    def flags(self, label: str, name: str) -> list[bool]:
        return [bool(measurement[name]) for measurement in self[label]]

    def first(self, label: str) -> Measurement:
        """The first seed's, for pictures of a single network."""
        return self[label][0]

    def pictures(self) -> dict[str, Any]:
        """The first seed's picture of each experiment."""
        return {label: self.first(label)["picture"] for label in self}

    def table(self, quantities: Mapping[str, str], stated: Stated | None = None) -> list[Row]:
        """A row an experiment and quantity (name to text), with what the paper states of it."""
        return [
            row(
                model=label,
                quantity=text,
                values=[m[name] for m in self[label] if name in m],
                **(stated(label, name) if stated else {}),
            )
            for label in self
            for name, text in quantities.items()
            if all(name in m for m in self[label])
        ]


@dataclass(frozen=True)
class Finding:
    """`experiments` gives, by label, what to train (with any seed); the other functions read what the runs say.

    `measure` is given the Run of an experiment, or the Subject of a case. Where it depends on what was measured what is
    to be trained next, `follow_up` says so.
    """

    name: str
    title: str
    section: str
    experiments: Callable[[Any], Mapping[str, Wanted | ForSeed]]
    measure: Callable[[Any], Measurement]
    table: Callable[[Measured], list[Row]]
    claims: Callable[[Measured], list[Verdict]]
    draw: "Callable[[Any], Figure]"
    figure: Callable[[Measured], Any] = Measured.pictures
    notes: tuple[str, ...] = ()
    follow_up: Callable[[Any, Measured], Mapping[str, Wanted | ForSeed]] | None = None
    seeds: Callable[[Any], int] = lambda profile: int(profile.seeds)


@dataclass(frozen=True)
class Study:
    """A paper: its findings, and the profiles in which they can be run."""

    name: str
    findings: tuple[Finding, ...]
    profiles: Mapping[str, Any]

    def finding(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)


def plain(value: Any) -> Any:
    """Arrays and tensors, of whichever device, as lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if hasattr(value, "tolist") else value


def shortened(value: Any) -> Any:
    """Numbers of a figure with four digits; NaN, which JSON does not know, as null."""
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shortened(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value
