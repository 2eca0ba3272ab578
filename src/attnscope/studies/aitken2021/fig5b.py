"""At which offset from its own time does the decoder look? (aitken2021 §4.1, figure 5b)"""

from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.experiments import TRANSLATION, of_figure_5
from attnscope.studies.aitken2021.look import ENDS, Look, look
from attnscope.studies.aitken2021.translated import NOTE
from attnscope.studies.claims import ClaimVerdict, at_most, more_than
from attnscope.studies.finding import Finding, Measurement, Measurements, published_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    seen = look(run)
    profile = seen.decomposition.offsets
    assert profile is not None
    table = profile.table().iloc[: seen.walks.steps]
    largest, expected = table["largest"].to_numpy(float), table["expected"].to_numpy(float)
    curves = table[profile.offsets.tolist()].to_numpy(float)  # steps x offsets
    shown = [int(step) for step in np.linspace(0, len(table) - 1, 5)]
    follows = {"largest": largest} | ({} if profile.expected is None else {"expected": expected})
    return {
        "growth": float(largest[-ENDS:].mean() - largest[:ENDS].mean()),
        **(measure_translation(seen, largest, curves) if seen.translates else measure_expected(largest, expected)),
        "picture": {"offsets": profile.offsets, "curves": {step: curves[step] for step in shown}, **follows},
    }


def measure_expected(largest: np.ndarray, expected: np.ndarray) -> Measurement:
    """Against the offset that the task asks for."""
    return {
        "distance": float(np.abs(largest - expected).mean()),
        "expected_growth": float(expected[-ENDS:].mean() - expected[:ENDS].mean()),
    }


def measure_translation(seen: Look, largest: np.ndarray, curves: np.ndarray) -> Measurement:
    """No one says where a French word comes from; but where does the maximum go, and how steep is it?"""
    falls = np.array([fall(curve) for curve in curves])
    return {
        "first": float(largest[:ENDS].mean()),
        "last": float(largest[-ENDS:].mean()),
        "fall_first": float(falls[:ENDS].mean()),
        "fall_last": float(falls[-ENDS:].mean()),
        "length_ratio": length_ratio(seen),
    }


def fall(curve: np.ndarray) -> float:
    """The mean difference between a curve's maximum and its values within reach; NaN are no values.

    >>> fall(np.array([np.nan, 9.0, 1.0, 4.0, 3.0, 2.0, -5.0]))
    6.5
    """
    top = int(np.nanargmax(curve))
    around = [i for i in range(max(top - REACH, 0), min(top + REACH + 1, len(curve))) if i != top]
    return float(np.nanmean(curve[top] - curve[around]))


def length_ratio(seen: Look) -> float:
    """Words of all targets over words of all sources, end tokens left out."""
    targets, sources = ((side.time_counts.sum() - side.time_counts[0]).item() for side in (seen.decoder, seen.encoder))
    return float(targets / sources)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return claims_expected(measured) + claims_translation(measured)


def claims_expected(measured: Measurements) -> list[ClaimVerdict]:
    return [
        at_most(
            f"{label}: the maximum of μ(s)·μ(t) follows the expected offset, within one position on average",
            measured.values(label, "distance"),
            1.0,
        )
        for label in measured
        if label not in TRANSLATION
    ]


def claims_translation(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for label in TRANSLATION:
        first, last, fall_first, fall_last = (
            measured.values(label, name) for name in ("first", "last", "fall_first", "fall_last")
        )
        moves = (
            f"{label}: the maximum of μ(s)·μ(t) moves towards earlier t, from the first three steps to the last three"
        )
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


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(-(-len(data) // 2), 4, size=(3.6, 3.2))  # a row a task
    for (label, content), left, right in zip(data.items(), axes[::2], axes[1::2], strict=True):
        offsets = np.array(content["offsets"])
        curves = {f"s = {step}": np.array(curve, dtype=float) for step, curve in content["curves"].items()}
        plots.profiles(offsets, curves, ax=left, xlabel="offset t − s", ylabel="μ(s) · μ(t)")
        left.set_title(label)
        follows = {name: np.array(content[name], dtype=float) for name in ("largest", "expected") if name in content}
        plots.profiles(np.arange(len(follows["largest"])), follows, ax=right, xlabel="decoder step s", ylabel="offset")
        right.set_ylim(-5.5, 5.5)
    return picture


FIG5B = Finding(
    name="fig5b",
    title="At which offset from its own time the decoder looks",
    section="§4.1, figure 5b",
    experiments=of_figure_5,
    measure=measure,
    table=lambda measured: measured.table(
        QUANTITIES, lambda label, name: published("translation", name) if label in TRANSLATION else {}
    ),
    claims=claims,
    draw=draw,
    notes=(
        "The expected offset is the mean over the data of t − s, t being the word that called for the action s. Steps "
        "that fewer than half of the sentences reach are left out. Of translation no expected offset is known: French "
        "sentences are longer than their English ones, so that it must fall below zero.",
        NOTE,
        "What this does not show: where a single sentence looks; the temporal term is the same for all.",
    ),
)
