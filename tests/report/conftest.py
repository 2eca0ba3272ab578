"""Synthetic results of a study."""

import pytest

from attnscope.studies.claims import at_least, exact, untested
from attnscope.studies.result import Result, row


def fake(finding: str = "fig5a", **changes) -> Result:
    """A made-up result."""
    fields = {
        "finding": finding,
        "study": "aitken2021",
        "title": "Most of the alignment is temporal",
        "section": "4.1, figure 5a",
        "profile": "quick",
        "seeds": [0, 1, 2],
        "settings": {"model": {"cell": "gru"}, "lengths": [15, 20]},
        "table": [
            row(task="escan", model="AED", values=[0.75, 0.85, 0.95], published=0.77, published_text="> 0.77"),
            row(task="<script>alert(1)</script>", model="AO", values=[0.7]),
        ],
        "claims": [
            at_least("temporal terms dominate", [0.85, 0.86, 0.87], 0.5),
            at_least("nothing else matters", [0.85, 0.86, 0.87], 0.99),
            untested("also in <b>French</b>", "there is no corpus"),
            exact("in every seed [/bold]", [True, True, True]),
        ],
        "notes": ["What this does not show: a cause.", "Shares are of absolute values."],
        "seconds": 75,
        "machine": "A processor, 2 cores",
        "versions": {"python": "3.11.7"},
        "commit": "0123456789abcdef",
        "figure": None,
    }
    return Result(**{**fields, **changes})


@pytest.fixture
def result() -> Result:
    return fake()


@pytest.fixture
def make():
    return fake
