"""How does a count table become an alignment? (snell2021 §4.2, figure 1)"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.errors import require
from attnscope.models.ibm import Bags, IBMModel1, alone
from attnscope.studies.claims import ClaimVerdict, always
from attnscope.studies.finding import (
    Case,
    Finding,
    Measurement,
    Measurements,
    TrainedCase,
    case_unless_missing,
    published_by,
)
from attnscope.studies.result import Row, row
from attnscope.studies.snell2021.counting import bags_of, entries, identified, without_ends
from attnscope.studies.snell2021.experiments import Sizes
from attnscope.tasks import Batch, Translation
from attnscope.tasks.text import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

published = published_by("snell2021")

WORDS_SHOWN = 5  # words, as in figure 1
# Unless words are named: of at least four letters, and in at most one sentence in ten, so that few are articles.
LETTERS, ONE_IN = 4, 10
CHECKED = 500  # validation sentences


@dataclass(frozen=True)
class Counted:
    """A corpus, and which of its source words are shown; if none are named, the most frequent ones."""

    task: Translation
    words: tuple[str, ...]


def experiments(sizes: Sizes) -> dict[str, Case]:
    counting = sizes.counting
    return {
        "corpus": case_unless_missing(lambda: Case(settings=Counted(identified(counting.translation), counting.words)))
    }


def measure(subject: TrainedCase) -> Measurement:
    task, words = subject.settings.task, subject.settings.words
    bags = bags_of(task, task.batches("training"))
    counted, fitted = IBMModel1.counted(bags), IBMModel1.fitted(bags)
    sources = named_words(task, words) if words else frequent_words(task, bags)
    targets = translated(fitted, sources)
    sentence = alone(sources, targets)
    return {
        **aligned_alike(counted, fitted, without_ends(task.draw("validation", CHECKED))),
        "picture": {
            "source": task.source_vocabulary.decode(sources),
            "target": task.target_vocabulary.decode(targets),
            "C": entries(bags.cooccurrences(), sources, targets),
            "Trans": entries(counted.table, sources, targets),
            "one step": counted.posteriors(sentence)[0].T,
            "EM": fitted.posteriors(sentence)[0].T,
        },
    }


def named_words(task: Translation, words: tuple[str, ...]) -> list[int]:
    unknown = [word for word in words if word not in task.source_vocabulary.tokens]
    require(not unknown, f"{', '.join(unknown)}: no source word of {task.file} as it is prepared")
    return task.source_vocabulary.encode(words)


def frequent_words(task: Translation, bags: Bags) -> list[int]:
    """The most frequent source words that are neither short nor in many sentences; others only where these are few."""
    words, sentences = task.source_vocabulary.tokens, np.asarray((bags.source > 0).sum(0)).ravel()
    plain = (sentences * ONE_IN > bags.source.shape[0]) | (np.array([len(word) for word in words]) < LETTERS)
    spelled = [i for i in range(UNKNOWN + 1, len(words)) if words[i].isalpha()]
    return sorted(spelled, key=lambda i: (plain[i], -sentences[i]))[:WORDS_SHOWN]


def translated(model: IBMModel1, sources: list[int]) -> list[int]:
    """The likeliest translation of each source word, another one for each."""
    rows, found = model.table.tocsr(), list[int]()
    for source in sources:
        ranked = np.argsort(-rows[[source]].toarray()[0], kind="stable")
        found.append(int(next(word for word in ranked if word not in found)))
    return found


def aligned_alike(counted: IBMModel1, fitted: IBMModel1, batch: Batch) -> dict[str, float]:
    """How often the counts alone point at the word that EM points at in the end; and how often chance would."""
    one, other = (model.posteriors(batch).masked_fill(~batch.source_mask[:, None], -1) for model in (counted, fitted))
    words = batch.target_mask & (batch.target != UNKNOWN)
    lengths = batch.source_mask.sum(1)[:, None].expand_as(words)
    return {
        "alike": (one.argmax(-1) == other.argmax(-1))[words].double().mean().item(),
        "chance": (1 / lengths[words].double()).mean().item(),
    }


def worked_row() -> dict[str, float]:
    """Figure 1's example by eq. 17 and 19: how often Film occurs with bad, great, is, movie, This."""
    film = np.array([4, 2, 15, 20, 21])  # the table in the figure has 12 for the last, its sum has 21
    trans = film[3] / film.sum()
    others = [0.04, 0.04, 0.03]  # Trans(movie | ·) of the sentence's other words, as printed
    return {"translation": float(trans), "alignment": float(trans / (trans + sum(others)))}


def table(measured: Measurements) -> list[Row]:
    worked = {"translation": "Trans(movie | Film), eq. 17", "alignment": "α of Film for movie, eq. 19"}
    corpus = {"alike": "output words aligned by counts alone as after EM", "chance": "the same by chance: 1 / L"}
    return [
        row(model="figure 1's own row", quantity=text, values=[worked_row()[name]], **published("worked_row", name))
        for name, text in worked.items()
    ] + measured.table(corpus)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        always(
            "counts alone (eq. 19) point at the word that EM ends with more often than chance would",
            [m["alike"] > m["chance"] for m in measured["corpus"]],
        )
    ]


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(2, 2, size=(4.8, 4.0))
    titles = {
        "C": "C: how often together (eq. 16)",
        "Trans": "Trans(output | input), eq. 17",
        "one step": "α of one step (eq. 19)",
        "EM": "α after EM",
    }
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        plots.heatmap(
            np.array(data[name]), rows=data["source"], columns=data["target"], ax=ax, title=title, annotate=True,
            xlabel="output word", ylabel="input word",
        )  # fmt: skip
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
        "least four letters that stand in at most one sentence in ten, each with the translation that EM finds "
        "likeliest; together they stand for a sentence. The claim is ours, on 500 validation sentences.",
        "In figure 1 the row of Film ends in 12, but Trans(movie | Film) = 20 / (4 + 2 + 15 + 20 + 21) = .32: the sum "
        "has 21. With 12 it would be .38.",
        "End tokens are not counted; unknown words are counted, but no claim is made of their alignment.",
        "What this does not show: that EM's alignments are right; `aligners` compares both with people's.",
    ),
    seeds=lambda sizes: 1,  # nothing is random
)  # fmt: skip
