"""Tests of a translator's attention: dependence (tutek2020 §3.2), erasure and agreement with gold word alignments."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.faithfulness.criteria import COMPREHENSIVENESS, DEPENDENCE, Interval
from attnscope.faithfulness.records import Part, Row
from attnscope.faithfulness.subject import PerText, PerWord, Reading, Sample, Subject
from attnscope.models.adapters import up_to
from attnscope.models.attention import uniform
from attnscope.models.inference import evaluating
from attnscope.models.trace import Intervention, Where
from attnscope.probes.agreement import peaks
from attnscope.probes.counterfactual import random_keys
from attnscope.probes.fragility import permute_weights
from attnscope.probes.heads.ranking import HeadAlignmentAccumulator, gold_reference, model_1_reference
from attnscope.probes.heads.sentences import HeadValues, Sentences, SpecialTokens
from attnscope.probes.word_alignment import AlignmentAccumulator

CHANGED, LOST, MOVED = "words changed", "log-probability lost", "output change (TVD)"
LAST, ALL = " in the last layer", " in all layers"
NUM_SHUFFLES = {True: 3, False: 10}  # quick, and in full
LAYER_KEYS = 1 << 10  # random keys of a layer come so far after those of the layer before
ATTENDED, ANY, MOST = "most attended", "random", "most influential"


@torch.no_grad()
def quality(subject: Subject, sample: Sample) -> Part:
    """Return accuracy and log-probability of the output words with teacher forcing."""
    found = PerText()
    for reading in sample.readings():
        own, gold = log_probabilities(reading, reading.trace.logits), reading.trace.target[reading.outputs]
        found.add("word accuracy", reading.by_row((own.argmax(1) == gold).double()))
        found.add("log-probability of the gold word", reading.by_row(gold_values(reading, own)))
    means = found.means()
    accuracy, log_probability = means.values()
    sentence = (
        f"With teacher forcing it predicts {accuracy.value:.1%} of the words correctly, and gives the gold word a "
        f"probability of {np.exp(log_probability.value):.2f} (geometric mean). Attention can explain a prediction, not "
        "make up for a poor one."
    )
    return Part([sentence], [{"measure": name, "mean": mean.value, **mean.limits} for name, mean in means.items()])


@torch.no_grad()
def dependence(subject: Subject, sample: Sample) -> Part:
    """Return how output words change with other attention: fragility (tutek2020 table 1), of a translator.

    Attention is made uniform, or shuffled among the source positions that may be attended to, separately for each head
    and output word: in the last layer, which is the one judged, and in all layers at once.
    """
    layers, effects = subject.depth, dict[str, PerText]()
    for reading in sample.readings():
        for name, values in mean_effects(reading, layers, NUM_SHUFFLES[sample.quick], sample.seed).items():
            for measure, each in values.items():
                effects.setdefault(name, PerText()).add(measure, each)
    means = {name: found.means() for name, found in effects.items()}
    where = LAST * (layers > 1)
    share = means[f"shuffled{where}"][CHANGED]
    sentence = f"Shuffling attention{where} among the source tokens changes {share.value:.1%} of the predicted words"
    if layers > 1:
        sentence += f"; in all {layers} layers at once, {means[f'shuffled{ALL}'][CHANGED].value:.1%}"
    table: list[Row] = [
        {"attention": name, CHANGED: found[CHANGED].value, **found[CHANGED].limits, LOST: found[LOST].value,
         MOVED: found[MOVED].value} for name, found in means.items()
    ]  # fmt: skip
    return Part([f"{sentence}."], table, [DEPENDENCE.judge(f"{sentence}.", share, chance=0.0)])


def mean_effects(reading: Reading, layers: int, draws: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the effects of each other attention per text; those of shuffles are means over draws."""
    found: dict[str, list[dict[str, np.ndarray]]] = {}
    with evaluating(reading.model):
        own = log_probabilities(reading, reading.trace.logits)
        for name, logits in counterfactual_logits(reading, layers, draws, seed):
            found.setdefault(name, []).append(effects_of(reading, own, log_probabilities(reading, logits)))
    return {name: {key: np.mean([one[key] for one in each], 0) for key in each[0]} for name, each in found.items()}


def effects_of(reading: Reading, own: Tensor, other: Tensor) -> dict[str, np.ndarray]:
    """Return what changes from one to other log-probabilities of the output words, per text."""
    measures = {
        CHANGED: (other.argmax(1) != own.argmax(1)).double(),
        LOST: gold_values(reading, own) - gold_values(reading, other),
        MOVED: (other.exp() - own.exp()).abs().sum(1) / 2,
    }
    return {name: reading.by_row(values) for name, values in measures.items()}


def counterfactual_logits(reading: Reading, layers: int, draws: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the logits with each other attention, one at a time: they are large."""
    counterfactual, where = reading.counterfactual, LAST * (layers > 1)
    yield f"uniform{where}", counterfactual.logits(uniform(reading.trace.attention, reading.attended))
    for draw in range(draws):
        yield f"shuffled{where}", counterfactual.logits(shuffled_layer(reading, layers - 1, draw, seed))
    if layers > 1:
        yield f"uniform{ALL}", counterfactual.intervene(dict.fromkeys(range(layers), uniform)).logits
        for draw in range(draws):
            every: dict[Where, Intervention] = {
                layer: shuffled_layer(reading, layer, draw, seed) for layer in range(layers)
            }
            yield f"shuffled{ALL}", counterfactual.intervene(every).logits


def shuffled_layer(reading: Reading, layer: int, draw: int, seed: int) -> Float[Tensor, "batch heads target source"]:
    """Return a layer's own weights, shuffled."""
    trace = up_to(reading.trace, layer) if len(reading.trace.layers) > 1 else reading.trace
    stream = layer * LAYER_KEYS + draw
    keys = random_keys(trace, range(stream, stream + 1), seed)
    shuffled: Tensor = permute_weights(trace.attention.flatten(1, 2), reading.attended, keys.flatten(2, 3))[0]
    return shuffled.view_as(trace.attention)


def log_probabilities(reading: Reading, logits: Float[Tensor, "batch target words"]) -> Float[Tensor, "rows words"]:
    """Return log-probabilities of the vocabulary, one row per output word."""
    return logits.detach()[reading.outputs].log_softmax(-1)


def gold_values(reading: Reading, values: Float[Tensor, "rows words"]) -> Float[Tensor, " rows"]:
    """Return the value of each gold word."""
    return values.gather(1, reading.trace.target[reading.outputs][:, None])[:, 0]


def erasure(subject: Subject, sample: Sample) -> Part:
    """Return what removing the most attended token costs, between a random and the most influential one."""
    found = PerText()
    for reading in sample.readings():
        for name, values in losses(reading).items():
            found.add(name, reading.by_text(values))
    means = found.means()
    share = Interval.ratio(found[ATTENDED] - found[ANY], found[MOST] - found[ANY])
    sentence = (
        f"Without the source token that it attends to most, an output word loses {means[ATTENDED].value:.3f} nats of "
        f"log-probability, without a random token {means[ANY].value:.3f}, without the most influential one "
        f"{means[MOST].value:.3f}: attention covers {share.value:.0%} of the distance from chance to the best."
    )
    table: list[Row] = [{"token removed": name, LOST: mean.value, **mean.limits} for name, mean in means.items()]
    return Part([sentence], table, [COMPREHENSIVENESS.judge(sentence, share, chance=0.0, best=1.0)])


def losses(reading: Reading) -> dict[str, PerWord]:
    """Return what is lost without the most attended token (ties: the mean), any token, and the most influential one."""
    lost, comparable = reading.leave_one_out, reading.comparable
    top = peaks(reading.attention, comparable)
    known = lost.masked_fill(~comparable, 0)
    return {
        ATTENDED: (known * top).sum(-1) / top.sum(-1),
        ANY: known.sum(-1) / comparable.sum(-1),
        MOST: lost.masked_fill(~comparable, -torch.inf).amax(-1).masked_fill(~comparable.any(-1), torch.nan),
    }


def plausibility(subject: Subject, sample: Sample) -> Part | None:
    """Return alignment error rates of attention, the best head and IBM Model 1, where there is a gold alignment."""
    if subject.alignments is None:
        return None
    shown, heads = (HeadAlignmentAccumulator(gold_reference(subject.alignments)) for _ in range(2))
    corpus: list[Sentences] = []
    for reading in sample.readings():
        sentences = Sentences(reading.batch, reading.texts.source, reading.texts.target)
        special = SpecialTokens.of(reading.model, reading.batch)
        heads.update(reading.counterfactual.layer_weights, sentences, special)
        shown.update(reading.attention[None, :, None], sentences, special)
        corpus.append(sentences)
    error, by_head, model_1 = float(shown.result()[0, 0]), heads.result(), model_1_error(subject, corpus)
    layer, head, least = best_head(by_head)
    best = f"; the best of {by_head.numel()} heads, layer {layer}, head {head}, has {least:.2f}"
    sentence = (
        f"Word alignment by the highest attention has an error rate of {error:.2f}{best * (by_head.numel() > 1)}, and "
        f"IBM Model 1, fitted to these {sum(map(len, corpus)):,} sentences, {model_1:.2f}. This shows what people "
        "expect to see, not what the model does."
    )
    rates = {"attention shown": error, f"best head (layer {layer}, head {head})": least, "IBM Model 1": model_1}
    return Part([sentence], [{"word alignment by": name, "error rate": value} for name, value in rates.items()])


def best_head(errors: HeadValues) -> tuple[int, int, float]:
    """Return layer, head and error rate of the head with the lowest."""
    place = int(errors.nan_to_num(nan=torch.inf).argmin())
    return place // errors.shape[1], place % errors.shape[1], float(errors.flatten()[place])


def model_1_error(subject: Subject, corpus: list[Sentences]) -> float:
    """Return the alignment error rate of IBM Model 1."""
    assert subject.alignments is not None
    reference, gold = model_1_reference(subject.model, corpus), gold_reference(subject.alignments)
    counts = AlignmentAccumulator()
    for sentences in corpus:
        for found, expected in zip(reference(sentences), gold(sentences), strict=True):
            counts.update(found.sure, expected)
    return counts.result().error_rate
