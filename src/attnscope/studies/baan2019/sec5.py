"""Which components, and which neurons, does the compositional solution need? (baan2019 §5.1, table 4; §5.2)

Pruning: all but the strongest 5 % of the neurons are removed, and the rest is retrained. The paper kept 26 of 512
neurons each of encoder and decoder. It does not say whether removed ones could come back in training: its text speaks
of removing, but in the released code nothing was held at zero. Both are measured. As many random neurons show whether
it matters which ones are kept.

Component transplants: a component of a network of the other kind is transplanted and frozen, and the rest is retrained
as the receiver was trained. Eight components go from baseline into guided networks, and eight the other way, most of
which the paper's table leaves out. In two further rows nothing is replaced: retraining alone may change a network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from torch import nn

from attnscope import plots
from attnscope.lab.experiment import Run, threads
from attnscope.models import EncoderDecoder
from attnscope.probes.transplant import (
    COMPONENTS,
    ModifiedModel,
    keep_neurons,
    prune_to_strongest,
    retrain,
    transplant_component,
)
from attnscope.studies.baan2019.experiments import (
    AS_GOOD,
    BASELINE,
    GUIDED,
    NOTES,
    Sizes,
    both,
    guided,
    network_of,
    published,
    sequence_accuracy,
)
from attnscope.studies.bars import SeedTable, bar_values, draw_bars
from attnscope.studies.claims import UNIT, ClaimVerdict, at_least, at_most, no_lower
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, PublishedNumber, TrainedCase
from attnscope.tasks.task import FiniteTask

# Pruning (§5.2) ------------------------------------------------------------------------------------------------------

PRUNING_EPOCHS = {"paper": 100, "quick": 20}  # of retraining
PRUNING_QUANTITIES = {
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


def measure_pruning(case: TrainedCase[Pruning]) -> Measurement:
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


def published_pruning(label: str, name: str) -> PublishedNumber:
    return published("pruning", name)


def claims_about_pruning(measured: Measurements) -> list[ClaimVerdict]:
    before, retrained = "before", "strongest_retrained"
    restored = "retraining restores it: accuracy less that of the whole network"
    less_than_half = "without the weakly connected neurons, less than half of the accuracy is left"
    random = "our question: the strongest neurons do better than as many random ones, after retraining"
    return [
        measured.greater(less_than_half, GUIDED, before, "strongest_cut", factor=2),  # published: 0.823 against 0.124
        no_lower(restored, measured.values(GUIDED, retrained), measured.values(GUIDED, before), AS_GOOD),
        measured.greater("and even yields better performance than the whole network", GUIDED, retrained, before),
        measured.greater(random, GUIDED, retrained, "random_retrained"),
    ]


def draw_pruning(data: dict[str, Sequence[float | None]]) -> Figure:
    picture, (ax,) = plots.panels(size=(6.4, 3.8))
    accuracies = {text: {"NC": bar_values(data[name], published_pruning(GUIDED, name))} for name, text in BARS.items()}
    draw_bars(accuracies, ax, "accuracy, new compositions", UNIT)
    ax.set_ylim(0, 1.05)
    return picture


SEC5_2 = Finding(
    name="sec5.2",
    title="The strongest 5 % of neurons suffice after retraining",
    section="§5.2",
    experiments=lambda sizes: {GUIDED: Case({GUIDED: guided(sizes)}, Pruning(0.05, PRUNING_EPOCHS[sizes.name]))},
    measure=measure_pruning, table=PRUNING_QUANTITIES, published=published_pruning,
    claims=claims_about_pruning, figure=lambda measured: measured.seed_values(PRUNING_QUANTITIES)[GUIDED],
    draw=draw_pruning,
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


# Component transplants (§5.1, table 4) -------------------------------------------------------------------------------

NOTHING = "nothing"
PARTS = (NOTHING, *COMPONENTS)
OTHER = {GUIDED: BASELINE, BASELINE: GUIDED}
TRANSPLANT_EPOCHS = {"paper": 100, "quick": 10}  # the paper: at most 100
RESCUED = 0.1  # a baseline gains more than this: its five published ones are between 0 and 0.06
WORDS = {
    NOTHING: "nothing replaced",
    "encoder": "encoder",
    "encoder_embedding": "encoder embedding",
    "encoder_wih": "encoder Wih",
    "encoder_whh": "encoder Whh",
    "decoder": "decoder",
    "decoder_embedding": "decoder embedding",
    "decoder_wih": "decoder Wih",
    "decoder_whh": "decoder Whh",
}
TRANSPLANT_QUANTITIES = {
    "before": "accuracy on new compositions, the receiver",
    "donor": "the donor",
    "operated": "with the donor's component",
    "retrained": "and retrained",
}


class PartLabel(NamedTuple):
    """A network that receives a component of one of the other kind.

    >>> str(PartLabel(GUIDED, "encoder_wih"))
    'guided: encoder Wih'
    """

    receiver: str
    component: str

    def __str__(self) -> str:
        return f"{self.receiver}: {WORDS[self.component]}"


@dataclass(frozen=True)
class Substitution:
    """The receiver, the component that it receives from a network of the other kind, and the epochs of retraining."""

    receiver: str
    component: str
    epochs: int


def transplant_experiments(sizes: Sizes) -> dict[PartLabel, Callable[[int], Case]]:
    labels = [PartLabel(*parts) for parts in product((GUIDED, BASELINE), PARTS)]
    return {label: pair(sizes, Substitution(*label, TRANSPLANT_EPOCHS[sizes.name])) for label in labels}


def pair(sizes: Sizes, substitution: Substitution) -> Callable[[int], Case]:
    """Return, for each seed, a receiver and as its donor the network of the next seed.

    Networks of one seed have the same initial weights, and might be compatible for that reason alone; the paper's
    networks had different ones.
    """

    def of_seed(seed: int) -> Case:
        kinds = both(sizes)
        next_one = sizes.first_seed + (seed - sizes.first_seed + 1) % max(sizes.seeds, 2)
        donor = replace(kinds[OTHER[substitution.receiver]], seed=next_one - seed)  # the seed itself is added later
        return Case({"receiver": kinds[substitution.receiver], "donor": donor}, substitution)

    return of_seed


def measure_transplants(case: TrainedCase[Substitution]) -> Measurement:
    receiver, donor = network_of(case.runs["receiver"]), network_of(case.runs["donor"])
    run, substitution = case.runs["receiver"], case.settings
    modified = transplant(receiver, donor, substitution.component)
    return {
        "before": sequence_accuracy(receiver, run),
        "donor": sequence_accuracy(donor, run),
        "operated": sequence_accuracy(modified.model, run),
        "retrained": sequence_accuracy(train_further(modified, run, substitution.epochs), run),
    }


def transplant(receiver: EncoderDecoder, donor: EncoderDecoder, component: str) -> ModifiedModel:
    """Return the receiver with the donor's component, or unchanged."""
    return ModifiedModel(receiver, {}) if component == NOTHING else transplant_component(receiver, donor, component)


def published_transplant(label: PartLabel, name: str) -> PublishedNumber:
    return published("_".join(label), name)


def claims_about_transplants(measured: Measurements) -> list[ClaimVerdict]:
    embedding = "the encoder's embedding does not matter: accuracy with the baseline's, less the guided parent's"
    rescue = "no guided component rescues a baseline: the largest gain of the eight over its own parent"
    return [
        *(matters(measured, part, factor=2) for part in ("encoder", "decoder")),  # published: 0.17 and 0.12 of 0.82
        *(matters(measured, part) for part in ("decoder_embedding", "decoder_wih")),
        at_least(embedding, gains(measured, GUIDED, "encoder_embedding"), -AS_GOOD),
        *(verdict for part in ("encoder_wih", "decoder_whh") for verdict in improves(measured, part)),
        at_most(rescue, best_gains(measured), RESCUED),
    ]


def matters(measured: Measurements, component: str, factor: int = 1) -> ClaimVerdict:
    row, rest = PartLabel(GUIDED, component), ", with which less than half is left" if factor == 2 else ""
    text = f"the {WORDS[component]} matters: the guided parent does better than with the baseline's{rest}"
    return measured.greater(text, row, "before", "retrained", factor)


def improves(measured: Measurements, component: str) -> list[ClaimVerdict]:
    """Claim an improvement on the parent, as the paper does, and on a parent that was retrained as well."""
    row, text = PartLabel(GUIDED, component), f"the baseline's {WORDS[component]} improves a guided network"
    alone = f"our question: {text} more than retraining without it does"
    return [
        measured.greater(text, row, "retrained", "before"),
        measured.more_than(alone, row, PartLabel(GUIDED, NOTHING), "retrained"),
    ]


def gains(measured: Measurements, receiver: str, component: str) -> np.ndarray:
    row = PartLabel(receiver, component)
    return np.asarray(np.array(measured.values(row, "retrained")) - np.array(measured.values(row, "before")))


def best_gains(measured: Measurements) -> np.ndarray:
    """Return, per seed, a baseline's largest gain by a component; where runs failed, only of components without."""
    each = [gains(measured, BASELINE, component) for component in COMPONENTS]
    most = max(map(len, each))
    return np.asarray(np.max([gain for gain in each if len(gain) == most], axis=0))


def draw_transplants(data: SeedTable) -> Figure:
    columns = {"before": "parent", "retrained": "retrained"}
    picture, axes = plots.panels(1, 2, size=(6.2, 4.0))
    for ax, receiver in zip(axes, (GUIDED, BASELINE), strict=True):
        labels = [PartLabel(receiver, part) for part in PARTS if str(PartLabel(receiver, part)) in data]
        accuracies = {
            WORDS[label.component]: {
                text: bar_values(data[str(label)][name], published_transplant(label, name))
                for name, text in columns.items()
            }
            for label in labels
        }
        draw_bars(accuracies, ax, "sequence accuracy, new compositions", UNIT)
        ax.set(ylim=(0, 1.05), title=f"components of {OTHER[receiver]} in {receiver} networks")
    return picture


TABLE4 = Finding(
    name="table4",
    title="Component transplants from a baseline into guided networks, and vice versa",
    section="§5.1, table 4",
    experiments=transplant_experiments, measure=measure_transplants, table=TRANSPLANT_QUANTITIES,
    published=published_transplant, claims=claims_about_transplants, figure=("before", "retrained"),
    draw=draw_transplants,
    notes=(
        "Receiver and donor are of different seeds, with different initial weights. Each row is compared with its own "
        "receiver; the 0.82 of the paper is the mean of its first three guided networks, ours of all five.",
        "Attention, the layer that joins context and word, and the output layer belong to the decoder; Wih and Whh "
        "are the matrices without their biases.",
        f"Retrained for {TRANSPLANT_EPOCHS['paper']} epochs, the most of the paper; for "
        f"{TRANSPLANT_EPOCHS['quick']} if quick.",
        "'Does not matter' means no more than 0.12 below the parent, the standard deviation of the paper; 'rescued' "
        "means a gain of more than 0.1.",
        *NOTES,
        "What this does not show: that a component is compositional or not. A frozen component that the rest cannot "
        "use is lost, whatever it represents.",
    ),
)  # fmt: skip
