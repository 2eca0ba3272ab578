"""Does a paper's finding reproduce? Train what it needs, measure, judge, and write down the result."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from itertools import starmap
from pathlib import Path
from typing import Any

import attnscope
from attnscope.errors import AttnscopeError
from attnscope.files import write_atomically, write_json
from attnscope.lab.configuration import describe
from attnscope.lab.engines import Engine, Outcome
from attnscope.lab.experiment import Experiment, Run, finished, together, train_all
from attnscope.lab.store import Store, key
from attnscope.studies import study
from attnscope.studies.finding import (
    Absent,
    Case,
    Finding,
    ForSeed,
    Label,
    Measurement,
    Measurements,
    Study,
    TrainedCase,
    Wanted,
    plain,
    seeded,
    shortened,
)
from attnscope.studies.result import Result, provenance
from attnscope.tasks import MissingCorpus

SHARED = "store.json"
MEASUREMENTS = "measurements"
Progress = Callable[[int, int, str], None]  # pieces of work done, in all, what failed last


def reproduce(
    study: Study,
    findings: Sequence[Finding],
    profile: str,
    seeds: int | None,
    store: Path,
    engine: Engine,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[Result]:
    """Run the findings and write `<store>/results/<study>/<finding>.json` for each."""
    settings = study.profiles[profile]
    write_json(store / SHARED, {"store": "every node that works for this store must see this file"})
    work = Reproduction(study, store.resolve(), engine, device, progress)
    plans = [Plan(finding, range(seeds or finding.seeds(settings)), {}, {}) for finding in findings]
    plans = work.carried_out(plans, {plan.finding.name: plan.finding.experiments(settings) for plan in plans})
    next_steps = {
        plan.finding.name: plan.finding.follow_up(settings, plan.measured)
        for plan in plans
        if plan.finding.follow_up is not None
    }
    if next_steps:
        plans = work.carried_out(plans, next_steps)
    results = [plan.judged(study, settings, device) for plan in plans]
    for result in results:
        result.write(store / "results")
    return results


@dataclass(frozen=True, eq=False)
class Question:
    """What is to be measured, for one finding and seed."""

    study: str
    finding: str
    wanted: Wanted
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
    """What was measured, and the seconds of computing behind it."""

    measurement: Measurement
    seconds: float


@dataclass(frozen=True)
class Plan:
    """A finding with its questions, one a label and seed, and their answers."""

    finding: Finding
    seeds: Sequence[int]
    questions: Mapping[Label, Sequence[Question]]
    answers: Mapping[Label, Sequence[Outcome[Answer]]]

    @property
    def measured(self) -> Measurements:
        return Measurements(
            {
                label: [answer.value.measurement for answer in group if answer.value is not None]
                for label, group in self.answers.items()
            }
        )

    def judged(self, study: Study, profile: Any, device: str) -> Result:
        """The result, from what the runs say; a run that failed is named, never passed over."""
        finding, measured = self.finding, self.measured
        return Result(
            finding=finding.name,
            study=study.name,
            title=finding.title,
            section=finding.section,
            profile=profile.name,
            seeds=list(self.seeds),
            settings={"profile": asdict(profile), "experiments": self.configs()},
            table=finding.table(measured),
            claims=finding.claims(measured),
            notes=[*finding.notes, *self.failures()],
            seconds=round(sum(one.value.seconds for group in self.answers.values() for one in group if one.value), 1),
            figure=self.figure(measured),
            **provenance(device),
        )

    def failures(self) -> list[str]:
        """A note for each reason why runs failed."""
        failed: dict[str, dict[Label, list[int]]] = {}
        for label, group in self.answers.items():
            for seed, answer in zip(self.seeds, group, strict=True):
                if answer.failure:
                    failed.setdefault(answer.failure, {}).setdefault(label, []).append(seed)
        return [
            f"Runs failed: {'; '.join(starmap(seeds_of, by_label.items()))}: {why}" for why, by_label in failed.items()
        ]

    def figure(self, measured: Measurements) -> Any:
        """Of what there is; none if that is nothing, or if the figure needs all of its experiments."""
        present = Measurements({label: measured[label] for label in measured if measured[label]})
        if not present.by_label:
            return None
        try:
            return shortened(plain(self.finding.figure(present)))
        except KeyError:
            if present == measured:
                raise
            return None

    def configs(self) -> dict[str, Any]:
        """The complete configuration of the first seed of each label."""
        return {
            str(label): group[0].config
            for label, group in self.questions.items()
            if name_or_failure(group[0])[1] is None
        }


@dataclass(frozen=True)
class Reproduction:
    """Where and with whose hands a study is reproduced."""

    study: Study
    store: Path
    engine: Engine
    device: str
    progress: Progress | None

    def carried_out(self, plans: Sequence[Plan], wanted: Mapping[str, Mapping[Label, Wanted | ForSeed]]) -> list[Plan]:
        """The plans with more questions, each asked."""
        new = {
            plan.finding.name: {
                label: [self.question(plan.finding, what, seed) for seed in plan.seeds]
                for label, what in wanted.get(plan.finding.name, {}).items()
            }
            for plan in plans
        }
        questions = [question for labels in new.values() for group in labels.values() for question in group]
        names = {question: name_or_failure(question) for question in questions}
        failed = {name: Outcome[Answer](failure=failure) for name, failure in names.values() if failure}
        answers = failed | self.answered([question for question in questions if names[question][1] is None])
        return [
            Plan(
                plan.finding,
                plan.seeds,
                {**plan.questions, **(asked := new[plan.finding.name])},
                {
                    **plan.answers,
                    **{label: [answers[names[q][0]] for q in group] for label, group in asked.items()},
                },
            )
            for plan in plans
        ]

    def question(self, finding: Finding, what: Wanted | ForSeed, seed: int) -> Question:
        wanted = what if isinstance(what, Experiment | Case) else what(seed)
        ready = (
            seeded(wanted, seed, self.device) if isinstance(wanted, Experiment) else wanted.seeded(seed, self.device)
        )
        return Question(self.study.name, finding.name, ready, seed, self.device, str(self.store))

    def answered(self, questions: Iterable[Question]) -> dict[str, Outcome[Answer]]:
        """Train first, then measure; what two findings need is done once, and what is measured needs no training."""
        distinct = {question.key: question for question in questions}
        by_seed = sorted(distinct.values(), key=lambda question: question.seed)
        experiments = {e.key: e for q in by_seed if not q.path.exists() for e in q.experiments}
        # The longest first, so that at the end no worker is left with a long one alone; then seed by seed.
        longest = sorted(experiments.values(), key=lambda experiment: -experiment.training.steps)
        groups = [Training(self.study.name, tuple(group), str(self.store)) for group in together(longest)]
        count = Tally(self.progress, len(groups) + len(distinct))
        trained = self.engine.map(carry_out, groups, count.done)
        failures = {
            experiment.key: outcome.failure
            for group, outcome in zip(groups, trained, strict=True)
            for experiment in group.experiments
            if outcome.failure
        }
        reasons = {
            name: next((failures[e.key] for e in question.experiments if e.key in failures), None)
            for name, question in distinct.items()
            if not question.path.exists()  # what is measured stays so, whatever became of a run that it shared
        }
        ready = [name for name in distinct if reasons.get(name) is None]
        measured = self.engine.map(answer, [distinct[name] for name in ready], count.done)
        return {name: Outcome(failure=reason) for name, reason in reasons.items() if reason} | dict(
            zip(ready, measured, strict=True)
        )


def seeds_of(label: Label, seeds: Sequence[int]) -> str:
    """
    >>> seeds_of("sst, base", [0, 2])
    'sst, base, seeds 0, 2'
    """
    return f"{label}, {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def name_or_failure(question: Question) -> tuple[str, str | None]:
    """The key of a question; or, where its data are missing or have changed, why it has none."""
    try:
        return question.key, None
    except AttnscopeError as error:
        return f"failed: {error}", str(error)


class Tally:
    """Tells of each piece of work that is done."""

    def __init__(self, progress: Progress | None, total: int):
        self.progress, self.total, self.count = progress, total, 0

    def done(self, place: int, outcome: Outcome[Any]) -> None:
        self.count += 1
        if self.progress:
            self.progress(self.count, self.total, outcome.failure or "")


# In a worker, on whichever machine --------------------------------------------------------------------------------


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
        runs = {experiment.key: finished(experiment, store) for experiment in question.experiments}
        measure = study(question.study).finding(question.finding).measure
        measurement = plain(measure(subject(question, runs)))
        seconds = time.monotonic() - started + sum(run.summary["seconds"] for run in runs.values())
        # Not by write_json: a measurement may hold NaN, where a claim has nothing to say.
        write_atomically(path, json.dumps({"measurement": measurement, "seconds": seconds}).encode())
    return Answer(**json.loads(path.read_bytes()))


def subject(question: Question, runs: Mapping[str, Run]) -> Run | TrainedCase:
    if isinstance(question.wanted, Experiment):
        return runs[question.wanted.key]
    if isinstance(question.wanted.settings, Absent):
        raise MissingCorpus(question.wanted.settings.message)
    by_part = {part: runs[experiment.key] for part, experiment in question.wanted.runs.items()}
    return TrainedCase(by_part, question.wanted.settings, question.seed, question.device)


def described(wanted: Wanted) -> Any:
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
