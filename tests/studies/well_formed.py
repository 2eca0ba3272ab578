"""What every result of a study must be, whatever it says."""

from attnscope.studies.finding import Finding
from attnscope.studies.result import Result, problems


def check(finding: Finding, result: Result) -> None:
    """A file of the known format, without failed runs, and a picture."""
    assert problems(result.to_json()) == []
    assert not [note for note in result.notes if "Runs failed" in note], result.notes
    assert finding.draw(result.figure).axes, finding.name
