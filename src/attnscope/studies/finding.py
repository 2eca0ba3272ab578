"""A finding: one table or figure of a paper, with what it trains, measures, claims and draws.

What findings have in common is here: `Measurements` makes tables, figure data and claims of labels (experiments),
quantities and published numbers.
"""

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.resources import files
from typing import Any, Generic, TypedDict

from typing_extensions import TypeVar

from attnscope.display import Figure
from attnscope.errors import AttnscopeError
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies import claims
from attnscope.studies.claims import ClaimVerdict, Number, Range, SeedValues
from attnscope.studies.result import Row, row
from attnscope.tasks import MissingCorpus

Measurement = Mapping[str, Any]  # of one run: numbers by name, and nested lists for pictures
Label = Any  # of an experiment: a string, or a NamedTuple whose str() is that string
FigureData = Any  # JSON: nested dictionaries and lists of numbers and strings, in the form that `draw` reads
Settings = TypeVar("Settings", default=Any)  # of a case: a task, or a frozen dataclass
LabelT = TypeVar("LabelT")


class PublishedNumber(TypedDict, total=False):
    """A number of the paper and the text around it ("> 0.77"); empty where the paper gives none."""

    published: float
    published_text: str


PublishedOf = Callable[[Label, str], PublishedNumber]  # the published number of a label's quantity
Columns = Callable[[Label], dict[str, str]]  # the columns that name a label in a table


def nothing_published(label: Label, name: str) -> PublishedNumber:
    """Return no published number."""
    return {}


def model_column(label: Label) -> dict[str, str]:
    """Return one column, `model`, with the label as text."""
    return {"model": str(label)}


@cache
def study_toml(study: str, file: str) -> dict[str, Any]:
    """Return the content of a TOML file of a study."""
    return tomllib.loads(files(f"attnscope.studies.{study}").joinpath(file).read_text(encoding="utf-8"))


def published_by(study: str) -> Callable[[str, str], PublishedNumber]:
    """Return a function of section and quantity: the number that the study's TOML files have there."""

    @cache
    def sections() -> dict[str, Any]:
        names = [file.name for file in files(f"attnscope.studies.{study}").iterdir() if file.name.endswith(".toml")]
        return {section: rows for name in names for section, rows in study_toml(study, name).items()}

    def published(section: str, quantity: str) -> PublishedNumber:
        number = sections().get(section, {}).get(quantity)
        return {"published": number["value"], "published_text": number["text"]} if number else {}

    return published


# What is trained -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile:
    """A size at which a study is run: `quick` for two cores, `paper` as published. Studies add fields of their own."""

    name: str
    seeds: int
    first_seed: int = field(default=0, kw_only=True)  # seeds of pilot runs are not judged


@dataclass(frozen=True)
class Case(Generic[Settings]):
    """What is measured together: runs by their role (there may be none), and settings of the measurement.

    The seed of each experiment is an offset: the seed of the case is added to it.
    """

    runs: Mapping[str, Experiment] = field(default_factory=dict)
    settings: Settings | None = None

    def with_seed(self, seed: int, device: str) -> "Case[Settings]":
        """Return the case with every experiment at this seed and on this device."""
        return replace(self, runs={role: with_seed(experiment, seed, device) for role, experiment in self.runs.items()})


def with_seed(experiment: Experiment, seed: int, device: str) -> Experiment:
    """Return the experiment with this seed added to its own, on this device."""
    return replace(experiment, seed=experiment.seed + seed, device=device)


@dataclass(frozen=True)
class MissingData:
    """Settings of a case whose corpus is not on this machine: where it was searched for."""

    message: str


def case_unless_missing(make: Callable[[], Case]) -> Case:
    """Return the case, or one that is reported as failed where its corpus is missing."""
    try:
        return make()
    except MissingCorpus as missing:
        return Case(settings=MissingData(str(missing)))


def cases(labels: Iterable[LabelT], make: Callable[[LabelT], Case]) -> dict[LabelT, Case]:
    """Return the case of each label; one whose corpus is missing is reported as failed."""
    return {label: case_unless_missing(partial(make, label)) for label in labels}


@dataclass(frozen=True)
class TrainedCase(Generic[Settings]):
    """A case of one seed with its runs trained: what `measure` receives."""

    runs: Mapping[str, Run]
    settings: Settings
    seed: int
    device: str


ExperimentOrCase = Experiment | Case
PerSeed = Callable[[int], ExperimentOrCase]  # where more than the seed differs between seeds


# What was measured ---------------------------------------------------------------------------------------------------


class UnknownMeasurement(AttnscopeError):
    """A label or quantity that was not measured; the message lists those that were."""


class SeedMeasurements(list[Measurement]):
    """The measurements of one experiment and their seeds, which skip those that failed."""

    def __init__(self, measurements: Iterable[Measurement], seeds: Iterable[int]):
        super().__init__(measurements)
        self.seeds = tuple(seeds)


@dataclass(frozen=True)
class Measurements:
    """The measurements of a finding: by label, one per seed. Tables, figure data and claims are made of them.

    `ranges` has patterns of the names of bounded quantities, and their smallest and largest values.
    """

    by_label: Mapping[Label, Sequence[Measurement]]
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def __getitem__(self, label: Label) -> Sequence[Measurement]:
        if label not in self.by_label:
            labels = ", ".join(map(str, self)) or "none"
            raise UnknownMeasurement(f"there is no experiment {str(label)!r}; the experiments measured are {labels}")
        return self.by_label[label]

    def __iter__(self) -> Iterator[Label]:
        return iter(self.by_label)

    def each(self, *parts: str) -> list[Any]:
        """Return the distinct values of one field of the labels, or of several fields as tuples."""
        values = [tuple(getattr(label, part) for part in parts) for label in self]
        return list(dict.fromkeys(value if len(parts) > 1 else value[0] for value in values))

    def where(self, **parts: object) -> "Measurements":
        """Return those whose labels have these fields."""
        return self.only(*(label for label in self if all(getattr(label, part) == parts[part] for part in parts)))

    def only(self, *labels: Label) -> "Measurements":
        """Return those of these labels."""
        return replace(self, by_label={label: self[label] for label in labels})

    def seeds(self, label: Label) -> tuple[int, ...]:
        """Return the seeds that were measured."""
        group = self[label]
        return group.seeds if isinstance(group, SeedMeasurements) else tuple(range(len(group)))

    def have_same_seeds(self, labels: Iterable[Label]) -> bool:
        """Return whether all these labels have the same seeds, so that they can be compared seed by seed."""
        return len({self.seeds(label) for label in labels}) <= 1

    def per_seed(self, label: Label, name: str) -> list[Any]:
        """Return a quantity, or a list or picture, of each seed."""
        for measurement in self[label]:
            if name not in measurement:
                known = ", ".join(measurement) or "nothing"
                raise UnknownMeasurement(f"{name!r} was not measured of {str(label)!r}; what was measured is {known}")
        return [measurement[name] for measurement in self[label]]

    def values(self, label: Label, name: str) -> SeedValues:
        """Return a quantity as numbers, one per seed."""
        within = next((ends for pattern, ends in self.ranges.items() if fnmatchcase(name, pattern)), None)
        return SeedValues(map(float, self.per_seed(label, name)), label, self.seeds(label), within)

    def flags(self, label: Label, name: str) -> list[bool]:
        """Return a quantity as booleans, one per seed."""
        return [bool(value) for value in self.per_seed(label, name)]

    def has(self, label: Label, name: str) -> bool:
        """Return whether every seed of the label has this quantity."""
        return all(name in measurement for measurement in self[label])

    def first(self, label: Label) -> Measurement:
        """Return the first seed's measurement, for pictures of a single network."""
        return self[label][0]

    # Table and figure data

    def table(
        self,
        quantities: Mapping[str, str],
        published: PublishedOf = nothing_published,
        columns: Columns = model_column,
    ) -> list[Row]:
        """Return one row per label and quantity that it has, beside the published number.

        Args:
            quantities: Names in a measurement, and the text of each in the table.
            published: The published number of a label's quantity.
            columns: The columns that name a label.
        """
        return [
            row(**columns(label), quantity=text, values=self.values(label, name), **published(label, name))
            for label in self
            for name, text in quantities.items()
            if self.has(label, name)
        ]

    def seed_values(self, names: Iterable[str]) -> dict[str, dict[str, SeedValues]]:
        """Return, by label, the quantities that it has of these, one number per seed: figure data of bar charts."""
        names = list(names)
        return {
            str(label): {name: self.values(label, name) for name in names if self.has(label, name)} for label in self
        }

    def pictures(self) -> dict[str, Any]:
        """Return the first seed's `picture` of each label."""
        return {str(label): self.first(label)["picture"] for label in self}

    # Claims about quantities of labels; the functions of the same names in `claims` say how they are judged

    def at_least(self, text: str, label: Label, name: str, threshold: Number) -> ClaimVerdict:
        return claims.at_least(text, self.values(label, name), threshold)

    def at_most(self, text: str, label: Label, name: str, threshold: Number) -> ClaimVerdict:
        return claims.at_most(text, self.values(label, name), threshold)

    def more_than(self, text: str, label: Label, other: Label, name: str, factor: Number = 1.0) -> ClaimVerdict:
        """Claim that the quantity of `label` is more than `factor` times that of `other`."""
        return claims.more_than(text, self.values(label, name), self.values(other, name), factor)

    def greater(self, text: str, label: Label, name: str, other: str, factor: Number = 1.0) -> ClaimVerdict:
        """Claim that the quantity `name` of a label is more than `factor` times its quantity `other`."""
        return claims.more_than(text, self.values(label, name), self.values(label, other), factor)

    def no_lower(self, text: str, label: Label, other: Label, name: str, margin: Number) -> ClaimVerdict:
        """Claim that the quantity of `label` is at most `margin` lower than that of `other`."""
        return claims.no_lower(text, self.values(label, name), self.values(other, name), margin)

    def equivalent(self, text: str, label: Label, other: Label, name: str, margin: Number) -> ClaimVerdict:
        """Claim that the quantity of `label` differs from that of `other` by less than `margin`."""
        return claims.equivalent(text, self.values(label, name), self.values(other, name), margin)

    def proportion(self, text: str, label: Label, name: str, test: Callable[[Any], bool] = bool) -> ClaimVerdict:
        """Claim that the quantity passes the test in more than half of the networks."""
        return claims.proportion(text, [test(value) for value in self.per_seed(label, name)])

    def exact(self, text: str, label: Label, name: str, test: Callable[[Any], bool] = bool) -> ClaimVerdict:
        """Claim that the quantity, which is not random, passes the test."""
        return claims.exact(text, [test(value) for value in self.per_seed(label, name)])


# The finding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A table or figure of a paper, or a question beyond it.

    Attributes:
        experiments: From a profile, by label, what is trained: an experiment, a case of several, or a function that
            gives one of them for a seed.
        measure: From the Run of an experiment, or the TrainedCase of a case, numbers by name.
        table: The quantities in the table (name in a measurement to text), or a function that gives its rows.
        claims: From all measurements, the verdicts.
        draw: Draws the figure, or several, from their data, which a result file holds as JSON. Without it there is no
            figure.
        figure: The quantities that the figure data hold (`Measurements.seed_values`), or a function that gives the
            data. By default they are the first seed's `picture` of each label.
        published, columns: Of a table given by its quantities: see `Measurements.table`.
        follow_up: From a profile and all measurements, what is trained next.
        seeds: From a profile, the number of seeds.
    """

    name: str
    title: str
    section: str
    experiments: Callable[[Any], Mapping[Any, ExperimentOrCase | PerSeed]]
    measure: Callable[[Any], Measurement]
    table: Mapping[str, str] | Callable[[Measurements], list[Row]]
    claims: Callable[[Measurements], list[ClaimVerdict]]
    draw: Callable[[Any], Figure | Sequence[Figure]] | None = None
    figure: Iterable[str] | Callable[[Measurements], FigureData] = Measurements.pictures
    notes: tuple[str, ...] = ()
    follow_up: Callable[[Any, Measurements], Mapping[Any, ExperimentOrCase | PerSeed]] | None = None
    seeds: Callable[[Any], int] = lambda profile: int(profile.seeds)
    first_seed: int | None = None  # by default the profile's
    published: PublishedOf = nothing_published
    columns: Columns = model_column

    def table_rows(self, measured: Measurements) -> list[Row]:
        """Return the rows of the table."""
        if callable(self.table):
            return self.table(measured)
        return measured.table(self.table, self.published, self.columns)

    def figure_data(self, measured: Measurements) -> FigureData:
        """Return what `draw` reads, or None for a finding without a figure."""
        if self.draw is None:
            return None
        return self.figure(measured) if callable(self.figure) else measured.seed_values(self.figure)

    @property
    def file(self) -> str:
        """The file with its claims, as a path inside the package."""
        judge = self.claims.func if isinstance(self.claims, partial) else self.claims
        return f"{judge.__module__.removeprefix('attnscope.').replace('.', '/')}.py"


@dataclass(frozen=True)
class Study:
    """A paper: its findings, and the profiles in which they can be run.

    Attributes:
        ranges: By pattern (`fnmatch`) of the names of bounded quantities, their smallest and largest values.
        sanity: Patterns of the texts of claims that are sanity checks, such as "above chance".
        substitutes: By corpus that stands in for the paper's, what it is; claims about it are not counted.
    """

    name: str
    findings: tuple[Finding, ...]
    profiles: Mapping[str, Any]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    sanity: tuple[str, ...] = ()
    substitutes: Mapping[str, str] = field(default_factory=dict)

    def finding(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)


def plain(value: Any) -> Any:
    """Return arrays and tensors, of whichever device, as lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.tolist() if hasattr(value, "tolist") else value


def round_numbers(value: Any) -> Any:
    """Return the numbers of a figure with four digits, and NaN, which JSON does not have, as null."""
    if isinstance(value, dict):
        return {key: round_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [round_numbers(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value
