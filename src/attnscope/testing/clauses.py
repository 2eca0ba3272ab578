"""What does a model show of a batch, and when are two of its answers the same?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnscope.models.attention import masked_softmax, uniform
from attnscope.models.capabilities import EmbedsSource, ReadsOut
from attnscope.models.inference import evaluating
from attnscope.models.trace import Attention, Trace
from attnscope.probes.saliency import gold_log_probability, with_embeddings, with_gradients
from attnscope.tasks.batch import SPECIALS, START, Batch
from attnscope.tasks.task import trimmed

TOLERANCE = 1e-5  # of the largest number compared, or of one if that is larger


@dataclass(frozen=True)
class Asked:
    """A model, a batch, and what a plain pass in evaluation mode shows."""

    model: Callable[..., Trace]
    batch: Batch
    trace: Trace
    tolerance: float = TOLERANCE

    def again(self, batch: Batch | None = None, **forward: Any) -> Trace:
        with evaluating(self.model):
            return self.model(self.batch if batch is None else batch, **forward)

    @cached_property
    def given(self) -> tuple[Tensor, Tensor]:
        """What an intervention that is a function is given: the last layer's weights, and what may be attended to.

        A model that goes step by step gives those of one target word at a time.
        """
        seen: list[tuple[Tensor, Tensor]] = []

        def look(weights: Tensor, mask: Tensor) -> Tensor:
            seen.append((weights, mask))
            return weights

        self.again(attention=look)
        if not seen:
            raise AssertionError("a function given as attention= was never called")
        weights, masks = zip(*seen, strict=True)
        return torch.cat(weights, 2), masks[-1]

    @property
    def attended(self) -> Bool[Tensor, "batch source"]:
        return self.given[1]

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Up to rounding; -inf and NaN are the same as themselves."""
        if one.shape != other.shape:
            return False
        finite = other[other.isfinite()].abs()
        scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
        return bool(torch.isclose(one, other, rtol=0, atol=self.tolerance * scale, equal_nan=True).all())

    def said(self, trace: Trace) -> Tensor:
        """The logits of words that are no padding."""
        return trace.logits[trace.target_mask]

    def rows(self, weights: Float[Tensor, "batch heads target source"]) -> Tensor:
        """Those of words that are no padding."""
        return weights.transpose(1, 2)[self.trace.target_mask]  # rows x heads x source

    def on_one(self, last: bool) -> Float[Tensor, "batch heads target source"]:
        """All attention on the first, or the last, position that may be attended to."""
        order = torch.arange(self.attended.shape[1], device=self.attended.device)
        place = torch.where(self.attended, order, -1 if last else len(order))
        chosen = place.argmax(1) if last else place.argmin(1)
        return (order == chosen[:, None])[:, None, None].to(self.trace.attention).expand_as(self.trace.attention)


def gives_the_batch_back(asked: Asked) -> Iterator[str]:
    for name in ("source", "source_mask", "target", "target_mask"):
        if not torch.equal(getattr(asked.trace, name), getattr(asked.batch, name)):
            yield f"trace.{name} is not that of the batch"


def has_the_right_shapes(asked: Asked) -> Iterator[str]:
    trace = asked.trace
    (batch, source), target = trace.source.shape, trace.target.shape[1]
    expected = {
        "embedded": (batch, source), "encoder": (batch, source), "decoder": (batch, target), "context": (batch, target),
        "logits": (batch, target), "decoder_input": (batch, target),
    }  # fmt: skip
    for name, sizes in expected.items():
        value = getattr(trace, name)
        if value is not None and tuple(value.shape[:2]) != sizes:
            yield f"trace.{name} is {tuple(value.shape)}, but batch x positions are {sizes}"
    if int(trace.target.max()) >= trace.logits.shape[-1]:
        yield f"a target word has the number {int(trace.target.max())}, but there are {trace.logits.shape[-1]} logits"
    for i, layer in enumerate(trace.layers):
        yield from misshapen(layer, i, batch, target, source)


def misshapen(layer: Attention, number: int, batch: int, target: int, source: int) -> Iterator[str]:
    heads = layer.weights.shape[1]
    for name in ("weights", "scores"):
        shape, expected = tuple(getattr(layer, name).shape), (batch, heads, target, source)
        if shape != expected:
            yield f"{name} of layer {number} is {shape}, not {expected}"
    for name, places in {"queries": target, "keys": source, "values": source}.items():
        value = getattr(layer, name)
        if value is not None and tuple(value.shape[:3]) != (batch, heads, places):
            yield f"{name} of layer {number} is {tuple(value.shape)}, not {(batch, heads, places)} and a size"


def attends_to_words_only(asked: Asked) -> Iterator[str]:
    for i, layer in enumerate(asked.trace.layers):
        rows = asked.rows(layer.weights)
        if bool((rows < 0).any()):
            yield f"attention of layer {i} is negative somewhere"
        if not asked.same(rows.sum(-1), torch.ones_like(rows[..., 0])):
            yield f"attention of layer {i} does not sum to one over the source"
        padding = ~asked.trace.source_mask[:, None, None].expand_as(layer.weights)
        if bool((asked.rows(layer.weights * padding) != 0).any()):
            yield f"attention of layer {i} is not zero on padding"


def attention_is_the_softmax_of_the_scores(asked: Asked) -> Iterator[str]:
    for i, layer in enumerate(asked.trace.layers):
        softmax = masked_softmax(layer.scores, asked.attended)
        if not asked.same(asked.rows(softmax), asked.rows(layer.weights)):
            yield f"attention of layer {i} is not the softmax of its scores over what may be attended to"
        if layer.queries is None or layer.keys is None:
            continue
        words = asked.trace.source_mask[:, None, None]
        products = (layer.queries @ layer.keys.mT) * words
        if not asked.same(asked.rows(products), asked.rows(layer.scores * words)):
            yield f"scores of layer {i} are not queries · keys"


def masks_what_is_no_word(asked: Asked) -> Iterator[str]:
    if not asked.trace.layers:
        return
    weights, mask = asked.given
    if mask.dtype != torch.bool or mask.shape != asked.trace.source_mask.shape:
        yield f"the mask given to an intervention is {mask.dtype} of {tuple(mask.shape)}, not bool of batch x source"
    elif bool((mask & ~asked.trace.source_mask).any()) or not bool(mask.any(1).all()):
        yield "the mask given to an intervention is true on padding, or on nothing at all"
    if not asked.same(asked.rows(weights), asked.rows(asked.trace.attention)):
        yield "the weights given to an intervention are not those that the trace shows"


def its_own_weights_change_nothing(asked: Asked) -> Iterator[str]:
    if not asked.trace.layers:
        return
    for name, attention in {"a tensor": asked.trace.attention, "a function": lambda weights, mask: weights}.items():
        if not asked.same(asked.said(asked.again(attention=attention)), asked.said(asked.trace)):
            yield f"with the model's own weights, given as {name}, other logits come out"


def interventions_take_effect(asked: Asked) -> Iterator[str]:
    if not asked.trace.layers:
        return
    told = {last: asked.again(attention=asked.on_one(last)) for last in (False, True)}
    for last, trace in told.items():
        if not asked.same(asked.rows(trace.attention), asked.rows(asked.on_one(last))):
            yield "the trace does not show the weights that were given as attention="
            break
    if bool((asked.attended.sum(1) > 1).any()) and torch.equal(asked.said(told[False]), asked.said(told[True])):
        yield "all attention on the first or on the last word: the same logits come out"


def uniform_is_uniform(asked: Asked) -> Iterator[str]:
    if not asked.trace.layers:
        return
    expected = uniform(asked.trace.attention, asked.attended)
    function, tensor = asked.again(attention=uniform), asked.again(attention=expected)
    if not asked.same(asked.rows(function.attention), asked.rows(expected)):
        yield "attention=uniform is not one over the number of words that may be attended to"
    if not asked.same(asked.said(function), asked.said(tensor)):
        yield "attention=uniform, and the same weights as a tensor, give different logits"


def every_layer_and_head_can_be_changed(asked: Asked) -> Iterator[str]:
    layers = asked.trace.layers
    if len(layers) < 2:
        return
    for i, layer in enumerate(layers):
        if not asked.same(asked.said(asked.again(attention={i: layer.weights})), asked.said(asked.trace)):
            yield f"with layer {i}'s own weights, other logits come out"
        for head in range(layer.weights.shape[1]):
            told = asked.again(attention={(i, head): uniform})
            expected = layer.weights.clone()
            expected[:, head] = uniform(layer.weights, asked.attended)[:, head]
            if not asked.same(asked.rows(told.layers[i].weights), asked.rows(expected)):
                yield f"attention={{({i}, {head}): uniform}} does not make that head uniform, and no other of its layer"
            if torch.equal(asked.said(told), asked.said(asked.trace)):
                yield f"making head {head} of layer {i} uniform changes no logit"


def reads_out_what_it_says(asked: Asked) -> Iterator[str]:
    model = asked.model
    trace = asked.trace
    if not trace.layers or trace.context is None or not isinstance(model, ReadsOut):
        return
    with evaluating(model):
        context = model.context_of(trace.last.weights @ trace.last.values)
        said = model.readout(trace.context, trace.decoder)
    if not asked.same(context[trace.target_mask], trace.context[trace.target_mask]):
        yield "context_of(weights @ values) is not trace.context"
    if not asked.same(said[trace.target_mask], asked.said(trace)):
        yield "readout(trace.context, trace.decoder) is not trace.logits"


def hears_only_earlier_words(asked: Asked) -> Iterator[str]:
    trace, target = asked.trace, asked.batch.target
    if trace.decoder_input is not None:
        expected = torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], 1)
        if not torch.equal(trace.decoder_input, expected):
            yield "with teacher forcing, trace.decoder_input is not the start token and then all but the last target"
    middle = target.shape[1] // 2
    if middle == 0:
        return
    others = trace.logits.shape[-1] - len(SPECIALS)
    other = target.clone()
    other[:, middle] = (target[:, middle] - len(SPECIALS) + 1) % others + len(SPECIALS)
    told = asked.again(replace(asked.batch, target=other))
    before = asked.batch.target_mask[:, : middle + 1]
    if not asked.same(told.logits[:, : middle + 1][before], trace.logits[:, : middle + 1][before]):
        yield f"another target word at position {middle} changes what is said there or before"


def a_batch_is_its_sentences(asked: Asked) -> Iterator[str]:
    for i in range(len(asked.batch)):
        alone = asked.again(trimmed(asked.batch, slice(i, i + 1)))
        yield from differences(asked, alone, i, f"sentence {i} alone")


def padding_changes_nothing(asked: Asked) -> Iterator[str]:
    source, target = asked.batch.source.shape[1], asked.batch.target.shape[1]
    # A classifier says one word, whatever comes.
    wider = asked.again(asked.batch.widened(source + 2, target if target == 1 else target + 1))
    for i in range(len(asked.batch)):
        yield from differences(asked, wider, i, f"with more padding, sentence {i}", row=i)


def differences(asked: Asked, other: Trace, i: int, name: str, row: int = 0) -> Iterator[str]:
    """Between sentence i of the batch and a row of another trace, where it is no padding."""
    source, target = int(asked.batch.source_mask[i].sum()), int(asked.batch.target_mask[i].sum())
    if not asked.same(other.logits[row, :target], asked.trace.logits[i, :target]):
        yield f"{name} has other logits than in its batch"
    if not asked.same(other.encoder[row, :source], asked.trace.encoder[i, :source]):
        yield f"{name} has other encoder states than in its batch"
    for layer, (one, two) in enumerate(zip(other.layers, asked.trace.layers, strict=True)):
        if not asked.same(one.weights[row, :, :target, :source], two.weights[i, :, :target, :source]):
            yield f"{name} has other attention in layer {layer} than in its batch"


def embeddings_can_be_reached(asked: Asked) -> Iterator[str]:
    model = asked.model
    if not isinstance(model, EmbedsSource):
        return
    shift, seen = torch.zeros_like(asked.trace.embedded).requires_grad_(), list[Tensor]()

    def shifted(embedded: Tensor) -> Tensor:
        seen.append(embedded)
        return embedded + shift

    with with_gradients(model), with_embeddings(model, asked.batch, shifted):
        output = gold_log_probability(model(asked.batch))[asked.batch.target_mask].sum()
    if len(seen) != 1 or not asked.same(seen[0].detach(), asked.trace.embedded):
        yield "source_inputs(batch.source) is not called once in a pass, with trace.embedded as its result"
    slope = torch.autograd.grad(output, shift, allow_unused=True)[0] if output.requires_grad else None
    if slope is None or not bool(slope.isfinite().all()) or not bool((slope != 0).any()):
        yield "no gradient goes from what is said to the embeddings of the source, or it is no number"


def leaves_the_model_as_it_was(asked: Asked) -> Iterator[str]:
    """In a pass with some modules in training mode, and in one that an exception ends."""
    if not isinstance(asked.model, nn.Module):
        return
    model: Any = asked.model
    with half_in_training(model):
        before = state_of(model)
        with torch.no_grad():
            model(asked.batch)
        yield from changed(before, state_of(model), "a pass")
        if asked.trace.layers:
            try:
                with torch.no_grad():
                    model(asked.batch, attention=interrupted)
            except Interruption:
                yield from changed(before, state_of(model), "an exception in a pass")
            else:
                yield "an exception raised in a function given as attention= does not come out of the pass"


class Interruption(Exception):
    pass


def interrupted(weights: Tensor, mask: Tensor) -> Tensor:
    raise Interruption


@contextmanager
def half_in_training(model: nn.Module) -> Iterator[None]:
    """Every other module is in training mode; afterwards as it was."""
    with evaluating(model):
        for i, module in enumerate(model.modules()):
            module.training = i % 2 == 0
        yield


def state_of(model: nn.Module) -> dict[str, Any]:
    """All that a pass must leave as it is."""
    configured = {name: module.config for name, module in model.named_modules() if hasattr(module, "config")}
    return {
        "training or evaluation modes": [module.training for module in model.modules()],
        "parameters": [parameter.detach().clone() for parameter in model.parameters()],
        "buffers": [buffer.clone() for buffer in model.buffers()],
        "gradients": [parameter.grad for parameter in model.parameters()],
        "which parameters have gradients": [parameter.requires_grad for parameter in model.parameters()],
        "hooks": [
            (name, kind, tuple(found)) for name, module in model.named_modules()
            for kind, found in vars(module).items() if kind.endswith("_hooks") and found
        ],
        "configuration": {name: str(config) for name, config in configured.items()},
        "attention implementation": {
            name: getattr(config, "_attn_implementation", None) for name, config in configured.items()
        },
        "gradient mode": torch.is_grad_enabled(),
    }  # fmt: skip


def changed(before: dict[str, Any], after: dict[str, Any], when: str) -> Iterator[str]:
    for name, was in before.items():
        now = after[name]
        if isinstance(was, list) and any(isinstance(value, Tensor) for value in was + now):
            equal = all(same_tensor(one, other) for one, other in zip(was, now, strict=True))
        else:
            equal = was == now
        if not equal:
            yield f"{when} changes the model: {name}"


def same_tensor(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.nan_to_num(), other.nan_to_num())
