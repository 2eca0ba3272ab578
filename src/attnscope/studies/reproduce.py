"""Reproduce findings: train what they need, measure, judge the claims, and write the results."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from attnscope.errors import AttnscopeError, require
from attnscope.files import write_json
from attnscope.lab.engines import Engine, Outcome
from attnscope.lab.engines.local import error_message
from attnscope.lab.ensembles import group_for_workers
from attnscope.lab.experiment import Experiment
from attnscope.lab.store import Store
from attnscope.studies.claims import Range
from attnscope.studies.finding import (
    Case,
    ExperimentOrCase,
    FigureData,
    Finding,
    Label,
    Measurement,
    Measurements,
    MissingData,
    Profile,
    SeedMeasurements,
    Study,
    UnknownMeasurement,
    plain,
    round_numbers,
    with_seed,
)
from attnscope.studies.jobs import (
    SHARED,
    Job,
    JobResult,
    MeasurementJob,
    TrainingJob,
    key_or_failure,
    run_job,
    run_measurement,
)
from attnscope.studies.result import (
    KEPT,
    NOT_MEASURED,
    PARTIAL,
    RUNS_FAILED,
    JSONObject,
    Provenance,
    Result,
    SeedRecord,
    commit,
    provenance,
)

# "trained" or "measured", how many jobs of this kind are done, how many there are, and why this one failed.
Progress = Callable[[str, int, int, str], None]
STORED_DEVICES = ("cuda", "cpu")  # of stored measurements; the first that there is counts
TRAINING_PARTS = ("seeds", "experiments", "follow_up")  # parts of a finding that say what is trained


class FindingError(AttnscopeError):
    """A part of a finding that raises: what is trained, its table, its claims or its figure."""


def finding_error(part: str, study: Study, finding: Finding, error: Exception) -> FindingError:
    """Return an error that names the part and the finding."""
    if isinstance(error, FindingError):
        return error
    cannot = "made" if part in TRAINING_PARTS else "judged"
    wrapper = FindingError(f"the {part} of {study.name}/{finding.name} could not be {cannot}: {error_message(error)}")
    wrapper.__cause__ = error
    return wrapper


def reproduce(
    study: Study,
    findings: Sequence[Finding],
    profile: str,
    seeds: int | None,
    store: Path,
    engine: Engine,
    device: str = "cpu",
    progress: Progress | None = None,
    first_seed: int | None = None,
    stored_only: bool = False,
) -> list[Result]:
    """Run findings and write `<store>/results/<study>/<finding>.json` for each.

    Args:
        study: The study.
        findings: Findings of this study.
        profile: The name of one of its profiles.
        seeds: The number of seeds; by default the finding's.
        store: The folder of runs, measurements and results.
        engine: Runs the jobs.
        device: "cpu" or "cuda".
        progress: Is called after each job.
        first_seed: Where seeds begin; by default that of the finding, or else of the profile.
        stored_only: Whether stored measurements, of any device, are judged as they are, and nothing is run.

    Returns:
        One result per finding.
    """
    settings = study.profiles[profile]
    if not stored_only:
        write_json(store / SHARED, {"store": "every node that works for this store must see this file"})
    work = Reproduction(study, store.resolve(), engine, device, progress, stored_only)
    runs = [work.start(finding, seeds, first_seed, settings) for finding in findings]
    runs = work.run_part(runs, "experiments", lambda run: run.finding.experiments(settings))
    if any(finding.follow_up for finding in findings):
        runs = work.run_part(runs, "follow_up", lambda run: follow_up(run, settings))
    return write_results(runs, study, settings, device, store / "results")


def follow_up(run: "FindingRun", settings: Profile) -> Any:
    """Return what is trained next, where that depends on what was measured."""
    return {} if run.finding.follow_up is None else run.finding.follow_up(settings, run.measured)


# One finding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FindingRun:
    """A finding with its jobs, one per label and seed, and their outcomes."""

    finding: Finding
    seeds: Sequence[int]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    jobs: Mapping[Label, Sequence[MeasurementJob]] = field(default_factory=dict)
    outcomes: Mapping[Label, Sequence[Outcome[JobResult]]] = field(default_factory=dict)
    error: FindingError | None = None  # in what it trains; then nothing more is run

    def with_jobs(self, jobs: Mapping[Label, Sequence[MeasurementJob]]) -> "FindingRun":
        """Return the run with more jobs; a label that comes again loses its outcomes."""
        outcomes = {label: group for label, group in self.outcomes.items() if label not in jobs}
        return replace(self, jobs={**self.jobs, **jobs}, outcomes=outcomes)

    @property
    def open_jobs(self) -> dict[Label, Sequence[MeasurementJob]]:
        return {label: group for label, group in self.jobs.items() if label not in self.outcomes}

    def with_outcomes(self, outcomes: Mapping[Label, Sequence[Outcome[JobResult]]]) -> "FindingRun":
        merged = {**self.outcomes, **outcomes}
        return replace(self, outcomes={label: merged[label] for label in self.jobs})

    def results(self, label: Label) -> dict[int, JobResult]:
        """Return the results of a label by seed, without those that failed; none while seeds are to be measured."""
        outcomes = self.outcomes[label]
        if any(outcome.failure == NOT_MEASURED for outcome in outcomes):
            return {}
        by_seed = zip(self.seeds, outcomes, strict=True)
        return {seed: outcome.value for seed, outcome in by_seed if outcome.value is not None}

    @property
    def measured(self) -> Measurements:
        groups = {label: self.results(label) for label in self.outcomes}
        return Measurements(
            {
                label: SeedMeasurements((result.measurement for result in group.values()), group)
                for label, group in groups.items()
            },
            self.ranges,
        )

    def result(self, study: Study, profile: Profile, device: str) -> Result:
        """Return the judged result; a run that failed is named in a note."""
        finding, measured, by_seed = self.finding, self.measured, self.by_seed()
        return Result(
            finding=finding.name,
            study=study.name,
            title=finding.title,
            section=finding.section,
            profile=profile.name,
            seeds=list(self.seeds),
            settings={"profile": asdict(profile), "experiments": self.configs()},
            table=self.evaluate("table", study, measured),
            claims=self.evaluate("claims", study, measured),
            notes=[*finding.notes, *self.failures()],
            seconds=round(sum(record["seconds"] for record in by_seed), 1),
            figure=self.figure(study, measured),
            by_seed=by_seed,
            **self.provenance(device),
        )

    def evaluate(self, part: str, study: Study, measured: Measurements) -> Any:
        """Return the table, claims or figure data of the measurements."""
        finding = self.finding
        parts = {"table": finding.table_rows, "claims": finding.claims, "figure": finding.figure_data}
        try:
            return parts[part](measured)
        except Exception as error:
            raise finding_error(part, study, finding, error) from error

    def figure(self, study: Study, measured: Measurements) -> FigureData:
        """Return the figure data of the labels that were measured; None if the figure needs those that failed."""
        present = measured.only(*(label for label in measured if measured[label]))
        if not present.by_label:
            return None
        try:
            return round_numbers(plain(self.evaluate("figure", study, present)))
        except FindingError as error:
            if present == measured or not isinstance(error.__cause__, KeyError | UnknownMeasurement):
                raise
            return None

    def by_seed(self) -> list[SeedRecord]:
        """Return the numbers of each label and seed, and with what they were made."""
        return [
            {
                "label": str(label),
                "seed": seed,
                "values": numbers(result.measurement),
                "seconds": round(result.seconds, 1),
                **result.origin,
            }
            for label in self.outcomes
            for seed, result in self.results(label).items()
        ]

    def provenance(self, device: str) -> Provenance:
        """Return the machines and versions behind the measurements, and the commit of this process."""
        every = [result for label in self.outcomes for result in self.results(label).values() if result.versions]
        if not every:  # nothing was measured, or by an earlier version
            return provenance(device)
        parts = [{"machine": result.origin["machine"], **result.versions} for result in every]
        merged = {name: "; ".join(dict.fromkeys(part[name] for part in parts if name in part)) for name in parts[0]}
        return {"machine": merged.pop("machine"), "versions": merged, "commit": commit()}

    def failures(self) -> list[str]:
        """Return one note per reason why runs failed."""
        by_reason: dict[str, dict[Label, list[int]]] = {}
        for label, group in self.outcomes.items():
            for seed, outcome in zip(self.seeds, group, strict=True):
                if outcome.failure:
                    by_reason.setdefault(outcome.failure, {}).setdefault(label, []).append(seed)
        names = {
            reason: "; ".join(name_seeds(*pair) for pair in by_label.items()) for reason, by_label in by_reason.items()
        }
        return [
            f"{reason}: {runs}" if reason == NOT_MEASURED else f"{RUNS_FAILED}: {runs}: {reason}"
            for reason, runs in names.items()
        ]

    def configs(self) -> JSONObject:
        """Return the complete configuration of the first seed of each label."""
        return {str(label): jobs[0].config for label, jobs in self.jobs.items() if key_or_failure(jobs[0])[1] is None}


def numbers(measurement: Measurement) -> dict[str, float | bool | None]:
    """Return the single numbers of a measurement, and NaN, which JSON does not have, as null.

    >>> numbers({"accuracy": 0.5, "step": float("nan"), "picture": {"x": [1]}})
    {'accuracy': 0.5, 'step': None}
    """
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in measurement.items()
        if isinstance(value, bool | int | float)
    }


def name_seeds(label: Label, seeds: Sequence[int]) -> str:
    """
    >>> name_seeds("sst, base", [0, 2])
    'sst, base, seeds 0, 2'
    """
    return f"{label}, {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def write_beside_better(new: Result, folder: Path) -> Result:
    """Write a result; where the stored one is better, beside it, with a note that says why, and return it."""
    path = folder / new.study / f"{new.finding}.json"
    old = Result.read(path) if path.exists() else None
    if old is None or (why := better(old, new)) is None:
        new.write(folder)
        return new
    beside = f"{KEPT}, {path.name}: {why}; this one is {new.finding}{PARTIAL}"
    new = replace(new, notes=[*new.notes, beside])
    new.write(folder, PARTIAL)
    return new


def better(old: Result, new: Result) -> str | None:
    """Return why a stored result is better than a new one; None if it is not."""
    if old.incomplete:
        more = len(old.by_seed or ()) > len(new.by_seed or ())
        return "more is measured" if new.incomplete and more else None
    if new.incomplete:
        return "it is complete"
    sizes = [(result.profile == "paper", len(result.seeds)) for result in (old, new)]
    return f"it has {len(old.seeds)} seeds of the profile {old.profile}" if sizes[0] > sizes[1] else None


def write_results(
    runs: Sequence[FindingRun], study: Study, profile: Profile, device: str, folder: Path
) -> list[Result]:
    """Write each result as soon as it is judged; errors are raised together after all others are written."""
    results: list[Result] = []
    errors: list[FindingError] = []
    for run in runs:
        try:
            if run.error:
                raise run.error
            results.append(write_beside_better(run.result(study, profile, device), folder))
        except Exception as error:
            errors.append(finding_error("result", study, run.finding, error))
    if errors:
        raise FindingError("; ".join(map(str, errors))) from errors[0].__cause__
    return results


# All findings together -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reproduction:
    """The study, store, engine and device of a reproduction, and whether it only judges what is stored."""

    study: Study
    store: Path
    engine: Engine
    device: str
    progress: Progress | None
    stored_only: bool = False

    def start(self, finding: Finding, seeds: int | None, first_seed: int | None, settings: Profile) -> FindingRun:
        """Return the run of a finding with its seeds."""
        try:
            choices = (first_seed, finding.first_seed, settings.first_seed)
            first = next(seed for seed in choices if seed is not None)
            seed_range = range(first, first + (seeds or finding.seeds(settings)))
            return FindingRun(finding, seed_range, self.study.ranges)
        except Exception as error:
            return self.refuse(FindingRun(finding, ()), "seeds", error)

    def run_part(
        self, runs: Sequence[FindingRun], part: str, subjects: Callable[[FindingRun], Any]
    ) -> list[FindingRun]:
        """Return the runs with the jobs of one more part of their findings, done."""
        runs = [self.add_jobs(run, part, subjects) for run in runs]
        jobs = [job for run in runs for group in run.open_jobs.values() for job in group]
        keys = {job: key_or_failure(job) for job in jobs}
        outcomes = {key: Outcome[JobResult](failure=failure) for key, failure in keys.values() if failure}
        outcomes |= self.run_jobs({key: job for job, (key, failure) in keys.items() if not failure})
        return [
            run.with_outcomes(
                {label: [outcomes[keys[job][0]] for job in jobs] for label, jobs in run.open_jobs.items()}
            )
            for run in runs
        ]

    def add_jobs(self, run: FindingRun, part: str, subjects: Callable[[FindingRun], Any]) -> FindingRun:
        """Return the run with more jobs; where they cannot be made, with the error."""
        if run.error:
            return run
        try:
            by_label = check_labels(subjects(run))
            return run.with_jobs(
                {
                    label: [self.job(run.finding, for_seed(label, subject, seed), seed) for seed in run.seeds]
                    for label, subject in by_label.items()
                }
            )
        except Exception as error:
            return self.refuse(run, part, error)

    def refuse(self, run: FindingRun, part: str, error: Exception) -> FindingRun:
        """Return the run with the error, which is also reported at once."""
        wrapper = finding_error(part, self.study, run.finding, error)
        if self.progress:
            self.progress("trained", 0, 0, str(wrapper))
        return replace(run, error=wrapper)

    def job(self, finding: Finding, subject: ExperimentOrCase, seed: int) -> MeasurementJob:
        """Return the job of a seed; of those on several devices, the first whose measurement is stored."""
        devices = list(dict.fromkeys((*STORED_DEVICES, self.device))) if self.stored_only else [self.device]
        jobs = [self.job_on(device, finding, subject, seed) for device in devices]
        return next((job for job in jobs[:-1] if is_stored(job)), jobs[-1])

    def job_on(self, device: str, finding: Finding, subject: ExperimentOrCase, seed: int) -> MeasurementJob:
        ready = with_seed(subject, seed, device) if isinstance(subject, Experiment) else subject.with_seed(seed, device)
        return MeasurementJob(self.study.name, finding.name, ready, seed, device, str(self.store))

    def run_jobs(self, jobs: Mapping[str, MeasurementJob]) -> dict[str, Outcome[JobResult]]:
        """Train and measure, by key; what two findings need is done once, and what is measured is not trained."""
        if self.stored_only:
            stored = {key: stored_outcome(job) for key, job in jobs.items()}
            require(
                not jobs or any(outcome.failure != NOT_MEASURED for outcome in stored.values()),
                f"{self.store} has no measurement of these findings, seeds and sizes, made with this version of the "
                "code; run the command without --stored-only",
            )
            return stored
        by_key = dict(sorted(jobs.items(), key=lambda item: item[1].seed))
        needed = {key: {e.key: e for e in job.experiments} for key, job in by_key.items() if job.stored is None}
        training = self.training_jobs({key: e for experiments in needed.values() for key, e in experiments.items()})
        places = {e.key: place for place, job in enumerate(training, len(by_key)) for e in job.experiments}
        needs = {place: {places[each] for each in needed[key]} for place, key in enumerate(by_key) if key in needed}
        # An engine runs the first job that is ready: a network is measured before the next one is trained.
        in_order: list[Job] = [*by_key.values(), *training]
        outcomes = self.engine.map(run_job, in_order, JobCounter(self.progress, in_order).report, needs)
        return dict(zip(by_key, outcomes, strict=False))  # those of training come last

    def training_jobs(self, experiments: Mapping[str, Experiment]) -> list[TrainingJob]:
        """Return the experiments, by key, in groups and in the order of training."""
        finished = set(Store(self.store).keys())
        # The longest first, so that at the end no worker is left with a long one alone; then seed by seed.
        longest = sorted(experiments.items(), key=lambda item: -item[1].training.steps)
        # Those that an earlier command trained are only verified, and can be measured at once.
        verified = [(experiment,) for key, experiment in longest if key in finished]
        groups = group_for_workers([experiment for key, experiment in longest if key not in finished])
        return [TrainingJob(self.study.name, group, str(self.store)) for group in [*verified, *groups]]


def is_stored(job: MeasurementJob) -> bool:
    """Return whether the job's measurement is in the store."""
    return key_or_failure(job)[1] is None and job.stored is not None


def stored_outcome(job: MeasurementJob) -> Outcome[JobResult]:
    """Return the stored measurement of a job; without one, a failure that says so, or that names the missing corpus."""
    if is_stored(job):
        return Outcome(value=run_measurement(job))
    settings = job.subject.settings if isinstance(job.subject, Case) else None
    return Outcome(failure=settings.message if isinstance(settings, MissingData) else NOT_MEASURED)


def check_labels(subjects: Any) -> Mapping[Label, Any]:
    """Return what a finding trains, by label; refuse anything but a mapping."""
    require(
        isinstance(subjects, Mapping),
        "they should be a dictionary, by label what is trained, such as {'guided': Experiment(…)}, but are of type "
        f"{type(subjects).__name__}",
    )
    return subjects  # type: ignore[no-any-return]


def for_seed(label: Label, subject: Any, seed: int) -> ExperimentOrCase:
    """Return what is trained of a label for a seed; refuse what cannot be trained."""
    training_subject: ExperimentOrCase = subject(seed) if callable(subject) else subject
    require(
        isinstance(training_subject, Experiment | Case),
        f"{str(label)!r} should be an Experiment, a Case, or a function that gives one for a seed, but is of type "
        f"{type(training_subject).__name__}",
    )
    return training_subject


class JobCounter:
    """Reports each job that is done; a failure of training once, with the keys of its runs."""

    def __init__(self, progress: Progress | None, jobs: Sequence[Job]):
        self.progress, self.jobs = progress, jobs
        self.totals = Counter(job.stage for job in jobs)
        self.done: Counter[str] = Counter()
        self.training_failures: set[str] = set()

    def report(self, place: int, outcome: Outcome[Any]) -> None:
        job, failure = self.jobs[place], outcome.failure or ""
        self.done[job.stage] += 1
        if isinstance(job, TrainingJob) and failure:
            self.training_failures.add(failure)
            failure = f"{', '.join(experiment.key for experiment in job.experiments)}: {failure}"
        elif failure in self.training_failures:  # of a run that is measured here
            failure = ""
        if self.progress:
            self.progress(job.stage, self.done[job.stage], self.totals[job.stage], failure)
