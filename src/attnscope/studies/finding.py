"""One table or figure of a paper: what it trains, what it measures, what it claims, how it looks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnscope.errors import AttnscopeError
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.claims import ClaimVerdict, SeedValues
from attnscope.studies.result import Row, row
from attnscope.tasks import MissingCorpus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measurement = Mapping[str, Any]  # what one run says: numbers, and arrays for pictures
Label = Any  # of an experiment: a text; or, where findings ask for parts of it, a NamedTuple whose str() is that text
PublishedOf = Callable[[Label, str], dict[str, Any]]  # the published number of an experiment's quantity
Columns = Callable[[Label], dict[str, Any]]  # what an experiment is called in a table


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
class MissingData:
    """A corpus that is not on this machine, and where it was looked for."""

    message: str


def case_unless_missing(make: Callable[[], Case]) -> Case:
    """What needs a corpus stays among the cases where that is missing, to be reported as failed."""
    try:
        return make()
    except MissingCorpus as missing:
        return Case(settings=MissingData(str(missing)))


@dataclass(frozen=True)
class TrainedCase:
    """A case whose runs are trained, for one seed."""

    runs: Mapping[str, Run]
    settings: Any
    seed: int
    device: str


ExperimentOrCase = Experiment | Case
PerSeed = Callable[[int], ExperimentOrCase]  # where a seed changes more than the seed


def seeded(experiment: Experiment, seed: int, device: str) -> Experiment:
    return replace(experiment, seed=experiment.seed + seed, device=device)


class UnknownMeasurement(AttnscopeError):
    """A label or a name that was asked for, and those that there are."""


class SeedMeasurements(list[Measurement]):
    """What the runs of one experiment say, and of which seeds they are: those that failed are missing."""

    def __init__(self, measurements: Iterable[Measurement], seeds: Iterable[int]):
        super().__init__(measurements)
        self.seeds = tuple(seeds)


@dataclass(frozen=True)
class Measurements:
    """What the runs of each experiment of a finding say, one measurement a seed."""

    by_label: Mapping[Label, Sequence[Measurement]]

    def __getitem__(self, label: Label) -> Sequence[Measurement]:
        if label not in self.by_label:
            known = ", ".join(map(str, self)) or "none"
            raise UnknownMeasurement(f"there is no experiment {str(label)!r}; the experiments measured are {known}")
        return self.by_label[label]

    def __iter__(self) -> Any:
        return iter(self.by_label)

    def each(self, *parts: str) -> list[Any]:
        """The values of a part of the labels, or of several parts, each once."""
        found = [tuple(getattr(label, part) for part in parts) for label in self]
        return list(dict.fromkeys(values if len(parts) > 1 else values[0] for values in found))

    def where(self, **parts: Any) -> "Measurements":
        """Those whose labels have these parts."""
        return self.only(*(label for label in self if all(getattr(label, part) == parts[part] for part in parts)))

    def only(self, *labels: Label) -> "Measurements":
        return Measurements({label: self[label] for label in labels})

    def values(self, label: Label, name: str) -> SeedValues:
        """One number a seed."""
        return SeedValues(map(float, self.named(label, name)), label, self.seeds(label))

    def seeds(self, label: Label) -> tuple[int, ...]:
        group = self[label]
        return group.seeds if isinstance(group, SeedMeasurements) else tuple(range(len(group)))

    def have_same_seeds(self, labels: Iterable[Label]) -> bool:
        """Has each of these experiments the same seeds, so that they may be compared seed by seed?"""
        return len({self.seeds(label) for label in labels}) <= 1

    def flags(self, label: Label, name: str) -> list[bool]:
        return [bool(value) for value in self.named(label, name)]

    def named(self, label: Label, name: str) -> list[Any]:
        """What was measured under this name, one a seed."""
        for measurement in self[label]:
            if name not in measurement:
                known = ", ".join(measurement) or "nothing"
                raise UnknownMeasurement(f"{name!r} was not measured of {str(label)!r}; what was measured is {known}")
        return [measurement[name] for measurement in self[label]]

    def first(self, label: Label) -> Measurement:
        """The first seed's, for pictures of a single network."""
        return self[label][0]

    def pictures(self) -> dict[str, Any]:
        """The first seed's picture of each experiment."""
        return {str(label): self.first(label)["picture"] for label in self}

    def table(
        self,
        quantities: Mapping[str, str],
        stated: PublishedOf = lambda label, name: {},
        columns: Columns = lambda label: {"model": str(label)},
    ) -> list[Row]:
        """A row an experiment and quantity (name to text), with what the paper states of it."""
        return [
            row(
                **columns(label),
                quantity=text,
                values=[m[name] for m in self[label]],
                **stated(label, name),
            )
            for label in self
            for name, text in quantities.items()
            if all(name in m for m in self[label])
        ]


@dataclass(frozen=True)
class Finding:
    """`experiments` gives, by label, what to train (with any seed); the other functions read what the runs say.

    `measure` is given the Run of an experiment, or the TrainedCase of a case. Where it depends on what was measured
    what is to be trained next, `follow_up` says so.
    """

    name: str
    title: str
    section: str
    experiments: Callable[[Any], Mapping[Any, ExperimentOrCase | PerSeed]]
    measure: Callable[[Any], Measurement]
    table: Callable[[Measurements], list[Row]]
    claims: Callable[[Measurements], list[ClaimVerdict]]
    draw: "Callable[[Any], Figure]"
    figure: Callable[[Measurements], Any] = Measurements.pictures
    notes: tuple[str, ...] = ()
    follow_up: Callable[[Any, Measurements], Mapping[Any, ExperimentOrCase | PerSeed]] | None = None
    seeds: Callable[[Any], int] = lambda profile: int(profile.seeds)

    @property
    def file(self) -> str:
        """Where it is written, as a path of the package: where its claims are."""
        claims = self.claims.func if isinstance(self.claims, partial) else self.claims
        return f"{claims.__module__.removeprefix('attnscope.').replace('.', '/')}.py"


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
