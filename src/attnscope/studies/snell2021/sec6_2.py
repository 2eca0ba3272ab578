"""Is attention learnt once the translations of words are known? Copying in another order. (snell2021 §6.2)

A fixed permutation π of positions does not change the counts: β under uniform attention is the same. Only the position
to attend to is harder to learn for an LSTM.
"""

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.studies.claims import ClaimVerdict, at_most, not_testable, proportion
from attnscope.studies.finding import Finding, Measurements, PublishedNumber
from attnscope.studies.result import Row
from attnscope.studies.snell2021.experiments import Sizes, published
from attnscope.studies.snell2021.toys import (
    BLUE,
    FIRST_SEED,
    RED,
    WINDOW,
    CurvePictures,
    copying,
    draw_curves,
    ends,
    measure,
    pictures,
    table_of,
)

IN_ORDER = "in order"
FEWEST_ORDERS = 5  # an interval over orders takes at least so many
FAILED = 0.6  # word accuracy; author's code calls less than this a failure


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    """The control of figure 3, and the same words in orders of their own."""
    first = sizes.toys.first_reordering
    orders = range(first, first + sizes.toys.reorderings)
    reordered = {f"order {order + 1}": copying(sizes.toys, "sampled", reordering=order) for order in orders}
    return {IN_ORDER: copying(sizes.toys, "sampled"), **reordered}


def table(measured: Measurements) -> list[Row]:
    def published_number(label: str, name: str) -> PublishedNumber:
        return published("copying_control" if label == IN_ORDER else "copying_reordered", name)

    return table_of(measured, published_number)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    in_order = f"copying in order is always learnt: 99 % of the words within {WINDOW} steps"
    never = f"in a fixed other order it is never learnt within {WINDOW} steps (orders without any seed that has)"
    failed = f"nor nearly: word accuracy at step {WINDOW} below {FAILED}, the author's threshold of a failure"
    at_last = "our question: it fails for good, at most half of the seeds have learnt at the end"
    about_orders = [
        proportion(never, [share == 0 for share in order_means(measured, "learnt_in_time")]),
        at_most(failed, order_means(measured, "accuracy_in_time"), FAILED),
        at_most(at_last, order_means(measured, "learnt"), 0.5),
    ]
    orders = len(measured.by_label) - 1
    if orders < FEWEST_ORDERS:
        why = f"it is about orders of positions, of which there are {orders}; seeds say nothing about others"
        about_orders = [not_testable(claim, why) for claim in about_orders]
    return [measured.proportion(in_order, IN_ORDER, "learnt_in_time"), *about_orders]


def order_means(measured: Measurements, name: str) -> list[float]:
    """Return the mean over seeds for each order: the claims are about orders."""
    orders = [label for label in measured if label != IN_ORDER and measured[label]]
    return [float(np.mean(measured.values(label, name))) for label in orders]


def draw(data: CurvePictures) -> Figure:
    """Draw all permutations in one colour."""
    groups = {
        "in order": data[IN_ORDER],
        "in a fixed other order": [curve for label, curves in data.items() if label != IN_ORDER for curve in curves],
    }
    shown = ends(data)
    picture, axes = plots.panels(1, len(shown), size=(5.6, 3.0))
    for end, ax in zip(shown, axes, strict=True):
        paint = dict(zip(groups, (BLUE, RED), strict=True))
        draw_curves(groups, paint, ax, end, f"copying 40 of 60 words, {end} steps")
    return picture


SEC6_2 = Finding(
    name="sec6.2",
    title="Knowing the words does not always bring attention: a fixed permutation of positions",
    section="§6.2",
    experiments=experiments, measure=measure, table=table, claims=claims,
    figure=lambda measured: pictures(measured, list(measured)), draw=draw,
    notes=(
        "Words are sampled from 60 as in figure 3's control, whose runs these are. An order is a permutation of "
        "positions sampled once; the end token stays at the end. The paper does not say how many orders it tried. "
        "Claims are about orders: means over the seeds of each. Orders 1 to 5 were judged first, and could not pass "
        "Holm's correction, however clear: five proportions give p = 0.025 at best. The profile paper has ten others.",
        "What this does not show: why. That LSTMs are biased towards monotonic attention is the paper's explanation.",
    ),
    first_seed=FIRST_SEED,
    seeds=lambda sizes: sizes.toys.seeds,
)  # fmt: skip
