"""Examples to show: typical texts, extreme ones, and those that the model gets wrong."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from attnscope.faithfulness.evidence import gold_values, log_probabilities
from attnscope.faithfulness.records import Part, ScoredExample
from attnscope.faithfulness.subject import PairScores, Reading, Sample, Subject
from attnscope.models.adapters import Texts, by_word
from attnscope.models.capabilities import ReadsOut
from attnscope.probes.counterfactual import class_probabilities
from attnscope.probes.grounding import token_probabilities
from attnscope.probes.lexical import lexical_scores
from attnscope.tasks.batch import SPECIALS

ALONE = "each token alone"
MAX_SENTENCES = 200  # candidates for a translator
DIGITS = 3
COMPARED_DIGITS = 5  # further digits depend on the batch
TYPICAL = "typical: attention agrees with leave-one-out as it usually does"
LEAST_AGREEMENT = "extreme: attention agrees least with leave-one-out"
MOST_AGREEMENT = "extreme: attention agrees most with leave-one-out"
SHARPEST, FLATTEST = "extreme: the lowest entropy of attention", "extreme: the highest entropy of attention"


@dataclass(frozen=True)
class Candidate:
    """A text that may be shown, with the numbers by which texts are chosen."""

    index: int  # in the data
    tau: float  # between attention and leave-one-out
    entropy: float  # of attention, relative to uniform attention
    confidence: float  # probability of the decision, or mean log-probability of the gold target
    predicted: int = 0  # class
    gold: int = 0

    @property
    def comparable(self) -> bool:
        return not np.isnan([self.tau, self.entropy, self.confidence]).any()


def examples(subject: Subject, sample: Sample) -> Part:
    """Return examples with one score per word or, of a translator, per target and source word."""
    return class_examples(subject, sample) if subject.is_classifier else translation_examples(subject, sample)


def class_examples(subject: Subject, sample: Sample) -> Part:
    """Return examples of a classifier, with one score per word."""
    texts: list[Candidate] = []
    for reading in sample.readings():
        probabilities = class_probabilities(reading.trace.logits)
        confidence, predicted = probabilities.max(-1)
        gold = reading.trace.target[:, 0] - len(SPECIALS)
        texts += candidates(reading, len(texts), confidence.tolist(), predicted.tolist(), gold.tolist())
    comparable = [text for text in texts if not np.isnan(text.tau)] or texts
    wrong = sorted((text for text in comparable if text.predicted != text.gold), key=lambda text: -text.confidence)
    by_tau = sorted(comparable, key=lambda text: text.tau)
    middle = len(by_tau) // 2
    reasons = [
        *((TYPICAL, text) for text in by_tau[middle - 1 : middle + 1]),
        *(("wrong, with high confidence", text) for text in wrong[:2]),
        (LEAST_AGREEMENT, by_tau[0]), (MOST_AGREEMENT, by_tau[-1]),
        (SHARPEST, min(comparable, key=lambda text: text.entropy)),
        (FLATTEST, max(comparable, key=lambda text: text.entropy)),
    ]  # fmt: skip
    return Part(examples=[class_example(subject, text, reason) for reason, text in without_repeats(reasons)])


@torch.no_grad()
def translation_examples(subject: Subject, sample: Sample) -> Part:
    """Return examples of a translator, with one score per target and source word."""
    texts: list[Candidate] = []
    names: dict[int, str] = {}  # of target tokens
    for reading in sample.readings():
        gold = gold_values(reading, log_probabilities(reading, reading.trace.logits))
        texts += candidates(reading, len(texts), reading.by_row(gold).tolist())
        names |= target_names(reading.texts)
        if len(texts) >= MAX_SENTENCES:
            break
    comparable = [text for text in texts[:MAX_SENTENCES] if text.comparable]
    by_tau, by_entropy, by_confidence = (
        sorted(comparable, key=key)
        for key in (lambda text: text.tau, lambda text: text.entropy, lambda text: text.confidence)
    )
    middle = max(0, len(by_tau) // 2 - 1)
    reasons = [
        *((TYPICAL, text) for text in by_tau[middle : middle + 3]),
        *(("wrong: the gold words have the lowest probability", text) for text in by_confidence[:2]),
        *((LEAST_AGREEMENT, text) for text in by_tau[:1]),
        *((SHARPEST, text) for text in by_entropy[:1]),
        *((FLATTEST, text) for text in by_entropy[-1:]),
    ]
    chosen = without_repeats(reasons)
    return Part(examples=[translation_example(subject, text, reason, names) for reason, text in chosen])


def candidates(reading: Reading, first: int, confidence: Sequence[float], *more: Sequence[int]) -> list[Candidate]:
    """Return the texts of a batch as candidates; the first has this index in the data."""
    taus = reading.rank_correlation(reading.attention, reading.leave_one_out.abs())
    entropy = torch.special.entr(reading.attention).sum(-1) / reading.attended.sum(1, keepdim=True).log()
    numbers = np.stack([taus, reading.by_text(entropy), confidence], 1).round(COMPARED_DIGITS).tolist()
    classes = zip(*more, strict=True) if more else [(0, 0)] * len(numbers)
    return [
        Candidate(first + i, tau, spread, sure, predicted, gold)
        for i, ((tau, spread, sure), (predicted, gold)) in enumerate(zip(numbers, classes, strict=True))
    ]


def without_repeats(reasons: Iterable[tuple[str, Candidate]]) -> list[tuple[str, Candidate]]:
    """Return each text once, for the first reason that chose it."""
    chosen: dict[int, tuple[str, Candidate]] = {}
    for reason, candidate in reasons:
        chosen.setdefault(candidate.index, (reason, candidate))
    return list(chosen.values())


def class_example(subject: Subject, candidate: Candidate, reason: str) -> ScoredExample:
    reading = Reading.of(subject, subject.inputs.read(slice(candidate.index, candidate.index + 1)))
    source, model, classes = reading.texts.source, subject.model, subject.loaded.classes
    scores = {name: by_word(values, source)[0, 0] for name, values in shown_scores(reading).items()}
    if isinstance(model, ReadsOut):
        alone = token_probabilities(model, reading.trace).tokens[:, None]
        count = by_word((~alone.isnan()).to(alone), source)
        scores[ALONE] = (by_word(alone.nan_to_num(), source) / count)[0, 0]
    return ScoredExample(
        reason=reason, source=source.names[0], special=tuple((~source.is_word[0]).tolist()),
        predicted=f"{classes[candidate.predicted]} ({candidate.confidence:.2f})", gold=classes[candidate.gold],
        scores={name: [rounded(value) for value in values.tolist()] for name, values in scores.items()},
        marks=marks_of(reading.texts),
    )  # fmt: skip


def marks_of(texts: Texts) -> tuple[float, ...]:
    """Return the share of annotators who marked each word of one text; empty without annotations."""
    if texts.batch.rationale is None:
        return ()
    marks, unit = texts.batch.rationale[0].cpu(), texts.source.unit[0]
    count = int(texts.source.mask[0].sum())
    return tuple(round(float(marks[: len(unit)][unit == i].max()), DIGITS) for i in range(count))


def translation_example(subject: Subject, candidate: Candidate, reason: str, names: dict[int, str]) -> ScoredExample:
    """Return scores summed over the tokens of a source word; the mean for single-token predictions."""
    reading = Reading.of(subject, subject.inputs.read(slice(candidate.index, candidate.index + 1)))
    source, target, model = reading.texts.source, reading.texts.target, subject.model
    scores = {name: by_word(values, source, target)[0] for name, values in shown_scores(reading).items()}
    if isinstance(model, ReadsOut):
        alone = lexical_scores(model, reading.trace).probability
        scores[ALONE] = (by_word(alone, source, target) / by_word(torch.ones_like(alone), source, target))[0]
    predicted, units = reading.trace.predictions[0].cpu(), target.unit[0]
    return ScoredExample(
        reason=reason, source=source.names[0], special=tuple((~source.is_word[0]).tolist()), target=target.names[0],
        predicted=tuple(decode(subject, predicted[units == unit], names) for unit in range(len(target.names[0]))),
        scores={
            name: [[None if np.isnan(value) else round(value, DIGITS) for value in row] for row in values.tolist()]
            for name, values in scores.items()
        },
    )  # fmt: skip


def shown_scores(reading: Reading) -> dict[str, PairScores]:
    scores = {"attention": reading.attention, "leave-one-out": reading.leave_one_out}
    if reading.subject.is_classifier and reading.gradient is not None:
        scores["gradient × input"] = reading.gradient
    return scores


def decode(subject: Subject, ids: Int[Tensor, " tokens"], names: dict[int, str]) -> str:
    """Return token ids as text; special tokens, which the reader drops, by their names in the texts."""
    text = subject.loaded.reader.text(ids).strip()
    return text or " ".join(names.get(i, f"<token {i}>") for i in ids.tolist())


def target_names(texts: Texts) -> dict[int, str]:
    """Return the names of the target tokens of these texts."""
    pairs = zip(texts.batch.target.tolist(), texts.target.tokens, strict=True)
    return {i: piece for row, pieces in pairs for i, piece in zip(row, pieces, strict=False)}


def rounded(value: float) -> float | None:
    """Return a number with a few significant digits, NaN as None."""
    return None if np.isnan(value) else float(f"{value:.{DIGITS}g}")
