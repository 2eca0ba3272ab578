"""Beyond the paper: how much guidance is needed? Its weight, and the share of steps that are guided.

baan2019 adds the guidance with weight 1, at every step. Here the weight goes from none to ten times that; and with
weight 1, only some words of the answers have gold attention, always the same ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.plots.style import WORDS, legend, styled
from attnscope.probes.word_alignment import mean_attention_on_gold
from attnscope.studies.baan2019.experiments import (
    AS_GOOD,
    HARDEST,
    NOTES,
    Sizes,
    baseline,
    guided,
    network_of,
    sequence_accuracy,
)
from attnscope.studies.bars import SeedTable
from attnscope.studies.claims import ClaimVerdict, spread
from attnscope.studies.finding import Finding, Measurement, Measurements


@dataclass(frozen=True)
class Doses:
    """Weights at every step, and shares of steps with weight 1."""

    weights: tuple[float, ...]
    shares: tuple[float, ...]


DOSES = {
    "paper": Doses((0.001, 0.01, 0.03, 0.1, 0.3, 3.0, 10.0), (0.05, 0.1, 0.25, 0.5, 0.75)),
    "quick": Doses((0.01, 0.1), (0.1, 0.5)),
}


class DoseLabel(NamedTuple):
    """How much guidance: its weight, and the share of steps that have it.

    >>> str(DoseLabel(weight=0.1)), str(DoseLabel(share=0.25))
    ('weight 0.1', '25 % of the steps')
    """

    weight: float = 1.0
    share: float = 1.0

    def __str__(self) -> str:
        if self.weight == 1.0 and self.share < 1.0:
            return f"{100 * self.share:g} % of the steps"
        return {NONE: "no guidance", FULL: "weight 1, every step"}.get(self, f"weight {self.weight:g}")


NONE, FULL = DoseLabel(weight=0.0), DoseLabel()
TENTH, HALF = DoseLabel(weight=0.1), DoseLabel(share=0.5)
LEAST_WEIGHT, LEAST_SHARE = DoseLabel(weight=0.01), DoseLabel(share=0.1)
QUANTITIES = {
    "heldout_inputs": "accuracy on held-out inputs (HI)",
    "heldout_compositions": "on held-out compositions (HC)",
    "heldout_tables": "on held-out tables (HT)",
    HARDEST: "on new compositions (NC)",
    "attention": "attention on the gold position, new compositions",
}


def labels(doses: Doses) -> list[DoseLabel]:
    weighed = [DoseLabel(weight=weight) for weight in doses.weights]
    return [NONE, FULL, *weighed, *(DoseLabel(share=share) for share in doses.shares)]


def experiments(sizes: Sizes) -> dict[DoseLabel, Experiment]:
    tried = labels(DOSES[sizes.name])
    return {label: baseline(sizes) if label == NONE else guided(sizes, *label) for label in tried}


def measure(run: Run) -> Measurement:
    model = network_of(run)
    accuracies = {split: sequence_accuracy(model, run, split) for split in QUANTITIES if split != "attention"}
    return {**accuracies, "attention": mean_attention_on_gold(model, run.task.batches(HARDEST))}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        measured.more_than("guidance as in the paper helps", FULL, NONE, HARDEST),
        as_good("a tenth of its weight does as well", TENTH, measured),
        measured.more_than("a hundredth of its weight still helps", LEAST_WEIGHT, NONE, HARDEST),
        as_good("guidance at half of the steps does as well", HALF, measured),
        measured.more_than("guidance at a tenth of the steps still helps", LEAST_SHARE, NONE, HARDEST),
    ]


def as_good(text: str, dose: DoseLabel, measured: Measurements) -> ClaimVerdict:
    text = f"{text}: accuracy on new compositions less that with full guidance"
    return measured.no_lower(text, dose, FULL, HARDEST, AS_GOOD)


@styled
def draw(data: SeedTable) -> Figure:
    known = {label: data[str(label)] for doses in DOSES.values() for label in labels(doses) if str(label) in data}
    by_weight = {label.weight: values for label, values in known.items() if label.share == 1.0}
    by_share = {label.share: values for label, values in known.items() if label.weight == 1.0}
    picture, (left, right) = plots.panels(1, 2, size=(5.2, 3.4))
    draw_dose_curve(by_weight, left)
    left.set_xscale("symlog", linthresh=1e-3, linscale=0.4)
    left.set_xlim(-3e-4, 1.4 * max(by_weight))
    left.set(xlabel="weight of the guidance, at every step", ylabel="accuracy or attention, new compositions")
    lines = draw_dose_curve(by_share | ({0.0: known[NONE]} if NONE in known else {}), right)
    right.set_xlabel("share of guided steps, weight 1")
    legend(right, list(lines.values()), list(lines))
    return picture


def draw_dose_curve(by_dose: Mapping[float, Mapping[str, Sequence[float | None]]], ax: Axes) -> dict[str, Line2D]:
    """Draw means over seeds with their standard deviation, from the smallest dose to the largest; return the lines."""
    doses, lines = sorted(by_dose), dict[str, Line2D]()
    texts = {HARDEST: "sequence accuracy", "attention": "attention on the gold position"}
    for colour, (name, text) in zip(WORDS, texts.items(), strict=False):
        values = [np.array(by_dose[dose][name], dtype=float) for dose in doses]
        means, errors = [seeds.mean() for seeds in values], [spread(seeds) for seeds in values]
        bars = ax.errorbar(doses, means, yerr=errors, color=colour, marker="o", markersize=4, capsize=2.5)
        lines[text] = bars.lines[0]
    ax.set_ylim(-0.03, 1.05)
    ax.spines[["top", "right"]].set_visible(False)
    return lines


DOSE = Finding(
    name="guidance-dose",
    title="Beyond the paper: how much guidance is needed",
    section="beyond; §2",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims,
    figure=(HARDEST, "attention"), draw=draw,
    notes=(
        "The paper claims nothing on this. The claims are ours, written before any run; 'as well' means no more than "
        "0.12 below, the standard deviation of guided networks on new compositions (table 4); it is meaningful only "
        "where guidance as in the paper helps.",
        "At a share below 1, the guided words are sampled once for each sentence and stay the same; those of a "
        "smaller share are among those of a larger one.",
        *NOTES,
        "What this does not show: the same for longer answers, where one unguided step may cost more.",
    ),
)  # fmt: skip
