"""What would the papers ask of a translator's attention? The evidence, part by part.

What is shown to people is taken to be the cross-attention of the last layer, the mean over its heads. The gold target
is heard (teacher forcing), so that every output word has one attention and one thing to say. Positions are pieces of
words where a tokenizer makes pieces; special tokens and padding are no words. Every number is a mean over the output
words of a sentence first, and then over sentences.
What does one pass over some sentences show, and which of its positions are words?"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.errors import require
from attnscope.faithfulness.criteria import DEPENDS, NO_OTHER, NOT_ALONE, POINTS, RANKS, Interval
from attnscope.faithfulness.records import Part, Test
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.models.adapters import Texts, up_to
from attnscope.models.attention import uniform
from attnscope.models.capabilities import ReadsOut
from attnscope.models.inference import evaluating
from attnscope.models.trace import Intervention, Trace, Where
from attnscope.probes.adversary import SearchSettings, search_token_adversaries
from attnscope.probes.agreement import ONE_IN, agreement, chance, kendall, peaks
from attnscope.probes.counterfactual import (
    MAX_ELEMENTS,
    CounterfactualAttention,
    layer_weights,
    random_keys,
    read_out_rows,
    rows_at_a_time,
    trace_and_mask,
)
from attnscope.probes.divergences import jsd
from attnscope.probes.fragility import permute_weights
from attnscope.probes.grounding import MARGIN
from attnscope.probes.heads.ranking import HeadAlignmentAccumulator, Special, gold_reference, model_1_reference
from attnscope.probes.heads.stream import Heads, Sentences, is_special
from attnscope.probes.lexical import log_odds
from attnscope.probes.saliency import influence, leave_one_out
from attnscope.probes.word_alignment import AlignmentAccumulator
from attnscope.tasks.batch import Batch

Scores = Float[Tensor, "batch target source"]
BySentence = Float[np.ndarray, " sentences"]


@dataclass(frozen=True)
class Pass:
    """Sentences as the model says them, with its own attention."""

    model: Any
    texts: Texts
    batch: Batch  # where the model is
    trace: Trace
    attended: Bool[Tensor, "batch source"]  # what may be attended to
    source: Bool[Tensor, "batch source"]  # of that, what is a word or a piece of one
    target: Bool[Tensor, "batch target"]  # output words

    @classmethod
    def of(cls, subject: Subject, texts: Texts) -> "Pass":
        trace, attended = trace_and_mask(subject.model, texts.batch)
        batch = texts.batch.to(trace.source.device)
        source, target = (~is_special(subject.model, batch, side) for side in ("source", "target"))
        return cls(subject.model, texts, batch, trace, attended, attended & source, batch.target_mask & target)

    @cached_property
    def counterfactual(self) -> CounterfactualAttention:
        return CounterfactualAttention(self.model, self.batch, self.trace, self.attended)

    @property
    def shown(self) -> Scores:
        """The attention that people would be shown."""
        return self.trace.attention.mean(1)

    @property
    def between_words(self) -> Bool[Tensor, "batch target source"]:
        """Source words that can be compared, for each output word: all, unless there are fewer than two."""
        enough = self.source.sum(1, keepdim=True) > 1
        return self.target[:, :, None] & (self.source & enough)[:, None]

    @cached_property
    def said(self) -> Float[Tensor, "rows words"]:
        """Log-probabilities of the vocabulary, a row an output word."""
        return log_probabilities(self.trace.logits, self.target)

    def gold(self, said: Float[Tensor, "rows words"]) -> Float[Tensor, " rows"]:
        """The log-probability of each gold word."""
        return said.gather(1, self.trace.target[self.target][:, None])[:, 0]

    def by_row(self, values: Float[Tensor, " rows"]) -> BySentence:
        """The mean over the output words of each sentence, from a number for each row."""
        blank = values.new_zeros(self.target.shape, dtype=torch.float64)
        return self.by_sentence(blank.masked_scatter(self.target, values.double()))

    def by_sentence(self, values: Float[Tensor, "batch target"]) -> BySentence:
        """The same, from a number for each target position; NaN is left out, and nothing is NaN."""
        known = self.target & ~values.isnan()
        total = values.double().masked_fill(~known, 0).sum(1) / known.sum(1)
        return np.asarray(total.cpu().numpy())


def passes(subject: Subject, sample: Sample) -> Iterator[Pass]:
    return (Pass.of(subject, texts) for texts in sample())


def log_probabilities(
    logits: Float[Tensor, "batch target words"], rows: Bool[Tensor, "batch target"]
) -> Float[Tensor, "rows words"]:
    return logits.detach()[rows].log_softmax(-1)


def limits(found: Interval) -> dict[str, float]:
    return {"from": found.low, "to": found.high}


CHANGED, LOST, MOVED = "words changed", "log-probability lost", "output moved (TVD)"
DRAWS = {True: 3, False: 10}  # quick, and in full
APART = 1 << 10  # numbers of draws between those of one layer and of the next


@torch.no_grad()
def quality(subject: Subject, sample: Sample) -> Part:
    right, sure = [], []
    for one in passes(subject, sample):
        right.append(one.by_row((one.said.argmax(1) == one.trace.target[one.target]).double()))
        sure.append(one.by_row(one.gold(one.said)))
    share, log_probability = (Interval.of(np.concatenate(each)) for each in (right, sure))
    sentence = (
        f"With the right words before it, it predicts {share.value:.1%} of the words rightly, and gives the right one "
        f"a probability of {np.exp(log_probability.value):.2f} (geometric mean). Attention can explain a prediction, "
        "not make up for a poor one."
    )
    table = [
        {"measure": "words predicted rightly", "mean": share.value, **limits(share)},
        {"measure": "log-probability of the gold word", "mean": log_probability.value, **limits(log_probability)},
    ]
    return {"sentences": [sentence], "table": table, "tests": []}


def dependence(subject: Subject, sample: Sample) -> Part:
    """Fragility (tutek2020 table 1), of a translator."""
    found: dict[str, list[dict[str, np.ndarray]]] = defaultdict(list)
    for one in passes(subject, sample):
        for name, effect in effects(one, subject.depth, DRAWS[sample.quick], sample.seed).items():
            found[name].append(effect)
    means = {
        name: {measure: Interval.of(np.concatenate([each[measure] for each in parts])) for measure in parts[0]}
        for name, parts in found.items()
    }
    table = [row(name, effect) for name, effect in means.items()]
    test = asked(means, subject.depth)
    return {"sentences": [test.sentence], "table": table, "tests": [test]}


def asked(means: dict[str, dict[str, Interval]], layers: int) -> Test:
    """Of the layer that is shown; all layers stand beside it."""
    where = "" if layers == 1 else " in the last layer"
    share = means[f"shuffled{where}"][CHANGED]
    sentence = f"Shuffling attention{where} among the source words changes {share.value:.1%} of the predicted words"
    if layers > 1:
        sentence += f"; in all {layers} layers at once, {means['shuffled in all layers'][CHANGED].value:.1%}"
    return DEPENDS.answered(f"{sentence}.", share, chance=0.0)


def row(name: str, effect: dict[str, Interval]) -> dict[str, Any]:
    return {"attention": name, CHANGED: effect[CHANGED].value, **limits(effect[CHANGED]),
            LOST: effect[LOST].value, MOVED: effect[MOVED].value}  # fmt: skip


@torch.no_grad()
def effects(one: Pass, layers: int, draws: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Of each other attention, by sentence; the mean over draws."""
    made: dict[str, list[dict[str, np.ndarray]]] = defaultdict(list)
    with evaluating(one.model):
        for name, logits in otherwise(one, layers, draws, seed):
            made[name].append(effect_of(one, logits))
    return {
        name: {measure: np.mean([each[measure] for each in parts], 0) for measure in parts[0]}
        for name, parts in made.items()
    }


def otherwise(one: Pass, layers: int, draws: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """What is said with each other attention, one after the other: logits are large."""
    where = "" if layers == 1 else " in the last layer"
    yield f"uniform{where}", one.counterfactual.logits(uniform(one.trace.attention, one.attended))
    for draw in range(draws):
        yield f"shuffled{where}", one.counterfactual.logits(shuffled(one, layers - 1, draw, seed))
    if layers > 1:
        ask = one.counterfactual.intervene
        yield "uniform in all layers", ask(dict.fromkeys(range(layers), uniform)).logits
        for draw in range(draws):
            every: dict[Where, Intervention] = {layer: shuffled(one, layer, draw, seed) for layer in range(layers)}
            yield "shuffled in all layers", ask(every).logits


def shuffled(one: Pass, layer: int, draw: int, seed: int) -> Float[Tensor, "batch heads target source"]:
    """The layer's own weights, in another order."""
    trace = up_to(one.trace, layer) if len(one.trace.layers) > 1 else one.trace
    number = layer * APART + draw
    lots = random_keys(trace, range(number, number + 1), seed)
    mixed: Tensor = permute_weights(trace.attention.flatten(1, 2), one.attended, lots.flatten(2, 3))[0]
    apart: Tensor = mixed.unflatten(1, trace.attention.shape[1:3])
    return apart


def effect_of(one: Pass, logits: Float[Tensor, "batch target words"]) -> dict[str, np.ndarray]:
    said = log_probabilities(logits, one.target)
    measures = {
        CHANGED: (said.argmax(1) != one.said.argmax(1)).double(),
        LOST: one.gold(one.said) - one.gold(said),
        MOVED: (said.exp() - one.said.exp()).abs().sum(1) / 2,
    }
    return {name: one.by_row(values) for name, values in measures.items()}


GROUP = 16  # sentences


def adversary(subject: Subject, sample: Sample) -> Part:
    """For each output word, attention of the last layer that leaves its distribution within ε, as far away as found."""
    settings = settings_for(sample)
    parts: dict[str, list[np.ndarray]] = {"jsd": [], "tvd": [], "feasible": []}
    for one in passes(subject, replace(sample, size=GROUP)):
        found = search_token_adversaries(subject.model, one.batch, one.target, settings)
        for name, values in parts.items():
            values.append(one.by_row(getattr(found, name).double()))
    jsd, tvd, feasible = (np.concatenate(values) for values in parts.values())
    share = Interval.of(jsd / math.log(2))
    sentence = (
        f"For {np.nanmean(feasible):.0%} of the words another attention of the last layer was found that moves the "
        f"output by at most {settings.epsilon:.2f}; on average it is {share.value:.0%} as far away (JSD) as an "
        "attention can be."
    )
    test = NO_OTHER.answered(sentence, share)
    table = [{
        "JSD, mean": np.nanmean(jsd), "share of the largest": share.value, **limits(share),
        "words with one": np.nanmean(feasible), "output moved (TVD)": np.nanmean(tvd),
    }]  # fmt: skip
    return {"sentences": [sentence], "table": table, "tests": [test], "histogram": jsd.round(4)}


def settings_for(sample: Sample) -> SearchSettings:
    """Few long steps along the border of what is feasible: each is a readout for every output word and start.

    Tried on a tiny Marian with three scales of its readout: the quick search gets 93 to 114 % as far as five starts of
    500 steps with a fixed penalty of 500. What is found is a lower bound either way.
    """
    restarts, steps = (2, 100) if sample.quick else (3, 250)
    return SearchSettings(restarts=restarts, steps=steps, learning_rate=0.2, penalty=10.0, growth=1.1, seed=sample.seed)


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
    return random_keys(one.trace, range(1), seed)[0][:, 0].double()


def left_out(subject: Subject, one: Pass) -> Scores:
    """Leave-one-out of a batch; several questions need it, and it costs a pass for each source position."""
    sides = (one.batch.source, one.batch.target)
    key = ("left out", *((side.cpu().numpy().tobytes(), side.shape) for side in sides))
    if key not in subject.kept:
        subject.kept[key] = leave_one_out(one.model, one.batch).values
    found: Tensor = subject.kept[key]
    return found


TOP, CHANCE, LEAKS, ALONE, OWN = "top", "chance", "leaks", "alone", "own"


@dataclass(frozen=True)
class Alone:
    """Of each output word and source word; NaN, and false, elsewhere."""

    gold: Scores  # γ: log-odds of the gold word
    same: Scores  # probability of the word that the model predicts
    likeliest: Bool[Tensor, "batch target source"]  # whether it would be predicted again


def tokens(subject: Subject, sample: Sample) -> Part:
    if not isinstance(subject.model, ReadsOut):
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
        f"(within {MARGIN}), had they all the attention of the last layer."
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
    as_sure = found.likeliest & (found.same >= own[..., None] - MARGIN)
    score = found.gold.nan_to_num()
    return {
        TOP: agreement(one.shown, score, words), CHANCE: chance(score, words),
        LEAKS: as_sure.sum(-1) / one.source.sum(1)[:, None], ALONE: found.same.nanmean(-1), OWN: own,
    }  # fmt: skip


def alone(one: Pass, max_elements: int = MAX_ELEMENTS) -> Alone:
    """A readout for each output word and source word."""
    trace = one.trace
    blank = trace.logits.new_full((*trace.target.shape, trace.source.shape[1]), torch.nan)
    gold, same, likeliest = blank, blank.clone(), torch.zeros_like(blank, dtype=torch.bool)
    pairs = (one.target[:, :, None] & one.source[:, None]).nonzero()
    predicted = trace.predictions
    with evaluating(one.model):
        for some in pairs.split(rows_at_a_time(trace, max_elements)):
            b, t, source = some.unbind(1)
            logits, said = read_out_rows(one.model, trace, trace.last.values[b, :, source], b, t), predicted[b, t]
            gold[b, t, source] = log_odds(logits, trace.target[b, t])
            same[b, t, source] = log_odds(logits, said).sigmoid()
            likeliest[b, t, source] = logits.argmax(1) == said
    return Alone(gold, same, likeliest)


def plausibility(subject: Subject, sample: Sample) -> Part | None:
    """Of the attention shown, of the best head of any layer, and of IBM Model 1 fitted to the same sentences."""
    if subject.links is None:
        return None
    shown, heads = (
        HeadAlignmentAccumulator(gold_reference(subject.links)),
        HeadAlignmentAccumulator(gold_reference(subject.links)),
    )
    seen: list[Sentences] = []
    for one in passes(subject, sample):
        sentences, special = Sentences(one.batch, one.texts.source, one.texts.target), Special.of(one.model, one.batch)
        heads.update(layer_weights(one.trace), sentences, special)
        shown.update(one.shown[None, :, None], sentences, special)
        seen.append(sentences)
    error, single = float(shown.result()[0, 0]), heads.result()
    layer, head, least = best(single)
    counted = by_counts(subject, seen)
    several = (
        f"; the best of {single.numel()} heads, layer {layer}, head {head}, has {least:.2f}" * (single.numel() > 1)
    )  # fmt: skip
    sentence = (
        f"Words linked by the highest attention: an alignment error rate of {error:.2f} against gold links{several}, "
        f"and IBM Model 1, fitted to these {sum(map(len, seen)):,} sentences, {counted:.2f}. This says what people "
        "expect to see, not what the model does."
    )
    rows = {"attention shown": error, f"best head (layer {layer}, head {head})": least, "IBM Model 1": counted}
    table = [{"links by": name, "alignment error rate": value} for name, value in rows.items()]
    return {"sentences": [sentence], "table": table, "tests": []}


def best(errors: Heads) -> tuple[int, int, float]:
    """Layer, head and error rate of the head with the lowest."""
    place = int(errors.nan_to_num(nan=torch.inf).argmin())
    return place // errors.shape[1], place % errors.shape[1], float(errors.flatten()[place])


def by_counts(subject: Subject, seen: list[Sentences]) -> float:
    """The error rate of IBM Model 1."""
    assert subject.links is not None
    reference, gold, count = (
        model_1_reference(subject.model, seen),
        gold_reference(subject.links),
        AlignmentAccumulator(),
    )
    for sentences in seen:
        for found, expected in zip(reference(sentences), gold(sentences), strict=True):
            count.update(found.sure, expected)
    return count.result().error_rate


SEED, SHUFFLED = "another seed", "its own, shuffled"


@torch.no_grad()
def between(subject: Subject, other: Subject, sample: Sample) -> Part:
    """The attention shown by two models, beside one model's own weights in another order."""
    taus: dict[str, list[np.ndarray]] = {SEED: [], SHUFFLED: []}
    apart: dict[str, list[np.ndarray]] = {SEED: [], SHUFFLED: []}
    for texts, same in zip(sample(), other.texts(sample.size, sample.most), strict=False):
        one, two = Pass.of(subject, texts), Pass.of(other, same)
        check_alike(one, two)
        for name, attention in {SEED: two.shown.to(one.shown), SHUFFLED: shuffled_shown(one, sample.seed)}.items():
            taus[name].append(one.by_sentence(kendall(one.shown, attention, one.between_words)))
            apart[name].append(one.by_sentence(distance(one, attention)))
    tau, far = ({name: Interval.of(np.concatenate(each)) for name, each in found.items()} for found in (taus, apart))
    sentence = (
        f"The same model from another seed ranks source words with τ = {tau[SEED].value:.2f} to this one's attention, "
        f"and is {far[SEED].value:.0%} as far away (JSD) as attention can be; its own weights in another order get "
        f"{tau[SHUFFLED].value:.2f} and {far[SHUFFLED].value:.0%}."
    )
    table = [
        {"attention": name, "τ": tau[name].value, **limits(tau[name]), "JSD, share of the largest": far[name].value}
        for name in tau
    ]
    return {"sentences": [sentence], "table": table, "tests": []}


def distance(one: Pass, attention: Scores) -> Float[Tensor, "batch target"]:
    """JSD from the attention shown, as a share of the largest."""
    return jsd(one.shown.double(), attention.double()) / math.log(2)


def shuffled_shown(one: Pass, seed: int) -> Scores:
    lots = random_keys(one.trace, range(1), seed)[:, :, 0]  # 1 x batch x target x source
    return permute_weights(one.shown, one.attended, lots)[0]


def check_alike(one: Pass, two: Pass) -> None:
    """Both must have read the same positions."""
    alike = one.batch.source.shape == two.batch.source.shape and one.batch.target.shape == two.batch.target.shape
    alike = alike and bool((one.batch.source.cpu() == two.batch.source.cpu()).all())
    require(alike, "the two models cut the same texts into different pieces, so their attention cannot be compared")
