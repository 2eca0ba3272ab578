"""At which offset from its own step does the decoder attend? (aitken2021 §4.1, figure 5b)"""

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.analysis import ENDS, NetworkAnalysis, analyse
from attnscope.studies.aitken2021.experiments import TRANSLATION, TRANSLATION_NOTE, of_figure_5
from attnscope.studies.claims import ClaimVerdict, more_than
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements, published_by

published = published_by("aitken2021")

QUANTITIES = {
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


def measure(run: Run) -> Measurement:
    analysis = analyse(run)
    profile = analysis.decomposition.offsets
    assert profile is not None
    table = profile.table().iloc[: analysis.trajectories.steps]
    largest, expected = table["largest"].to_numpy(float), table["expected"].to_numpy(float)
    curves = table[profile.offsets.tolist()].to_numpy(float)  # steps x offsets
    shown = [int(step) for step in np.linspace(0, len(table) - 1, 5)]
    offsets = {"largest": largest} | ({} if profile.expected is None else {"expected": expected})
    return {
        "growth": growth(largest),
        **(measure_translation(analysis, largest, curves) if analysis.translates else compare(largest, expected)),
        "picture": {"offsets": profile.offsets, "curves": {step: curves[step] for step in shown}, **offsets},
    }


def growth(offsets: np.ndarray) -> float:
    """Return the mean of the last three steps less that of the first three."""
    return float(offsets[-ENDS:].mean() - offsets[:ENDS].mean())


def compare(largest: np.ndarray, expected: np.ndarray) -> Measurement:
    """Return the distance to the offset that the task requires, and how that one grows."""
    return {"distance": float(np.abs(largest - expected).mean()), "expected_growth": growth(expected)}


def measure_translation(analysis: NetworkAnalysis, largest: np.ndarray, curves: np.ndarray) -> Measurement:
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


def claims(measured: Measurements) -> list[ClaimVerdict]:
    follows = "the maximum of μ(s)·μ(t) follows the expected offset, within one position on average"
    verdicts = [
        measured.at_most(f"{label}: {follows}", label, "distance", 1.0)
        for label in measured
        if label not in TRANSLATION
    ]
    for label in TRANSLATION:
        first, last, fall_first, fall_last = (
            measured.values(label, name) for name in ("first", "last", "fall_first", "fall_last")
        )
        moves = f"{label}: the maximum of μ(s)·μ(t) moves towards earlier t, from the first three steps to the last"
        behind = f"{label}: in the last three steps it lies at t < s"
        slower = (
            f"{label}: μ(s)·μ(t) falls off more slowly around its maximum in the last three steps than in the first"
        )
        verdicts += [
            more_than(moves, first, last),
            more_than(behind, [0.0] * len(last), last),
            more_than(slower, fall_first, fall_last),
        ]
    return verdicts


def draw(data: FigureData) -> Figure:
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
    experiments=of_figure_5, measure=measure, table=QUANTITIES,
    published=lambda label, name: published("translation", name) if label in TRANSLATION else {},
    claims=claims, draw=draw,
    notes=(
        "The expected offset is the mean over the data of t − s, t being the word that the action s translates. Steps "
        "that fewer than half of the sentences reach are left out. For translation no expected offset is known: French "
        "sentences are longer than their English ones, so that it must fall below zero.",
        TRANSLATION_NOTE,
        "What this does not show: where attention goes in a single sentence; the temporal term is the same for all.",
    ),
)  # fmt: skip
