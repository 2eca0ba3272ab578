"""Do the strongest 5 % of the neurons suffice? Prune all others, and retrain. (baan2019 §5.2)

The paper kept 26 of 512 neurons each of encoder and decoder. It does not say whether removed ones could come back in
training: its text speaks of removing, but in the released code nothing was held at zero. Both are measured. As many
random neurons show whether it matters which ones are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure
from torch import nn

from attnscope import plots
from attnscope.lab.experiment import Run, threads
from attnscope.probes.transplant import ModifiedModel, keep_neurons, prune_to_strongest, retrain
from attnscope.studies.baan2019.experiments import (
    AS_GOOD,
    GUIDED,
    NOTES,
    Sizes,
    guided,
    network_of,
    published,
    sequence_accuracy,
)
from attnscope.studies.bars import bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict, more_than, no_lower
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, PublishedNumber, TrainedCase
from attnscope.tasks.task import FiniteTask

EPOCHS = {"paper": 100, "quick": 20}  # of retraining
QUANTITIES = {
    "before": "accuracy on new compositions, the whole network",
    "strongest_cut": "the strongest neurons alone",
    "strongest_retrained": "the strongest neurons, retrained",
    "strongest_free": "the strongest neurons, retrained, and removed ones may come back",
    "random_cut": "as many random neurons alone",
    "random_retrained": "as many random neurons, retrained",
}
BARS = {
    "before": "whole network",
    "strongest_cut": "strongest: pruned",
    "strongest_retrained": "strongest: retrained",
    "strongest_free": "strongest: retrained, removed ones free",
    "random_cut": "random: pruned",
    "random_retrained": "random: retrained",
}


@dataclass(frozen=True)
class Pruning:
    """The share of neurons that is kept, and the epochs of retraining."""

    share: float
    epochs: int


def experiments(sizes: Sizes) -> dict[str, Case]:
    return {GUIDED: Case({GUIDED: guided(sizes)}, Pruning(0.05, EPOCHS[sizes.name]))}


def measure(case: TrainedCase[Pruning]) -> Measurement:
    run, pruning = case.runs[GUIDED], case.settings
    model = network_of(run)
    strongest = prune_to_strongest(model, pruning.share)
    at_random = keep_neurons(model, random_neurons(model.settings.units, pruning.share, case.seed))
    return {
        "before": sequence_accuracy(model, run),
        "strongest_cut": sequence_accuracy(strongest.model, run),
        "strongest_retrained": sequence_accuracy(train_further(strongest, run, pruning.epochs), run),
        "strongest_free": sequence_accuracy(train_further(strongest, run, pruning.epochs, free=True), run),
        "random_cut": sequence_accuracy(at_random.model, run),
        "random_retrained": sequence_accuracy(train_further(at_random, run, pruning.epochs), run),
    }


def train_further(modified: ModifiedModel, run: Run, epochs: int, free: bool = False) -> nn.Module:
    """Return the modified network after further epochs of training as in the run.

    Args:
        modified: A network with pruned or transplanted parts.
        run: The run whose task, objective and settings are used.
        epochs: The number of epochs.
        free: Whether removed neurons may come back.
    """
    experiment = run.experiment
    assert isinstance(run.task, FiniteTask)
    steps = epochs * run.task.steps(experiment.training.batch_size)
    settings = replace(experiment.training, steps=steps, checkpoints=())
    with threads(experiment.threads):  # so that the same seed gives the same bits
        model, _ = retrain(modified, run.task, experiment.objective, settings, experiment.seed, free)
    return model


def random_neurons(units: int, share: float, seed: int) -> dict[str, tuple[int, ...]]:
    """Return a random share of the neurons of each side.

    >>> {side: len(neurons) for side, neurons in random_neurons(512, 0.05, seed=0).items()}
    {'encoder': 26, 'decoder': 26}
    """
    random, count = np.random.default_rng((seed, 5)), max(1, round(share * units))
    return {side: tuple(random.permutation(units)[:count].tolist()) for side in ("encoder", "decoder")}


def stated(label: str, name: str) -> PublishedNumber:
    return published("pruning", name)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    before, cut, retrained, at_random = (
        measured.values(GUIDED, name) for name in ("before", "strongest_cut", "strongest_retrained", "random_retrained")
    )
    less_than_half = "without the weakly connected neurons, less than half of the accuracy is left"
    random = "our question: the strongest neurons do better than as many random ones, after retraining"
    return [
        more_than(less_than_half, before, cut, factor=2),  # published: 0.823 against 0.124
        no_lower("retraining restores it: accuracy less that of the whole network", retrained, before, AS_GOOD),
        more_than("and even yields better performance than the whole network", retrained, before),
        more_than(random, retrained, at_random),
    ]


def draw(data: dict[str, Sequence[float | None]]) -> Figure:
    picture, (ax,) = plots.panels(size=(6.4, 3.8))
    accuracies = {text: {"NC": bar_values(data[name], stated(GUIDED, name))} for name, text in BARS.items()}
    draw_bars(accuracies, ax, "accuracy, new compositions")
    ax.set_ylim(0, 1.05)
    return picture


SEC5_2 = Finding(
    name="sec5.2",
    title="The strongest 5 % of neurons suffice after retraining",
    section="§5.2",
    experiments=experiments, measure=measure, table=QUANTITIES, published=stated, claims=claims,
    figure=lambda measured: measured.seed_values(QUANTITIES)[GUIDED], draw=draw,
    notes=(
        "A neuron's strength is its mean |weight| over the matrices that lead to it and from it; the paper says "
        "'biggest weights' and no more. Removed neurons stay removed in training, unless the row says otherwise.",
        "Retraining has the settings of training, selection by validation loss included; Adam's state is reset.",
        "Of a network of 128 units, as in the quick profile, 5 % are 6 neurons; the paper's 26 are those of 512.",
        *NOTES,
        "What this does not show: that the kept neurons did the work before. Retraining may relearn what was removed; "
        "the random neurons show how much it does.",
    ),
)  # fmt: skip
