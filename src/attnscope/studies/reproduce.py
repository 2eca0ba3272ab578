"""Does a paper's finding reproduce? Train what it needs, measure, judge, and write down the result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnscope.errors import require
from attnscope.files import write_json
from attnscope.lab.engines import Engine, Outcome
from attnscope.lab.experiment import Experiment, together
from attnscope.studies.finding import Case, Finding, ForSeed, Label, Study, Wanted, seeded
from attnscope.studies.judging import Plan, written
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
) -> list[Result]:
    """Run the findings and write `<store>/results/<study>/<finding>.json` for each."""
    settings = study.profiles[profile]
    write_json(store / SHARED, {"store": "every node that works for this store must see this file"})
    work = Reproduction(study, store.resolve(), engine, device, progress)
    plans = [Plan(finding, range(seeds or finding.seeds(settings)), {}, {}) for finding in findings]
    first_steps = {plan.finding.name: to_train(study, plan, plan.finding.experiments(settings)) for plan in plans}
    plans = work.carried_out(plans, first_steps)
    next_steps = {
        plan.finding.name: to_train(study, plan, plan.finding.follow_up(settings, plan.measured))
        for plan in plans
        if plan.finding.follow_up is not None
    }
    if next_steps:
        plans = work.carried_out(plans, next_steps)
    return written(plans, study, settings, device, store / "results")


def to_train(study: Study, plan: Plan, wanted: Any) -> Mapping[Label, Wanted | ForSeed]:
    """What a finding wants to be trained; refused if it is something else."""
    of = f"of {study.name}/{plan.finding.name} should be"
    require(
        isinstance(wanted, Mapping),
        f"the experiments {of} a dictionary, by label what is trained, such as {{'told': Experiment(…)}}, but are of "
        f"type {type(wanted).__name__}",
    )
    for label, what in wanted.items():
        require(
            isinstance(what, Experiment | Case) or callable(what),
            f"the experiment {str(label)!r} {of} an Experiment, a Case, or a function that gives one for a seed, but "
            f"is of type {type(what).__name__}",
        )
    return wanted  # type: ignore[no-any-return]


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


class Tally:
    """Tells of each piece of work that is done."""

    def __init__(self, progress: Progress | None, total: int):
        self.progress, self.total, self.count = progress, total, 0

    def done(self, place: int, outcome: Outcome[Any]) -> None:
        self.count += 1
        if self.progress:
            self.progress(self.count, self.total, outcome.failure or "")
