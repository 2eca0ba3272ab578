"""From a count table to a word alignment. (snell2021 §4.2, figure 1)"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.errors import require
from attnscope.models.ibm import Bags, IBMModel1, alone
from attnscope.studies.claims import ClaimVerdict, exact
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.counting import bags_of, entries, with_checksum, without_end_tokens
from attnscope.studies.snell2021.experiments import Sizes, published
from attnscope.tasks import Batch, Translation
from attnscope.tasks.text import UNKNOWN

NUM_WORDS = 5  # as in figure 1
# Unless words are named: at least four letters, and in at most one sentence in ten, so that few are articles.
MIN_LETTERS, ONE_IN = 4, 10
NUM_CHECKED = 500  # validation sentences
Cells = Sequence[Sequence[float]] | np.ndarray  # input words x output words
Picture = TypedDict(
    "Picture", {"source": list[str], "target": list[str], "C": Cells, "Trans": Cells, "one step": Cells, "EM": Cells}
)


@dataclass(frozen=True)
class CountSettings:
    """A corpus, and the source words shown; if none are named, the most frequent ones."""

    task: Translation
    words: tuple[str, ...]


def experiments(sizes: Sizes) -> dict[str, Case]:
    def case() -> Case:
        return Case(settings=CountSettings(with_checksum(sizes.counting.translation), sizes.counting.words))

    return {"corpus": case_unless_missing(case)}


def measure(subject: TrainedCase[CountSettings]) -> Measurement:
    task, words = subject.settings.task, subject.settings.words
    bags = bags_of(task, task.batches("training"))
    counted, fitted = IBMModel1.counted(bags), IBMModel1.fitted(bags)
    sources = ids_of(task, words) if words else frequent_words(task, bags)
    targets = best_translations(fitted, sources)
    sentence = alone(sources, targets)
    picture: Picture = {
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


def table(measured: Measurements) -> list[Row]:
    worked = {"translation": "Trans(movie | Film), eq. 17", "alignment": "α of Film for movie, eq. 19"}
    corpus = {"alike": "output words aligned by counts alone as after EM", "chance": "the same by chance: 1 / L"}
    return [
        row(model="figure 1's own row", quantity=text, values=[worked_example()[name]], **published("worked_row", name))
        for name, text in worked.items()
    ] + measured.table(corpus)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    text = "counts alone (eq. 19) align a word as EM does more often than chance would"
    return [exact(text, [m["alike"] > m["chance"] for m in measured["corpus"]])]


def draw(data: Picture) -> Figure:
    picture, axes = plots.panels(2, 2, size=(4.8, 4.0))
    panels = {
        "C: co-occurrences (eq. 16)": data["C"],
        "Trans(output | input), eq. 17": data["Trans"],
        "α of one step (eq. 19)": data["one step"],
        "α after EM": data["EM"],
    }
    names = {"rows": data["source"], "columns": data["target"], "xlabel": "output word", "ylabel": "input word"}
    for ax, (title, cells) in zip(axes, panels.items(), strict=True):
        plots.heatmap(np.array(cells), ax=ax, title=title, annotate=True, **names)  # type: ignore[arg-type]
    return picture


FIG1 = Finding(
    name="fig1",
    title="The count table of a translation, and the alignment that follows from it",
    section="§4.2, figure 1",
    experiments=experiments, measure=measure, table=table, claims=claims,
    figure=lambda measured: measured.first("corpus")["picture"], draw=draw,
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
