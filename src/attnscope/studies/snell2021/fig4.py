"""What is there to count if sentences always hold the same words? (snell2021 §4.3, figure 4; A.3, figure 8)"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope import plots
from attnscope.models.ibm import IBMModel1
from attnscope.studies.claims import ClaimVerdict, always, more_than
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, published_by
from attnscope.studies.snell2021.counting import bags_of
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.tasks import SPECIALS, Batch, Copying

if TYPE_CHECKING:
    from matplotlib.figure import Figure

published = published_by("snell2021")

SAME, CONTROL = "permutations of 40 words", "40 of 60 words"
AS_DRAWN, MIXTURE = "4 + 4 words, as drawn", "40 + 40 words"
NOTHING = 1e-9  # but rounding

QUANTITIES = {
    "spread": "spread of C's entries above zero, relative to their mean",
    "never": "share of pairs of words that never occur together",
    "diagonal": "C of a word and itself, relative to the other words it occurs with",
    "stands_out": "share of words that occur most often with themselves",
    "inside": "β within a sentence, mean",
    "inside_spread": "spread of β within a sentence, relative to its mean",
}


@dataclass(frozen=True)
class MadeUp:
    """So many fresh sentences to be copied."""

    task: Copying
    sentences: int


def cases(sizes: Sizes, tasks: dict[str, Copying]) -> dict[str, Case]:
    return {label: Case(settings=MadeUp(task, sizes.counting.sentences)) for label, task in tasks.items()}


def permutations(sizes: Sizes) -> dict[str, Case]:
    """The two distributions of §3.3."""
    tasks = {SAME: Copying(distribution="permutations"), CONTROL: Copying(distribution="sampled", num_words=60)}
    return cases(sizes, tasks)


def mixtures(sizes: Sizes) -> dict[str, Case]:
    """Figure 8's sets of four words, and the sets of 40 of A.3."""
    tasks = {
        AS_DRAWN: Copying(distribution="mixture", num_words=8, length=4),
        MIXTURE: Copying(distribution="mixture", num_words=80),
    }
    return cases(sizes, tasks)


def measure(subject: TrainedCase) -> Measurement:
    task: Copying = subject.settings.task
    batch = task.training_batch(subject.seed, 0, subject.settings.sentences)
    bags = bags_of(task, [batch])
    counts = bags.cooccurrences().toarray()[len(SPECIALS) :, len(SPECIALS) :]
    beta = IBMModel1.counted(bags).translation_probabilities(in_order(batch))[0]
    return {**evenness(counts), **within(beta), "picture": {"C": counts, "β": beta}}


def in_order(batch: Batch) -> Batch:
    """The words of the first sentence in the order of the vocabulary, without the end: a copy is the diagonal."""
    words = batch.source[:1, :-1].sort().values
    return Batch(words, torch.ones_like(words) > 0, words, torch.ones_like(words) > 0)


def evenness(counts: np.ndarray) -> dict[str, float]:
    """How far the table is from constant where words occur together, and whether its diagonal stands out."""
    own, together = np.eye(len(counts), dtype=bool), counts > 0
    others = np.where(own, 0, counts).max(1)
    return {
        "spread": float(counts[together].std() / counts[together].mean()),
        "never": float(1 - together.mean()),
        "diagonal": float(counts[own].mean() / counts[together & ~own].mean()),
        "stands_out": float((counts[own] > others * (1 + NOTHING)).mean()),
    }


def within(beta: Float[Tensor, "target source"]) -> dict[str, float]:
    return {"inside": beta.mean().item(), "inside_spread": (beta.std(correction=0) / beta.mean()).item()}


def exactly(text: str, measured: Measurements, label: str, name: str, value: float) -> ClaimVerdict:
    return always(text, [abs(found - value) <= NOTHING for found in measured.values(label, name)])


def claims_of_permutations(measured: Measurements) -> list[ClaimVerdict]:
    return [
        exactly(f"{SAME}: C is constant, and says nothing", measured, SAME, "spread", 0.0),
        exactly(f"{SAME}: β is uniform within a sentence", measured, SAME, "inside_spread", 0.0),
        exactly(f"{CONTROL}: each occurs most often with itself", measured, CONTROL, "stands_out", 1.0),
        more_than(
            f"{CONTROL}: β is less even within a sentence than with {SAME}",
            measured.values(CONTROL, "inside_spread"),
            measured.values(SAME, "inside_spread"),
        ),
    ]


def claims_of_mixtures(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for label, words in {AS_DRAWN: 4, MIXTURE: 40}.items():
        verdicts += [
            exactly(f"{label}: two blocks that never meet, half of all pairs", measured, label, "never", 0.5),
            exactly(f"{label}: β is 1/{words} on average", measured, label, "inside", 1 / words),
            exactly(f"{label}: β is uniform within a sentence", measured, label, "inside_spread", 0.0),
        ]
    return verdicts


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(len(data), 2, size=(4.8, 4.2))
    for label, left, right in zip(data, axes[::2], axes[1::2], strict=True):
        few = len(data[label]["C"]) <= 10
        plots.heatmap(
            np.array(data[label]["C"]), ax=left, title=f"{label}: C", annotate=few,
            xlabel="output word", ylabel="input word",
        )  # fmt: skip
        plots.heatmap(
            np.array(data[label]["β"]), ax=right, title=f"{label}: β of a sentence", annotate=few,
            xlabel="input position, words in order", ylabel="output position",
        )  # fmt: skip
    return picture


FIG4 = Finding(
    name="fig4",
    title="Under permutations of the same words the count table says nothing",
    section="§4.3, figure 4",
    experiments=permutations, measure=measure, table=lambda measured: measured.table(QUANTITIES),
    claims=claims_of_permutations, draw=draw,
    notes=(
        "Sentences are those of the copying task (figure 3), end tokens left out. Pictures show the first seed's "
        "table, and β for a sentence whose words stand in order, so that a copy would be the diagonal.",
        "What this does not show: that a network cannot learn from permutations, for it also sees the order of words; "
        "figure 3 trains it.",
    ),
    seeds=lambda sizes: int(sizes.counting.draws),
)  # fmt: skip

FIG8 = Finding(
    name="fig8",
    title="A mixture of two sets of words: two blocks, and no more in the count table",
    section="A.3, figure 8",
    experiments=mixtures,
    measure=measure,
    table=lambda measured: measured.table(
        QUANTITIES, lambda label, name: published("mixture_as_drawn", name) if label == AS_DRAWN else {}
    ),
    claims=claims_of_mixtures,
    draw=draw,
    notes=(
        "Each sentence is a permutation of the first half of the words or of the second half; how many are of either "
        "half is a matter of chance, so that the two blocks differ a little in C, but not in Trans.",
        "What this does not show: whether a network learns to attend in spite of it; figure 3 trains it.",
    ),
    seeds=lambda sizes: int(sizes.counting.draws),
)
