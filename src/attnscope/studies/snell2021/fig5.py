"""Counts in a classification are the polarity of words. (snell2021 §4.3, figure 5)"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.models.ibm import Bags, IBMModel1
from attnscope.studies.claims import ClaimVerdict, exact
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.snell2021.counting import bags_of, with_checksum, without_end_tokens
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.tasks import SPECIALS, Batch, Keyword, Task, TextTask
from attnscope.tasks.text import UNKNOWN

ARTIFICIAL, CORPUS = "keyword", "corpus"
MIN_COUNT = 50  # occurrences in training of a shown word
EXTREMES = 6  # words shown of each end, and as many of the most frequent ones

QUANTITIES = {
    "accuracy": "validation accuracy of the class with the largest mean β",
    "largest_class": "share of the largest class",
    "more_positive": "words more positive than the keyword",
}


@dataclass(frozen=True)
class ClassificationSettings:
    """A classification, and how many sentences are sampled if it is artificial."""

    task: Task
    sentences: int


class Picture(TypedDict):
    """The count table of some words and classes, and its rows as shares."""

    words: list[str]
    classes: list[str]
    C: np.ndarray | list[list[float]]
    Trans: np.ndarray | list[list[float]]


def experiments(sizes: Sizes) -> dict[str, Case]:
    def case(task: Task) -> Case:
        return Case(settings=ClassificationSettings(task, sizes.counting.sentences))

    return {
        ARTIFICIAL: case(Keyword()),
        CORPUS: case_unless_missing(lambda: case(with_checksum(sizes.counting.classification))),
    }


def measure(subject: TrainedCase[ClassificationSettings]) -> Measurement:
    task = subject.settings.task
    bags = bags_of(task, training_batches(subject))
    model = IBMModel1.counted(bags)
    polarity = model.table[:, [-1]].toarray()[:, 0]  # Trans(last class | word)
    extra = {"more_positive": int((polarity > polarity[len(SPECIALS)]).sum())} if isinstance(task, Keyword) else {}
    return {**accuracies(model, task), "picture": picture_of(task, bags, polarity), **extra}


def training_batches(subject: TrainedCase[ClassificationSettings]) -> Iterable[Batch]:
    task = subject.settings.task
    if isinstance(task, TextTask):
        return task.batches("training")
    return [task.training_batch(subject.seed, 0, subject.settings.sentences)]


def accuracies(model: IBMModel1, task: Task) -> dict[str, float]:
    """Return the accuracy of IBM Model 1 and of the largest class on the validation split."""
    right, labels = 0, list[int]()
    for batch in map(without_end_tokens, task.batches("validation")):
        right += int((predict_classes(model, batch, len(task.target_vocabulary)) == batch.target[:, 0]).sum())
        labels += batch.target[:, 0].tolist()
    return {"accuracy": right / len(labels), "largest_class": float(np.bincount(labels).max() / len(labels))}


def predict_classes(model: IBMModel1, batch: Batch, target_words: int) -> Int[Tensor, " batch"]:
    """Return the class with the largest β on average over the words."""
    classes = torch.arange(len(SPECIALS), target_words).expand(len(batch), -1)
    targets = replace(batch, target=classes, target_mask=torch.ones_like(classes) > 0, gold_attention=None)
    return model.translation_probabilities(targets).sum(-1).argmax(1) + len(SPECIALS)


def picture_of(task: Task, bags: Bags, polarity: Float[np.ndarray, " words"]) -> Picture:
    """Return the words of most extreme polarity, and the most frequent ones, from the first class to the last."""
    totals = np.asarray(bags.source.sum(0)).ravel()
    first = UNKNOWN + 1 if isinstance(task, TextTask) else len(SPECIALS)
    words = np.array([i for i in range(first, len(totals)) if totals[i] >= min(MIN_COUNT, totals[first:].max())])
    ranked = words[np.argsort(polarity[words], kind="stable")]
    frequent = words[np.argsort(-totals[words], kind="stable")][:EXTREMES]
    shown = {*ranked[:EXTREMES], *ranked[-EXTREMES:], *frequent}
    chosen = [int(word) for word in ranked if word in shown]
    counts = bags.cooccurrences().toarray()[chosen][:, len(SPECIALS) :]
    return {
        "words": task.source_vocabulary.decode(chosen),
        "classes": list(task.target_vocabulary.tokens[len(SPECIALS) :]),
        "C": counts,
        "Trans": counts / counts.sum(1, keepdims=True),
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    keyword = "keyword: no word is as positive as the keyword"
    corpus = "corpus: the polarity of its words by counts (eq. 17) predicts the class of a sentence better than chance"
    return [
        measured.exact(keyword, ARTIFICIAL, "more_positive", lambda count: count == 0),
        exact(f"{corpus} (the largest class)", [m["accuracy"] > m["largest_class"] for m in measured[CORPUS]]),
    ]


def draw(data: dict[str, Picture]) -> Figure:
    picture, axes = plots.panels(len(data), 2, size=(3.6, 5.0))
    for (label, panel), left, right in zip(data.items(), axes[::2], axes[1::2], strict=True):
        for ax, cells, title in ((left, panel["C"], "C"), (right, panel["Trans"], "Trans(class | word)")):
            title = f"{label}: {title}"
            words, classes = panel["words"], panel["classes"]
            plots.heatmap(np.array(cells), words, classes, ax, title, annotate=True, xlabel="class", ylabel="word")
            ax.set_aspect("auto")
    return picture


FIG5 = Finding(
    name="fig5",
    title="In a classification, counting gives the polarity of words",
    section="§4.3, figure 5",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, draw=draw,
    notes=(
        "SST in words; another corpus is a matter of CountSizes.classification. Shown are the words of most extreme "
        "polarity, and the most frequent ones, of those that occur at least 50 times in training. The artificial task "
        "is that of figure 7, whose keyword is the word 1. The paper gives no numbers; the claims are ours.",
        "What this does not show: that attention follows; tables 2 and 10 are about that.",
    ),
    seeds=lambda sizes: 1,
)  # fmt: skip
