"""Texts for models with known answers: English words, some of them evidence for a class and most neutral."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from attnscope.errors import require

# The first words of each topic are the most frequent; topic k is evidence for class k modulo the number of classes.
TOPICS = tuple(
    tuple(words.split())
    for words in (
        "goal match team player league coach season score tournament stadium referee champion racket sprint medal "
        "goalkeeper marathon athlete trophy dribble",
        "soup bread butter recipe kitchen oven flavour dessert pepper onion roast bakery noodle cheese garlic "
        "simmer pastry vinegar gravy marinade",
        "guitar melody concert singer album rhythm orchestra piano chorus violin tempo drummer ballad symphony "
        "encore soprano lyric trumpet acoustic refrain",
        "bank price market profit loan budget investor tax wage dividend mortgage invoice bond deficit broker "
        "creditor surplus audit inflation tariff",
        "doctor patient hospital fever vaccine nurse surgery symptom therapy clinic infection tablet diagnosis "
        "bandage antibiotic allergy ward remedy pulse physician",
        "rain storm cloud wind snow forecast thunder drought frost breeze humidity blizzard hail drizzle monsoon "
        "gust thaw lightning overcast sleet",
    )
)
NEUTRAL_TEXT = (
    "the a of and to in it is was that for on with as he she they at by this had not are but from or have an which one "
    "you were all her his their we been has when who will more no if out so said what up its about into than them can "
    "only other new some could time these two may then do first any my now such like our over man me even most made "
    "after also did many before must through years where much your way well down should because each just those people "
    "too little state good very make world still own see men work long get here between both life being under never "
    "day same another know while last might us great old year off come since against go came right used take three "
    "himself few house use during without again place around however home small found thought went say part once upon "
    "school every don does got united left number course war until always away something fact though water less put "
    "think almost hand enough far took head yet end better name room side whole set several later nothing door body "
    "history perhaps began quite become open table city evening letter morning window paper street road chair garden "
    "corner bottle colour ticket village station mirror bridge carpet pencil drawer basket candle harbour ladder"
)
NEUTRAL = tuple(NEUTRAL_TEXT.split())
MARKERS = ("incidentally", "meanwhile", "likewise", "moreover", "namely", "hence")  # one per class; see Texts.markers
TRANSLATED = tuple(word for topic in TOPICS for word in topic)  # the words of sentences to translate
WORDS = (*NEUTRAL, *TRANSLATED, *MARKERS)
MIN_LENGTH = 3  # words
EVIDENCE, CONSISTENT = 0.1, 0.85  # expected share of further evidence; of it, for the text's class

ZIPF = {n: np.cumsum(1 / (np.arange(n) + 3)) / np.sum(1 / (np.arange(n) + 3)) for n in (len(NEUTRAL), len(TOPICS[0]))}


@dataclass(frozen=True)
class Texts:
    """The distribution of the texts of a calibration.

    Attributes:
        classes: Number of classes.
        balance: Share of the last class; None: all classes are equally frequent.
        mean_length: Mean number of words; 19 as in SST, at least 3.
        markers: Whether every text contains the marker of its class, a word that no other class has.
        max_length: Largest number of words; None: three times the mean.
    """

    classes: int = 2
    balance: float | None = None
    mean_length: int = 19
    markers: bool = False
    max_length: int | None = None

    def __post_init__(self) -> None:
        require(2 <= self.classes <= len(TOPICS), f"there are 2 to {len(TOPICS)} classes, not {self.classes}")
        require(self.mean_length > MIN_LENGTH, f"texts have more than {MIN_LENGTH} words, not {self.mean_length}")

    def sample(self, count: int, seed: int | Sequence[int]) -> tuple[list[tuple[str, ...]], list[int]]:
        """Return texts as words, and their classes. Each class has its share of the texts, exactly up to rounding."""
        random = np.random.default_rng(seed)
        last = round(count / self.classes if self.balance is None else count * self.balance)
        labels = np.full(count, self.classes - 1)
        labels[last:] = np.arange(count - last) % (self.classes - 1)
        labels = random.permutation(labels)
        long = lengths(random, self.mean_length, count, self.max_length)
        return [self.text(random, *row) for row in zip(labels.tolist(), long.tolist(), strict=True)], labels.tolist()

    def text(self, random: np.random.Generator, label: int, length: int) -> tuple[str, ...]:
        """Return one text: neutral words, and at least one that is evidence for a class, mostly for its own."""
        evidence = min(1 + random.binomial(length, EVIDENCE), length - 1)
        other = random.integers(1, self.classes, evidence) * (random.random(evidence) >= CONSISTENT)
        per_class = len(TOPICS) // self.classes
        topics = (label + other) % self.classes + self.classes * random.integers(0, per_class, evidence)
        words = [NEUTRAL[i] for i in ranks(random, len(NEUTRAL), length)]
        words[:evidence] = [TOPICS[k][i] for k, i in zip(topics, ranks(random, len(TOPICS[0]), evidence), strict=True)]
        if self.markers:
            words[-1] = MARKERS[label]
        return tuple(words[i] for i in random.permutation(length))


SHORT = Texts(mean_length=6, max_length=8)  # short enough to run all subsets of the words


def lengths(
    random: np.random.Generator, mean: int, count: int, longest: int | None = None
) -> Int[np.ndarray, " texts"]:
    """Return numbers of words: log-normal with half the mean as standard deviation, as in SST."""
    spread = np.log(1.25) ** 0.5
    words = random.lognormal(np.log(mean) - spread**2 / 2, spread, count)
    return np.clip(words.round(), MIN_LENGTH, longest or 3 * mean).astype(int)


def ranks(random: np.random.Generator, words: int, count: int) -> list[int]:
    """Return the ranks of sampled words, from 0; the probability falls with the rank."""
    sampled: list[int] = np.searchsorted(ZIPF[words], random.random(count)).tolist()
    return sampled


def sentences(count: int, seed: int | Sequence[int], mean_length: int = 8) -> list[tuple[str, ...]]:
    """Return sentences to translate, each without repeated words."""
    random = np.random.default_rng(seed)
    words = TRANSLATED
    # The first n of a random order in which frequent words tend to come early: sampling without replacement.
    order = (random.exponential(size=(count, len(words))) * (np.arange(len(words)) + 3)).argsort(1)
    long = lengths(random, mean_length, count)
    return [tuple(words[i] for i in row[:n]) for row, n in zip(order.tolist(), long.tolist(), strict=True)]
