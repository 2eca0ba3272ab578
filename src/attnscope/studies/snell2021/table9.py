"""Sizes of the corpora as prepared. (snell2021 A.5, A.9, table 9)"""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from attnscope.studies.bars import Panel, draw_panels
from attnscope.studies.claims import ClaimVerdict, exact, untested
from attnscope.studies.finding import (
    Case,
    FigureData,
    Finding,
    Measurement,
    Measurements,
    PublishedNumber,
    TrainedCase,
    cases,
)
from attnscope.studies.snell2021.counting import with_checksum
from attnscope.studies.snell2021.experiments import Sizes, published
from attnscope.tasks import CORPORA, SPECIALS, TextTask, Words, statistics

WITH_HEADERS = "20newsgroups, with headers"
OURS = {  # what we have of the paper's corpus; the others are not in the paper
    "imdb": "complete",
    "ag_news": "a sixth of the training set, the test set complete",
    "20newsgroups": "complete; headers stripped",
    WITH_HEADERS: "complete",
    "sst": "complete; another split",
    "amazon": "8,000 of about 40,000 reviews",
    "yelp": "other Yelp reviews",
    "sms": "complete; our own split",
    "multi30k_en_de": "complete",
    "iwslt14_de_en": "4,600 training pairs of 160,240",
}
SAME_SIZES = {
    "imdb": ("training", "validation"),
    "ag_news": ("validation",),
    "20newsgroups": ("training", "validation"),
    WITH_HEADERS: ("training", "validation"),
    "multi30k_en_de": ("training", "validation"),
}
SAME_TEXTS = ("imdb", WITH_HEADERS, "sst", "sms", "multi30k_en_de")  # A.8 does not mention that headers are stripped
NOT_HERE = "the corpus is not on this machine, or not part of this profile"
CLOSE = 0.1  # of the published median: our tokeniser need not be the paper's

QUANTITIES = {
    "training": "training sentences",
    "validation": "validation sentences",
    "source_training": "median length, training",
    "target_training": "median length of targets, training",
    "source_validation": "median length, validation",
    "target_validation": "median length of targets, validation",
    "spoken_training": "median length without punctuation, training",
    "vocabulary": "vocabulary size",
}


def experiments(sizes: Sizes) -> dict[str, Case]:
    messages = CORPORA["20newsgroups"]
    whole = replace(messages.preparation, strip_headers=False, max_length=None)
    tasks: dict[str, TextTask] = {}
    for name in sizes.counting.corpora:
        tasks[name] = CORPORA[name]
        if name == "20newsgroups":
            tasks[WITH_HEADERS] = replace(messages, preparation=whole)
    return cases(tasks, lambda label: Case(settings=with_checksum(tasks[label])))


def measure(subject: TrainedCase[TextTask]) -> Measurement:
    counts = statistics(subject.settings).astype(float)
    numbers = {"vocabulary": counts["source_vocabulary"]["training"]}
    for split in ("training", "validation"):
        numbers[split] = counts["sentences"][split]
        for side in ("source", "target"):
            if f"{side}_median" in counts:
                numbers[f"{side}_{split}"] = counts[f"{side}_median"][split]
    if isinstance(subject.settings.vocabulary, Words):
        numbers["spoken_training"] = median_length_without_punctuation(subject.settings)
    return {name: float(value) for name, value in numbers.items()}


def median_length_without_punctuation(task: TextTask) -> float:
    """Return the median number of tokens that have a letter or a digit, unknown ones included."""
    with_letters = np.array([any(map(str.isalnum, word)) for word in task.source_vocabulary.tokens])
    with_letters[: len(SPECIALS)] = False
    return float(np.median([with_letters[sentence].sum() for sentence in task.part("training").source]))


def published_size(label: str, name: str) -> PublishedNumber:
    return published(f"table9_{label.split(',')[0]}", name)


def columns(label: str) -> dict[str, str]:
    return {"corpus": label, "here": OURS.get(label, "not in the paper")}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    sizes = [(label, name) for label, names in SAME_SIZES.items() for name in names]
    return [same_size(label, name, measured) for label, name in sizes] + [
        same_length(label, measured) for label in SAME_TEXTS
    ]


def same_size(label: str, name: str, measured: Measurements) -> ClaimVerdict:
    text = f"{label}: as many {QUANTITIES[name]} as in table 9"
    if not measured.by_label.get(label):
        return untested(text, NOT_HERE)
    ours, theirs = measured.first(label)[name], published_size(label, name)["published"]
    return exact(text, [ours == theirs], f"{ours:,.0f} against {theirs:,}")


def same_length(label: str, measured: Measurements) -> ClaimVerdict:
    text = f"{label}: median training lengths within 10 % of those published"
    if not measured.by_label.get(label):
        return untested(text, NOT_HERE)
    names = [name for name in ("source_training", "target_training") if name in measured.first(label)]
    pairs = [(measured.first(label)[name], published_size(label, name)["published"]) for name in names]
    evidence = "; ".join(f"{ours:g} against {theirs}" for ours, theirs in pairs)
    return exact(text, [abs(ours / theirs - 1) <= CLOSE for ours, theirs in pairs], evidence)


def figure(measured: Measurements) -> FigureData:
    """Return our number and the published one of each corpus that the paper has."""
    return {
        name: {
            label: {"ours": measured.first(label)[name], "published": published_size(label, name).get("published")}
            for label in measured
            if label in OURS
        }
        for name in ("training", "source_training")
    }


def draw(data: FigureData) -> Figure:
    panels: dict[str, Panel] = {
        name: {
            label: {"ours": {"ours": [number["ours"]], "published": number.get("published")}}
            for label, number in numbers.items()
        }
        for name, numbers in data.items()
    }
    picture = draw_panels(panels, QUANTITIES, row=(6.4, 4.2))
    picture.axes[0].set_yscale("log")
    return picture


TABLE9 = Finding(
    name="table9",
    title="The corpora as prepared",
    section="A.5, A.9, table 9",
    experiments=experiments, measure=measure, table=QUANTITIES, published=published_size, columns=columns,
    claims=claims, figure=figure, draw=draw,
    notes=(
        "Lengths are in words, or in subwords where translations are, without start and end tokens. The paper does not "
        "name its tokeniser, nor say whether it counts these tokens.",
        "No claim is made where our corpus is not the paper's: the column 'here' says what it is. SST has 6,920 and "
        "872 sentences with a polarity in the published split, not 5,130 and 1,421; the paper does not say where its "
        "own split comes from.",
        "Table 9 prints a vocabulary of 31,065 for both AG News and 20 Newsgroups. The parameter counts of A.8, less "
        "1,274,882 and over 300, give it for AG News, but 12,488 for 20 Newsgroups. In the author's code a word is "
        "known if it occurs three times or has a pretrained vector; ours must occur three times.",
        "20 Newsgroups with headers is the corpus as A.8 describes it; all other findings use the one without, for "
        "headers give the class away, and truncate messages to 1,000 words. Two training messages are nothing but "
        "headers, and are lost. The two claims on its sizes with headers were added after it had been counted.",
        "After the claims were written it was found that the published medians are those of words without punctuation, "
        "and for 20 Newsgroups those with headers: hence the rows without punctuation.",
    ),
    seeds=lambda sizes: 1,  # nothing is random
)  # fmt: skip
