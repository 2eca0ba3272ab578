"""The experiments of snell2021 on real text, and the profiles of the whole study. (snell2021 A.5, A.8)

Settings are the paper's; where it is silent, those of the author's code. Word vectors start at random: A.8 says GloVe,
but the author's code makes the embedding anew right after it was filled.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, partial

from attnscope.lab.experiment import Experiment
from attnscope.models import PRESETS, BagOfWordsSettings, ClassifierSettings, EncoderDecoderSettings
from attnscope.models.bag_of_words import RECIPES, SHORT_TEXTS, TRANSLATION, ProxyRecipe
from attnscope.probes.learning_curve import classification_checkpoints, translation_checkpoints
from attnscope.studies.finding import Case, Profile, case_unless_missing, published_by
from attnscope.studies.snell2021 import counting, toys
from attnscope.tasks import CORPORA, Classification, Subwords, TextTask
from attnscope.training import CrossEntropy, TrainingSettings

published = published_by("snell2021")

MULTI30K_NAMES = ("multi30k_en_de", "multi30k_de_en")  # as the paper says, and as the author's code reads it
IN_TABLE_2 = ("imdb", "ag_news", "20newsgroups", "sst", *MULTI30K_NAMES, "iwslt14_de_en")
# Author's code; the last one is our choice.
EPOCHS = {"multi30k_en_de": 20, "multi30k_de_en": 20, "iwslt14_de_en": 30, "tatoeba_en_de": 1}
OTHER_EPOCHS = 40  # author's code: News Commentary

# Where a part's seeds begin. A network is compared with the next seed's, which is trained in any case.
FIRST_SEEDS = {"standard": 0, "again": 1, "uniform": 2000, "frozen": 3000, "proxy": 4000}


@dataclass(frozen=True)
class TextSizes:
    """Corpora, networks and steps. `as_published`: whether networks and steps are those of the paper."""

    classification: tuple[str, ...]
    translation: tuple[str, ...]
    classifier: ClassifierSettings
    translator: EncoderDecoderSettings
    steps: int  # of a classifier
    most_steps: int  # of a translator and of its proxy, where their epochs would take more
    texts: int  # of either split that agreement is measured on, at most; of translation:
    pairs: int
    as_published: bool
    longest: int | None = None  # texts to classify are cut to so many words; None: as the corpus says
    subwords: int | None = None  # None: as the corpus says

    @property
    def in_tables(self) -> tuple[str, ...]:
        return (*self.classification, *self.translation)

    def task(self, corpus: str) -> TextTask:
        """A corpus as its name says, or with shorter texts, or fewer subwords."""
        task = CORPORA[corpus]
        if isinstance(task, Classification):
            shorter = replace(task.preparation, max_length=self.longest, too_long="truncate")
            return task if self.longest is None else replace(task, preparation=shorter)
        return task if self.subwords is None else replace(task, vocabulary=Subwords(size=self.subwords))


PAPER = TextSizes(
    classification=("imdb", "ag_news", "20newsgroups", "sst", "amazon", "yelp"),
    translation=(*MULTI30K_NAMES, "tatoeba_en_de", "iwslt14_de_en"),
    classifier=ClassifierSettings(),
    translator=PRESETS["translation"],
    steps=4000,
    most_steps=40_000,  # our choice; it shortens the proxy of Tatoeba alone, whose 163,000 pairs are many and short
    texts=4000,  # as in the paper
    pairs=1014,  # all those of Multi30k
    as_published=True,
)
QUICK = TextSizes(
    classification=("20newsgroups", "sst"),
    translation=("multi30k_en_de",),
    classifier=ClassifierSettings(input_size=100, units=64, hidden=64),
    translator=replace(PRESETS["translation"], units=128, input_size=128, hidden=128),
    steps=1000,
    most_steps=1500,
    texts=500,
    pairs=200,
    as_published=False,
    longest=150,
    subwords=4000,
)
SIZES = {"quick": QUICK, "paper": PAPER}


@dataclass(frozen=True)
class Sample:
    """What is measured on: so many sentences of either split, drawn by seed, or all if there are no more."""

    sentences: int
    as_published: bool


def cases(sizes: TextSizes, corpora: Iterable[str]) -> dict[str, Case]:
    """A case a corpus."""
    return {corpus: case_unless_missing(partial(case, corpus, sizes)) for corpus in corpora}


def case(corpus: str, sizes: TextSizes) -> Case:
    """The networks of one corpus that are compared with each other."""
    task = sizes.task(corpus)
    classified = isinstance(task, Classification)
    parts = classifiers(task, sizes) if classified else translators(corpus, task, sizes)
    runs = {part: replace(experiment, seed=FIRST_SEEDS[part]) for part, experiment in parts.items()}
    return Case(runs, Sample(sizes.texts if classified else sizes.pairs, sizes.as_published))


def classifiers(task: TextTask, sizes: TextSizes) -> dict[str, Experiment]:
    training = TrainingSettings(
        steps=sizes.steps,
        batch_size=32,
        learning_rate=1e-3,
        betas=(0.9, 0.999),
        max_grad_norm=None,
        evaluate_every=min(250, sizes.steps),
        checkpoints=classification_checkpoints(sizes.steps),
    )
    standard = Experiment(task, sizes.classifier, training)
    return {
        **with_either_attention(standard),
        "frozen": with_training(standard, trained="attention"),
        "proxy": proxy(task, recipe(task, SHORT_TEXTS), most=None),
    }


def translators(corpus: str, task: TextTask, sizes: TextSizes) -> dict[str, Experiment]:
    steps = min(EPOCHS.get(corpus, OTHER_EPOCHS) * epoch(task, 16), sizes.most_steps)
    training = TrainingSettings(
        steps=steps,
        batch_size=16,
        learning_rate=1e-3,
        betas=(0.9, 0.999),
        max_grad_norm=None,
        teacher_forcing=1.0,
        evaluate_every=min(2000, steps),
        checkpoints=translation_checkpoints(steps),
    )
    standard = Experiment(task, sizes.translator, training)
    return {**with_either_attention(standard), "proxy": proxy(task, recipe(task, TRANSLATION), sizes.most_steps)}


def with_either_attention(standard: Experiment) -> dict[str, Experiment]:
    """α; α̂(τ), of another seed; β^uf(τ), under attention that is frozen to be uniform (§3.1, §3.2)."""
    return {"standard": standard, "again": standard, "uniform": with_training(standard, attention="uniform")}


def with_training(experiment: Experiment, **changes: str) -> Experiment:
    return replace(experiment, training=replace(experiment.training, **changes))  # type: ignore[arg-type]


def proxy(task: TextTask, how: ProxyRecipe, most: int | None) -> Experiment:
    """β^px: the bag of words of §2.3, kept as it was after the epoch with the lowest validation loss."""
    once = epoch(task, how.batch_size)
    training = TrainingSettings(
        steps=min(how.epochs * once, most or how.epochs * once),
        batch_size=how.batch_size,
        learning_rate=how.learning_rate,
        betas=(0.9, 0.999),
        max_grad_norm=None,
        evaluate_every=once,
        keep_weights="best",
    )
    return Experiment(task, BagOfWordsSettings(), training, CrossEntropy(total=True))


def recipe(task: TextTask, otherwise: ProxyRecipe) -> ProxyRecipe:
    """The recipe of the set that the file belongs to."""
    return next((found for name, found in RECIPES.items() if task.file.startswith(name)), otherwise)


def epoch(task: TextTask, size: int) -> int:
    return steps_in_epoch(task.resolved(), size)


@cache
def steps_in_epoch(task: TextTask, size: int) -> int:
    """Remembered: every finding asks, and fewer corpora than the paper has stay in memory."""
    return task.steps(size)


@dataclass(frozen=True)
class Sizes(Profile):
    """`seeds` is that of the findings on real text."""

    text: TextSizes
    toys: toys.ToySizes
    counting: counting.CountSizes


def sizes(name: str, seeds: int) -> Sizes:
    return Sizes(name, seeds, SIZES[name], toys.SIZES[name], counting.SIZES[name])


PROFILES = {"quick": sizes("quick", 2), "paper": sizes("paper", 3)}
