"""What does counting give in a classification? The polarity of words. (snell2021 §4.3, figure 5)"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnscope import plots
from attnscope.models.ibm import Bags, IBMModel1
from attnscope.studies.claims import ClaimVerdict, always
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.snell2021.counting import bags_of, identified, without_ends
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.tasks import SPECIALS, Batch, Keyword, Task, TextTask
from attnscope.tasks.text import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MADE_UP, CORPUS = "keyword", "corpus"
OFTEN = 50  # occurrences in training that a word needs to be shown
EXTREMES = 6  # words shown of each end, and as many of the most frequent ones

QUANTITIES = {
    "accuracy": "validation accuracy of the class that words translate to, on average",
    "largest_class": "share of the largest class",
    "more_positive": "words more positive than the keyword",
}


@dataclass(frozen=True)
class Classified:
    """A classification, and how many sentences are drawn of it if it is made up."""

    task: Task
    sentences: int


def experiments(sizes: Sizes) -> dict[str, Case]:
    def classified(task: Task) -> Case:
        return Case(settings=Classified(task, sizes.counting.sentences))

    return {
        MADE_UP: classified(Keyword()),
        CORPUS: case_unless_missing(lambda: classified(identified(sizes.counting.classification))),
    }


def measure(subject: TrainedCase) -> Measurement:
    task = subject.settings.task
    bags = bags_of(task, training(subject))
    model = IBMModel1.counted(bags)
    polarity = model.table[:, [-1]].toarray()[:, 0]  # Trans(last class | word)
    found = {**guessed(model, task), "picture": shown(task, bags, polarity)}
    if isinstance(task, Keyword):
        found["more_positive"] = int((polarity > polarity[len(SPECIALS)]).sum())
    return found


def training(subject: TrainedCase) -> Iterable[Batch]:
    task = subject.settings.task
    if isinstance(task, TextTask):
        return task.batches("training")
    return [task.training_batch(subject.seed, 0, subject.settings.sentences)]


def guessed(model: IBMModel1, task: Task) -> dict[str, float]:
    right, labels = 0, list[int]()
    for batch in map(without_ends, task.batches("validation")):
        right += int((guesses(model, batch, len(task.target_vocabulary)) == batch.target[:, 0]).sum())
        labels += batch.target[:, 0].tolist()
    return {"accuracy": right / len(labels), "largest_class": float(np.bincount(labels).max() / len(labels))}


def guesses(model: IBMModel1, batch: Batch, target_words: int) -> Int[Tensor, " batch"]:
    """The class with the largest β on average over the words."""
    classes = torch.arange(len(SPECIALS), target_words).expand(len(batch), -1)
    asked = replace(batch, target=classes, target_mask=torch.ones_like(classes) > 0, gold_attention=None)
    return model.translation_probabilities(asked).sum(-1).argmax(1) + len(SPECIALS)


def shown(task: Task, bags: Bags, polarity: Float[np.ndarray, " words"]) -> dict[str, Any]:
    """The words that lean most to either end, and the most frequent ones, from the first class to the last."""
    often = np.asarray(bags.source.sum(0)).ravel()
    first = UNKNOWN + 1 if isinstance(task, TextTask) else len(SPECIALS)
    words = np.array([i for i in range(first, len(often)) if often[i] >= min(OFTEN, often[first:].max())])
    ranked = words[np.argsort(polarity[words], kind="stable")]
    frequent = words[np.argsort(-often[words], kind="stable")][:EXTREMES]
    kept = {*ranked[:EXTREMES], *ranked[-EXTREMES:], *frequent}
    chosen = [int(word) for word in ranked if word in kept]
    counts = bags.cooccurrences().toarray()[chosen][:, len(SPECIALS) :]
    return {
        "words": task.source_vocabulary.decode(chosen),
        "classes": list(task.target_vocabulary.tokens[len(SPECIALS) :]),
        "C": counts,
        "Trans": counts / counts.sum(1, keepdims=True),
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        always(
            "keyword: no word is as positive as the keyword",
            [value == 0 for value in measured.values(MADE_UP, "more_positive")],
        ),
        always(
            "corpus: the counted polarity of its words (eq. 17) tells the class of a sentence more often than naming "
            "the largest class does",
            [m["accuracy"] > m["largest_class"] for m in measured[CORPUS]],
        ),
    ]


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(len(data), 2, size=(3.6, 5.0))
    for label, left, right in zip(data, axes[::2], axes[1::2], strict=True):
        found = data[label]
        for ax, name, title in ((left, "C", "C"), (right, "Trans", "Trans(class | word)")):
            plots.heatmap(
                np.array(found[name]), rows=found["words"], columns=found["classes"], ax=ax, annotate=True,
                title=f"{label}: {title}", xlabel="class", ylabel="word",
            )  # fmt: skip
            ax.set_aspect("auto")
    return picture


FIG5 = Finding(
    name="fig5",
    title="In a classification, counting gives the polarity of words",
    section="§4.3, figure 5",
    experiments=experiments, measure=measure, table=lambda measured: measured.table(QUANTITIES), claims=claims,
    draw=draw,
    notes=(
        "SST in words; another corpus is a matter of CountSizes.classification. Shown are the words that lean most to "
        "either class, and the most frequent ones, of those seen at least 50 times in training. The made-up task is "
        "that of figure 7, whose keyword is the word 1. The paper gives no numbers; the claims are ours.",
        "What this does not show: that attention follows; tables 2 and 10 are about that.",
    ),
    seeds=lambda sizes: 1,
)  # fmt: skip
