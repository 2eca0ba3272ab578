"""Which of the nine terms make up the alignment? (aitken2021 §4.1, figure 5a)"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.probes.decomposition.terms import TERMS
from attnscope.studies.aitken2021.analysis import ENDS, NetworkAnalysis, analyse, between
from attnscope.studies.aitken2021.experiments import (
    ATTENDING,
    TRANSLATION,
    TRANSLATION_NOTE,
    NetworkLabel,
    of_figure_5,
)
from attnscope.studies.claims import ClaimVerdict, spread
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements, published_by

published = published_by("aitken2021")

QUANTITIES = {
    "temporal": "μ·μ, share of |terms|",
    "temporal_query": "μ·μ + μ·χ + μ·Δ, share of |terms|",
    "temporal_held_out": "μ·μ, held out",
    "temporal_query_held_out": "μ·μ + μ·χ + μ·Δ, held out",
    "temporal_signed": "μ·μ, signed share",
    "temporal_query_signed": "μ·μ + μ·χ + μ·Δ, signed share",
    "largest": "the largest of the nine shares",
    "temporal_common": "μ·μ, between words that occur 10 times or more",
    "temporal_early": "μ·μ, first three decoder steps",
    "temporal_late": "μ·μ, last three decoder steps",
}
SHOWN = ("temporal", "temporal_query", "by_step")


def measure(run: Run) -> Measurement:
    analysis = analyse(run)
    shares, held_out = analysis.between.shares, between(analysis.held_out).shares
    return {
        "temporal": shares.temporal[0].item(),
        "temporal_query": shares.temporal_query[0].item(),
        "temporal_held_out": held_out.temporal[0].item(),
        "temporal_query_held_out": held_out.temporal_query[0].item(),
        "temporal_signed": shares.signed[0, 0, 0].item(),
        "temporal_query_signed": shares.signed[0, 0].sum().item(),
        **(measure_translation(analysis) if analysis.translates else {}),
    }


def measure_translation(analysis: NetworkAnalysis) -> Measurement:
    """Return the largest term over all decoder steps and over the first ones."""
    by_step = analysis.between.shares.absolute_by_step[: analysis.trajectories.steps, 0]  # target x 3 x 3
    early = by_step[:ENDS].mean(0)
    return {
        "largest": analysis.between.shares.absolute[0].max().item(),
        "temporal_common": analysis.between.common.temporal[0].item(),
        "temporal_early": early[0, 0].item(),
        "temporal_late": by_step[-ENDS:, 0, 0].mean().item(),
        "largest_early_is_temporal": TERMS[int(early.flatten().argmax())] == ("temporal", "temporal"),
        "by_step": by_step[:, 0, 0],
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    bounds = {
        "temporal": (0.77, "temporal · temporal captures over 77 %"),
        "temporal_query": (0.87, "with two further terms (μ·χ, μ·Δ) over 87 %"),
    }
    escan = [
        measured.at_least(f"{label}: {text} of the alignment", label, name, threshold)
        for label in (NetworkLabel("eSCAN", model) for model in ATTENDING)
        for name, (threshold, text) in bounds.items()
    ]
    translation = []
    for label in TRANSLATION:
        none = f"{label}: none of the nine terms dominates, that is, outweighs the other eight together"
        smaller = f"{label}: temporal · temporal is a smaller part of the alignment than in eSCAN"
        translation += [
            measured.at_most(none, label, "largest", 0.5),
            measured.more_than(smaller, label._replace(task="eSCAN"), label, "temporal"),
        ]
    early = f"{TRANSLATION[0]}: early, in the first three decoder steps, temporal · temporal is the largest term"
    return [*escan, *translation, measured.proportion(early, TRANSLATION[0], "largest_early_is_temporal")]


def figure(measured: Measurements) -> dict[str, FigureData]:
    return {
        str(label): {name: measured.named(label, name) for name in SHOWN if measured.has(label, name)}
        for label in measured
    }


def draw(data: FigureData) -> Figure:
    by_step = {label: np.array(values["by_step"]) for label, values in data.items() if "by_step" in values}
    picture, axes = plots.panels(1, 2 if by_step else 1, size=(6.4, 3.8))
    draw_shares(data, axes[0])
    if by_step:
        draw_steps(by_step, axes[1])
    return picture


def draw_shares(data: FigureData, ax: Axes) -> None:
    first = {label: np.array(values["temporal"]) for label, values in data.items()}
    three = {label: np.array(values["temporal_query"]) for label, values in data.items()}
    parts = {"μ·μ": first, "μ·χ + μ·Δ": {label: three[label] - first[label] for label in data}}
    means, spreads = (
        pd.DataFrame({name: {label: summary(part[label].tolist()) for label in part} for name, part in parts.items()})
        for summary in (np.mean, spread)
    )
    rest = "the other six"  # what the others leave has no spread of its own
    plots.stacked_shares(means.assign(**{rest: 1 - means.sum(axis=1)}), ax=ax, errors=spreads.assign(**{rest: 0.0}))
    ax.set_ylabel("share of the nine |terms|")


def draw_steps(by_step: dict[str, np.ndarray], ax: Axes) -> None:
    """Draw the share of μ·μ at each decoder step, one curve per architecture, ± its spread over seeds."""
    means = {label: shares.mean(0) for label, shares in by_step.items()}
    bands = {label: shares.std(0) for label, shares in by_step.items()}
    steps = np.arange(max(map(len, means.values())))
    plots.profiles(steps, means, ax=ax, xlabel="decoder step s", ylabel="share of μ·μ", bands=bands)
    ax.set_ylim(0, 1)


FIG5A = Finding(
    name="fig5a",
    title="Which of the nine terms make up the alignment",
    section="§4.1, figure 5a",
    experiments=of_figure_5, measure=measure, table=QUANTITIES,
    published=lambda label, name: published("escan", name) if label.task == "eSCAN" else {},
    claims=claims, figure=figure, draw=draw,
    notes=(
        "A share is |term| over the sum of the nine |terms|, over the five largest positions of each decoder step, as "
        "the paper's author computed it. The signed share is Σ term / Σ alignment over the same positions.",
        "Held out: components from the test set, shares on sentences that it does not contain. No word of one-to-one "
        "and eSCAN is rare (fewer than 10 occurrences); in translation most are. A word that occurs once has no delta "
        "by construction, one that never occurs is all delta, so that common words have a row of their own.",
        TRANSLATION_NOTE,
        "What this does not show: that a term with a small share is unimportant; attention is decided by differences "
        "between positions, and a term that is large everywhere decides nothing.",
    ),
)  # fmt: skip
