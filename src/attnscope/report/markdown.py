"""How are results read in plain text? A table of claims and a table of numbers for each finding."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from attnscope.files import write_atomically
from attnscope.report import wording
from attnscope.studies.result import Result, labels_of

MARK = "<!-- What follows is written by `attnscope report`; do not edit it by hand. -->"


def write_markdown(results: Sequence[Result], path: Path) -> Path:
    """Write the tables to a page, below what is written by hand above the mark."""
    before = path.read_text(encoding="utf-8").partition(MARK)[0] if path.exists() else ""
    write_atomically(path, (before + MARK + "\n\n" + tables(results)).encode())
    return path


def tables(results: Sequence[Result]) -> str:
    return "\n".join(line for result in results for line in _finding(result))


def _finding(result: Result) -> Iterator[str]:
    yield f"## {result.study} {result.finding}: {result.title}"
    yield ""
    yield f"{result.section}; profile {result.profile}, {len(result.seeds)} seeds, {result.machine}."
    yield ""
    yield from _table(["claim", "verdict", "evidence"], [[c.text, c.word, c.evidence] for c in result.claims])
    if result.table:
        labels = list(labels_of(result.table[0]))
        rows = [[*labels_of(line).values(), wording.published(line), wording.ours(line)] for line in result.table]
        yield from _table([*labels, "published", "ours ± sd"], rows)
    yield from (f"- {note}" for note in result.notes)
    yield ""


def _table(head: list[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
    yield ""
