"""What do the answers say? A finding with its questions, and the result that is written of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import starmap
from pathlib import Path
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.lab.engines import Outcome
from attnscope.lab.engines.worker import error_message
from attnscope.studies.finding import (
    Finding,
    Label,
    Measurement,
    Measurements,
    SeedMeasurements,
    Study,
    UnknownMeasurement,
    plain,
    shortened,
)
from attnscope.studies.questions import Answer, Question, name_or_failure
from attnscope.studies.result import Result, provenance

FAILED = "Runs failed"  # how a note begins that says which, and why
TO_TRAIN = ("seeds", "experiments", "follow_up")  # parts of a finding that say what is trained


@dataclass(frozen=True)
class Plan:
    """A finding with its questions, one a label and seed, and their answers."""

    finding: Finding
    seeds: Sequence[int]
    questions: Mapping[Label, Sequence[Question]] = field(default_factory=dict)
    answers: Mapping[Label, Sequence[Outcome[Answer]]] = field(default_factory=dict)
    wrong: "Unjudged | None" = None  # with what it wants to be trained; then it is asked nothing more

    def asking(self, questions: Mapping[Label, Sequence[Question]]) -> "Plan":
        """With more questions; a label that is asked again loses its answer."""
        kept = {label: group for label, group in self.answers.items() if label not in questions}
        return replace(self, questions={**self.questions, **questions}, answers=kept)

    @property
    def unanswered(self) -> dict[Label, Sequence[Question]]:
        return {label: group for label, group in self.questions.items() if label not in self.answers}

    def answered(self, answers: Mapping[Label, Sequence[Outcome[Answer]]]) -> "Plan":
        known = {**self.answers, **answers}
        return replace(self, answers={label: known[label] for label in self.questions})

    @property
    def measured(self) -> Measurements:
        return Measurements({label: self.of_runs(group) for label, group in self.answers.items()})

    def of_runs(self, group: Sequence[Outcome[Answer]]) -> SeedMeasurements:
        found = {seed: one.value for seed, one in zip(self.seeds, group, strict=True) if one.value is not None}
        return SeedMeasurements((answer.measurement for answer in found.values()), found)

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
            table=self.made("table", study, measured),
            claims=self.made("claims", study, measured),
            notes=[*finding.notes, *self.failures()],
            seconds=round(sum(one.value.seconds for group in self.answers.values() for one in group if one.value), 1),
            figure=self.figure(study, measured),
            by_seed=self.by_seed(),
            **provenance(device),
        )

    def by_seed(self) -> list[dict[str, Any]]:
        """The numbers that each seed gave, and with what they were made."""
        return [
            {
                "label": str(label),
                "seed": seed,
                "values": numbers(answer.measurement),
                "seconds": round(answer.seconds, 1),
            }
            | dict(answer.origin)
            for label, group in self.answers.items()
            for seed, answer in zip(self.seeds, (one.value for one in group), strict=True)
            if answer is not None
        ]

    def made(self, part: str, study: Study, measured: Measurements) -> Any:
        """What the finding makes of the measurements: its table, claims or figure."""
        try:
            parts = {
                "table": self.finding.table_rows,
                "claims": self.finding.claims,
                "figure": self.finding.figure_data,
            }
            return parts[part](measured)
        except Exception as error:
            raise unjudged(part, study, self.finding, error) from error

    def failures(self) -> list[str]:
        """A note for each reason why runs failed."""
        failed: dict[str, dict[Label, list[int]]] = {}
        for label, group in self.answers.items():
            for seed, answer in zip(self.seeds, group, strict=True):
                if answer.failure:
                    failed.setdefault(answer.failure, {}).setdefault(label, []).append(seed)
        return [
            f"{FAILED}: {'; '.join(starmap(seeds_of, by_label.items()))}: {why}" for why, by_label in failed.items()
        ]

    def figure(self, study: Study, measured: Measurements) -> Any:
        """Of what there is; none if that is nothing, or if the figure needs all of its experiments."""
        present = Measurements({label: measured[label] for label in measured if measured[label]})
        if not present.by_label:
            return None
        try:
            return shortened(plain(self.made("figure", study, present)))
        except Unjudged as error:
            if present == measured or not isinstance(error.__cause__, KeyError | UnknownMeasurement):
                raise
            return None

    def configs(self) -> dict[str, Any]:
        """The complete configuration of the first seed of each label."""
        return {
            str(label): group[0].config
            for label, group in self.questions.items()
            if name_or_failure(group[0])[1] is None
        }


def numbers(measurement: Measurement) -> dict[str, float | bool | None]:
    """What a table or a claim is made of: single numbers; NaN, which JSON does not know, as null.

    >>> numbers({"accuracy": 0.5, "step": float("nan"), "picture": {"x": [1]}})
    {'accuracy': 0.5, 'step': None}
    """
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in measurement.items()
        if isinstance(value, bool | int | float)
    }


def seeds_of(label: Label, seeds: Sequence[int]) -> str:
    """
    >>> seeds_of("sst, base", [0, 2])
    'sst, base, seeds 0, 2'
    """
    return f"{label}, {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


class Unjudged(AttnscopeError):
    """A finding that does not say what is to be trained, or whose table, claims or figure cannot be made."""


def written(plans: Sequence[Plan], study: Study, profile: Any, device: str, folder: Path) -> list[Result]:
    """The results, each written as soon as it is judged; what is wrong with one is said when all others are written."""
    results: list[Result] = []
    wrong: list[Unjudged] = []
    for plan in plans:
        try:
            if plan.wrong:
                raise plan.wrong
            result = plan.judged(study, profile, device)
            result.write(folder)
            results.append(result)
        except Exception as error:
            wrong.append(unjudged("result", study, plan.finding, error))
    if wrong:
        raise Unjudged("; ".join(map(str, wrong))) from wrong[0].__cause__
    return results


def unjudged(part: str, study: Study, finding: Finding, error: Exception) -> Unjudged:
    """An error that says of which part of which finding it is."""
    if isinstance(error, Unjudged):
        return error
    cannot = "made" if part in TO_TRAIN else "judged"
    named = Unjudged(f"the {part} of {study.name}/{finding.name} could not be {cannot}: {error_message(error)}")
    named.__cause__ = error
    return named
