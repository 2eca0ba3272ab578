"""Does the output follow from what attention shows? The tests of the verdict, and others, from removals of words.

Output changes are total variation distances (TVD). *Route*: of the change that removing the most influential words from
the text causes, how much does masking them in attention cause as well? 1 − Σ TVD(masked, removed) / Σ TVD(own,
removed), over the top 10, 30 and 50 % of the words, by leave-one-out or by the effects below: whichever moves the
output more. `interventions` says how words are removed; where that moves the words of a translator, route is a lower
bound.

*Agreement*: the squared effect of the word attended to most, where a random word has 0 and the best word 1. Effects are
the coefficients of a ridge regression of the decision's probability on random subsets of the words, so that redundant
words count. Squares are products of coefficients from independent thirds of the subsets, and the best word of one third
is evaluated by the two others: noise averages to zero.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.errors import require
from attnscope.faithfulness.criteria import (
    AGREEMENT,
    COMPREHENSIVENESS,
    DEPENDENCE,
    FLIPS,
    LEAST_EFFECT,
    MIN_EFFECT,
    RANK_CORRELATION,
    ROUTE,
    WEIGHTED,
    Criterion,
    Interval,
)
from attnscope.faithfulness.interventions import QUICK, Effort, Removal, WordInterventions, has_words, random_numbers
from attnscope.faithfulness.records import Answer, Test, test_table
from attnscope.faithfulness.verdict import decide
from attnscope.models.inference import Model
from attnscope.models.inputs import Data, reader_of, reads_texts
from attnscope.probes.agreement import peaks
from attnscope.probes.divergences import tvd
from attnscope.probes.fragility import permute_weights
from attnscope.probes.heads.sentences import Sentences, read_sentences

MOVED = (
    "This is a lower bound: deleting a word moves those behind it. A translator that aligns words by position changes "
    "its output for this reason too, which masking does not repeat, so a low value is not evidence of a no."
)
TIE = 1e-4  # effects (TVD) that differ by less are equal
ALL_TOKENS = "output tokens"  # the one class of a translator
ABSENCE = (
    "deleting half of the words changes these decisions by only {:.3f} (TVD): they rest on the absence of words, or on "
    "nothing in the text"
)

Columns = dict[str, Float[Tensor, " decisions"]]  # to be summed over texts
Measure = Callable[[WordInterventions], Columns]


def route_columns(texts: WordInterventions) -> Columns:
    """Return the output changes without the most influential words, and how much of them masking causes as well."""
    moved, unlike = texts.without_influential.sum(1).unbind(1)
    return {"moved": moved, "routed": moved - unlike, "half": texts.without_influential[:, -1, 0]}


def agreement_columns(texts: WordInterventions, score: Float[Tensor, "decisions words"] | None = None) -> Columns:
    """Return squared effects, less that of a random word: of the word attended to most, by attention, of the best.

    Args:
        texts: A pass over texts.
        score: Another score in place of attention.
    """
    words, attention = texts.words_at, texts.attention if score is None else score
    effects = texts.subset_effects
    squares = torch.stack([effects[i] * effects[j] for i, j in ((1, 2), (0, 2), (0, 1))])  # without third 0, 1, 2
    best = squares.gather(2, effects.abs().argmax(2, keepdim=True))[..., 0].mean(0)
    square, top, mass = squares.mean(0), peaks(attention, words), attention.sum(1, keepdim=True)
    count = words.sum(1).clamp(min=1)
    weights = torch.where(mass > 0, attention / mass, words / count[:, None])
    chance = square.sum(1) / count
    of_top = (square * top).sum(1) / top.sum(1).clamp(min=1)
    return {"top": of_top - chance, "weighted": (square * weights).sum(1) - chance, "best": best - chance}


def erasure_columns(texts: WordInterventions) -> Columns:
    """Return output changes without the words attended to most, less those without random words; and the largest."""
    random = random_numbers(texts.reading, texts.words.shape[1], 1, texts.seed - 2)[texts.sentence, 0]
    attended, chance = (texts.without_top(score)[..., 0].sum(1) for score in (texts.attention, random))
    moved = texts.without_influential[..., 0].sum(1)
    return {"covered": attended - chance, "reach": moved - chance}


def rank_columns(texts: WordInterventions) -> Columns:
    tau = concordance(texts.attention, texts.leave_one_out, texts.words_at)
    return {"concordant": tau, "ranked": torch.ones_like(tau).masked_fill(tau.isnan(), torch.nan)}


def concordance(
    score: Float[Tensor, "rows words"], effects: Float[Tensor, "rows words"], words: Bool[Tensor, "rows words"]
) -> Float[Tensor, " rows"]:
    """Return Kendall's τ over the pairs of words whose effects differ by more than TIE; NaN where none do.

    (Somers' D.) A score need not order words that are tied in effect; where it ties others, they count as half right.
    """
    double = effects.double()
    pairs = words[:, :, None] & words[:, None] & (double[:, :, None] - double[:, None] > TIE)
    signs = (score[:, :, None] - score[:, None]).sign()
    return (signs * pairs).sum((1, 2)) / pairs.sum((1, 2))


def dependence_columns(texts: WordInterventions) -> Columns:
    """Return output changes and flips with attention shuffled among the tokens of words, special tokens fixed."""
    reading, own = texts.reading, texts.own
    moved, flips = own.new_zeros(len(own)), own.new_zeros(len(own))
    for i in range(texts.effort.shuffles):
        weights = permute_weights(reading.own, texts.is_word, reading.random_keys(range(i, i + 1), texts.seed))
        with torch.no_grad():
            output = reading.probabilities(weights)[0].to(own)
        moved += tvd(output, own) / texts.effort.shuffles
        flips += (output.argmax(1) != own.argmax(1)) / texts.effort.shuffles
    return {"shuffled": moved, "flips": flips}


MEASURES: tuple[Measure, ...] = (route_columns, agreement_columns, erasure_columns, rank_columns, dependence_columns)


@dataclass(frozen=True)
class RatioTest:
    """A test that is the ratio of two columns, summed over texts."""

    criterion: Criterion
    of: str
    to: str
    sentence: str
    lowest: float = -1.0
    deletes: bool = True  # whether classes that deletion does not change are left out

    def judge(self, interval: Interval) -> Test:
        bounded = self.lowest < 0 or self.deletes
        return self.criterion.judge(
            self.sentence.format(interval.value), interval, 0.0 if bounded else None, 1.0 if bounded else None
        )


TESTS = (
    RatioTest(ROUTE, "routed", "moved", "Masking words in attention does {:.0%} of what deleting them from the text "
              "does to the output.", lowest=0.0),
    RatioTest(AGREEMENT, "top", "best", "The word attended to most has {:.0%} of the squared effect of the best word, "
              "where a random word has none."),
    RatioTest(WEIGHTED, "weighted", "best", "Weighted by attention, words have {:.0%} of the squared effect of the "
              "best word, where random words have none."),
    RatioTest(COMPREHENSIVENESS, "covered", "reach", "Deleting the words attended to most covers {:.0%} of the "
              "distance from random words to the most influential ones."),
    RatioTest(RANK_CORRELATION, "concordant", "ranked", "Attention orders words that differ in effect as leave-one-out "
              "does with τ = {:z.2f}.", deletes=False),
    RatioTest(DEPENDENCE, "shuffled", "one", "Shuffling attention among the words moves the output by {:.3f} (TVD).",
              lowest=0.0, deletes=False),
    RatioTest(FLIPS, "flips", "one", "Shuffling attention among the words changes {:.1%} of the decisions.",
              lowest=0.0, deletes=False),
)  # fmt: skip


@dataclass(frozen=True)
class Assessment(Displayed):
    """Tests by deletion of words, with their intervals over texts, and the answer of the rule.

    Attributes:
        answer: May attention be read as an explanation?
        tests: Route and agreement, which decide the answer, and further tests.
        texts: How many texts were read; `left_out` of them have fewer than two words.
        unit: What is deleted and masked, "words" or "tokens".
        removal: How words were removed from texts: "deleted", "masked" in place, or "replaced" by a mean embedding.
        decisions: The columns behind the tests, one row per decision.
    """

    answer: Answer
    tests: tuple[Test, ...]
    texts: int
    left_out: int
    unit: str
    removal: Removal
    decisions: pd.DataFrame

    def __getitem__(self, name: str) -> Test:
        """Return a test by its name."""
        return {test.name: test for test in self.tests}[name]

    def table(self) -> pd.DataFrame:
        """Return one row per test."""
        return test_table(self.tests)

    def display_name(self) -> tuple[str, str]:
        return self.answer, f"on {self.texts - self.left_out:,} texts"


def assess(
    model: Model, data: Data = None, *, seed: int = 0, quick: bool = False, whole_words: bool = True
) -> Assessment:
    """Return every test of attention by deletion of words, and the answer of the rule.

    Args:
        model: A LoadedModel, or any model that gives Traces.
        data: Batches, texts, a path, a table, a Task, or None for the test set of a run's own task.
        seed: Random seed.
        quick: Whether fewer random samples are used.
        whole_words: Whether all tokens of a word are deleted together; else each token is a word.
    """
    classes = reader_of(model).classes if reads_texts(model) else ()
    return assess_sentences(model, read_sentences(model, data), classes, seed, quick, whole_words)


def assess_sentences(
    model: Model,
    data: Iterable[Sentences],
    classes: Sequence[str],
    seed: int = 0,
    quick: bool = False,
    whole_words: bool = True,
    units: Callable[[Sentences], Int[Tensor, "batch source"]] | None = None,
) -> Assessment:
    """Return the same for Sentences.

    Args:
        model: A model that gives Traces.
        data: Batches, with word boundaries where there are any.
        classes: The names of the classes; if empty, they are numbered.
        seed: Random seed.
        quick: Whether fewer random samples are used.
        whole_words: Whether all tokens of a word are deleted together, if most texts have several words.
        units: A function that returns the unit of each position, to delete in place of words; None: words.
    """
    frames, outputs, texts, left_out = list[pd.DataFrame](), list[np.ndarray](), 0, 0
    effort, names = QUICK if quick else Effort(), list(classes)
    for sentences in data:
        whole_words = whole_words and (bool(frames) or has_words(sentences))
        words = WordInterventions.of(model, sentences, effort, seed, whole_words)
        if units is not None:
            words = replace(words, unit=units(sentences).to(words.unit))
        columns = {name: values for measure in MEASURES for name, values in measure(words).items()}
        names = names or ([f"class {i}" for i in range(words.own.shape[1])] if words.classifies else [ALL_TOKENS])
        label = words.own.argmax(1) if words.classifies else torch.zeros_like(words.sentence)
        frame = pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()}).assign(
            text=words.sentence.cpu().numpy() + texts, label=label.cpu().numpy(), one=1.0
        )
        judged = words.judged[words.sentence].cpu().numpy()
        frames.append(frame[judged])
        outputs.append(words.own.cpu().numpy()[judged] if words.classifies else np.zeros((judged.sum(), 1)))
        left_out += int((~words.judged).sum())
        texts += len(sentences)
    require(bool(frames), "there is no text to assess")
    decisions = pd.concat(frames, ignore_index=True)
    least, moved = (
        smallest_effect(np.concatenate(outputs), decisions["label"]),
        words.translates and words.removal == "deleted",
    )
    tests = tuple(ratio_tests(decisions, names, least, MOVED if moved else ""))
    unit = "words" if whole_words else "tokens"
    return Assessment(decide(tests), tests, texts, left_out, unit, words.removal, decisions)


def smallest_effect(outputs: Float[np.ndarray, "decisions outputs"], labels: pd.Series) -> float:
    """Return the output change below which a class is not judged, relative to how far classes lie apart."""
    means = pd.DataFrame(outputs).groupby(labels.to_numpy()).mean().to_numpy()
    distance = float(np.abs(means - means.mean(0)).sum(1).mean() / 2) if len(means) else 0.0
    return max(LEAST_EFFECT, MIN_EFFECT * distance)


def ratio_tests(decisions: pd.DataFrame, names: Sequence[str], least: float, lower_bound: str = "") -> Iterator[Test]:
    """Yield the tests, by predicted class.

    Args:
        decisions: The columns behind the tests.
        names: The names of the classes.
        least: The output change below which a class is not judged.
        lower_bound: Why route is a lower bound, where it is.
    """
    labels = decisions.groupby("text")["label"].first().to_numpy()
    sums = decisions.drop(columns="label").groupby("text").sum(min_count=1)
    half = decisions.groupby("label")["half"].mean()
    absent = {names[i]: ABSENCE.format(half[i]) for i in half.index if half[i] < least}
    for test in TESTS:
        of, to = sums[test.of].to_numpy(float), sums[test.to].to_numpy(float)
        excluded = absent if test.deletes else {}
        interval = Interval.by_class(of, to, labels, names, excluded, (test.lowest, 1.0))
        yield at_least(test, interval, lower_bound) if test.criterion is ROUTE and lower_bound else test.judge(interval)


def at_least(test: RatioTest, interval: Interval, reason: str) -> Test:
    """Return a test whose value is a lower bound: the interval reaches up to 1."""
    if not interval.measured:
        return test.judge(interval)
    judged = test.judge(replace(interval, high=1.0))
    return replace(judged, sentence=f"{judged.sentence} {reason}", lower_bound=reason)
