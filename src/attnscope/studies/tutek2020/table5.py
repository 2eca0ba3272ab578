"""How long are the texts, how many words do they have? The corpora as prepared. (tutek2020 appendix A, table 5)"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.studies.bars import draw_bars, panel
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.decided import published
from attnscope.studies.tutek2020.experiments import GLOVE, LICENSED_NOTE, TEXTS, Sizes, with_own_copies
from attnscope.tasks import SPECIALS, Classification, TextTask, statistics
from attnscope.tasks.text import Vectors, initial_embedding
from attnscope.tasks.text.splits import PARTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {
    "length": "average length in words",
    "spoken": "average length without punctuation",
    "vocabulary": "words known",
    "vectors": "of these, % with a published vector",
    "running_vectors": "of running words, % with a published vector",
    "unknown": "unknown words in the test split, %",
    "training": "training texts",
    "validation": "validation texts",
    "test": "test texts",
    "positive": "test texts of the positive class, %",
    "dropped": "texts left out as too long",
    "truncated": "texts cut",
}


@dataclass(frozen=True)
class Prepared:
    """Texts, and the published vectors that their words start from."""

    task: TextTask
    vectors: Vectors


def experiments(sizes: Sizes) -> dict[str, Case]:
    corpora = with_own_copies(sizes).corpora
    return {corpus: case_unless_missing(partial(prepared, corpus)) for corpus in corpora}


def prepared(corpus: str) -> Case:
    """With checksums, so that other data are counted anew."""
    return Case(settings=Prepared(TEXTS[corpus].resolved(), GLOVE.resolved()))


def measure(subject: TrainedCase) -> Measurement:
    task, vectors = subject.settings.task, subject.settings.vectors
    assert isinstance(task, Classification)
    found, known = statistics(task), initial_embedding(task.source_vocabulary, vectors.file)
    texts = found["sentences"]
    return {
        "length": float((found["source_mean"] * texts).sum() / texts.sum()),
        "spoken": spoken_length(task),
        "vocabulary": len(task.source_vocabulary) - len(SPECIALS) - 1,  # nor the unknown word
        "vectors": 100 * known.coverage,
        "running_vectors": 100 * known.running_coverage(task),
        "unknown": 100 * float(found["unknown"]["test"]),
        **{split: int(count) for split, count in zip(texts.index, texts, strict=True)},
        "positive": 100 * float(np.mean([target[0] == len(SPECIALS) + 1 for target in task.part("test").target])),
        "dropped": int(found["dropped"].sum()),
        "truncated": int(found["truncated"].sum()),
    }


def spoken_length(task: Classification) -> float:
    """In words that have a letter or a digit; those that are unknown count."""
    spoken = np.array([any(map(str.isalnum, word)) for word in task.source_vocabulary.tokens])
    spoken[: len(SPECIALS)] = False
    return float(np.mean([spoken[text].sum() for split in PARTS for text in task.part(split).source]))


def stated(corpus: str, name: str) -> dict[str, Any]:
    return published(f"table5_{corpus}", name)


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES, stated, columns=lambda corpus: {"corpus": corpus})


def figure(measured: Measurements) -> dict[str, Any]:
    return {name: panel(measured, name, str, lambda corpus: "ours", stated) for name in ("length", "vocabulary")}


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(1, len(data), size=(4.4, 3.2))
    for ax, (name, content) in zip(axes, data.items(), strict=True):
        draw_bars(content, ax, QUANTITIES[name])
    return picture


TABLE5 = Finding(
    name="table5",
    title="Statistics of the corpora as prepared",
    section="appendix A, table 5",
    experiments=experiments, measure=measure, table=table, claims=lambda measured: [], figure=figure, draw=draw,
    notes=(
        "Lengths are means over all texts of the three splits, without start and end tokens, with punctuation and, "
        "since the paper does not say how it counts, without. Words known are those of the training split, seen once "
        "or more (IMDB: twice or more); the paper's vocabulary of SST is larger than that.",
        "AG News is without titles and has a sixth of the published training texts; 20 Newsgroups is without headers, "
        "and without messages of more than 500 words; IMDB reviews are cut to 400 words.",
        LICENSED_NOTE,
    ),
    seeds=lambda sizes: 1,  # nothing is random
)  # fmt: skip
