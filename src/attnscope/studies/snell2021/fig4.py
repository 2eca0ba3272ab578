"""What do counts tell if sentences always have the same words? (snell2021 §4.3, figure 4; A.3, figure 8)"""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.models.ibm import IBMModel1
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, PublishedNumber, TrainedCase
from attnscope.studies.snell2021.counting import bags_of
from attnscope.studies.snell2021.experiments import Sizes, published
from attnscope.tasks import SPECIALS, Batch, Copying

SAME, CONTROL = "permutations of 40 words", "40 of 60 words"
AS_DRAWN, MIXTURE = "4 + 4 words, as drawn", "40 + 40 words"
ROUNDING = 1e-9

QUANTITIES = {
    "spread": "spread of C's entries above zero, relative to their mean",
    "never": "share of pairs of words that never occur together",
    "diagonal": "C of a word and itself, relative to the other words it occurs with",
    "stands_out": "share of words that occur most often with themselves",
    "inside": "β within a sentence, mean",
    "inside_spread": "spread of β within a sentence, relative to its mean",
}


@dataclass(frozen=True)
class SampleSettings:
    """How many sentences are sampled of which task."""

    task: Copying
    sentences: int


class Picture(TypedDict):
    """The count table, and β of a sentence."""

    C: np.ndarray | list[list[float]]
    β: Float[Tensor, "target source"] | list[list[float]]


def cases(sizes: Sizes, tasks: dict[str, Copying]) -> dict[str, Case]:
    return {label: Case(settings=SampleSettings(task, sizes.counting.sentences)) for label, task in tasks.items()}


def permutations(sizes: Sizes) -> dict[str, Case]:
    """Return the two distributions of §3.3."""
    tasks = {SAME: Copying(distribution="permutations"), CONTROL: Copying(distribution="sampled", num_words=60)}
    return cases(sizes, tasks)


def mixtures(sizes: Sizes) -> dict[str, Case]:
    """Return figure 8's sets of four words, and the sets of 40 of A.3."""
    tasks = {
        AS_DRAWN: Copying(distribution="mixture", num_words=8, length=4),
        MIXTURE: Copying(distribution="mixture", num_words=80),
    }
    return cases(sizes, tasks)


def measure(subject: TrainedCase[SampleSettings]) -> Measurement:
    task = subject.settings.task
    batch = task.training_batch(subject.seed, 0, subject.settings.sentences)
    bags = bags_of(task, [batch])
    counts = bags.cooccurrences().toarray()[len(SPECIALS) :, len(SPECIALS) :]
    beta = IBMModel1.counted(bags).translation_probabilities(sorted_sentence(batch))[0]
    within = {"inside": beta.mean().item(), "inside_spread": (beta.std(correction=0) / beta.mean()).item()}
    return {**evenness(counts), **within, "picture": Picture(C=counts, β=beta)}


def sorted_sentence(batch: Batch) -> Batch:
    """Return the first sentence with its words in the order of the vocabulary, without the end token."""
    words = batch.source[:1, :-1].sort().values
    return Batch(words, torch.ones_like(words) > 0, words, torch.ones_like(words) > 0)


def evenness(counts: np.ndarray) -> dict[str, float]:
    """Return how far the table is from constant where words occur together, and whether its diagonal stands out."""
    own, together = np.eye(len(counts), dtype=bool), counts > 0
    others = np.where(own, 0, counts).max(1)
    return {
        "spread": float(counts[together].std() / counts[together].mean()),
        "never": float(1 - together.mean()),
        "diagonal": float(counts[own].mean() / counts[together & ~own].mean()),
        "stands_out": float((counts[own] > others * (1 + ROUNDING)).mean()),
    }


def exactly(text: str, measured: Measurements, label: str, name: str, value: float) -> ClaimVerdict:
    return measured.exact(text, label, name, lambda number: abs(number - value) <= ROUNDING)


def claims_of_permutations(measured: Measurements) -> list[ClaimVerdict]:
    less_even = f"{CONTROL}: β is less even within a sentence than with {SAME}"
    return [
        exactly(f"{SAME}: C is constant, and carries no information", measured, SAME, "spread", 0.0),
        exactly(f"{SAME}: β is uniform within a sentence", measured, SAME, "inside_spread", 0.0),
        exactly(f"{CONTROL}: each occurs most often with itself", measured, CONTROL, "stands_out", 1.0),
        measured.more_than(less_even, CONTROL, SAME, "inside_spread"),
    ]


def claims_of_mixtures(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for label, words in {AS_DRAWN: 4, MIXTURE: 40}.items():
        verdicts += [
            exactly(f"{label}: two blocks that never co-occur, half of all pairs", measured, label, "never", 0.5),
            exactly(f"{label}: β is 1/{words} on average", measured, label, "inside", 1 / words),
            exactly(f"{label}: β is uniform within a sentence", measured, label, "inside_spread", 0.0),
        ]
    return verdicts


def draw(data: dict[str, Picture]) -> Figure:
    picture, axes = plots.panels(len(data), 2, size=(4.8, 4.2))
    for (label, panels), left, right in zip(data.items(), axes[::2], axes[1::2], strict=True):
        counts, beta = np.array(panels["C"]), np.array(panels["β"])
        few = len(counts) <= 10
        plots.heatmap(counts, None, None, left, f"{label}: C", False, few, "output word", "input word")
        sides = ("input position, words in order", "output position")
        plots.heatmap(beta, None, None, right, f"{label}: β of a sentence", False, few, *sides)
    return picture


def published_mixture(label: str, name: str) -> PublishedNumber:
    return published("mixture_as_drawn", name) if label == AS_DRAWN else {}


FIG4 = Finding(
    name="fig4",
    title="Under permutations of the same words the count table carries no information",
    section="§4.3, figure 4",
    experiments=permutations, measure=measure, table=QUANTITIES, claims=claims_of_permutations, draw=draw,
    notes=(
        "Sentences are those of the copying task (figure 3), end tokens left out. Pictures show the first seed's "
        "table, and β for a sentence with sorted words, so that a copy would be the diagonal.",
        "What this does not show: that a network cannot learn from permutations, for it also sees the order of words; "
        "figure 3 trains it.",
    ),
    seeds=lambda sizes: int(sizes.counting.samples),
)  # fmt: skip

FIG8 = Finding(
    name="fig8",
    title="A mixture of two sets of words: two blocks, and no more in the count table",
    section="A.3, figure 8",
    experiments=mixtures, measure=measure, table=QUANTITIES, published=published_mixture, claims=claims_of_mixtures,
    draw=draw,
    notes=(
        "Each sentence is a permutation of the first half of the words or of the second half; how many are of either "
        "half is random, so that the two blocks differ a little in C, but not in Trans.",
        "What this does not show: whether a network learns to attend in spite of it; figure 3 trains it.",
    ),
    seeds=lambda sizes: int(sizes.counting.samples),
)  # fmt: skip
