"""Statistics of the corpora as prepared. (tutek2020 appendix A, table 5)"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from attnscope.studies.bars import draw_panels, label_panels
from attnscope.studies.finding import Case, Finding, Measurement, TrainedCase, cases
from attnscope.studies.tutek2020.decisions import published_in
from attnscope.studies.tutek2020.experiments import GLOVE, LICENSED_NOTE, TEXTS, Sizes, with_licensed_corpora
from attnscope.tasks import SPECIALS, Classification, TextTask, statistics
from attnscope.tasks.text import Vectors, initial_embedding
from attnscope.tasks.text.preparation import PARTS

published = published_in("table5")
QUANTITIES = {
    "length": "average length in words",
    "spoken": "average length without punctuation",
    "vocabulary": "vocabulary size",
    "vectors": "of these words, % with a pretrained vector",
    "running_vectors": "of all tokens, % with a pretrained vector",
    "unknown": "unknown tokens in the test split, %",
    "training": "training texts",
    "validation": "validation texts",
    "test": "test texts",
    "positive": "test texts of the positive class, %",
    "dropped": "texts dropped as too long",
    "truncated": "texts truncated",
}


@dataclass(frozen=True)
class PreparedCorpus:
    """A corpus, and the pretrained vectors of its words, both with checksums so that changed data are counted again."""

    task: TextTask
    vectors: Vectors


def experiments(sizes: Sizes) -> dict[str, Case]:
    def case(corpus: str) -> Case:
        return Case(settings=PreparedCorpus(TEXTS[corpus].resolved(), GLOVE.resolved()))

    return cases(with_licensed_corpora(sizes).corpora, case)


def measure(subject: TrainedCase[PreparedCorpus]) -> Measurement:
    task = subject.settings.task
    assert isinstance(task, Classification)
    counts, known = statistics(task), initial_embedding(task.source_vocabulary, subject.settings.vectors.file)
    texts = counts["sentences"]
    return {
        "length": float((counts["source_mean"] * texts).sum() / texts.sum()),
        "spoken": mean_length_without_punctuation(task),
        "vocabulary": len(task.source_vocabulary) - len(SPECIALS) - 1,  # nor the unknown token
        "vectors": 100 * known.coverage,
        "running_vectors": 100 * known.running_coverage(task),
        "unknown": 100 * float(counts["unknown"]["test"]),
        **{split: int(count) for split, count in zip(texts.index, texts, strict=True)},
        "positive": 100 * float(np.mean([target[0] == len(SPECIALS) + 1 for target in task.part("test").target])),
        "dropped": int(counts["dropped"].sum()),
        "truncated": int(counts["truncated"].sum()),
    }


def mean_length_without_punctuation(task: Classification) -> float:
    """Return the mean number of tokens that have a letter or a digit, unknown ones included."""
    with_letters = np.array([any(map(str.isalnum, token)) for token in task.source_vocabulary.tokens])
    with_letters[: len(SPECIALS)] = False
    return float(np.mean([with_letters[text].sum() for split in PARTS for text in task.part(split).source]))


TABLE5 = Finding(
    name="table5",
    title="Statistics of the corpora as prepared",
    section="appendix A, table 5",
    experiments=experiments, measure=measure, table=QUANTITIES, published=published,
    columns=lambda corpus: {"corpus": corpus}, claims=lambda measured: [],
    figure=label_panels(("length", "vocabulary"), str, lambda corpus: "ours", published),
    draw=partial(draw_panels, ylabels=QUANTITIES, row=(4.4, 3.2)),
    notes=(
        "Lengths are means over all texts of the three splits, without start and end tokens, with punctuation and, "
        "since the paper does not say how it counts, without. The vocabulary has the words of the training split that "
        "occur once or more (IMDB: twice or more); the paper's vocabulary of SST is larger than that.",
        "AG News is without titles and has a sixth of the published training texts; 20 Newsgroups is without headers, "
        "and without messages of more than 500 words; IMDB reviews are truncated to 400 words.",
        LICENSED_NOTE,
    ),
    seeds=lambda sizes: 1,  # nothing is random
)  # fmt: skip
