"""Which claims hold, in a terminal?"""

from __future__ import annotations

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from attnscope.report.wording import ICONS
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.result import Result

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
