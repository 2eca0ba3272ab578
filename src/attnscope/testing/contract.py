"""The contract of an adapter: its clauses, a check of all of them, and a quick check that runs before every audit.

Each clause yields one sentence per violation.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnscope.errors import AttnscopeError, require
from attnscope.models.attention import by_row, masked_softmax, uniform
from attnscope.models.capabilities import EmbedsSource, GivesTrace, HasLayers, MasksInPlace, ReadsOut
from attnscope.models.inference import Model, device_of, evaluating, module_of
from attnscope.models.trace import Attention, Intervention, Interventions, Trace
from attnscope.probes.saliency import gold_log_probability, with_embeddings, with_gradients
from attnscope.tasks.batch import SPECIALS, START, Batch

TOLERANCE = 1e-5  # relative to the largest number compared, but at least to 1


@dataclass(frozen=True)
class Case:
    """A model, a batch, and the trace of a pass over it in evaluation mode."""

    model: Callable[..., Trace]
    batch: Batch
    trace: Trace
    tolerance: float = TOLERANCE

    def run(self, attention: Interventions | None = None, batch: Batch | None = None) -> Trace:
        """Return the trace of another pass."""
        forward = {} if attention is None else {"attention": attention}
        with evaluating(self.model):
            return self.model(self.batch if batch is None else batch, **forward)

    @cached_property
    def intervention(self) -> tuple[Tensor, Tensor]:
        """The arguments of a function passed as attention=: the last layer's weights, and the mask of positions.

        A model that decodes step by step passes one target position at a time.
        """
        calls = self.interventions_at(None)
        if not calls:
            raise AssertionError("a function passed as attention= was never called")
        weights, masks = zip(*calls, strict=True)
        return torch.cat(weights, 2), masks[-1]

    def interventions_at(self, layer: int | None) -> list[tuple[Tensor, Tensor]]:
        """Return the arguments of each call of a function passed for one layer, or as attention= itself."""
        calls: list[tuple[Tensor, Tensor]] = []

        def record(weights: Tensor, mask: Tensor) -> Tensor:
            calls.append((weights, mask))
            return weights

        self.run(record if layer is None else {layer: record})
        return calls

    @property
    def attended(self) -> Bool[Tensor, "batch rows source"]:
        """Source positions that may be attended to, in one row for all target positions or in one row for each."""
        return by_row(self.intervention[1])

    def attended_at(self, layer: int) -> Bool[Tensor, "batch rows source"]:
        """Return the same for one layer; layers with sliding windows differ."""
        calls = self.interventions_at(layer) if isinstance(self.model, HasLayers) else []
        return by_row(calls[-1][1]) if calls else self.attended

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Return whether two tensors are equal up to rounding; -inf and NaN equal themselves."""
        if one.shape != other.shape:
            return False
        finite = other[other.isfinite()].abs()
        scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
        return bool(torch.isclose(one, other, rtol=0, atol=self.tolerance * scale, equal_nan=True).all())

    def rows(self, weights: Float[Tensor, "batch heads target source"]) -> Float[Tensor, "rows heads source"]:
        """Return the rows of target positions that are not padding."""
        return weights.transpose(1, 2)[self.trace.target_mask]

    def on_one(self, last: bool) -> Float[Tensor, "batch heads target source"]:
        """Return weights that are all on the first, or the last, position that may be attended to."""
        order = torch.arange(self.attended.shape[2], device=self.attended.device)
        place = torch.where(self.attended, order, -1 if last else len(order))
        chosen = place.argmax(2) if last else place.argmin(2)  # batch x rows
        return (order == chosen[:, :, None])[:, None].to(self.trace.attention).expand_as(self.trace.attention)


def logits_of(trace: Trace) -> Float[Tensor, "rows words"]:
    """Return the logits of target positions that are not padding."""
    return trace.logits[trace.target_mask]


def trace_holds_the_batch(case: Case) -> Iterator[str]:
    for name in ("source", "source_mask", "target", "target_mask"):
        if not torch.equal(getattr(case.trace, name), getattr(case.batch, name)):
            yield f"trace.{name} is not that of the batch"
    special, expected = case.trace.source_special, case.batch.source_special
    if expected is not None and (special is None or not torch.equal(special, expected)):
        yield "trace.source_special is not that of the batch; build the trace with Trace.of(batch, ...)"


def shapes_are_right(case: Case) -> Iterator[str]:
    trace = case.trace
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
        yield f"a target has the token id {int(trace.target.max())}, but there are {trace.logits.shape[-1]} logits"
    for i, layer in enumerate(trace.layers):
        yield from wrong_shapes(layer, i, batch, target, source)


def wrong_shapes(layer: Attention, number: int, batch: int, target: int, source: int) -> Iterator[str]:
    heads = layer.weights.shape[1]
    for name in ("weights", "scores"):
        shape, expected = tuple(getattr(layer, name).shape), (batch, heads, target, source)
        if shape != expected:
            yield f"{name} of layer {number} is {shape}, not {expected}"
    for name, places in {"queries": target, "keys": source, "values": source}.items():
        value = getattr(layer, name)
        if value is not None and tuple(value.shape[:3]) != (batch, heads, places):
            yield f"{name} of layer {number} is {tuple(value.shape)}, not {(batch, heads, places)} and a size"


def attention_is_a_distribution_over_the_source(case: Case) -> Iterator[str]:
    for i, layer in enumerate(case.trace.layers):
        rows = case.rows(layer.weights)
        if bool((rows < 0).any()):
            yield f"attention of layer {i} is negative somewhere"
        sums = layer.weights.sum(-1) if layer.sink is None else layer.weights.sum(-1) + layer.sink
        if not case.same(case.rows(sums[..., None]), torch.ones_like(rows[..., :1])):
            yield f"attention of layer {i} does not sum to one over the source, with the sink if it has one"
        padding = ~case.trace.source_mask[:, None, None].expand_as(layer.weights)
        if bool((case.rows(layer.weights * padding) != 0).any()):
            yield f"attention of layer {i} is not zero on padding"


def attention_is_the_softmax_of_the_scores(case: Case) -> Iterator[str]:
    for i, layer in enumerate(case.trace.layers):
        softmax = masked_softmax(layer.scores, case.attended_at(i))
        softmax = softmax if layer.sink is None else softmax * (1 - layer.sink[..., None])
        if not case.same(case.rows(softmax), case.rows(layer.weights)):
            yield f"attention of layer {i} is not the softmax of its scores over what may be attended to"
        if layer.queries is None or layer.keys is None:
            continue
        mask = case.trace.source_mask[:, None, None]
        products = (layer.queries @ layer.keys.mT) * mask
        if not case.same(case.rows(products), case.rows(layer.scores * mask)):
            yield f"scores of layer {i} are not queries · keys"


def interventions_are_given_weights_and_mask(case: Case) -> Iterator[str]:
    if not case.trace.layers:
        return
    weights, mask = case.intervention
    expected = (case.trace.source_mask.shape, case.trace.pairs.shape)
    if mask.dtype != torch.bool or mask.shape not in expected:
        yield (
            f"the mask passed to an intervention is {mask.dtype} of {tuple(mask.shape)}, not bool of batch x source or "
            "batch x target x source"
        )
    elif bool((by_row(mask) & ~case.trace.source_mask[:, None]).any()) or not bool(mask.any(-1).all()):
        yield "the mask passed to an intervention is true on padding, or nowhere"
    if not case.same(case.rows(weights), case.rows(case.trace.attention)):
        yield "the weights passed to an intervention are not those of the trace"


def own_weights_change_nothing(case: Case) -> Iterator[str]:
    if not case.trace.layers:
        return
    interventions: dict[str, Intervention] = {
        "a tensor": case.trace.attention, "a function": lambda weights, mask: weights
    }  # fmt: skip
    for name, attention in interventions.items():
        if not case.same(logits_of(case.run(attention)), logits_of(case.trace)):
            yield f"passing the model's own weights as {name} changes the logits"


def interventions_take_effect(case: Case) -> Iterator[str]:
    if not case.trace.layers:
        return
    first, last = (case.on_one(last) for last in (False, True))
    on_first, on_last = case.run(first), case.run(last)
    for trace, weights in ((on_first, first), (on_last, last)):
        if not case.same(case.rows(trace.attention), case.rows(weights)):
            yield "the trace does not hold the weights passed as attention="
            break
    # Where the two positions have the same value, as in a model that copies it everywhere, the logits are the same.
    differ = not torch.equal(case.rows(first @ on_first.last.values), case.rows(last @ on_last.last.values))
    if differ and torch.equal(logits_of(on_first), logits_of(on_last)):
        yield "all attention on the first or on the last token gives the same logits, so attention= has no effect"


def uniform_is_uniform(case: Case) -> Iterator[str]:
    if not case.trace.layers:
        return
    expected = uniform(case.trace.attention, case.attended)
    function, tensor = case.run(uniform), case.run(expected)
    if not case.same(case.rows(function.attention), case.rows(expected)):
        yield "attention=uniform is not one over the number of tokens that may be attended to"
    if not case.same(logits_of(function), logits_of(tensor)):
        yield "attention=uniform, and the same weights as a tensor, give different logits"


def every_layer_and_head_can_be_changed(case: Case) -> Iterator[str]:
    layers = case.trace.layers
    if len(layers) < 2:
        return
    for i, layer in enumerate(layers):
        if not case.same(logits_of(case.run({i: layer.weights})), logits_of(case.trace)):
            yield f"passing layer {i}'s own weights changes the logits"
        for head in range(layer.weights.shape[1]):
            changed = case.run({(i, head): uniform})
            expected = layer.weights.clone()
            expected[:, head] = uniform(layer.weights, case.attended_at(i))[:, head]
            if not case.same(case.rows(changed.layers[i].weights), case.rows(expected)):
                yield f"attention={{({i}, {head}): uniform}} does not make exactly that head uniform"
            if torch.equal(logits_of(changed), logits_of(case.trace)):
                yield f"making head {head} of layer {i} uniform changes no logit"


def readout_gives_the_logits(case: Case) -> Iterator[str]:
    model, trace = case.model, case.trace
    if not trace.layers or trace.context is None or not isinstance(model, ReadsOut):
        return
    with evaluating(model):
        context = model.context_of(trace.last.weights @ trace.last.values)
        logits = model.readout(trace.context, trace.decoder)
    if not case.same(context[trace.target_mask], trace.context[trace.target_mask]):
        yield "context_of(weights @ values) is not trace.context"
    if not case.same(logits[trace.target_mask], logits_of(trace)):
        yield "readout(trace.context, trace.decoder) is not trace.logits"


def decoder_is_given_only_earlier_tokens(case: Case) -> Iterator[str]:
    trace, target = case.trace, case.batch.target
    teacher_forced = not isinstance(case.model, GivesTrace) or case.model.decoding == "teacher_forced"
    if trace.decoder_input is not None and teacher_forced:
        expected = torch.cat([torch.full_like(target[:, :1], START), target[:, :-1]], 1)
        if not torch.equal(trace.decoder_input, expected):
            yield "with teacher forcing, trace.decoder_input is not the start token and then all but the last target"
    middle = target.shape[1] // 2
    if middle == 0:
        return
    others = trace.logits.shape[-1] - len(SPECIALS)
    other = target.clone()
    other[:, middle] = (target[:, middle] - len(SPECIALS) + 1) % others + len(SPECIALS)
    changed = case.run(batch=replace(case.batch, target=other))
    before = case.batch.target_mask[:, : middle + 1]
    if not case.same(changed.logits[:, : middle + 1][before], trace.logits[:, : middle + 1][before]):
        yield f"another target token at position {middle} changes the logits there or before"


def a_batch_is_its_sentences(case: Case) -> Iterator[str]:
    for i in range(len(case.batch)):
        alone = case.run(batch=case.batch.rows(slice(i, i + 1)))
        yield from differences(case, alone, i, f"sentence {i} alone")


def padding_changes_nothing(case: Case) -> Iterator[str]:
    source, target = case.batch.source.shape[1], case.batch.target.shape[1]
    # The target of a classifier is one token, whatever the padding.
    wider = case.run(batch=case.batch.widened(source + 2, target if target == 1 else target + 1))
    for i in range(len(case.batch)):
        yield from differences(case, wider, i, f"sentence {i} with more padding", row=i)


def masked_positions_are_not_read(case: Case) -> Iterator[str]:
    """In the middle of a text too, if the model declares MasksInPlace."""
    if not isinstance(case.model, MasksInPlace):
        return
    batch, middle = case.batch, case.batch.source_mask.sum(1, keepdim=True) // 2
    gap = torch.arange(batch.source.shape[1], device=middle.device) == middle
    gap &= batch.source_mask.sum(1, keepdim=True) > 2
    other = batch.source.masked_fill(gap, int(batch.source[:, 0].max()))  # another token of the vocabulary
    masked = [replace(batch, source=source, source_mask=batch.source_mask & ~gap) for source in (batch.source, other)]
    one, two = (logits_of(case.run(batch=each)) for each in masked)
    if not case.same(one, two):
        yield "another token at a masked position in the middle of a text changes the logits"
    if gap.any() and case.same(one, logits_of(case.trace)):
        yield "masking a position in the middle of a text changes no logits"


def differences(case: Case, other: Trace, i: int, name: str, row: int = 0) -> Iterator[str]:
    """Yield what differs between sentence i of the batch and a row of another trace, where it is not padding."""
    source, target = int(case.batch.source_mask[i].sum()), int(case.batch.target_mask[i].sum())
    if not case.same(other.logits[row, :target], case.trace.logits[i, :target]):
        yield f"the logits of {name} differ from those in its batch"
    if not case.same(other.encoder[row, :source], case.trace.encoder[i, :source]):
        yield f"the encoder states of {name} differ from those in its batch"
    for layer, (one, two) in enumerate(zip(other.layers, case.trace.layers, strict=True)):
        if not case.same(one.weights[row, :, :target, :source], two.weights[i, :, :target, :source]):
            yield f"the attention of {name} in layer {layer} differs from that in its batch"


def source_embeddings_can_be_reached(case: Case) -> Iterator[str]:
    model = case.model
    if not isinstance(model, EmbedsSource):
        return
    shift, embeddings = torch.zeros_like(case.trace.embedded).requires_grad_(), list[Tensor]()

    def shifted(embedded: Tensor) -> Tensor:
        embeddings.append(embedded)
        return embedded + shift

    with with_gradients(model), with_embeddings(model, case.batch, shifted):
        output = gold_log_probability(model(case.batch))[case.batch.target_mask].sum()
    if len(embeddings) != 1 or not case.same(embeddings[0].detach(), case.trace.embedded):
        yield "source_inputs(batch.source) is not called once in a pass, with trace.embedded as its result"
    gradient = torch.autograd.grad(output, shift, allow_unused=True)[0] if output.requires_grad else None
    if gradient is None or not bool(gradient.isfinite().all()) or not bool((gradient != 0).any()):
        yield "the output has no gradient with respect to the source embeddings, or one that is not finite"


def the_model_is_left_as_it_was(case: Case) -> Iterator[str]:
    """Also after a pass with some modules in training mode, and one that raises an exception."""
    model = case.model
    if not isinstance(model, nn.Module):
        return
    with half_in_training(model):
        before = state_of(model)
        with torch.no_grad():
            model(case.batch)
        yield from state_changes(before, state_of(model), "a pass")
        if case.trace.layers:
            try:
                with torch.no_grad():
                    model(case.batch, attention=interrupt)
            except Interruption:
                yield from state_changes(before, state_of(model), "an exception in a pass")
            else:
                yield "an exception raised in a function passed as attention= does not propagate out of the pass"


class Interruption(Exception):
    """Raised by an intervention."""


def interrupt(weights: Tensor, mask: Tensor) -> Tensor:
    raise Interruption


@contextmanager
def half_in_training(model: nn.Module) -> Iterator[None]:
    """Put every other module in training mode, and restore all modes afterwards."""
    with evaluating(model):
        for i, module in enumerate(model.modules()):
            module.training = i % 2 == 0
        yield


def state_of(model: nn.Module) -> dict[str, object]:
    """Return everything that a pass must not change."""
    configured = {name: module.config for name, module in model.named_modules() if hasattr(module, "config")}
    return {
        "training or evaluation modes": [module.training for module in model.modules()],
        "parameters": [parameter.detach().clone() for parameter in model.parameters()],
        "buffers": [buffer.clone() for buffer in model.buffers()],
        "gradients": [parameter.grad for parameter in model.parameters()],
        "which parameters have gradients": [parameter.requires_grad for parameter in model.parameters()],
        "hooks": [
            (name, kind, tuple(hooks)) for name, module in model.named_modules()
            for kind, hooks in vars(module).items() if kind.endswith("_hooks") and hooks
        ],
        "configuration": {name: str(config) for name, config in configured.items()},
        "attention implementation": {
            name: getattr(config, "_attn_implementation", None) for name, config in configured.items()
        },
        "gradient mode": torch.is_grad_enabled(),
    }  # fmt: skip


def state_changes(before: dict[str, object], after: dict[str, object], when: str) -> Iterator[str]:
    """Yield one sentence per part of a model's state that differs."""
    for name, old in before.items():
        if not same_state(old, after[name]):
            yield f"{when} changes the model: {name}"


def same_state(old: object, new: object) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same_state, old, new))
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return torch.equal(old.nan_to_num(), new.nan_to_num())
    return old is new if isinstance(old, Tensor) or isinstance(new, Tensor) else old == new


# Checks --------------------------------------------------------------------------------------------------------------


Clause = Callable[[Case], Iterator[str]]
QUICK: tuple[Clause, ...] = (
    trace_holds_the_batch, shapes_are_right, attention_is_a_distribution_over_the_source,
    interventions_are_given_weights_and_mask, interventions_take_effect,
)  # fmt: skip
CLAUSES: dict[str, Clause] = {
    clause.__name__.replace("_", " "): clause
    for clause in (
        *QUICK, attention_is_the_softmax_of_the_scores, own_weights_change_nothing, uniform_is_uniform,
        every_layer_and_head_can_be_changed, readout_gives_the_logits, decoder_is_given_only_earlier_tokens,
        a_batch_is_its_sentences, padding_changes_nothing, masked_positions_are_not_read,
        source_embeddings_can_be_reached, the_model_is_left_as_it_was,
    )
}  # fmt: skip
QUICK_SENTENCES = 4


class BrokenContract(AttnscopeError):
    """A model violates the contract of an adapter."""


def quick_check(model: Model, batch: Batch) -> None:
    """Raise BrokenContract, with one sentence, unless shapes are right and `attention=` takes effect.

    It takes four passes over the first few sentences, so it can run before every audit.
    """
    module = module_of(model)
    few = batch.rows(slice(QUICK_SENTENCES)).to(device_of(module))
    for sentence in violations(module, few, TOLERANCE, QUICK):
        raise BrokenContract(
            f"{type(module).__name__} violates the contract of an adapter: {sentence} "
            "(attnscope.testing.check_adapter lists all violations)"
        )


def check_adapter(model: Callable[..., Trace], batches: Iterable[Batch], tolerance: float = TOLERANCE) -> None:
    """Raise an AssertionError with one sentence per violation, on any of these batches.

    Args:
        model: The model; what it does not declare (see `capabilities`) is not checked.
        batches: A few sentences of different lengths, so that there is padding.
        tolerance: Relative to the largest number compared, but at least to 1.
    """
    batches = list(batches)
    require(
        any(not bool(batch.source_mask.all()) for batch in batches),
        "check_adapter needs a batch of texts of different lengths, or padding would not be tested",
    )
    before = state_of(model) if isinstance(model, nn.Module) else {}
    wrong = [sentence for batch in batches for sentence in violations(model, batch, tolerance, CLAUSES.values())]
    wrong += state_changes(before, state_of(model), "being checked") if isinstance(model, nn.Module) else []
    if wrong:
        raise AssertionError("\n".join([f"{type(model).__name__} violates the contract of an adapter:", *wrong]))


def violations(model: Callable[..., Trace], batch: Batch, tolerance: float, clauses: Iterable[Clause]) -> Iterator[str]:
    """Yield one sentence per violation on this batch."""
    with evaluating(model):
        trace = model(batch)
    if not isinstance(trace, Trace):
        yield f"a pass returns a {type(trace).__name__}, not a Trace"
        return
    case = Case(model, batch, trace, tolerance)
    for clause in clauses:
        name = clause.__name__.replace("_", " ")
        try:
            yield from (f"{name}: {sentence}" for sentence in clause(case))
        except Exception as error:  # any error of the model is a violation
            yield f"{name}: {type(error).__name__}: {error}"
