"""Does time matter more where the mean attention says more? (aitken2021 §1, second contribution)

The headline of the paper: the better the mean attention matrix predicts that of a random sample, the more of the
alignment is temporal.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.aitken2021.experiments import (
    AED,
    AO,
    Sizes,
    escan,
    one_to_one,
    reversed_one_to_one,
    sorting,
)
from attnscope.studies.aitken2021.look import look
from attnscope.studies.claims import ClaimVerdict, at_least
from attnscope.studies.finding import Finding, Measurement, Measurements
from attnscope.studies.result import Row, row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


QUANTITIES = {
    "predictability": "how well the mean attention predicts a sample's",
    "temporal_share": "share of μ·μ in the alignment",
}


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    return {
        "one-to-one, AED": one_to_one(AED, sizes),
        "one-to-one, AO": one_to_one(AO, sizes),
        "reversed, AED": reversed_one_to_one(AED, sizes),
        "reversed, AO, length 20": reversed_one_to_one(AO, sizes, min_length=20),
        "eSCAN, AED": escan(AED, sizes),
        "eSCAN, AO": escan(AO, sizes),
        "sorting, AED": sorting(AED, sizes),
    }


def measure(run: Run) -> Measurement:
    between = look(run).between
    return {
        "predictability": between.predictability.overall[0].item(),
        "temporal_share": between.shares.temporal[0].item(),
    }


def correlations(measured: Measurements) -> list[float]:
    """Spearman's ρ over tasks and architectures, one a seed."""
    count = min(len(measured[label]) for label in measured)
    points = np.array(
        [[[m["predictability"], m["temporal_share"]] for m in measured[label][:count]] for label in measured]
    )
    return [float(spearmanr(points[:, seed, 0], points[:, seed, 1]).statistic) for seed in range(count)]


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        at_least(
            "the better the mean attention predicts a sample's, the larger the temporal share (Spearman's ρ over tasks "
            "at least 0.5)",
            correlations(measured),
            0.5,
        )
    ]


def table(measured: Measurements) -> list[Row]:
    return [
        *measured.table(QUANTITIES),
        row(model="all", quantity="Spearman's ρ of the two", values=correlations(measured)),
    ]


def figure(measured: Measurements) -> Any:
    return {label: [np.mean(measured.values(label, name)) for name in QUANTITIES] for label in measured}


def draw(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 4.4))
    x, y = np.array(list(data.values())).T
    plots.scatter(
        x, y, list(data), ax=ax, xlabel="how well the mean attention predicts a sample's", ylabel="share of μ·μ"
    )
    return picture


AVERAGE = Finding(
    name="average",
    title="Time matters more where the mean attention says more",
    section="§1, second contribution",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "How well the mean predicts is 1 − the mean total variation distance between a sample's attention and the mean "
        "attention of that step; the paper gives no number for it.",
        "What this does not show: seven points are few; the rank correlation is over tasks and architectures, not over "
        "networks of one kind.",
    ),
)  # fmt: skip
