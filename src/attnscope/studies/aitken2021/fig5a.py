"""Which of the nine terms make the alignment? (aitken2021 §4.1, figure 5a)"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.probes.decomposition.terms import TERMS
from attnscope.studies.aitken2021.experiments import ATTENDING, TRANSLATION, NetworkLabel, of_figure_5
from attnscope.studies.aitken2021.look import ENDS, Look, between, look
from attnscope.studies.aitken2021.translated import NOTE
from attnscope.studies.claims import ClaimVerdict, always, at_least, at_most, more_than, spread
from attnscope.studies.finding import Finding, Measurement, Measurements, published_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

published = published_by("aitken2021")

QUANTITIES = {
    "temporal": "μ·μ, share of |terms|",
    "temporal_query": "μ·μ + μ·χ + μ·Δ, share of |terms|",
    "temporal_held_out": "μ·μ, held out",
    "temporal_query_held_out": "μ·μ + μ·χ + μ·Δ, held out",
    "temporal_signed": "μ·μ, signed share",
    "temporal_query_signed": "μ·μ + μ·χ + μ·Δ, signed share",
    "largest": "the largest of the nine shares",
    "temporal_common": "μ·μ, between words seen 10 times or more",
    "temporal_early": "μ·μ, first three decoder steps",
    "temporal_late": "μ·μ, last three decoder steps",
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
        **(measure_translation(seen) if seen.translates else {}),
    }


def measure_translation(seen: Look) -> Measurement:
    """Whether any term dominates, over all decoder steps and over the first ones."""
    by_step = seen.between.shares.absolute_by_step[: seen.walks.steps, 0]  # target x 3 x 3
    early = by_step[:ENDS].mean(0)
    return {
        "largest": seen.between.shares.absolute[0].max().item(),
        "temporal_common": seen.between.common.temporal[0].item(),
        "temporal_early": early[0, 0].item(),
        "temporal_late": by_step[-ENDS:, 0, 0].mean().item(),
        "largest_early_is_temporal": TERMS[int(early.flatten().argmax())] == ("temporal", "temporal"),
        "by_step": by_step[:, 0, 0],
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return claims_escan(measured) + claims_translation(measured)


def claims_escan(measured: Measurements) -> list[ClaimVerdict]:
    stated = (
        ("temporal · temporal captures over 77 %", "temporal", 0.77),
        ("with two further terms (μ·χ, μ·Δ) over 87 %", "temporal_query", 0.87),
    )
    return [
        at_least(f"{label}: {text} of the alignment", measured.values(label, name), threshold)
        for label in (NetworkLabel("eSCAN", model) for model in ATTENDING)
        for text, name, threshold in stated
    ]


def claims_translation(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for label in TRANSLATION:
        smaller = f"{label}: temporal · temporal is a smaller part of the alignment than in eSCAN"
        in_escan = measured.values(label._replace(task="eSCAN"), "temporal")
        verdicts += [
            at_most(
                f"{label}: none of the nine terms dominates, that is, outweighs the other eight together",
                measured.values(label, "largest"),
                0.5,
            ),
            more_than(smaller, in_escan, measured.values(label, "temporal")),
        ]
    early = f"{TRANSLATION[0]}: early, in the first three decoder steps, temporal · temporal is the largest term"
    return [*verdicts, always(early, measured.flags(TRANSLATION[0], "largest_early_is_temporal"))]


def figure(measured: Measurements) -> Any:
    shown = ("temporal", "temporal_query", "by_step")
    return {
        str(label): {name: [m[name] for m in measured[label]] for name in shown if name in measured.first(label)}
        for label in measured
    }


def draw(data: Any) -> "Figure":
    by_step = {label: np.array(values["by_step"]) for label, values in data.items() if "by_step" in values}
    picture, axes = plots.panels(1, 2 if by_step else 1, size=(6.4, 3.8))
    draw_bars(data, axes[0])
    if by_step:
        draw_steps(by_step, axes[1])
    return picture


def draw_bars(data: Any, ax: "Axes") -> None:
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


def draw_steps(by_step: dict[str, np.ndarray], ax: "Axes") -> None:
    """The share of μ·μ at each decoder step, one curve an architecture, ± its spread over seeds."""
    means = {label: shares.mean(0) for label, shares in by_step.items()}
    bands = {label: shares.std(0) for label, shares in by_step.items()}
    steps = np.arange(max(map(len, means.values())))
    plots.profiles(steps, means, ax=ax, xlabel="decoder step s", ylabel="share of μ·μ", bands=bands)
    ax.set_ylim(0, 1)


FIG5A = Finding(
    name="fig5a",
    title="Which of the nine terms make the alignment",
    section="§4.1, figure 5a",
    experiments=of_figure_5,
    measure=measure,
    table=lambda measured: measured.table(
        QUANTITIES, lambda label, name: published("escan", name) if label.task == "eSCAN" else {}
    ),
    claims=claims, figure=figure, draw=draw,
    notes=(
        "A share is |term| over the sum of the nine |terms|, over the five largest positions of each decoder step, as "
        "the paper's author computed it. The signed share is Σ term / Σ alignment over the same positions.",
        "Held out: components from the test set, shares on sentences that it does not contain. No word of one-to-one "
        "and eSCAN is rare (seen fewer than 10 times); in translation most are. A word seen once has no delta by "
        "construction, one never seen is all delta, so that common words have a row of their own.",
        NOTE,
        "What this does not show: that a term with a small share is unimportant; attention is decided by differences "
        "between positions, and a term that is large everywhere decides nothing.",
    ),
)  # fmt: skip
