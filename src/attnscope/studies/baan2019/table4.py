"""Which component of a network makes its solution compositional? Component transplants. (baan2019 §5.1, table 4)

A component of a network of the other kind is transplanted and frozen, and the rest is retrained as the receiver was
trained. Eight components go from baseline into guided networks, and eight the other way, most of which the paper's
table leaves out. In two further rows nothing is replaced: retraining alone may change a network.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.models import EncoderDecoder
from attnscope.probes.transplant import COMPONENTS, ModifiedModel, transplant_component
from attnscope.studies.baan2019.experiments import (
    AS_GOOD,
    BASELINE,
    GUIDED,
    NOTES,
    Sizes,
    both,
    network_of,
    published,
    sequence_accuracy,
)
from attnscope.studies.baan2019.sec5_2 import train_further
from attnscope.studies.bars import SeedTable, bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict, at_least, at_most, more_than
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, PublishedNumber, TrainedCase

NOTHING = "nothing"
PARTS = (NOTHING, *COMPONENTS)
OTHER = {GUIDED: BASELINE, BASELINE: GUIDED}
EPOCHS = {"paper": 100, "quick": 10}  # the paper: at most 100
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
QUANTITIES = {
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


def experiments(sizes: Sizes) -> dict[PartLabel, Callable[[int], Case]]:
    labels = [PartLabel(*parts) for parts in product((GUIDED, BASELINE), PARTS)]
    return {label: pair(sizes, Substitution(*label, EPOCHS[sizes.name])) for label in labels}


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


def measure(case: TrainedCase[Substitution]) -> Measurement:
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


def stated(label: PartLabel, name: str) -> PublishedNumber:
    return published("_".join(label), name)


def claims(measured: Measurements) -> list[ClaimVerdict]:
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
    return more_than(text, measured.values(row, "before"), measured.values(row, "retrained"), factor)


def improves(measured: Measurements, component: str) -> list[ClaimVerdict]:
    """Claim an improvement on the parent, as the paper does, and on a parent that was retrained as well."""
    row, text = PartLabel(GUIDED, component), f"the baseline's {WORDS[component]} improves a guided network"
    alone = f"our question: {text} more than retraining without it does"
    return [
        more_than(text, measured.values(row, "retrained"), measured.values(row, "before")),
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


def draw(data: SeedTable) -> Figure:
    columns = {"before": "parent", "retrained": "retrained"}
    picture, axes = plots.panels(1, 2, size=(6.2, 4.0))
    for ax, receiver in zip(axes, (GUIDED, BASELINE), strict=True):
        labels = [PartLabel(receiver, part) for part in PARTS if str(PartLabel(receiver, part)) in data]
        accuracies = {
            WORDS[label.component]: {
                text: bar_values(data[str(label)][name], stated(label, name)) for name, text in columns.items()
            }
            for label in labels
        }
        draw_bars(accuracies, ax, "sequence accuracy, new compositions")
        ax.set(ylim=(0, 1.05), title=f"components of {OTHER[receiver]} in {receiver} networks")
    return picture


TABLE4 = Finding(
    name="table4",
    title="Component transplants from a baseline into guided networks, and vice versa",
    section="§5.1, table 4",
    experiments=experiments, measure=measure, table=QUANTITIES, published=stated, claims=claims,
    figure=("before", "retrained"), draw=draw,
    notes=(
        "Receiver and donor are of different seeds, with different initial weights. Each row is compared with its own "
        "receiver; the 0.82 of the paper is the mean of its first three guided networks, ours of all five.",
        "Attention, the layer that joins context and word, and the output layer belong to the decoder; Wih and Whh "
        "are the matrices without their biases.",
        f"Retrained for {EPOCHS['paper']} epochs, the most of the paper; for {EPOCHS['quick']} if quick.",
        "'Does not matter' means no more than 0.12 below the parent, the standard deviation of the paper; 'rescued' "
        "means a gain of more than 0.1.",
        *NOTES,
        "What this does not show: that a component is compositional or not. A frozen component that the rest cannot "
        "use is lost, whatever it represents.",
    ),
)  # fmt: skip
