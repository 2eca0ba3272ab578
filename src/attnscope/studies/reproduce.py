"""Does a paper's finding reproduce? Train what it needs, measure, judge, and write down the result."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.files import write_json
from attnscope.lab.engines import Engine, Outcome
from attnscope.lab.experiment import Experiment, train
from attnscope.lab.store import Store
from attnscope.studies import study
from attnscope.studies.finding import Finding, Measured, Measurement, Study, plain, shortened
from attnscope.studies.result import Result, provenance

SHARED = "store.json"
Progress = Callable[[int, int, str], None]  # runs done, runs in all, what was done last


@dataclass(frozen=True)
class Job:
    """One run to be trained and measured, for all the findings that need it."""

    study: str
    config: dict[str, Any]
    findings: tuple[str, ...]
    store: str


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
    plan = Plan.of(study, findings, settings, range(seeds or settings.seeds), device, store)
    write_json(store / SHARED, {"store": "every node that works for this store must see this file"})
    said: dict[str, Outcome[Said]] = {}

    def done(place: int, outcome: Outcome[Said]) -> None:
        said[list(plan.jobs)[place]] = outcome
        if progress:
            progress(len(said), len(plan.jobs), outcome.failure or "")

    engine.map(carry_out, list(plan.jobs.values()), done)
    results = [plan.judged(finding, said) for finding in findings]
    for result in results:
        result.write(store / "results")
    return results


@dataclass(frozen=True)
class Said:
    """What a run says to each finding that needs it, and the seconds of computing behind it."""

    measurements: dict[str, Measurement]
    seconds: float


def carry_out(job: Job) -> Said:
    """Train, or find trained, and measure: in whichever process, on whichever machine."""
    if not (Path(job.store) / SHARED).exists():
        raise AttnscopeError(f"this node does not see the store {job.store}; it must be on a disk that all nodes share")
    run = train(Experiment.of(job.config), Store(job.store))
    started = time.monotonic()
    measurements = {name: plain(study(job.study).finding(name).measure(run)) for name in job.findings}
    return Said(measurements, run.summary["seconds"] + time.monotonic() - started)


@dataclass(frozen=True)
class Plan:
    """Which runs are needed by which finding."""

    study: Study
    profile: Any
    seeds: Sequence[int]
    device: str
    experiments: Mapping[str, Mapping[str, Sequence[Experiment]]]  # finding, label, one a seed
    jobs: Mapping[str, Job]  # by the run's key, so that what two findings need is done once

    @classmethod
    def of(
        cls, study: Study, findings: Sequence[Finding], profile: Any, seeds: Sequence[int], device: str, store: Path
    ) -> "Plan":
        experiments = {
            finding.name: {
                label: [replace(experiment, seed=seed, device=device) for seed in seeds]
                for label, experiment in finding.experiments(profile).items()
            }
            for finding in findings
        }
        wanted: dict[str, tuple[Experiment, list[str]]] = {}
        for name, labels in experiments.items():
            for experiment in (experiment for group in labels.values() for experiment in group):
                wanted.setdefault(experiment.key, (experiment, []))[1].append(name)
        # The longest first, so that at the end no worker is left with a long one alone; then seed by seed.
        longest = sorted(wanted.items(), key=lambda item: (-item[1][0].training.steps, item[1][0].seed))
        jobs = {
            key: Job(study.name, experiment.config(), tuple(dict.fromkeys(names)), str(store.resolve()))
            for key, (experiment, names) in longest
        }
        return cls(study, profile, seeds, device, experiments, jobs)

    def judged(self, finding: Finding, said: Mapping[str, Outcome[Said]]) -> Result:
        """The result of one finding, from what its runs say; a run that failed is named, never passed over."""
        outcomes = {
            label: [said[experiment.key] for experiment in group]
            for label, group in self.experiments[finding.name].items()
        }
        measured = Measured(
            {
                label: [outcome.value.measurements[finding.name] for outcome in group if outcome.value is not None]
                for label, group in outcomes.items()
            }
        )
        failures = [
            f"{label}: a run failed: {outcome.failure}"
            for label, group in outcomes.items()
            for outcome in group
            if outcome.failure
        ]
        whole = all(measured[label] for label in measured)
        return Result(
            finding=finding.name,
            study=self.study.name,
            title=finding.title,
            section=finding.section,
            profile=self.profile.name,
            seeds=list(self.seeds),
            settings=self.settings(finding),
            table=finding.table(measured),
            claims=finding.claims(measured),
            notes=[*finding.notes, *failures],
            seconds=round(sum(o.value.seconds for group in outcomes.values() for o in group if o.value), 1),
            figure=shortened(plain(finding.figure(measured))) if whole else None,
            **provenance(self.device),
        )

    def settings(self, finding: Finding) -> dict[str, Any]:
        """The profile, and the complete configuration of each experiment (its seed aside)."""
        labels = self.experiments[finding.name]
        configs = {label: {**group[0].config(), "seed": list(self.seeds)} for label, group in labels.items()}
        return {"profile": asdict(self.profile), "experiments": configs}
