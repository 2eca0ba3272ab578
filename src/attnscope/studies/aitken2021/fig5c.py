"""How much of the variance of a word's states is time? (aitken2021 §4.1, figure 5c)"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.experiments import TRANSLATION, of_figure_5
from attnscope.studies.aitken2021.look import look
from attnscope.studies.aitken2021.untrained import NOTE, claims_about
from attnscope.studies.claims import Verdict, at_least, at_most, spread
from attnscope.studies.finding import Finding, Measured, Measurement
from attnscope.studies.published import published_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure
published = published_by("aitken2021")

QUANTITIES = {
    "drop": "drop of the variance",
    "drop_held_out": "the same, held out",
    "drop_rare": "the same, words seen fewer than 10 times",
}
STATED = {
    "eSCAN, AED": ("escan", "variance_drop_aed"),
    "eSCAN, AO": ("escan", "variance_drop_ao"),
    "translation, AED": ("translation", "variance_drop_aed"),
    "translation, AO": ("translation", "variance_drop_ao"),
}


def measure(run: Run) -> Measurement:
    seen = look(run)
    return {
        "drop": 1 - seen.measured.encoder.variance.mean[0].item(),
        "drop_held_out": 1 - seen.held_out.encoder.variance.mean[0].item(),
        **({"drop_rare": 1 - seen.measured.encoder.variance.mean_rare[0].item()} if seen.translates else {}),
    }


def stated(label: str, name: str = "drop") -> dict[str, Any]:
    return published(*STATED[label]) if name == "drop" and label in STATED else {}


def claims(measured: Measured) -> list[Verdict]:
    return claims_escan(measured) + claims_about(TRANSLATION, claims_translation, measured)


def claims_escan(measured: Measured) -> list[Verdict]:
    return [
        at_least(
            "eSCAN, AED: the variance of a word's states drops by about 90 % (at least 85 %) without time",
            measured.values("eSCAN, AED", "drop"),
            0.85,
        ),
        at_least(
            "eSCAN, AO: the variance of a word's states drops by about 95 % (at least 90 %) without time",
            measured.values("eSCAN, AO", "drop"),
            0.90,
        ),
    ]


def claims_translation(measured: Measured) -> list[Verdict]:
    return [
        at_most(
            "translation, AED: the variance of a word's states drops by about 8 % only (at most 13 %) without time",
            measured.values("translation, AED", "drop"),
            0.13,
        ),
        at_most(
            "translation, AO: the variance of a word's states drops by about 25 % only (at most 30 %) without time",
            measured.values("translation, AO", "drop"),
            0.30,
        ),
    ]


def draw(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 3.6))
    left = {label: 1 - np.array(drops) for label, drops in data.items()}
    means = pd.DataFrame({"variance left": {label: values.mean() for label, values in left.items()}})
    spreads = pd.DataFrame({"variance left": {label: spread(values.tolist()) for label, values in left.items()}})
    drops = {label: stated(label).get("published", np.nan) for label in left}
    plots.bars(
        means,
        ax=ax,
        errors=spreads,
        published=1 - pd.DataFrame({"variance left": drops}),
        ylabel="variance of h − μ / variance of h",
    )
    return picture


FIG5C = Finding(
    name="fig5c",
    title="How much of the variance of a word's states is time",
    section="§4.1, figure 5c",
    experiments=of_figure_5, measure=measure, table=lambda measured: measured.table(QUANTITIES, stated),
    claims=claims, figure=lambda measured: {label: measured.values(label, "drop") for label in measured}, draw=draw,
    notes=(
        "Mean over words of the trace of the covariance, without the end and start tokens; in translation, over words "
        "that the test set has ten times or more, about a hundred.",
        NOTE,
        "What this does not show: variance is not use; what is left over may still be what the network decides by.",
    ),
)  # fmt: skip
