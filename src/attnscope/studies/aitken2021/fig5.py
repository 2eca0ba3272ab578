"""How do temporal components, offsets, word variance and readouts differ between tasks? (aitken2021 §4.1, figure 5)

a: which of the nine terms make up the alignment. b: the offset from its own step at which the decoder attends. c: how
much of the variance of a word's states is temporal. d: whether readouts and input components implement the dictionary.
"""

from collections.abc import Mapping, Sequence

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
    escan_networks,
    of_figure_5,
    published,
)
from attnscope.studies.bars import INTERVAL, bar_values, draw_bars, draw_curves
from attnscope.studies.claims import UNIT, ClaimVerdict, error_bar, more_than
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements, PublishedNumber

# Figure 5a: terms of the alignment -----------------------------------------------------------------------------------

TERM_QUANTITIES = {
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
TERMS_IN_FIGURE = ("temporal", "temporal_query", "by_step")


def measure_terms(run: Run) -> Measurement:
    analysis = analyse(run)
    shares, held_out = analysis.between.shares, between(analysis.held_out).shares
    return {
        "temporal": shares.temporal[0].item(),
        "temporal_query": shares.temporal_query[0].item(),
        "temporal_held_out": held_out.temporal[0].item(),
        "temporal_query_held_out": held_out.temporal_query[0].item(),
        "temporal_signed": shares.signed[0, 0, 0].item(),
        "temporal_query_signed": shares.signed[0, 0].sum().item(),
        **(translation_terms(analysis) if analysis.translates else {}),
    }


def translation_terms(analysis: NetworkAnalysis) -> Measurement:
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


def claims_about_terms(measured: Measurements) -> list[ClaimVerdict]:
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


def terms_figure(measured: Measurements) -> dict[str, FigureData]:
    return {
        str(label): {name: measured.per_seed(label, name) for name in TERMS_IN_FIGURE if measured.has(label, name)}
        for label in measured
    }


def draw_terms(data: FigureData) -> Figure:
    by_step = {label: np.array(values["by_step"]) for label, values in data.items() if "by_step" in values}
    picture, axes = plots.panels(1, 2 if by_step else 1, size=(6.4, 3.8))
    draw_shares(data, axes[0])
    if by_step:
        draw_steps(by_step, axes[1])
    return picture


def draw_shares(data: FigureData, ax: Axes) -> None:
    first = {label: np.array(values["temporal"]) for label, values in data.items()}
    three = {label: np.array(values["temporal_query"]) for label, values in data.items()}
    rest = "the other six"
    parts = {"μ·μ": first, "μ·χ + μ·Δ": {label: three[label] - first[label] for label in data}}
    means = pd.DataFrame({name: {label: np.mean(part[label]) for label in part} for name, part in parts.items()})
    below, above = (  # of the share up to the top of each part; what the others leave has none of its own
        pd.DataFrame({
            name: {label: error_bar(tops[label], UNIT)[side] for label in data}
            for name, tops in zip(parts, (first, three), strict=True)
        }).assign(**{rest: 0.0})
        for side in (0, 1)
    )  # fmt: skip
    plots.stacked_shares(
        means.assign(**{rest: 1 - means.sum(axis=1)}), ax=ax, errors=(below, above), errors_name=INTERVAL
    )
    ax.set_ylabel("share of the nine |terms|")


def draw_steps(by_step: dict[str, np.ndarray], ax: Axes) -> None:
    """Draw the share of μ·μ at each decoder step, one curve per architecture, with the interval over seeds."""
    steps = np.arange(max(shares.shape[1] for shares in by_step.values()))
    draw_curves(steps, by_step, ax, UNIT, xlabel="decoder step s", ylabel="share of μ·μ")
    ax.set_ylim(0, 1)


FIG5A = Finding(
    name="fig5a",
    title="Which of the nine terms make up the alignment",
    section="§4.1, figure 5a",
    experiments=of_figure_5, measure=measure_terms, table=TERM_QUANTITIES,
    published=lambda label, name: published("escan", name) if label.task == "eSCAN" else {},
    claims=claims_about_terms, figure=terms_figure, draw=draw_terms,
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


# Figure 5b: offsets --------------------------------------------------------------------------------------------------

OFFSET_QUANTITIES = {
    "distance": "mean |offset of the maximum − expected offset|",
    "growth": "offset of the maximum, last three steps − first three",
    "expected_growth": "expected offset, last three steps − first three",
    "first": "offset of the maximum, first three steps",
    "last": "offset of the maximum, last three steps",
    "fall_first": "fall of μ·μ within two positions of its maximum, first three steps",
    "fall_last": "the same, last three steps",
    "length_ratio": "words of a target / of its source",
}
REACH = 2  # positions on either side of the maximum within which its fall is measured


def measure_offsets(run: Run) -> Measurement:
    analysis = analyse(run)
    profile = analysis.decomposition.offsets
    assert profile is not None
    table = profile.table().iloc[: analysis.trajectories.steps]
    largest, expected = table["largest"].to_numpy(float), table["expected"].to_numpy(float)
    curves = table[profile.offsets.tolist()].to_numpy(float)  # steps x offsets
    steps = [int(step) for step in np.linspace(0, len(table) - 1, 5)]
    offsets = {"largest": largest} | ({} if profile.expected is None else {"expected": expected})
    return {
        "growth": growth(largest),
        **(
            translation_offsets(analysis, largest, curves)
            if analysis.translates
            else {"distance": float(np.abs(largest - expected).mean()), "expected_growth": growth(expected)}
        ),
        "picture": {"offsets": profile.offsets, "curves": {step: curves[step] for step in steps}, **offsets},
    }


def growth(offsets: np.ndarray) -> float:
    """Return the mean of the last three steps less that of the first three."""
    return float(offsets[-ENDS:].mean() - offsets[:ENDS].mean())


def translation_offsets(analysis: NetworkAnalysis, largest: np.ndarray, curves: np.ndarray) -> Measurement:
    """Return the position and steepness of the maximum at both ends: no expected offset is known."""
    falls = np.array([fall(curve) for curve in curves])
    return {
        "first": float(largest[:ENDS].mean()),
        "last": float(largest[-ENDS:].mean()),
        "fall_first": float(falls[:ENDS].mean()),
        "fall_last": float(falls[-ENDS:].mean()),
        "length_ratio": length_ratio(analysis),
    }


def fall(curve: np.ndarray) -> float:
    """Return the mean difference between a curve's maximum and its values within reach; NaN are no values.

    >>> fall(np.array([np.nan, 9.0, 1.0, 4.0, 3.0, 2.0, -5.0]))
    6.5
    """
    top = int(np.nanargmax(curve))
    around = [i for i in range(max(top - REACH, 0), min(top + REACH + 1, len(curve))) if i != top]
    return float(np.nanmean(curve[top] - curve[around]))


def length_ratio(analysis: NetworkAnalysis) -> float:
    """Return the words of all targets over those of all sources, end tokens left out."""
    sides = (analysis.decoder, analysis.encoder)
    targets, sources = ((side.time_counts.sum() - side.time_counts[0]).item() for side in sides)
    return float(targets / sources)


def claims_about_offsets(measured: Measurements) -> list[ClaimVerdict]:
    follows = "the maximum of μ(s)·μ(t) follows the expected offset, within one position on average"
    verdicts = [
        measured.at_most(f"{label}: {follows}", label, "distance", 1.0)
        for label in measured
        if label not in TRANSLATION
    ]
    for label in TRANSLATION:
        last = measured.values(label, "last")
        moves = f"{label}: the maximum of μ(s)·μ(t) moves towards earlier t, from the first three steps to the last"
        behind = f"{label}: in the last three steps it lies at t < s"
        slower = (
            f"{label}: μ(s)·μ(t) falls off more slowly around its maximum in the last three steps than in the first"
        )
        verdicts += [
            measured.greater(moves, label, "first", "last"),
            more_than(behind, [0.0] * len(last), last),
            measured.greater(slower, label, "fall_first", "fall_last"),
        ]
    return verdicts


def draw_offsets(data: FigureData) -> Figure:
    """Draw one row per task: for each architecture curves over offsets, and the offset of the maximum by step."""
    picture, axes = plots.panels(-(-len(data) // 2), 4, size=(3.6, 3.2))
    for (label, content), left, right in zip(data.items(), axes[::2], axes[1::2], strict=True):
        curves = {f"s = {step}": np.array(curve, dtype=float) for step, curve in content["curves"].items()}
        plots.profiles(np.array(content["offsets"]), curves, ax=left, xlabel="offset t − s", ylabel="μ(s) · μ(t)")
        left.set_title(label)
        offsets = {name: np.array(content[name], dtype=float) for name in ("largest", "expected") if name in content}
        plots.profiles(np.arange(len(offsets["largest"])), offsets, ax=right, xlabel="decoder step s", ylabel="offset")
        right.set_ylim(-5.5, 5.5)
    return picture


FIG5B = Finding(
    name="fig5b",
    title="The offset from its own step at which the decoder attends",
    section="§4.1, figure 5b",
    experiments=of_figure_5, measure=measure_offsets, table=OFFSET_QUANTITIES,
    published=lambda label, name: published("translation", name) if label in TRANSLATION else {},
    claims=claims_about_offsets, draw=draw_offsets,
    notes=(
        "The expected offset is the mean over the data of t − s, t being the word that the action s translates. Steps "
        "that fewer than half of the sentences reach are left out. For translation no expected offset is known: French "
        "sentences are longer than their English ones, so that it must fall below zero.",
        TRANSLATION_NOTE,
        "What this does not show: where attention goes in a single sentence; the temporal term is the same for all.",
    ),
)  # fmt: skip


# Figure 5c: variance of a word's states ------------------------------------------------------------------------------

VARIANCE_QUANTITIES = {
    "drop": "drop of the variance",
    "drop_held_out": "the same, held out",
    "drop_rare": "the same, words that occur fewer than 10 times",
}
ESCAN_AED, ESCAN_AO = NetworkLabel("eSCAN", "AED"), NetworkLabel("eSCAN", "AO")
FRENCH_AED, FRENCH_AO = NetworkLabel("translation", "AED"), NetworkLabel("translation", "AO")
IN_THE_PAPER = (ESCAN_AED, ESCAN_AO, FRENCH_AED, FRENCH_AO)


def measure_variance(run: Run) -> Measurement:
    analysis = analyse(run)
    variance = analysis.measured.encoder.variance
    return {
        "drop": 1 - variance.mean[0].item(),
        "drop_held_out": 1 - analysis.held_out.encoder.variance.mean[0].item(),
        **({"drop_rare": 1 - variance.mean_rare[0].item()} if analysis.translates else {}),
    }


def published_drop(label: NetworkLabel, name: str) -> PublishedNumber:
    return published(label.task.lower(), f"variance_drop_{label.model.lower()}") if name == "drop" else {}


def claims_about_variance(measured: Measurements) -> list[ClaimVerdict]:
    text = "the variance of a word's states drops by about"
    return [
        measured.at_least(f"eSCAN, AED: {text} 90 % (at least 85 %) without time", ESCAN_AED, "drop", 0.85),
        measured.at_least(f"eSCAN, AO: {text} 95 % (at least 90 %) without time", ESCAN_AO, "drop", 0.90),
        measured.at_most(f"translation, AED: {text} 8 % only (at most 13 %) without time", FRENCH_AED, "drop", 0.13),
        measured.at_most(f"translation, AO: {text} 25 % only (at most 30 %) without time", FRENCH_AO, "drop", 0.30),
    ]


def draw_variance(data: Mapping[str, Sequence[float]]) -> Figure:
    theirs: dict[str, PublishedNumber] = {
        str(label): {"published": 1 - published_drop(label, "drop")["published"]} for label in IN_THE_PAPER
    }
    left = {
        label: {"variance left": bar_values([1 - drop for drop in drops], theirs.get(label))}
        for label, drops in data.items()
    }
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 3.6))
    draw_bars(left, ax, "variance of h − μ / variance of h")
    return picture


FIG5C = Finding(
    name="fig5c",
    title="How much of the variance of a word's states is temporal",
    section="§4.1, figure 5c",
    experiments=of_figure_5, measure=measure_variance, table=VARIANCE_QUANTITIES, published=published_drop,
    claims=claims_about_variance,
    figure=lambda measured: {str(label): measured.values(label, "drop") for label in measured}, draw=draw_variance,
    notes=(
        "Mean over words of the trace of the covariance, without the end and start tokens; in translation, over words "
        "that the test set has ten times or more, about a hundred.",
        TRANSLATION_NOTE,
        "What this does not show: variance is not use; the remaining variance may still determine the output.",
    ),
)  # fmt: skip


# Figure 5d: readouts -------------------------------------------------------------------------------------------------

READOUT_QUANTITIES = {
    "errors": "readouts that are best aligned with another word than their own (of 5)",
    "idle_words": "readouts that are best aligned with 'and' or 'twice'",
}


def measure_readout(run: Run) -> Measurement:
    analysis = analyse(run)
    readout = analysis.decomposition.readout(analysis.model.context_readout)
    table = readout.table(analysis.target_tokens, analysis.source_tokens)
    actions, words = [str(action) for action in table.index], [str(word) for word in table.columns]
    best = {action: words[place] for action, place in zip(actions, table.to_numpy().argmax(1), strict=True)}
    return {
        "errors": sum(word != word_of(action) for action, word in best.items()),
        "idle_words": sum(word in ("and", "twice") for word in best.values()),
        "picture": {"values": table.to_numpy(), "outputs": actions, "inputs": words},
    }


def word_of(action: str) -> str:
    """Return the word that an action translates.

    >>> word_of("LTURN"), word_of("RUN"), word_of(".")
    ('left', 'run', '.')
    """
    return "left" if action == "LTURN" else action.lower()


def claims_about_readout(measured: Measurements) -> list[ClaimVerdict]:
    texts = {
        "errors": "for each readout, the argmax over input words is its own word",
        "idle_words": "'and' and 'twice' are the argmax of no readout",
    }
    return [
        measured.proportion(f"{model}: {text}", model, name, lambda count: count == 0)
        for model in measured
        for name, text in texts.items()
    ]


def draw_readout(data: FigureData) -> Figure:
    picture, axes = plots.panels(1, 2, size=(5.0, 3.6))
    for (model, content), ax in zip(data.items(), axes, strict=True):
        title = f"{model}: readout · input component"
        products = np.array(content["values"])
        plots.heatmap(products, content["outputs"], content["inputs"], ax=ax, title=title, diverging=True)
    return picture


FIG5D = Finding(
    name="fig5d",
    title="Whether readouts and input components implement the dictionary",
    section="§4.1, figure 5d",
    experiments=escan_networks, measure=measure_readout, table=READOUT_QUANTITIES, claims=claims_about_readout,
    draw=draw_readout,
    notes=(
        "For AED the half of the readout that meets the context (footnote 6 of the paper). The heatmaps are of the "
        "first seed.",
        "What this does not show: a dictionary of single words explains no output that depends on several.",
    ),
)  # fmt: skip
