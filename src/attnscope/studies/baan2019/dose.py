"""Beyond the paper: how much guidance does it take? Its weight, and the share of steps that are guided.

baan2019 adds the guidance with weight 1, at every step. Here the weight goes from none to ten times that; and with
weight 1, only some words of the answers have a target for the attention, always the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.models.asking import as_it_was
from attnscope.plots.style import WORDS, legend, styled
from attnscope.studies.baan2019.experiments import NOTES, Sizes, baseline, guided
from attnscope.studies.baan2019.recorded import network_of
from attnscope.studies.baan2019.sec5_2 import AS_GOOD, HARDEST
from attnscope.studies.claims import Verdict, at_least, more_than, spread, untested
from attnscope.studies.finding import Finding, Measured, Measurement
from attnscope.studies.result import Row
from attnscope.training import evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Doses:
    """Weights at every step, and shares of steps with weight 1."""

    weights: tuple[float, ...]
    shares: tuple[float, ...]


DOSES = {
    "paper": Doses((0.001, 0.01, 0.03, 0.1, 0.3, 3.0, 10.0), (0.05, 0.1, 0.25, 0.5, 0.75)),
    "quick": Doses((0.01, 0.1), (0.1, 0.5)),
}
NONE, FULL = "no guidance", "weight 1, every step"
QUANTITIES = {
    "heldout_inputs": "accuracy on held-out inputs (HI)",
    "heldout_compositions": "on held-out compositions (HC)",
    "heldout_tables": "on held-out tables (HT)",
    HARDEST: "on new compositions (NC)",
    "attention": "attention where it should be, new compositions",
}


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    doses = DOSES[sizes.name]
    return {
        NONE: baseline(sizes),
        FULL: guided(sizes),
        **{by_weight(weight): guided(sizes, weight=weight) for weight in doses.weights},
        **{by_share(share): guided(sizes, share=share) for share in doses.shares},
    }


def by_weight(weight: float) -> str:
    return {0.0: NONE, 1.0: FULL}.get(weight, f"weight {weight:g}")


def by_share(share: float) -> str:
    return {0.0: NONE, 1.0: FULL}.get(share, f"{100 * share:g} % of the steps")


def measure(run: Run) -> Measurement:
    model = network_of(run)
    splits = [name for name in QUANTITIES if name != "attention"]
    right = {split: evaluate(model, run.task.batches(split))["sentence_accuracy"] for split in splits}
    return {**right, "attention": followed(model, run)}


def followed(model: nn.Module, run: Run, split: str = HARDEST) -> float:
    """The mean attention to where the guide points."""
    found = []
    with as_it_was(model):
        for batch in (batch.to(run.experiment.device) for batch in run.task.batches(split)):
            assert batch.guide is not None
            attention = model(batch, teacher_forcing=0.0).attention.mean(1)  # batch x target x source
            place = batch.guide.clamp(min=0)[..., None]
            found.append(attention.gather(2, place)[..., 0][batch.target_mask])
    return torch.cat(found).mean().item()


# What it says ------------------------------------------------------------------------------------------------------

TENTH, HALF = by_weight(0.1), by_share(0.5)
LEAST_WEIGHT, LEAST_SHARE = by_weight(0.01), by_share(0.1)


def claims(measured: Measured) -> list[Verdict]:
    return [
        more_than("guidance as in the paper helps", measured.values(FULL, HARDEST), measured.values(NONE, HARDEST)),
        as_good("a tenth of its weight does as well", TENTH, measured),
        more_than(
            "a hundredth of its weight still helps",
            measured.values(LEAST_WEIGHT, HARDEST),
            measured.values(NONE, HARDEST),
        ),
        as_good("guidance at half of the steps does as well", HALF, measured),
        more_than(
            "guidance at a tenth of the steps still helps",
            measured.values(LEAST_SHARE, HARDEST),
            measured.values(NONE, HARDEST),
        ),
    ]


def as_good(text: str, dose: str, measured: Measured) -> Verdict:
    text = f"{text}: accuracy on new compositions less that with all of it"
    ours, full = measured.values(dose, HARDEST), measured.values(FULL, HARDEST)
    if len(ours) != len(full):
        return untested(text, "not as many seeds have one as have the other")
    return at_least(text, np.array(ours) - np.array(full), -AS_GOOD)


def table(measured: Measured) -> list[Row]:
    return measured.table(QUANTITIES)


# Drawing -----------------------------------------------------------------------------------------------------------


def figure(measured: Measured) -> dict[str, dict[str, list[float]]]:
    return {row: {name: measured.values(row, name) for name in (HARDEST, "attention")} for row in measured}


def number(row: str) -> float:
    """The dose that a row is named for.

    >>> number("weight 0.1"), number("25 % of the steps"), number(FULL), number(NONE)
    (0.1, 0.25, 1.0, 0.0)
    """
    if row in (NONE, FULL):
        return 0.0 if row == NONE else 1.0
    words = row.split()
    return float(words[1]) if words[0] == "weight" else float(words[0]) / 100


@styled
def draw(data: Any) -> "Figure":
    whole, (left, right) = plots.panels(1, 2, size=(5.2, 3.4))
    plain = [row for row in (NONE, FULL) if row in data]
    dose_curve(data, [*plain, *(row for row in data if row.startswith("weight") and row != FULL)], left)
    left.set_xscale("symlog", linthresh=1e-3, linscale=0.4)
    left.set_xlim(left=-3e-4)
    left.set_xlabel("weight of the guidance, at every step")
    dose_curve(data, [*plain, *(row for row in data if row.endswith("of the steps"))], right)
    right.set_xlabel("share of guided steps, weight 1")
    left.set_ylabel("accuracy or attention, new compositions")
    handles, names = right.get_legend_handles_labels()
    legend(right, handles, names)
    return whole


def dose_curve(data: Any, rows: Sequence[str], ax: "Axes") -> None:
    """Means over seeds with their deviation, from the smallest dose to the largest."""
    inorder = sorted(rows, key=number)
    doses = [number(row) for row in inorder]
    texts = {HARDEST: "sequence accuracy", "attention": "attention where it should be"}
    for colour, (name, text) in zip(WORDS, texts.items(), strict=False):
        means = [float(np.mean(data[row][name])) for row in inorder]
        errors = [spread(data[row][name]) for row in inorder]
        ax.errorbar(doses, means, yerr=errors, color=colour, marker="o", markersize=4, capsize=2.5, label=text)
    ax.set_ylim(-0.03, 1.05)
    ax.spines[["top", "right"]].set_visible(False)


DOSE = Finding(
    name="guidance-dose",
    title="Beyond the paper: how much guidance it takes",
    section="beyond; §2",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "The paper claims nothing on this. The claims are ours, written before any run; 'as well' means no more than "
        "0.12 below, the deviation of guided networks on new compositions (table 4); it means something only where "
        "guidance as in the paper helps.",
        "At a share below 1, the words that are guided are drawn once for each sentence and stay the same; those of a "
        "smaller share are among those of a larger one.",
        *NOTES,
        "What this does not show: the same for longer answers, where one unguided step may cost more.",
    ),
)  # fmt: skip
