"""Is more of the alignment temporal where the mean attention predicts more? (aitken2021 §1, second contribution)

The headline of the paper: the better the mean attention matrix predicts that of a random sample, the more of the
alignment is temporal.
"""

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.aitken2021.analysis import analyse
from attnscope.studies.aitken2021.experiments import AED, AO, Sizes, escan, one_to_one, reversed_one_to_one, sorting
from attnscope.studies.claims import ClaimVerdict, at_least, not_testable
from attnscope.studies.finding import Finding, Measurement, Measurements
from attnscope.studies.result import Row, row

QUANTITIES = {
    "predictability": "predictability of a sample's attention from the mean attention",
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
    between = analyse(run).between
    return {
        "predictability": between.predictability.overall[0].item(),
        "temporal_share": between.shares.temporal[0].item(),
    }


def correlations(measured: Measurements) -> list[float]:
    """Return Spearman's ρ over tasks and architectures, one per seed."""
    count = min(len(measured[label]) for label in measured)
    columns = [np.array([measured.values(label, name)[:count] for label in measured]).T for name in QUANTITIES]
    return [float(spearmanr(x, y).statistic) for x, y in zip(*columns, strict=True)]


def table(measured: Measurements) -> list[Row]:
    text = "Spearman's ρ of the two"
    return [*measured.table(QUANTITIES), row(model="all", quantity=text, values=correlations(measured))]


def claims(measured: Measurements) -> list[ClaimVerdict]:
    text = (
        "the better the mean attention predicts a sample's, the larger the temporal share (Spearman's ρ over tasks at "
        "least 0.5)"
    )
    why = f"it is about tasks, of which there are {len(measured.by_label)}; seeds say nothing about others"
    return [not_testable(at_least(text, correlations(measured), 0.5), why)]


def figure(measured: Measurements) -> dict[str, list[float]]:
    return {label: [float(np.mean(measured.values(label, name))) for name in QUANTITIES] for label in measured}


def draw(data: dict[str, list[float]]) -> Figure:
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 4.4))
    x, y = np.array(list(data.values())).T
    plots.scatter(x, y, list(data), ax=ax, xlabel="predictability from the mean attention", ylabel="share of μ·μ")
    return picture


AVERAGE = Finding(
    name="average",
    title="The temporal share is larger where the mean attention predicts more",
    section="§1, second contribution",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "Predictability is 1 − the mean total variation distance between a sample's attention and the mean attention "
        "of that step; the paper gives no number for it.",
        "What this does not show: seven points are few; the rank correlation is over tasks and architectures, not over "
        "networks of one kind.",
    ),
)  # fmt: skip
