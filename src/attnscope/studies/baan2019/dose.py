"""Beyond the paper: how much guidance does it take? Its weight, and the share of steps that are guided.

baan2019 adds the guidance with weight 1, at every step. Here the weight goes from none to ten times that; and with
weight 1, only some words of the answers have a target for the attention, always the same ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.plots.style import WORDS, legend, styled
from attnscope.probes.word_alignment import mean_attention_on_gold
from attnscope.studies.baan2019.experiments import NOTES, Sizes, baseline, guided
from attnscope.studies.baan2019.recorded import network_of
from attnscope.studies.baan2019.sec5_2 import AS_GOOD, HARDEST
from attnscope.studies.claims import ClaimVerdict, more_than, no_lower, spread
from attnscope.studies.finding import Finding, Measurement, Measurements
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
    "attention": "attention where it should be, new compositions",
}


def labels(doses: Doses) -> list[DoseLabel]:
    weighed = [DoseLabel(weight=weight) for weight in doses.weights]
    return [NONE, FULL, *weighed, *(DoseLabel(share=share) for share in doses.shares)]


def experiments(sizes: Sizes) -> dict[DoseLabel, Experiment]:
    tried = labels(DOSES[sizes.name])
    return {label: baseline(sizes) if label == NONE else guided(sizes, *label) for label in tried}


def measure(run: Run) -> Measurement:
    model = network_of(run)
    splits = [name for name in QUANTITIES if name != "attention"]
    right = {split: evaluate(model, run.task.batches(split))["sentence_accuracy"] for split in splits}
    return {**right, "attention": mean_attention_on_gold(model, run.task.batches(HARDEST))}


# What it says ------------------------------------------------------------------------------------------------------


def claims(measured: Measurements) -> list[ClaimVerdict]:
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


def as_good(text: str, dose: DoseLabel, measured: Measurements) -> ClaimVerdict:
    text = f"{text}: accuracy on new compositions less that with all of it"
    return no_lower(text, measured.values(dose, HARDEST), measured.values(FULL, HARDEST), AS_GOOD)


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES)


# Drawing -----------------------------------------------------------------------------------------------------------


def figure(measured: Measurements) -> dict[str, dict[str, list[float]]]:
    return {str(dose): {name: measured.values(dose, name) for name in (HARDEST, "attention")} for dose in measured}


@styled
def draw(data: Any) -> "Figure":
    known = {label: data[str(label)] for doses in DOSES.values() for label in labels(doses) if str(label) in data}
    by_weight = {label.weight: found for label, found in known.items() if label.share == 1.0}
    by_share = {label.share: found for label, found in known.items() if label.weight == 1.0}
    whole, (left, right) = plots.panels(1, 2, size=(5.2, 3.4))
    dose_curve(by_weight, left)
    left.set_xscale("symlog", linthresh=1e-3, linscale=0.4)
    left.set_xlim(-3e-4, 1.4 * max(by_weight))
    left.set_xlabel("weight of the guidance, at every step")
    dose_curve(by_share | ({0.0: known[NONE]} if NONE in known else {}), right)
    right.set_xlabel("share of guided steps, weight 1")
    left.set_ylabel("accuracy or attention, new compositions")
    legend(right, *right.get_legend_handles_labels())
    return whole


def dose_curve(by_dose: Mapping[float, Any], ax: "Axes") -> None:
    """Means over seeds with their deviation, from the smallest dose to the largest."""
    doses = sorted(by_dose)
    texts = {HARDEST: "sequence accuracy", "attention": "attention where it should be"}
    for colour, (name, text) in zip(WORDS, texts.items(), strict=False):
        means = [float(np.mean(by_dose[dose][name])) for dose in doses]
        errors = [spread(by_dose[dose][name]) for dose in doses]
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
