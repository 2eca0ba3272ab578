"""Do the strongest 5 % of the neurons suffice? Cut out all others, and train on. (baan2019 §5.2)

The paper kept 26 of 512 neurons each of encoder and decoder. It does not say whether removed ones could come back in
training: its text speaks of removing, but in the released code nothing was held at zero. Both are measured. As many
neurons chosen at random tell whether it matters which ones are kept.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import nn

from attnscope import plots
from attnscope.lab.experiment import Run, threads
from attnscope.probes.surgery import Operated, pruned, retrained, with_neurons
from attnscope.studies.baan2019.experiments import GUIDED, NOTES, Sizes, guided
from attnscope.studies.baan2019.recorded import network_of
from attnscope.studies.claims import Verdict, at_least, more_than, spread
from attnscope.studies.finding import Case, Finding, Measured, Measurement, Subject
from attnscope.studies.published import published_by
from attnscope.studies.result import Row
from attnscope.tasks.finite import FiniteTask
from attnscope.training import evaluate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HARDEST = "new_compositions"  # NC: what all of §5 is measured on
AS_GOOD = 0.12  # no further below: the deviation of guided networks on new compositions (table 4)
EPOCHS = {"paper": 20, "quick": 20}  # of training on
QUANTITIES = {
    "before": "accuracy on new compositions, the whole network",
    "strongest_cut": "the strongest neurons alone",
    "strongest_retrained": "the strongest neurons, trained on",
    "strongest_free": "the strongest neurons, trained on, and removed ones may come back",
    "random_cut": "as many neurons at random alone",
    "random_retrained": "as many neurons at random, trained on",
}


@dataclass(frozen=True)
class Pruning:
    """Which share of neurons is kept, and how long the rest is trained on."""

    share: float
    epochs: int


def experiments(sizes: Sizes) -> dict[str, Case]:
    return {GUIDED: Case({GUIDED: guided(sizes)}, Pruning(0.05, EPOCHS[sizes.name]))}


def measure(subject: Subject) -> Measurement:
    run, pruning = subject.runs[GUIDED], subject.settings
    model = network_of(run)
    strongest = pruned(model, pruning.share)
    at_random = with_neurons(model, drawn(model.settings.units, pruning.share, subject.seed))
    return {
        "before": hardest(model, run),
        "strongest_cut": hardest(strongest.model, run),
        "strongest_retrained": hardest(trained_on(strongest, run, pruning.epochs), run),
        "strongest_free": hardest(trained_on(strongest, run, pruning.epochs, free=True), run),
        "random_cut": hardest(at_random.model, run),
        "random_retrained": hardest(trained_on(at_random, run, pruning.epochs), run),
    }


def hardest(model: nn.Module, run: Run) -> float:
    """Sequence accuracy on new compositions."""
    return evaluate(model, run.task.batches(HARDEST))["sentence_accuracy"]


def trained_on(operated: Operated, run: Run, epochs: int, free: bool = False) -> nn.Module:
    """As the run was trained, for so many epochs more."""
    experiment = run.experiment
    assert isinstance(run.task, FiniteTask)
    steps = epochs * run.task.steps(experiment.training.batch_size)
    settings = replace(experiment.training, steps=steps, checkpoints=())
    with threads(experiment.threads):  # so that the same seed gives the same bits
        made, _ = retrained(operated, run.task, experiment.objective, settings, experiment.seed, free)
    return made


def drawn(units: int, share: float, seed: int) -> dict[str, tuple[int, ...]]:
    """So many neurons of each side, at random.

    >>> {side: len(neurons) for side, neurons in drawn(512, 0.05, seed=0).items()}
    {'encoder': 26, 'decoder': 26}
    """
    random, count = np.random.default_rng((seed, 5)), max(1, round(share * units))
    return {side: tuple(random.permutation(units)[:count].tolist()) for side in ("encoder", "decoder")}


# What it says ------------------------------------------------------------------------------------------------------


def table(measured: Measured) -> list[Row]:
    published = published_by("baan2019")
    return measured.table(QUANTITIES, lambda label, name: published("pruning", name))


def claims(measured: Measured) -> list[Verdict]:
    def values(name: str) -> list[float]:
        return measured.values(GUIDED, name)

    left = np.array(values("strongest_retrained")) - np.array(values("before"))
    return [
        more_than(
            "without the weakly connected neurons, less than half of the accuracy is left",
            values("before"),
            values("strongest_cut"),
            factor=2,  # published: 0.823 against 0.124
        ),
        at_least("training on restores it: accuracy less that of the whole network", left, -AS_GOOD),
        more_than(
            "and even yields better performance than the whole network",
            values("strongest_retrained"),
            values("before"),
        ),
        more_than(
            "our question: the strongest neurons do better than as many others, after training on",
            values("strongest_retrained"),
            values("random_retrained"),
        ),
    ]


def figure(measured: Measured) -> dict[str, list[float]]:
    return {name: measured.values(GUIDED, name) for name in QUANTITIES}


BARS = {
    ("strongest", "cut"): "strongest_cut",
    ("strongest", "trained on"): "strongest_retrained",
    ("strongest", "trained on, cut ones free"): "strongest_free",
    ("random", "cut"): "random_cut",
    ("random", "trained on"): "random_retrained",
}


def draw(data: Any) -> "Figure":
    published = published_by("baan2019")
    labels = ["whole network", *(f"{which}: {when}" for which, when in BARS)]
    names = ["before", *BARS.values()]
    stated = [published("pruning", name).get("published", np.nan) for name in names]
    whole, (ax,) = plots.panels(size=(6.4, 3.8))
    plots.bars(
        pd.DataFrame({"NC": [np.mean(data[name]) for name in names]}, index=labels),
        ax=ax,
        errors=pd.DataFrame({"NC": [spread(data[name]) for name in names]}, index=labels),
        published=pd.DataFrame({"NC": stated}, index=labels),
        ylabel="accuracy, new compositions",
    )
    ax.set_ylim(0, 1.05)
    return whole


SEC5_2 = Finding(
    name="sec5.2",
    title="The strongest 5 % of neurons suffice, once trained on",
    section="§5.2",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "A neuron's strength is its mean |weight| over the matrices that lead to it and from it; the paper says "
        "'biggest weights' and no more. Removed neurons stay removed in training, unless the row says otherwise.",
        "Training on is as before: same settings, choice of weights by validation loss included; Adam starts anew.",
        "Of a network of 128 units, as in the quick profile, 5 % are 6 neurons; the paper's 26 are those of 512.",
        *NOTES,
        "What this does not show: that the kept neurons had done the work before. Retraining may build anew what was "
        "cut; the neurons at random say how much it does.",
    ),
)  # fmt: skip
