"""At which offset from its own time does the decoder look? (aitken2021 §4.1, figure 5b)"""

from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.experiments import one_to_one_and_escan
from attnscope.studies.aitken2021.look import look
from attnscope.studies.claims import Verdict, at_most
from attnscope.studies.finding import Finding, Measured, Measurement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {
    "distance": "mean |offset of the maximum − expected offset|",
    "growth": "offset of the maximum, last three steps − first three",
    "expected_growth": "expected offset, last three steps − first three",
}


def measure(run: Run) -> Measurement:
    seen = look(run)
    profile = seen.decomposition.offsets
    assert profile is not None
    table = profile.table().iloc[: seen.steps]
    largest, expected = table["largest"].to_numpy(float), table["expected"].to_numpy(float)
    shown = [int(step) for step in np.linspace(0, len(table) - 1, 5)]
    return {
        "distance": float(np.abs(largest - expected).mean()),
        "growth": float(largest[-3:].mean() - largest[:3].mean()),
        "expected_growth": float(expected[-3:].mean() - expected[:3].mean()),
        "picture": {
            "offsets": profile.offsets,
            "curves": {step: table.loc[step, profile.offsets.tolist()].to_numpy(float) for step in shown},
            "largest": largest,
            "expected": expected,
        },
    }


def claims(measured: Measured) -> list[Verdict]:
    return [
        at_most(
            f"{label}: the maximum of μ(s)·μ(t) follows the expected offset, within one position on average",
            measured.values(label, "distance"),
            1.0,
        )
        for label in measured
    ]


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(2, 4, size=(3.6, 3.2))
    for (label, content), above, below in zip(data.items(), axes[:4], axes[4:], strict=True):
        offsets = np.array(content["offsets"])
        curves = {f"s = {step}": np.array(curve, dtype=float) for step, curve in content["curves"].items()}
        plots.profiles(offsets, curves, ax=above, xlabel="offset t − s", ylabel="μ(s) · μ(t)")
        above.set_title(label)
        follows = {name: np.array(content[name], dtype=float) for name in ("largest", "expected")}
        plots.profiles(np.arange(len(follows["largest"])), follows, ax=below, xlabel="decoder step s", ylabel="offset")
        below.set_ylim(-5.5, 5.5)
    return picture


FIG5B = Finding(
    name="fig5b",
    title="At which offset from its own time the decoder looks",
    section="§4.1, figure 5b",
    experiments=one_to_one_and_escan,
    measure=measure,
    table=lambda measured: measured.table(QUANTITIES),
    claims=claims,
    figure=lambda measured: measured.pictures(),
    draw=draw,
    notes=(
        "The expected offset is the mean over the data of t − s, t being the word that called for the action s. Steps "
        "that fewer than half of the sentences reach are left out.",
        "What this does not show: where a single sentence looks; the temporal term is the same for all.",
    ),
)
