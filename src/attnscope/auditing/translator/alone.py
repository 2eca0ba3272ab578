"""What would each source word alone make a translator say? (snell2021 §3.1: β; tutek2020 §5: leakage)

All attention of the last layer lies on one source position, for every output word. If attention is to explain which
word was said, few positions should lead to the same word nearly as surely.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.auditing.questions import NOT_ALONE
from attnscope.auditing.record import Interval, Part
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import Subject
from attnscope.auditing.translator.passes import Pass, Scores, limits, passes
from attnscope.models.asking import as_it_was
from attnscope.probes.agreement.top import ONE_IN, agreement, chance
from attnscope.probes.grounding import NEAR
from attnscope.probes.lexical import CELLS, log_odds, picked_by_all, rows_at_a_time, said_with

TOP, CHANCE, LEAKS, ALONE, OWN = "top", "chance", "leaks", "alone", "own"


@dataclass(frozen=True)
class Alone:
    """Of each output word and source word; NaN, and false, elsewhere."""

    gold: Scores  # γ: log-odds of the gold word
    same: Scores  # probability of the word that the model predicts
    likeliest: Bool[Tensor, "batch target source"]  # whether it would be predicted again


def tokens(subject: Subject, sample: Sample) -> Part:
    if not tells(subject.model):
        why = "This model does not tell what it would say of one word alone: it has no context_of and readout."
        return {"sentences": [why], "table": [], "tests": []}
    parts: dict[str, list[np.ndarray]] = {name: [] for name in (TOP, CHANCE, LEAKS, ALONE, OWN)}
    for one in passes(subject, sample):
        for name, values in measures(one).items():
            parts[name].append(one.by_sentence(values))
    found = {name: Interval.of(np.concatenate(values)) for name, values in parts.items()}
    leakage = found[LEAKS]
    sentence = (
        f"{leakage.value:.0%} of the source words would make the model predict the same word alone, nearly as surely "
        f"(within {NEAR}), had they all the attention of the last layer."
    )
    agree = (
        f"The word attended to most is among the {1 / ONE_IN:.0%} that alone make the right word likeliest for "
        f"{found[TOP].value:.0%} of the words; for a word at random that holds of {found[CHANCE].value:.0%}."
    )
    return {"sentences": [sentence, agree], "table": rows(found), "tests": [NOT_ALONE.answered(sentence, leakage)]}


def rows(found: dict[str, Interval]) -> list[dict[str, float | str]]:
    names = {
        LEAKS: "source words that would do alone",
        OWN: "probability of the predicted word",
        ALONE: "... given one source word alone",
        TOP: f"agreement of attention with β (top {1 / ONE_IN:.0%})",
        CHANCE: "... by chance",
    }
    return [{"measure": said, "mean": found[name].value, **limits(found[name])} for name, said in names.items()]


def measures(one: Pass) -> dict[str, Float[Tensor, "batch target"]]:
    """Of each output word: agreement of attention with β, its chance level, and what words alone would say."""
    found = alone(one)
    words = one.source[:, None].expand_as(found.gold)
    own = one.trace.logits.detach().softmax(-1).amax(-1)
    as_sure = found.likeliest & (found.same >= own[..., None] - NEAR)
    score = found.gold.nan_to_num()
    return {
        TOP: agreement(one.shown, score, words), CHANCE: chance(score, words),
        LEAKS: as_sure.sum(-1) / one.source.sum(1)[:, None], ALONE: found.same.nanmean(-1), OWN: own,
    }  # fmt: skip


def alone(one: Pass, cells: int = CELLS) -> Alone:
    """A readout for each output word and source word."""
    trace = one.trace
    blank = trace.logits.new_full((*trace.target.shape, trace.source.shape[1]), torch.nan)
    gold, same, likeliest = blank, blank.clone(), torch.zeros_like(blank, dtype=torch.bool)
    pairs = (one.target[:, :, None] & one.source[:, None]).nonzero()
    pick, predicted = picked_by_all(trace), trace.predictions
    with as_it_was(one.model):
        for some in pairs.split(rows_at_a_time(trace, cells)):
            b, t, source = some.unbind(1)
            logits, said = said_with(one.model, trace, pick(b, t, source), b, t), predicted[b, t]
            gold[b, t, source] = log_odds(logits, trace.target[b, t])
            same[b, t, source] = log_odds(logits, said).sigmoid()
            likeliest[b, t, source] = logits.argmax(1) == said
    return Alone(gold, same, likeliest)


def tells(model: object) -> bool:
    """Whether it has the second door."""
    layer = getattr(model, "attend", None)
    return hasattr(model, "readout") and (hasattr(model, "context_of") or hasattr(layer, "merge"))
