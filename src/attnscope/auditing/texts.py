"""Which texts should a person look at? Typical ones, extreme ones, and those that the classifier gets wrong."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from attnscope.auditing.classifier import GRADIENT, LEFT_OUT, SHOWN, scores_of
from attnscope.auditing.record import Part
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import Subject
from attnscope.models.adapters import Texts, by_word
from attnscope.probes.agreement import kendall
from attnscope.probes.erasure import erasable
from attnscope.probes.grounding import grounding_of
from attnscope.probes.lexical import ReadsOut
from attnscope.probes.reweighing import Reweighing
from attnscope.tasks.batch import SPECIALS

ALONE = "each word alone"
DIGITS = 3
ROUGH = 5  # digits by which texts are compared: more of them depend on the batch


@dataclass(frozen=True)
class Looked:
    """What speaks for showing a text."""

    texts: Texts
    row: int
    tau: float  # between attention and leaving words out
    entropy: float
    sure: float  # the probability of the decision
    decided: int
    gold: int


def examples(subject: Subject, sample: Sample) -> Part:
    looked = [one for texts in sample() for one in looked_at(subject, texts)]
    chosen = choice([one for one in looked if not np.isnan(one.tau)] or looked)
    shown = [example(subject, one, why) for why, one in chosen]
    return {"sentences": [], "table": [], "tests": [], "examples": shown}


def looked_at(subject: Subject, texts: Texts) -> list[Looked]:
    asked = Reweighing.of(subject.model, texts.batch)
    scores, words = scores_of(subject, texts.batch), erasable(texts.batch)
    taus = kendall(scores[SHOWN], scores[LEFT_OUT].abs().to(scores[SHOWN]), words)
    entropies = torch.special.entr(asked.own.mean(1)).sum(-1) / asked.attended.sum(1).log()
    sure, decided = asked.said.max(-1)
    gold = texts.batch.target[:, 0] - len(SPECIALS)
    rough = (values.double().round(decimals=ROUGH) for values in (taus, entropies, sure))
    numbers = (values.tolist() for values in (*rough, decided, gold))
    return [Looked(texts, row, *each) for row, each in enumerate(zip(*numbers, strict=True))]


def choice(looked: list[Looked]) -> list[tuple[str, Looked]]:
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
    kept: dict[int, tuple[str, Looked]] = {}
    for why, one in reasons:
        kept.setdefault(id(one), (why, one))
    return list(kept.values())


def example(subject: Subject, one: Looked, why: str) -> dict[str, Any]:
    texts, row = one.texts, one.row
    scores = {
        name: scores_of(subject, texts.batch)[name]
        for name in (SHOWN, LEFT_OUT, GRADIENT)
        if name in scores_of(subject, texts.batch)
    }
    scores = {name: by_word(values[:, None], texts.source)[row, 0] for name, values in scores.items()}
    if hasattr(subject.model, "readout"):
        alone = grounding_of(cast(ReadsOut, subject.model), texts.batch).tokens[:, None]
        scores[ALONE] = mean_by_word(alone, texts)[row]
    units = texts.source.mask[row]
    return {
        "why": why, "source": list(texts.source.names[row]),
        "special": (~texts.source.real[row][units]).tolist(),
        "gold": subject.classes[one.gold], "said": f"{subject.classes[one.decided]} ({one.sure:.2f})",
        "scores": {name: rounded(values[units]) for name, values in scores.items()},
    }  # fmt: skip


def mean_by_word(values: torch.Tensor, texts: Texts) -> torch.Tensor:
    """Of a word in several pieces, the mean."""
    known = ~values.isnan()
    total = by_word(values.nan_to_num(), texts.source)[:, 0]
    return total / by_word(known.to(values), texts.source)[:, 0]


def rounded(values: torch.Tensor) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.{DIGITS}g}") for value in values.tolist()]
