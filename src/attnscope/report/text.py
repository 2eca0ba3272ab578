"""Reports as plain text: Markdown tables of claims and numbers, and a table of verdicts for the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from attnscope.files import write_atomically
from attnscope.report import wording
from attnscope.studies.result import Result, labels_of

MARK = "<!-- What follows is written by `attnscope report`; do not edit it by hand. -->"
STYLES = {"holds": "bold green", "fails": "bold red", "undecided": "bold yellow"}


def write_markdown(results: Sequence[Result], path: Path) -> Path:
    """Write the tables of these results to a page, below its text above the mark, and return its path."""
    before = path.read_text(encoding="utf-8").partition(MARK)[0] if path.exists() else ""
    write_atomically(path, (before + MARK + "\n\n" + tables(results)).encode())
    return path


def tables(results: Sequence[Result]) -> str:
    """Return the claims, numbers and notes of these results as Markdown."""
    return "\n".join(line for result in results for line in _finding(result))


def _finding(result: Result) -> Iterator[str]:
    yield _escape(f"## {result.study} {result.finding}: {result.title}")
    yield ""
    yield _escape(f"{result.section}; profile {result.profile}, {len(result.seeds)} seeds, {result.machine}.")
    yield ""
    yield from _table(["claim", "verdict", "evidence"], [[c.text, c.word, c.evidence] for c in result.claims])
    if result.table:
        labels = list(labels_of(result.table[0]))
        rows = [[*labels_of(line).values(), wording.published(line), wording.ours(line)] for line in result.table]
        yield from _table([*labels, "published", "ours ± sd"], rows)
    yield from (f"- {_escape(note)}" for note in result.notes)
    yield ""


def _table(head: list[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(_escape(str(cell)).replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _escape(text: str) -> str:
    """Return the text with tags and entities escaped, so that no viewer of Markdown takes them for HTML.

    >>> _escape("<b>bold</b> &amp; t < s")
    '&lt;b>bold&lt;/b> &amp;amp; t < s'
    """
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", text))


def claims_table(result: Result) -> Table:
    """Return the verdicts of a finding, ready to print; brackets in texts are no markup."""
    profile = " (quick profile)" if result.profile == "quick" else ""
    title = Text(f"{result.study} {result.finding}: {result.title}{profile}", style="bold")
    table = Table(title=title, box=SIMPLE, title_justify="left", pad_edge=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim", ratio=3, overflow="fold")
    table.add_column("evidence", ratio=4, overflow="fold")
    for claim in result.claims:
        evidence = Text(claim.evidence)
        if claim.why:
            evidence.append(f"\nundecided: {claim.why}", style="dim")
        verdict = Text(f"{wording.ICONS[claim.word]} {claim.word}", style=STYLES[claim.word])
        table.add_row(verdict, Text(claim.text), evidence)
    return table
