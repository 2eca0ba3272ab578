"""Do the strongest 5 % of the neurons suffice? Cut out all others, and train on. (baan2019 §5.2)

The paper kept 26 of 512 neurons each of encoder and decoder. It does not say whether removed ones could come back in
training: its text speaks of removing, but in the released code nothing was held at zero. Both are measured. As many
neurons chosen at random tell whether it matters which ones are kept.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from attnscope import plots
from attnscope.lab.experiment import Run, threads
from attnscope.probes.transplant import ModifiedModel, keep_neurons, prune_to_strongest, retrain
from attnscope.studies.baan2019.experiments import GUIDED, NOTES, Sizes, guided
from attnscope.studies.baan2019.recorded import network_of
from attnscope.studies.bars import bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict, more_than, no_lower
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, published_by
from attnscope.studies.result import Row
from attnscope.tasks.finite import FiniteTask
from attnscope.training import evaluate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HARDEST = "new_compositions"  # NC: what all of §5 is measured on
AS_GOOD = 0.12  # no further below: the deviation of guided networks on new compositions (table 4)
published = published_by("baan2019")
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


def measure(subject: TrainedCase) -> Measurement:
    run, pruning = subject.runs[GUIDED], subject.settings
    model = network_of(run)
    strongest = prune_to_strongest(model, pruning.share)
    at_random = keep_neurons(model, drawn(model.settings.units, pruning.share, subject.seed))
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


def trained_on(operated: ModifiedModel, run: Run, epochs: int, free: bool = False) -> nn.Module:
    """As the run was trained, for so many epochs more."""
    experiment = run.experiment
    assert isinstance(run.task, FiniteTask)
    steps = epochs * run.task.steps(experiment.training.batch_size)
    settings = replace(experiment.training, steps=steps, checkpoints=())
    with threads(experiment.threads):  # so that the same seed gives the same bits
        made, _ = retrain(operated, run.task, experiment.objective, settings, experiment.seed, free)
    return made


def drawn(units: int, share: float, seed: int) -> dict[str, tuple[int, ...]]:
    """So many neurons of each side, at random.

    >>> {side: len(neurons) for side, neurons in drawn(512, 0.05, seed=0).items()}
    {'encoder': 26, 'decoder': 26}
    """
    random, count = np.random.default_rng((seed, 5)), max(1, round(share * units))
    return {side: tuple(random.permutation(units)[:count].tolist()) for side in ("encoder", "decoder")}


# What it says ------------------------------------------------------------------------------------------------------


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES, lambda label, name: published("pruning", name))


def claims(measured: Measurements) -> list[ClaimVerdict]:
    before, cut, retrained, at_random = (
        measured.values(GUIDED, name) for name in ("before", "strongest_cut", "strongest_retrained", "random_retrained")
    )
    less_than_half = "without the weakly connected neurons, less than half of the accuracy is left"
    not_any = "our question: the strongest neurons do better than as many others, after training on"
    return [
        more_than(less_than_half, before, cut, factor=2),  # published: 0.823 against 0.124
        no_lower("training on restores it: accuracy less that of the whole network", retrained, before, AS_GOOD),
        more_than("and even yields better performance than the whole network", retrained, before),
        more_than(not_any, retrained, at_random),
    ]


def figure(measured: Measurements) -> dict[str, list[float]]:
    return {name: measured.values(GUIDED, name) for name in QUANTITIES}


BARS = {
    "before": "whole network",
    "strongest_cut": "strongest: cut",
    "strongest_retrained": "strongest: trained on",
    "strongest_free": "strongest: trained on, cut ones free",
    "random_cut": "random: cut",
    "random_retrained": "random: trained on",
}


def draw(data: Any) -> "Figure":
    whole, (ax,) = plots.panels(size=(6.4, 3.8))
    accuracies = {text: {"NC": bar_values(data[name], published("pruning", name))} for name, text in BARS.items()}
    draw_bars(accuracies, ax, "accuracy, new compositions")
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
