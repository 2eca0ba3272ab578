"""Which texts should a person look at? Typical ones, extreme ones, and those that the model gets wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnscope.faithfulness.classifier import GRADIENT, LEFT_OUT, SHOWN, scores_of
from attnscope.faithfulness.records import Part
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.faithfulness.translator import Pass, left_out, passes, ranked_alike
from attnscope.models.adapters import Texts, Words, by_word
from attnscope.models.capabilities import ReadsOut
from attnscope.probes.agreement import kendall
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.grounding import batch_token_probabilities
from attnscope.probes.lexical import lexical
from attnscope.tasks.batch import SPECIALS

ALONE = "each word alone"
DIGITS = 3
ROUGH = 5  # digits by which texts are compared: more of them depend on the batch


@dataclass(frozen=True)
class TextCandidate:
    """What speaks for showing a text."""

    texts: Texts
    row: int
    tau: float  # between attention and leaving words out
    entropy: float
    sure: float  # the probability of the decision
    decided: int
    gold: int


def text_examples(subject: Subject, sample: Sample) -> Part:
    looked = [one for texts in sample() for one in text_candidates(subject, texts)]
    chosen = choose_texts([one for one in looked if not np.isnan(one.tau)] or looked)
    shown = [text_example(subject, one, why) for why, one in chosen]
    return {"sentences": [], "table": [], "tests": [], "examples": shown}


def text_candidates(subject: Subject, texts: Texts) -> list[TextCandidate]:
    asked = CounterfactualAttention.of_classifier(subject.model, texts.batch)
    scores, words = scores_of(subject, texts.batch), texts.batch.word_mask
    taus = kendall(scores[SHOWN], scores[LEFT_OUT].abs().to(scores[SHOWN]), words)
    entropies = torch.special.entr(asked.own.mean(1)).sum(-1) / asked.attended.sum(1).log()
    sure, decided = asked.own_probabilities.max(-1)
    gold = texts.batch.target[:, 0] - len(SPECIALS)
    rough = (values.double().round(decimals=ROUGH) for values in (taus, entropies, sure))
    numbers = (values.tolist() for values in (*rough, decided, gold))
    return [TextCandidate(texts, row, *each) for row, each in enumerate(zip(*numbers, strict=True))]


def choose_texts(looked: list[TextCandidate]) -> list[tuple[str, TextCandidate]]:
    """Each text once, for the first reason that chose it."""
    by_tau = sorted(looked, key=lambda one: one.tau)
    middle = len(by_tau) // 2
    wrong = sorted((one for one in looked if one.decided != one.gold), key=lambda one: -one.sure)
    reasons = [
        *(
            ("typical: attention agrees with leaving words out as it usually does", one)
            for one in by_tau[middle - 1 : middle + 1]
        ),
        *(("wrong, and sure of it", one) for one in wrong[:2]),
        ("extreme: attention agrees least with leaving words out", by_tau[0]),
        ("extreme: attention agrees most with leaving words out", by_tau[-1]),
        ("extreme: the sharpest attention", min(looked, key=lambda one: one.entropy)),
        ("extreme: the most even attention", max(looked, key=lambda one: one.entropy)),
    ]
    kept: dict[int, tuple[str, TextCandidate]] = {}
    for why, one in reasons:
        kept.setdefault(id(one), (why, one))
    return list(kept.values())


def text_example(subject: Subject, one: TextCandidate, why: str) -> dict[str, Any]:
    texts, row = one.texts, one.row
    scores = {
        name: scores_of(subject, texts.batch)[name]
        for name in (SHOWN, LEFT_OUT, GRADIENT)
        if name in scores_of(subject, texts.batch)
    }
    scores = {name: by_word(values[:, None], texts.source)[row, 0] for name, values in scores.items()}
    if hasattr(subject.model, "readout"):
        alone = batch_token_probabilities(cast(ReadsOut, subject.model), texts.batch).tokens[:, None]
        scores[ALONE] = mean_by_word(alone, texts)[row]
    units = texts.source.mask[row]
    return {
        "why": why, "source": list(texts.source.names[row]),
        "special": (~texts.source.real[row][units]).tolist(),
        "gold": subject.classes[one.gold], "said": f"{subject.classes[one.decided]} ({one.sure:.2f})",
        "scores": {name: rounded_scores(values[units]) for name, values in scores.items()},
    }  # fmt: skip


def mean_by_word(values: torch.Tensor, texts: Texts) -> torch.Tensor:
    """Of a word in several pieces, the mean."""
    known = ~values.isnan()
    total = by_word(values.nan_to_num(), texts.source)[:, 0]
    return total / by_word(known.to(values), texts.source)[:, 0]


def rounded_scores(values: torch.Tensor) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.{DIGITS}g}") for value in values.tolist()]


MOST = 200  # sentences to choose from
Matrix = list[list[float | None]]


@dataclass(frozen=True)
class SentenceCandidate:
    """What speaks for showing a sentence."""

    number: int  # in the stream
    tau: float  # between attention and leaving words out
    entropy: float  # of attention, over that of uniform attention
    sure: float  # mean log-probability of the gold words


def sentence_examples(subject: Subject, sample: Sample) -> Part:
    looked: list[SentenceCandidate] = []
    names: dict[int, str] = {}  # of target words, where the model has no reader that knows them
    for one in passes(subject, sample):
        looked += sentence_candidates(subject, one, len(looked))
        names |= named(one.texts)
        if len(looked) >= MOST:
            break
    shown = [sentence_example(subject, one.number, why, names) for why, one in choose_sentences(looked[:MOST])]
    return {"sentences": [], "table": [], "tests": [], "examples": shown}


@torch.no_grad()
def sentence_candidates(subject: Subject, one: Pass, first: int) -> list[SentenceCandidate]:
    taus = ranked_alike(one, one.shown, left_out(subject, one))
    entropy = torch.special.entr(one.shown).sum(-1) / one.attended.sum(1, keepdim=True).log()
    numbers = zip(taus, one.by_sentence(entropy), one.by_row(one.gold(one.said)), strict=True)
    return [
        SentenceCandidate(first + i, *(round(float(value), ROUGH) for value in each)) for i, each in enumerate(numbers)
    ]


def choose_sentences(looked: list[SentenceCandidate]) -> list[tuple[str, SentenceCandidate]]:
    """Each sentence once, for the first reason that chose it; those without words to compare, for none."""
    known = [one for one in looked if not np.isnan([one.tau, one.entropy, one.sure]).any()]
    by_tau = sorted(known, key=lambda one: one.tau)
    by_entropy = sorted(known, key=lambda one: one.entropy)
    middle = max(0, len(by_tau) // 2 - 1)
    typical = "typical: attention agrees with leaving words out as it usually does"
    reasons = [
        *((typical, one) for one in by_tau[middle : middle + 3]),
        *(("wrong: the gold words are least likely here", one) for one in sorted(known, key=lambda one: one.sure)[:2]),
        *(("extreme: attention agrees least with leaving words out", one) for one in by_tau[:1]),
        *(("extreme: the sharpest attention", one) for one in by_entropy[:1]),
        *(("extreme: the most even attention", one) for one in by_entropy[-1:]),
    ]
    kept: dict[int, tuple[str, SentenceCandidate]] = {}
    for why, one in reasons:
        kept.setdefault(one.number, (why, one))
    return list(kept.values())


@torch.no_grad()
def sentence_example(subject: Subject, number: int, why: str, names: dict[int, str]) -> dict[str, Any]:
    """Attention, and the effect of leaving words out, summed over the pieces of a source word; alone, the mean."""
    one = Pass.of(subject, subject.read(slice(number, number + 1)))
    source, target = one.texts.source, one.texts.target
    found = {"attention": one.shown, "leave one out": left_out(subject, one)}
    scores = {name: by_word(values, source, target) for name, values in found.items()}
    if isinstance(subject.model, ReadsOut):
        each = lexical(one.model, one.trace).probability
        scores["each word alone"] = by_word(each, source, target) / by_word(torch.ones_like(each), source, target)
    return {
        "why": why, "source": list(source.names[0]), "special": (~source.real[0]).tolist(),
        "target": list(target.names[0]), "said": said(one, teller(subject.model, names)),
        "scores": {name: rounded_matrix(values[0]) for name, values in scores.items()},
    }  # fmt: skip


Tell = Callable[[Int[Tensor, " pieces"]], str]


def said(one: Pass, tell: Tell) -> list[str]:
    """What the model predicts in the place of each target word, having heard the gold words before."""
    target: Words = one.texts.target
    predicted, units = one.trace.predictions[0].cpu(), target.unit[0]
    return [tell(predicted[units == unit]) for unit in range(len(target.names[0]))]


def teller(model: Any, names: dict[int, str]) -> Tell:
    """Numbers of words as text: by the model's own reader, or by the names seen in the texts."""
    reader: Any = getattr(model, "reader", None)

    def tell(numbers: Tensor) -> str:
        text: str = reader.text(numbers) if hasattr(reader, "text") else ""
        if text.strip():
            return text.strip()
        if hasattr(reader, "target_vocabulary"):
            return " ".join(reader.target_vocabulary.decode(numbers.tolist()))
        return " ".join(names.get(number, f"<word {number}>") for number in numbers.tolist())

    return tell


def named(texts: Texts) -> dict[int, str]:
    """The names of the target words of these texts."""
    rows = zip(texts.batch.target.tolist(), texts.target.pieces, strict=True)
    return {number: piece for row, pieces in rows for number, piece in zip(row, pieces, strict=False)}


def rounded_matrix(values: Float[Tensor, "target source"]) -> Matrix:
    return [[None if np.isnan(value) else round(value, DIGITS) for value in row] for row in values.tolist()]
