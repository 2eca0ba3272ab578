"""Which of the nine terms make the alignment? (aitken2021 §4.1, figure 5a)"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.experiments import one_to_one_and_escan
from attnscope.studies.aitken2021.look import between, look
from attnscope.studies.claims import Verdict, at_least, spread
from attnscope.studies.finding import Finding, Measured, Measurement
from attnscope.studies.published import published_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure
published = published_by("aitken2021")

QUANTITIES = {
    "temporal": "μ·μ, share of |terms|",
    "temporal_query": "μ·μ + μ·χ + μ·Δ, share of |terms|",
    "temporal_held_out": "μ·μ, held out",
    "temporal_query_held_out": "μ·μ + μ·χ + μ·Δ, held out",
    "temporal_signed": "μ·μ, signed share",
    "temporal_query_signed": "μ·μ + μ·χ + μ·Δ, signed share",
}


def measure(run: Run) -> Measurement:
    seen = look(run)
    shares, held_out = seen.between.shares, between(seen.held_out).shares
    return {
        "temporal": shares.temporal[0].item(),
        "temporal_query": shares.temporal_query[0].item(),
        "temporal_held_out": held_out.temporal[0].item(),
        "temporal_query_held_out": held_out.temporal_query[0].item(),
        "temporal_signed": shares.signed[0, 0, 0].item(),
        "temporal_query_signed": shares.signed[0, 0].sum().item(),
    }


def claims(measured: Measured) -> list[Verdict]:
    stated = (
        ("temporal · temporal captures over 77 %", "temporal", 0.77),
        ("with two further terms (μ·χ, μ·Δ) over 87 %", "temporal_query", 0.87),
    )
    return [
        at_least(f"{label}: {text} of the alignment", measured.values(label, name), threshold)
        for label in ("eSCAN, AED", "eSCAN, AO")
        for text, name, threshold in stated
    ]


def figure(measured: Measured) -> Any:
    return {
        label: {name: measured.values(label, name) for name in ("temporal", "temporal_query")} for label in measured
    }


def draw(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 3.8))
    first = {label: np.array(values["temporal"]) for label, values in data.items()}
    three = {label: np.array(values["temporal_query"]) for label, values in data.items()}
    parts = {"μ·μ": first, "μ·χ + μ·Δ": {label: three[label] - first[label] for label in data}}
    means = pd.DataFrame(
        {name: {label: values.mean() for label, values in part.items()} for name, part in parts.items()}
    )
    spreads = pd.DataFrame(
        {name: {label: spread(values.tolist()) for label, values in part.items()} for name, part in parts.items()}
    )
    rest = "the other six"  # what the others leave has no spread of its own
    plots.stacked_shares(means.assign(**{rest: 1 - means.sum(axis=1)}), ax=ax, errors=spreads.assign(**{rest: 0.0}))
    ax.set_ylabel("share of the nine |terms|")
    return picture


FIG5A = Finding(
    name="fig5a",
    title="Which of the nine terms make the alignment",
    section="§4.1, figure 5a",
    experiments=one_to_one_and_escan,
    measure=measure,
    table=lambda measured: measured.table(
        QUANTITIES, lambda label, name: published("escan", name) if label.startswith("eSCAN") else {}
    ),
    claims=claims,
    figure=figure,
    draw=draw,
    notes=(
        "A share is |term| over the sum of the nine |terms|, over the five largest positions of each decoder step, as "
        "the paper's author computed it. The signed share is Σ term / Σ alignment over the same positions.",
        "Held out: components from the test set, shares on sentences that it does not contain. No word of these tasks "
        "is rare (seen fewer than 10 times).",
        "What this does not show: that a term with a small share is unimportant; attention is decided by differences "
        "between positions, and a term that is large everywhere decides nothing.",
    ),
)
