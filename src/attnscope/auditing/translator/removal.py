"""Does attention point at the source words without which the output would be less likely? (Jain and Wallace 2019)

A piece of a word is left out, the sentence closes over the gap, and the gold target is heard as before. What counts is
how much the log-probability of each output word falls.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.auditing.questions import POINTS, RANKS
from attnscope.auditing.record import Interval, Part
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import Subject
from attnscope.auditing.translator.passes import BySentence, Pass, Scores, limits, passes
from attnscope.probes.agreement import kendall
from attnscope.probes.agreement.top import peaks
from attnscope.probes.reweighing import lots_by_step
from attnscope.probes.saliency import influence, leave_one_out

ATTENDED, ANY, MOST = "the one attended to most", "one at random", "the most influential one"
LEFT_OUT, GRADIENT = "attention with leave one out", "attention with gradient × input"
RANDOM = "random with leave one out"


def erasure(subject: Subject, sample: Sample) -> Part:
    """How far attention goes from chance to the word that matters most."""
    parts: dict[str, list[np.ndarray]] = {ATTENDED: [], ANY: [], MOST: []}
    for one in passes(subject, sample):
        for name, values in falls(one, left_out(subject, one)).items():
            parts[name].append(one.by_sentence(values))
    lost = {name: np.concatenate(values) for name, values in parts.items()}
    means = {name: Interval.of(values) for name, values in lost.items()}
    share = Interval.ratio(lost[ATTENDED] - lost[ANY], lost[MOST] - lost[ANY])
    sentence = (
        f"Without the source word that it attends to most, an output word loses {means[ATTENDED].value:.3f} nats of "
        f"log-probability, without a word at random {means[ANY].value:.3f}, without the most influential one "
        f"{means[MOST].value:.3f}: attention goes {share.value:.0%} of the way from chance to the best."
    )
    test = POINTS.answered(sentence, share, chance=0.0, best=1.0)
    table = [
        {"word left out": name, "log-probability lost": mean.value, **limits(mean)} for name, mean in means.items()
    ]
    return {"sentences": [sentence], "table": table, "tests": [test]}


def falls(one: Pass, lost: Scores) -> dict[str, Float[Tensor, "batch target"]]:
    """What is lost without the word attended to most (of equals, the mean), any word, and the most influential one."""
    compared = one.between_words
    top = peaks(one.shown, compared)
    known = lost.masked_fill(~compared, 0)
    return {
        ATTENDED: (known * top).sum(-1) / top.sum(-1),
        ANY: known.sum(-1) / compared.sum(-1),
        MOST: lost.masked_fill(~compared, -torch.inf).amax(-1).masked_fill(~compared.any(-1), torch.nan),
    }


def correlation(subject: Subject, sample: Sample) -> Part:
    """Kendall's τ between attention and the size of a word's effect."""
    parts: dict[str, list[np.ndarray]] = {LEFT_OUT: [], GRADIENT: [], RANDOM: []}
    for one in passes(subject, sample):
        lost = left_out(subject, one)
        parts[LEFT_OUT].append(ranked_alike(one, one.shown, lost))
        parts[RANDOM].append(ranked_alike(one, at_random(one, sample.seed), lost))
        if hasattr(one.model, "source_inputs"):
            parts[GRADIENT].append(ranked_alike(one, one.shown, influence(one.model, one.batch).values))
    taus = {name: Interval.of(np.concatenate(values)) for name, values in parts.items() if values}
    shown, chance = taus[LEFT_OUT], taus[RANDOM].value
    sentence = (
        f"Attention and the effect of leaving a source word out rank the words with τ = {shown.value:.2f} on average; "
        f"random attention gets {chance:.2f}, the same order would be 1."
    )
    test = RANKS.answered(sentence, shown, chance=chance, best=1.0)
    table = [{"scores": name, "τ": tau.value, **limits(tau)} for name, tau in taus.items()]
    return {"sentences": [sentence], "table": table, "tests": [test]}


def ranked_alike(one: Pass, score: Scores, effect: Scores) -> BySentence:
    """τ of a score with the size of an effect."""
    return one.by_sentence(kendall(score, effect.abs().to(score), one.between_words))


def at_random(one: Pass, seed: int) -> Scores:
    """As follows from the words of a sentence: batches do not matter."""
    return lots_by_step(one.trace, range(1), seed)[0][:, 0].double()


def left_out(subject: Subject, one: Pass) -> Scores:
    """Leave-one-out of a batch; several questions need it, and it costs a pass for each source position."""
    sides = (one.batch.source, one.batch.target)
    key = ("left out", *((side.cpu().numpy().tobytes(), side.shape) for side in sides))
    if key not in subject.kept:
        subject.kept[key] = leave_one_out(one.model, one.batch).values
    found: Tensor = subject.kept[key]
    return found
