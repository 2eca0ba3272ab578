"""Which sentences should a person look at? Typical ones, extreme ones, and those that the model would hardly say."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnscope.auditing.record import Part
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import Subject
from attnscope.auditing.translator.alone import tells
from attnscope.auditing.translator.passes import Pass, passes
from attnscope.auditing.translator.removal import left_out, ranked_alike
from attnscope.models.adapters import Texts, Words, by_word
from attnscope.probes.lexical import lexical

MOST, DIGITS = 200, 3  # sentences to choose from
ROUGH = 5  # digits by which they are compared: more of them depend on the batch
Matrix = list[list[float | None]]


@dataclass(frozen=True)
class Looked:
    """What speaks for showing a sentence."""

    number: int  # in the stream
    tau: float  # between attention and leaving words out
    entropy: float  # of attention, over that of uniform attention
    sure: float  # mean log-probability of the gold words


def examples(subject: Subject, sample: Sample) -> Part:
    looked: list[Looked] = []
    names: dict[int, str] = {}  # of target words, where the model has no reader that knows them
    for one in passes(subject, sample):
        looked += looked_at(subject, one, len(looked))
        names |= named(one.texts)
        if len(looked) >= MOST:
            break
    shown = [example(subject, one.number, why, names) for why, one in choice(looked[:MOST])]
    return {"sentences": [], "table": [], "tests": [], "examples": shown}


@torch.no_grad()
def looked_at(subject: Subject, one: Pass, first: int) -> list[Looked]:
    taus = ranked_alike(one, one.shown, left_out(subject, one))
    entropy = torch.special.entr(one.shown).sum(-1) / one.attended.sum(1, keepdim=True).log()
    numbers = zip(taus, one.by_sentence(entropy), one.by_row(one.gold(one.said)), strict=True)
    return [Looked(first + i, *(round(float(value), ROUGH) for value in each)) for i, each in enumerate(numbers)]


def choice(looked: list[Looked]) -> list[tuple[str, Looked]]:
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
    kept: dict[int, tuple[str, Looked]] = {}
    for why, one in reasons:
        kept.setdefault(one.number, (why, one))
    return list(kept.values())


@torch.no_grad()
def example(subject: Subject, number: int, why: str, names: dict[int, str]) -> dict[str, Any]:
    """Attention, and the effect of leaving words out, summed over the pieces of a source word; alone, the mean."""
    one = Pass.of(subject, subject.read(slice(number, number + 1)))
    source, target = one.texts.source, one.texts.target
    found = {"attention": one.shown, "leave one out": left_out(subject, one)}
    scores = {name: by_word(values, source, target) for name, values in found.items()}
    if tells(subject.model):
        each = lexical(one.model, one.trace).probability
        scores["each word alone"] = by_word(each, source, target) / by_word(torch.ones_like(each), source, target)
    return {
        "why": why, "source": list(source.names[0]), "special": (~source.real[0]).tolist(),
        "target": list(target.names[0]), "said": said(one, teller(subject.model, names)),
        "scores": {name: rounded(values[0]) for name, values in scores.items()},
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
        if hasattr(reader, "target_words"):
            return " ".join(reader.target_words.decode(numbers.tolist()))
        return " ".join(names.get(number, f"<word {number}>") for number in numbers.tolist())

    return tell


def named(texts: Texts) -> dict[int, str]:
    """The names of the target words of these texts."""
    rows = zip(texts.batch.target.tolist(), texts.target.pieces, strict=True)
    return {number: piece for row, pieces in rows for number, piece in zip(row, pieces, strict=False)}


def rounded(values: Float[Tensor, "target source"]) -> Matrix:
    return [[None if np.isnan(value) else round(value, DIGITS) for value in row] for row in values.tolist()]
