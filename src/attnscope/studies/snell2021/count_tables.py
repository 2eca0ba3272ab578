"""What do count tables tell about alignments, copies and classes? (snell2021 §4.2, §4.3, A.3; figures 1, 4, 5 and 8)

Figure 1: the count table of a translation, and the alignment that follows from it. Figures 4 and 8: what counts tell if
sentences always have the same words. Figure 5: counts in a classification are the polarity of words.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.errors import require
from attnscope.models.ibm import Bags, IBMModel1, alone
from attnscope.studies.claims import ClaimVerdict, exact
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, TrainedCase, cases
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.counting import bags_of, entries, with_checksum, without_end_tokens
from attnscope.studies.snell2021.experiments import Sizes, published
from attnscope.tasks import SPECIALS, Batch, Copying, Keyword, Task, TextTask, Translation
from attnscope.tasks.text import UNKNOWN

# Figure 1: translation -----------------------------------------------------------------------------------------------

NUM_WORDS = 5  # as in figure 1
# Unless words are named: at least four letters, and in at most one sentence in ten, so that few are articles.
MIN_LETTERS, ONE_IN = 4, 10
NUM_CHECKED = 500  # validation sentences


@dataclass(frozen=True)
class CountSettings:
    """A corpus, and the source words shown; if none are named, the most frequent ones."""

    task: Translation
    words: tuple[str, ...]


def translation_experiment(sizes: Sizes) -> dict[str, Case]:
    def case(label: str) -> Case:
        return Case(settings=CountSettings(with_checksum(sizes.counting.translation), sizes.counting.words))

    return cases(["corpus"], case)


def measure_translation(subject: TrainedCase[CountSettings]) -> Measurement:
    task, words = subject.settings.task, subject.settings.words
    bags = bags_of(task, task.batches("training"))
    counted, fitted = IBMModel1.counted(bags), IBMModel1.fitted(bags)
    sources = ids_of(task, words) if words else frequent_words(task, bags)
    targets = best_translations(fitted, sources)
    sentence = alone(sources, targets)
    picture = {  # tables of input words x output words
        "source": task.source_vocabulary.decode(sources),
        "target": task.target_vocabulary.decode(targets),
        "C": entries(bags.cooccurrences(), sources, targets),
        "Trans": entries(counted.table, sources, targets),
        "one step": counted.posteriors(sentence)[0].T.numpy(),
        "EM": fitted.posteriors(sentence)[0].T.numpy(),
    }
    batch = without_end_tokens(task.sample_batch("validation", NUM_CHECKED))
    return {**alignment_agreement(counted, fitted, batch), "picture": picture}


def ids_of(task: Translation, words: tuple[str, ...]) -> list[int]:
    """Return the token ids of source words; refused if one is unknown."""
    unknown = [word for word in words if word not in task.source_vocabulary.tokens]
    require(not unknown, f"{', '.join(unknown)}: no source word of {task.file} as it is prepared")
    return task.source_vocabulary.encode(words)


def frequent_words(task: Translation, bags: Bags) -> list[int]:
    """Return the most frequent source words that are neither short nor in many sentences; others if these are few."""
    words, sentences = task.source_vocabulary.tokens, np.asarray((bags.source > 0).sum(0)).ravel()
    plain = (sentences * ONE_IN > bags.source.shape[0]) | (np.array([len(word) for word in words]) < MIN_LETTERS)
    spelled = [i for i in range(UNKNOWN + 1, len(words)) if words[i].isalpha()]
    return sorted(spelled, key=lambda i: (plain[i], -sentences[i]))[:NUM_WORDS]


def best_translations(model: IBMModel1, sources: list[int]) -> list[int]:
    """Return the likeliest translation of each source word, a different one for each."""
    rows, targets = model.table.tocsr(), list[int]()
    for source in sources:
        ranked = np.argsort(-rows[[source]].toarray()[0], kind="stable")
        targets.append(int(next(word for word in ranked if word not in targets)))
    return targets


def alignment_agreement(counted: IBMModel1, fitted: IBMModel1, batch: Batch) -> dict[str, float]:
    """Return how often counts alone align a word as EM does in the end, and how often chance would."""
    one, other = (model.posteriors(batch).masked_fill(~batch.source_mask[:, None], -1) for model in (counted, fitted))
    words = batch.target_mask & (batch.target != UNKNOWN)
    lengths = batch.source_mask.sum(1)[:, None].expand_as(words)
    return {
        "alike": (one.argmax(-1) == other.argmax(-1))[words].double().mean().item(),
        "chance": (1 / lengths[words].double()).mean().item(),
    }


def worked_example() -> dict[str, float]:
    """Return figure 1's example by eq. 17 and 19: how often Film occurs with bad, great, is, movie, This."""
    film = np.array([4, 2, 15, 20, 21])  # the table in the figure has 12 for the last, its sum has 21
    trans = film[3] / film.sum()
    others = [0.04, 0.04, 0.03]  # Trans(movie | ·) of the sentence's other words, as printed
    return {"translation": float(trans), "alignment": float(trans / (trans + sum(others)))}


def translation_table(measured: Measurements) -> list[Row]:
    worked = {"translation": "Trans(movie | Film), eq. 17", "alignment": "α of Film for movie, eq. 19"}
    corpus = {"alike": "output words aligned by counts alone as after EM", "chance": "the same by chance: 1 / L"}
    return [
        row(model="figure 1's own row", quantity=text, values=[worked_example()[name]], **published("worked_row", name))
        for name, text in worked.items()
    ] + measured.table(corpus)


def claims_about_translation(measured: Measurements) -> list[ClaimVerdict]:
    text = "counts alone (eq. 19) align a word as EM does more often than chance would"
    return [exact(text, [m["alike"] > m["chance"] for m in measured["corpus"]])]


def draw_translation(data: FigureData) -> Figure:
    picture, axes = plots.panels(2, 2, size=(4.8, 4.0))
    panels = {
        "C: co-occurrences (eq. 16)": data["C"],
        "Trans(output | input), eq. 17": data["Trans"],
        "α of one step (eq. 19)": data["one step"],
        "α after EM": data["EM"],
    }
    names = {"rows": data["source"], "columns": data["target"], "xlabel": "output word", "ylabel": "input word"}
    for ax, (title, cells) in zip(axes, panels.items(), strict=True):
        plots.heatmap(np.array(cells), ax=ax, title=title, annotate=True, **names)
    return picture


FIG1 = Finding(
    name="fig1",
    title="The count table of a translation, and the alignment that follows from it",
    section="§4.2, figure 1",
    experiments=translation_experiment, measure=measure_translation, table=translation_table,
    claims=claims_about_translation, figure=lambda measured: measured.first("corpus")["picture"], draw=draw_translation,
    notes=(
        "German to English as in the figure, on Multi30k in words; another corpus or other words are a matter of "
        "CountSizes.translation and .words. Unless words are named, they are the most frequent source words of at "
        "least four letters that occur in at most one sentence in ten, each with its likeliest translation by EM; "
        "together they make a sentence. The claim is ours, on 500 validation sentences.",
        "In figure 1 the row of Film ends in 12, but Trans(movie | Film) = 20 / (4 + 2 + 15 + 20 + 21) = .32: the sum "
        "has 21. With 12 it would be .38.",
        "End tokens are not counted; unknown words are counted, but no claim is made of their alignment.",
        "What this does not show: that EM's alignments are right; `aligners` compares both with people's.",
    ),
    seeds=lambda sizes: 1,  # nothing is random
)  # fmt: skip


# Figures 4 and 8: the same words in every sentence -------------------------------------------------------------------

SAME, CONTROL = "permutations of 40 words", "40 of 60 words"
AS_DRAWN, MIXTURE = "4 + 4 words, as drawn", "40 + 40 words"
ROUNDING = 1e-9

EVENNESS_QUANTITIES = {
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


def sampled_cases(sizes: Sizes, tasks: dict[str, Copying]) -> dict[str, Case]:
    return {label: Case(settings=SampleSettings(task, sizes.counting.sentences)) for label, task in tasks.items()}


def permutations(sizes: Sizes) -> dict[str, Case]:
    """Return the two distributions of §3.3."""
    tasks = {SAME: Copying(distribution="permutations"), CONTROL: Copying(distribution="sampled", num_words=60)}
    return sampled_cases(sizes, tasks)


def mixtures(sizes: Sizes) -> dict[str, Case]:
    """Return figure 8's sets of four words, and the sets of 40 of A.3."""
    tasks = {
        AS_DRAWN: Copying(distribution="mixture", num_words=8, length=4),
        MIXTURE: Copying(distribution="mixture", num_words=80),
    }
    return sampled_cases(sizes, tasks)


def measure_evenness(subject: TrainedCase[SampleSettings]) -> Measurement:
    task = subject.settings.task
    batch = task.training_batch(subject.seed, 0, subject.settings.sentences)
    bags = bags_of(task, [batch])
    counts = bags.cooccurrences().toarray()[len(SPECIALS) :, len(SPECIALS) :]
    beta = IBMModel1.counted(bags).translation_probabilities(sorted_sentence(batch))[0]
    within = {"inside": beta.mean().item(), "inside_spread": (beta.std(correction=0) / beta.mean()).item()}
    return {**evenness(counts), **within, "picture": {"C": counts, "β": beta}}


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


def draw_evenness(data: FigureData) -> Figure:
    picture, axes = plots.panels(len(data), 2, size=(4.8, 4.2))
    for (label, panels), left, right in zip(data.items(), axes[::2], axes[1::2], strict=True):
        counts, beta = np.array(panels["C"]), np.array(panels["β"])
        few = len(counts) <= 10
        plots.heatmap(counts, None, None, left, f"{label}: C", False, few, "output word", "input word")
        sides = ("input position, words in order", "output position")
        plots.heatmap(beta, None, None, right, f"{label}: β of a sentence", False, few, *sides)
    return picture


FIG4 = Finding(
    name="fig4",
    title="Under permutations of the same words the count table carries no information",
    section="§4.3, figure 4",
    experiments=permutations, measure=measure_evenness, table=EVENNESS_QUANTITIES, claims=claims_of_permutations,
    draw=draw_evenness,
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
    experiments=mixtures, measure=measure_evenness, table=EVENNESS_QUANTITIES, published=lambda label,
    name: published("mixture_as_drawn", name) if label == AS_DRAWN else {}, claims=claims_of_mixtures,
    draw=draw_evenness,
    notes=(
        "Each sentence is a permutation of the first half of the words or of the second half; how many are of either "
        "half is random, so that the two blocks differ a little in C, but not in Trans.",
        "What this does not show: whether a network learns to attend in spite of it; figure 3 trains it.",
    ),
    seeds=lambda sizes: int(sizes.counting.samples),
)  # fmt: skip


# Figure 5: classification --------------------------------------------------------------------------------------------

KEYWORD, CLASSIFIED = "keyword", "corpus"
MIN_COUNT = 50  # occurrences in training of a shown word
EXTREMES = 6  # words shown of each end, and as many of the most frequent ones

POLARITY_QUANTITIES = {
    "accuracy": "validation accuracy of the class with the largest mean β",
    "largest_class": "share of the largest class",
    "more_positive": "words more positive than the keyword",
}


@dataclass(frozen=True)
class ClassificationSettings:
    """A classification, and how many sentences are sampled if it is artificial."""

    task: Task
    sentences: int


def classification_experiments(sizes: Sizes) -> dict[str, Case]:
    def case(label: str) -> Case:
        task: Task = Keyword() if label == KEYWORD else with_checksum(sizes.counting.classification)
        return Case(settings=ClassificationSettings(task, sizes.counting.sentences))

    return cases((KEYWORD, CLASSIFIED), case)


def measure_polarity(subject: TrainedCase[ClassificationSettings]) -> Measurement:
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


def picture_of(task: Task, bags: Bags, polarity: Float[np.ndarray, " words"]) -> FigureData:
    """Return the words of most extreme polarity, and the most frequent ones, from the first class to the last."""
    totals = np.asarray(bags.source.sum(0)).ravel()
    first = UNKNOWN + 1 if isinstance(task, TextTask) else len(SPECIALS)
    words = np.array([i for i in range(first, len(totals)) if totals[i] >= min(MIN_COUNT, totals[first:].max())])
    ranked = words[np.argsort(polarity[words], kind="stable")]
    frequent = words[np.argsort(-totals[words], kind="stable")][:EXTREMES]
    in_figure = {*ranked[:EXTREMES], *ranked[-EXTREMES:], *frequent}
    token_ids = [int(word) for word in ranked if word in in_figure]
    counts = bags.cooccurrences().toarray()[token_ids][:, len(SPECIALS) :]
    return {
        "words": task.source_vocabulary.decode(token_ids),
        "classes": list(task.target_vocabulary.tokens[len(SPECIALS) :]),
        "C": counts,
        "Trans": counts / counts.sum(1, keepdims=True),
    }


def claims_about_polarity(measured: Measurements) -> list[ClaimVerdict]:
    keyword = "keyword: no word is as positive as the keyword"
    corpus = "corpus: the polarity of its words by counts (eq. 17) predicts the class of a sentence better than chance"
    return [
        measured.exact(keyword, KEYWORD, "more_positive", lambda count: count == 0),
        exact(f"{corpus} (the largest class)", [m["accuracy"] > m["largest_class"] for m in measured[CLASSIFIED]]),
    ]


def draw_polarity(data: FigureData) -> Figure:
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
    experiments=classification_experiments, measure=measure_polarity, table=POLARITY_QUANTITIES,
    claims=claims_about_polarity, draw=draw_polarity,
    notes=(
        "SST in words; another corpus is a matter of CountSizes.classification. Shown are the words of most extreme "
        "polarity, and the most frequent ones, of those that occur at least 50 times in training. The artificial task "
        "is that of figure 7, whose keyword is the word 1. The paper gives no numbers; the claims are ours.",
        "What this does not show: that attention follows; tables 2 and 10 are about that.",
    ),
    seeds=lambda sizes: 1,
)  # fmt: skip
