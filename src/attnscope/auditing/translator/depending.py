"""How well does a translator predict words, and how much of that hangs on its attention? (tutek2020 §3.2)

Attention is made uniform, and its weights are shuffled among the source positions that may be attended to, apart for
each head and output word, as follows from a seed and the words of the sentence. In the last layer, which is the one
that is shown, and in all layers at once: what one layer does not look up, another may.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.auditing.questions import DEPENDS
from attnscope.auditing.record import Interval, Part, Test
from attnscope.auditing.sample import Sample
from attnscope.auditing.subject import Subject
from attnscope.auditing.translator.passes import Pass, limits, log_probabilities, passes
from attnscope.models.adapters import up_to
from attnscope.models.adapters.interventions import Where
from attnscope.models.asking import as_it_was
from attnscope.models.attention import uniform
from attnscope.models.trace import Intervention
from attnscope.probes.fragility import shuffle
from attnscope.probes.heads.again import asking
from attnscope.probes.reweighing import lots_by_step, reweighed

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
    with as_it_was(one.model):
        for name, logits in otherwise(one, layers, draws, seed):
            made[name].append(effect_of(one, logits))
    return {
        name: {measure: np.mean([each[measure] for each in parts], 0) for measure in parts[0]}
        for name, parts in made.items()
    }


def otherwise(one: Pass, layers: int, draws: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """What is said with each other attention, one after the other: logits are large."""
    where = "" if layers == 1 else " in the last layer"
    yield f"uniform{where}", reweighed(one.model, one.trace, uniform(one.trace.attention, one.attended))
    for draw in range(draws):
        yield f"shuffled{where}", reweighed(one.model, one.trace, shuffled(one, layers - 1, draw, seed))
    if layers > 1:
        ask = asking(one.model, one.batch, {})
        yield "uniform in all layers", ask(dict.fromkeys(range(layers), uniform)).logits
        for draw in range(draws):
            every: dict[Where, Intervention] = {layer: shuffled(one, layer, draw, seed) for layer in range(layers)}
            yield "shuffled in all layers", ask(every).logits


def shuffled(one: Pass, layer: int, draw: int, seed: int) -> Float[Tensor, "batch heads target source"]:
    """The layer's own weights, in another order."""
    trace = up_to(one.trace, layer) if len(one.trace.layers) > 1 else one.trace
    number = layer * APART + draw
    lots = lots_by_step(trace, range(number, number + 1), seed)
    mixed: Tensor = shuffle(trace.attention.flatten(1, 2), one.attended, lots.flatten(2, 3))[0]
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
