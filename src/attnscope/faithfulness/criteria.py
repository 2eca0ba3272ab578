"""The tests of attention as an explanation: estimates with bootstrap intervals over texts, and the bounds of answers.

Every test is a ratio of two sums over texts. Of a classifier, it is one ratio per predicted class, and the mean over
classes, so that a rare class counts as much as a common one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from attnscope.faithfulness.records import Answer, ClassValue, Test

LEVEL = (2.5, 97.5)  # percentiles of a 95 % interval
RESAMPLES = 1000
UNSEEN = 3.0  # rule of three: of n texts alike, up to 3 / n of all texts may differ (95 %)
MIN_TEXTS = 20  # of a class, below which it is not judged
FEW = f"fewer than {MIN_TEXTS} texts"


Range = tuple[float, float]


@dataclass(frozen=True)
class Interval:
    """A ratio of sums over texts, or a mean, with its 95 % bootstrap interval over texts."""

    value: float = np.nan
    low: float = -np.inf  # infinite where it is unknown
    high: float = np.inf
    texts: int = 0
    classes: "Mapping[str, Interval]" = field(default_factory=dict)  # by predicted class
    reason: str = ""  # why it is not measurable, or why a class is not judged

    @classmethod
    def of(cls, values: Sequence[float] | Float[np.ndarray, " texts"], within: Range | None = None) -> "Interval":
        """Return the mean of one number per text, NaN left out.

        >>> Interval.of([0.4, 0.6]).value, Interval.of([]).reason
        (0.5, 'no text could be measured')
        """
        numbers = np.asarray(values, dtype=float)
        return cls.ratio(numbers, np.ones(len(numbers)), within)

    @classmethod
    def ratio(
        cls, of: Float[np.ndarray, " texts"], to: Float[np.ndarray, " texts"], within: Range | None = None
    ) -> "Interval":
        """Return the ratio of two sums over the same texts, NaN left out.

        Args:
            of: Numerators.
            to: Denominators.
            within: The range of values, which are clipped to it. Texts that are all alike do not give an interval of
                zero width: by the rule of three, 3 / n of all texts may have any value in this range. Without a range,
                the interval is then unknown.
        """
        return cls.by_class(of, to, np.zeros(len(of), dtype=int), ("",), within=within)

    @classmethod
    def by_class(
        cls,
        of: Float[np.ndarray, " texts"],
        to: Float[np.ndarray, " texts"],
        labels: Int[np.ndarray, " texts"],
        names: Sequence[str],
        not_judged: Mapping[str, str] | None = None,
        within: Range | None = None,
    ) -> "Interval":
        """Return the mean over classes of the ratio of sums over the texts of each.

        Args:
            of: Numerators.
            to: Denominators.
            labels: The predicted class of each text.
            names: The names of the classes.
            not_judged: Reasons why classes are left out, by their names.
            within: See `ratio`.
        """
        measured, single = ~(np.isnan(of) | np.isnan(to)), len(names) == 1
        draws, intervals = dict[str, np.ndarray](), dict[str, Interval]()
        for label, name in enumerate(names):
            rows = measured & (labels == label)
            draws[name], interval = resample(of[rows], to[rows], within, label)
            few = FEW if not single and rows.sum() < MIN_TEXTS else ""
            intervals[name] = replace(interval, reason=(not_judged or {}).get(name) or interval.reason or few)
        judged = [name for name, each in intervals.items() if not each.reason]
        judged = judged or [name for name, each in intervals.items() if each.reason == FEW and each.measured]
        classes = {} if single else intervals
        if not judged:
            reasons = dict.fromkeys(each.reason for each in intervals.values() if each.texts or not measured.any())
            return cls(texts=int(measured.sum()), classes=classes, reason="; ".join(reasons))
        if len(judged) == 1:
            return replace(intervals[judged[0]], classes=classes, reason="")
        chosen = [intervals[name] for name in judged]
        value = float(np.mean([each.value for each in chosen]))
        widths = [(each.value - each.low, each.high - each.value) for each in chosen]
        least = np.mean(widths, 0) / len(judged) ** 0.5  # classes are independent
        ends = percentiles(np.mean([draws[name] for name in judged], 0), value, (float(least[0]), float(least[1])))
        return cls(value, *ends, sum(each.texts for each in chosen), classes)

    @property
    def measured(self) -> bool:
        return not np.isnan(self.value)

    @property
    def limits(self) -> dict[str, float]:
        """The interval as columns of a table."""
        return {"from": self.low, "to": self.high}


@lru_cache(maxsize=8)  # the tests of an audit resample the same texts
def resampled_counts(count: int, seed: int) -> Float[np.ndarray, "draws texts"]:
    """Return how often each text occurs in each resample."""
    return np.random.default_rng([seed, count]).multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(float)


def resample(
    of: Float[np.ndarray, " texts"],
    to: Float[np.ndarray, " texts"],
    within: Range | None,
    seed: int,
) -> tuple[Float[np.ndarray, " draws"], Interval]:
    """Return the ratios of resampled texts, and the ratio with its interval."""
    count, total, lowest, highest = len(of), to.sum(), *(within or (-np.inf, np.inf))
    if total <= 0:
        reason = "there is no effect to compare with" if count else "no text could be measured"
        return np.full(RESAMPLES, np.nan), Interval(texts=count, reason=reason)
    times = resampled_counts(count, seed)
    below = times @ to
    draws = np.divide(times @ of, below, out=np.full(RESAMPLES, np.nan), where=below > 0).clip(lowest, highest)
    if np.isnan(draws).mean() > 1 - LEVEL[1] / 100:
        return draws, Interval(texts=count, reason="the effect to compare with cannot be distinguished from zero")
    value, unseen = float(np.clip(of.sum() / total, lowest, highest)), min(1.0, UNSEEN / count)
    if within is None:
        apart = np.ptp(draws) > 1e-9 and count > 1
        return draws, Interval(value, *(percentiles(draws, value) if apart else (-np.inf, np.inf)), texts=count)
    return draws, Interval(
        value, *percentiles(draws, value, (unseen * (value - lowest), unseen * (highest - value))), texts=count
    )


def percentiles(
    draws: Float[np.ndarray, " draws"], value: float, least: tuple[float, float] = (0.0, 0.0)
) -> tuple[float, float]:
    """Return the limits of resampled values, at least `least` below and above the value."""
    low, high = np.nanpercentile(draws, LEVEL)
    return round(min(float(low), value - least[0]), 12), round(max(float(high), value + least[1]), 12)


@dataclass(frozen=True)
class Bounds:
    """The values up to which the answer is no and from which it is yes."""

    no: float
    yes: float

    def answer(self, interval: Interval) -> Answer:
        """Return the answer: undecided if the interval reaches from no to yes.

        >>> Bounds(no=0.05, yes=0.2).answer(Interval(0.3, 0.25, 0.35))
        'yes'
        >>> Bounds(no=0.1, yes=0.5).answer(Interval(0.3, 0.0, 0.6))
        'undecided'
        >>> Bounds(no=0.1, yes=0.5).answer(Interval(reason="no text has two words"))
        'not measurable'
        """
        if np.isnan(interval.value) or interval.reason:
            return "not measurable"
        if interval.low <= self.no and interval.high >= self.yes:
            return "undecided"
        if interval.value <= self.no:
            return "no"
        return "yes" if interval.value >= self.yes else "with care"


@dataclass(frozen=True)
class Criterion:
    """A test: its name, its question, and the bounds of its answers; without bounds it is information."""

    name: str
    question: str
    bounds: Bounds | None = None

    def judge(self, sentence: str, interval: Interval, chance: float | None = None, best: float | None = None) -> Test:
        """Return the test's result.

        Args:
            sentence: The result as a sentence.
            interval: The measured value with its interval.
            chance: The value of random attention.
            best: The value of the best other score.
        """
        measured = not np.isnan(interval.value) and not interval.reason
        answer: Answer = "information" if measured else "not measurable"
        classes = {k: ClassValue(v.value, v.low, v.high, v.texts, v.reason) for k, v in interval.classes.items()}
        return Test(
            self.name, self.question, self.bounds.answer(interval) if self.bounds else answer,
            sentence if measured else f"Not measurable: {interval.reason}.",
            interval.value, interval.low, interval.high,
            None if self.bounds is None else (self.bounds.no, self.bounds.yes), chance, best, interval.texts,
            classes, interval.reason,
        )  # fmt: skip


# The two tests of the verdict. Their bounds were fitted by attnscope.auditing.calibration.fit to 180 models with known
# answers, of the kinds that are not sealed, and fixed before the sealed kinds were assessed (results/calibration).
ROUTE = Criterion(
    "route", "Does masking words in attention do what deleting them from the text does?", Bounds(no=0.4, yes=0.7)
)
AGREEMENT_BOUNDS = Bounds(no=0.3, yes=0.8)
AGREEMENT = Criterion(
    "agreement", "Does the word attended to most have the largest effect on the output?", AGREEMENT_BOUNDS
)
CLASS_AGREEMENT = 0.3  # of every class that is judged, at least, for a yes
# The harmonic mean of the numbers of texts per class, below which only "no" is an answer. By the rule of three, texts
# that all have an agreement of 1 show one of at least 1 - 2 * UNSEEN / n in a class of n texts, as agreement goes from
# -1 to 1. The mean over classes reaches the bound of yes, 0.8, where the mean of 1 / n is at most 1 / 30.
MIN_MEAN_TEXTS = 30
# The mean output change (TVD) without half of the words, below which a class is not judged: relative to the distance of
# classes from their mean, and in itself.
MIN_EFFECT, LEAST_EFFECT = 0.1, 1e-3
VERDICT = (ROUTE, AGREEMENT)

# Information.
WEIGHTED = Criterion("attention-weighted agreement", "How large is the mean effect of words, weighted by attention?")
DEPENDENCE = Criterion("dependence on attention", "How far does the output move when attention is shuffled?")
FLIPS = Criterion("flips with shuffled attention", "How many decisions change when attention is shuffled?")
COMPREHENSIVENESS = Criterion("comprehensiveness", "Does removing the attended words change the output?")
RANK_CORRELATION = Criterion("rank correlation with leave-one-out", "Does attention rank words as leave-one-out does?")
UNIQUENESS = Criterion("uniqueness", "How far away is another attention that leads to the same output?")
UNIQUENESS_SEARCH = Criterion(
    "uniqueness, lower bound", "How far away is another attention, found by a search, that leads to the same output?"
)
SINGLE_TOKEN = Criterion("single-token sufficiency", "How many tokens would lead to the same output alone?")
TOKEN_IDENTITY = Criterion("token identity in states", "Can the token be decoded from the state at its position?")
