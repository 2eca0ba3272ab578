"""Properties of the result of every study."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from attnscope.lab.engines import LocalEngine
from attnscope.studies.finding import Finding, Measurements, Profile, Study
from attnscope.studies.reproduce import reproduce
from attnscope.studies.result import Result, problems


@contextmanager
def tiny(module: ModuleType, findings: Sequence[Finding], sizes: Profile) -> Iterator[Study]:
    """The study of this module, with these findings alone, at a tiny size."""
    tiny_study = Study(module.STUDY.name, findings, {"tiny": sizes})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STUDY", tiny_study)
        yield tiny_study


def results_of(study: Study, store: Path) -> dict[str, Result]:
    """What its findings leave behind at a tiny size, by name."""
    results = reproduce(study, study.findings, "tiny", None, store, LocalEngine(0))
    return {result.finding: result for result in results}


def check(finding: Finding, result: Result) -> None:
    """A file of the known format, without failed runs, and one picture or several."""
    assert problems(result.to_json()) == []
    assert not [note for note in result.notes if "Runs failed" in note], result.notes
    drawn = finding.draw(result.figure)
    figures = drawn if isinstance(drawn, Sequence) else [drawn]
    assert figures, finding.name
    assert all(figure.axes for figure in figures), finding.name


def check_without_runs(finding: Finding, sizes: Profile) -> None:
    """Where every run failed, nothing is claimed and no number is given."""
    nothing = Measurements({label: [] for label in finding.experiments(sizes)})
    assert all(claim.holds is None for claim in finding.claims(nothing))
    assert all(row["mean"] is None for row in finding.table_rows(nothing))
