"""Does a paper's finding reproduce? Train what it needs, measure, judge, and write down the result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnscope.errors import require
from attnscope.files import write_json
from attnscope.lab.engines import Engine, Outcome
from attnscope.lab.experiment import Experiment, group_for_workers
from attnscope.studies.finding import Case, ExperimentOrCase, Finding, Label, Study, seeded
from attnscope.studies.judging import Plan, unjudged, written
from attnscope.studies.questions import SHARED, Answer, Question, Training, answer, carry_out, name_or_failure
from attnscope.studies.result import Result

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
    first_seed: int | None = None,
) -> list[Result]:
    """Run the findings and write `<store>/results/<study>/<finding>.json` for each.

    Seeds count from `first_seed`; by default from that of the finding, or else of the profile.
    """
    settings = study.profiles[profile]
    write_json(store / SHARED, {"store": "every node that works for this store must see this file"})
    work = Reproduction(study, store.resolve(), engine, device, progress)
    plans = [work.begun(finding, seeds, first_seed, settings) for finding in findings]
    plans = work.carried_out(plans, "experiments", lambda plan: plan.finding.experiments(settings))
    if any(finding.follow_up for finding in findings):
        plans = work.carried_out(plans, "follow_up", lambda plan: follow_up(plan, settings))
    return written(plans, study, settings, device, store / "results")


def follow_up(plan: Plan, settings: Any) -> Any:
    """What is to be trained next, where that depends on what was measured."""
    return {} if plan.finding.follow_up is None else plan.finding.follow_up(settings, plan.measured)


def by_label(wanted: Any) -> Mapping[Label, Any]:
    """What a finding wants to be trained; refused if it has no labels."""
    require(
        isinstance(wanted, Mapping),
        "they should be a dictionary, by label what is trained, such as {'told': Experiment(…)}, but are of type "
        f"{type(wanted).__name__}",
    )
    return wanted  # type: ignore[no-any-return]


def for_seed(label: Label, what: Any, seed: int) -> ExperimentOrCase:
    """What is to be trained of a label; refused if it is nothing that can be."""
    wanted: ExperimentOrCase = what(seed) if callable(what) else what
    require(
        isinstance(wanted, Experiment | Case),
        f"{str(label)!r} should be an Experiment, a Case, or a function that gives one for a seed, but is of type "
        f"{type(wanted).__name__}",
    )
    return wanted


@dataclass(frozen=True)
class Reproduction:
    """Where and with whose hands a study is reproduced."""

    study: Study
    store: Path
    engine: Engine
    device: str
    progress: Progress | None

    def begun(self, finding: Finding, seeds: int | None, first_seed: int | None, settings: Any) -> Plan:
        try:
            chosen = (first_seed, finding.first_seed, settings.first_seed)
            first = next(seed for seed in chosen if seed is not None)
            return Plan(finding, range(first, first + (seeds or finding.seeds(settings))))
        except Exception as error:
            return self.refused(Plan(finding, ()), "seeds", error)

    def carried_out(self, plans: Sequence[Plan], part: str, wanted: Callable[[Plan], Any]) -> list[Plan]:
        """The plans with the questions of one more part of their findings, each asked."""
        plans = [self.planned(plan, part, wanted) for plan in plans]
        questions = [question for plan in plans for group in plan.unanswered.values() for question in group]
        names = {question: name_or_failure(question) for question in questions}
        failed = {name: Outcome[Answer](failure=failure) for name, failure in names.values() if failure}
        answers = failed | self.answered([question for question in questions if names[question][1] is None])
        return [
            plan.answered({label: [answers[names[q][0]] for q in group] for label, group in plan.unanswered.items()})
            for plan in plans
        ]

    def planned(self, plan: Plan, part: str, wanted: Callable[[Plan], Any]) -> Plan:
        """The plan with more questions; where they cannot be made, with what is wrong."""
        if plan.wrong:
            return plan
        try:
            return plan.asking(
                {
                    label: [self.question(plan.finding, for_seed(label, what, seed), seed) for seed in plan.seeds]
                    for label, what in by_label(wanted(plan)).items()
                }
            )
        except Exception as error:
            return self.refused(plan, part, error)

    def refused(self, plan: Plan, part: str, error: Exception) -> Plan:
        """The plan with what is wrong, which is told at once."""
        wrong = unjudged(part, self.study, plan.finding, error)
        if self.progress:
            self.progress(0, 0, str(wrong))
        return replace(plan, wrong=wrong)

    def question(self, finding: Finding, wanted: ExperimentOrCase, seed: int) -> Question:
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
        groups = [Training(self.study.name, tuple(group), str(self.store)) for group in group_for_workers(longest)]
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


class Tally:
    """Tells of each piece of work that is done."""

    def __init__(self, progress: Progress | None, total: int):
        self.progress, self.total, self.count = progress, total, 0

    def done(self, place: int, outcome: Outcome[Any]) -> None:
        self.count += 1
        if self.progress:
            self.progress(self.count, self.total, outcome.failure or "")
