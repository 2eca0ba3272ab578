"""Reports as plain text: Markdown tables of claims and numbers, and a table of verdicts for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from attnscope.files import write_atomically
from attnscope.report import wording
from attnscope.report.wording import ICONS
from attnscope.studies.claims import ClaimVerdict
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


STYLES = {"holds": "bold green", "fails": "bold red", "undecided": "bold yellow"}


def claims_table(result: Result) -> Table:
    """The verdicts of a finding, ready to print; names are shown as they are, whatever brackets they hold."""
    profile = " (quick profile)" if result.profile == "quick" else ""
    table = Table(title=Text(f"{result.study} {result.finding}: {result.title}{profile}", style="bold"), box=SIMPLE,
                  title_justify="left", pad_edge=False)  # fmt: skip
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim", ratio=3, overflow="fold")
    table.add_column("evidence", ratio=4, overflow="fold")
    for claim in result.claims:
        table.add_row(_verdict(claim), Text(claim.text), _evidence(claim))
    return table


def _verdict(claim: ClaimVerdict) -> Text:
    return Text(f"{ICONS[claim.word]} {claim.word}", style=STYLES[claim.word])


def _evidence(claim: ClaimVerdict) -> Text:
    return (
        Text(claim.evidence) if not claim.why else Text(claim.evidence).append(f"\nundecided: {claim.why}", style="dim")
    )
