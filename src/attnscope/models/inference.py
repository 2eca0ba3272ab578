"""Running a model without side effects on it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import require
from attnscope.models.capabilities import (
    TEACHER_FORCING,
    Decoding,
    Generates,
    GivesLogits,
    PredictsNextToken,
    WrapsModel,
    needs,
)
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import END, PAD, Batch

if TYPE_CHECKING:
    from attnscope.models.inputs import Data
else:
    Data = object

TOKENS_AT_ONCE = 1 << 17  # in one pass, padding included, unless the model says otherwise

Model = WrapsModel | Callable[..., Any]  # a LoadedModel, a model, or any function that gives a Trace


def module_of(model: Model) -> Callable[..., Trace]:
    """Return the model itself, where it comes as a LoadedModel."""
    require(callable(model), f"a model gives Traces, as attnscope.load returns it; {model!r:.60} does not")
    return model.module if isinstance(model, WrapsModel) else model


@contextmanager
def evaluating(model: Model, keep_gradients: bool = False) -> Iterator[None]:
    """Put the model in evaluation mode, without gradients; afterwards every module is in its former mode.

    Args:
        model: What is run inside the block.
        keep_gradients: Whether gradients stay on if they were.
    """
    module = module_of(model)
    modes = {part: part.training for part in module.modules()} if isinstance(module, nn.Module) else {}
    try:
        for part in modes:
            part.training = False
        with torch.set_grad_enabled(keep_gradients and torch.is_grad_enabled()):
            yield
    finally:
        for part, training in modes.items():
            part.training = training


def device_of(model: Model) -> torch.device:
    """Return the device of the model's first parameter; the CPU if it has none, or all are offloaded."""
    module = module_of(model)
    parameters = module.parameters() if isinstance(module, nn.Module) else iter(())
    return next((each.device for each in parameters if each.device.type != "meta"), torch.device("cpu"))


def logits_of(
    model: Callable[..., Trace], batch: Batch, decoding: Decoding | None = None
) -> Float[Tensor, "batch target words"]:
    """Return the logits of a pass; where the model declares GivesLogits, nothing else is recorded."""
    options = {} if decoding is None else {"teacher_forcing": TEACHER_FORCING[decoding]}
    return model.logits(batch, **options) if isinstance(model, GivesLogits) else model(batch, **options).logits


def by_length(
    model: Model, lengths: Int[Tensor, " rows"], tokens_at_once: int = TOKENS_AT_ONCE
) -> Iterator[Int[Tensor, " some"]]:
    """Yield the indices of rows of similar length together, the longest first.

    Args:
        model: A model that GivesLogits has its own `tokens_at_once` for a CPU.
        lengths: The tokens of each row.
        tokens_at_once: Tokens per pass for other models and devices, padding included.
    """
    module = module_of(model)
    at_least = tokens_at_once  # in a pass of several lengths
    if isinstance(module, GivesLogits) and lengths.device.type == "cpu":
        # Passes without padding, and so without a mask, are faster, unless they are very small.
        tokens_at_once, at_least = module.tokens_at_once, module.tokens_at_once // 8
    order, start = lengths.argsort(descending=True, stable=True), 0
    ordered = lengths[order].tolist()
    while start < len(ordered):
        longest = max(1, ordered[start])
        end = start + max(1, tokens_at_once // longest)
        same = next((i for i in range(start, min(end, len(ordered))) if ordered[i] < longest), end)
        end = same if (same - start) * longest >= at_least else end
        yield order[start:end]
        start = end


def check_device(device: str) -> None:
    """Refuse a device that torch cannot use on this machine."""
    valid = available_devices()
    gpu = "" if len(valid) > 1 else " (torch sees no GPU)"
    require(device in valid, f"there is no device {device!r} here; choose one of {', '.join(valid)}{gpu}")


def available_devices() -> list[str]:
    """Return the devices that torch can use on this machine, such as cpu, cuda, cuda:0, mps."""
    counts = {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    kinds = [(kind, count) for kind, count in counts.items() if count]
    return ["cpu", *(name for kind, count in kinds for name in (kind, *(f"{kind}:{i}" for i in range(count))))]


def with_predicted_target(model: Model, batch: Batch, max_length: int = 128, **options: object) -> Batch:
    """Return the same texts with the model's own output as the target.

    A pass over it with teacher forcing gives the attention behind that output, also if beam search generated it.

    Args:
        model: A classifier, or a model that Generates.
        batch: The texts.
        max_length: Maximum number of target tokens, the same for every batch, so that results do not depend on batches.
        options: Further options of the model's own `generate`.
    """
    module = module_of(model)
    if isinstance(module, PredictsNextToken):  # what comes before the last token is given
        with evaluating(module):
            predictions = module(batch).predictions
        last = batch.target_mask.cumsum(1) == batch.target_mask.sum(1, keepdim=True)
        return replace(batch, target=torch.where(last & batch.target_mask, predictions, batch.target))
    if isinstance(module, Generates):
        target = module.generate(batch.source, batch.source_mask, max_length, **options)
        mask = ~after_end(target)
        mask = mask[:, : int(mask.sum(1).max())]
        target = target[:, : mask.shape[1]].masked_fill(~mask, PAD)
        return replace(batch, target=target, target_mask=mask, gold_attention=None)
    if batch.target.shape[1] > 1:
        needs(module, Generates, by="the output of a model in place of the gold target")
    with evaluating(module):
        return replace(batch, target=module(batch).predictions)


def after_end(token_ids: Int[Tensor, "batch generated"]) -> Bool[Tensor, "batch generated"]:
    """Return a mask of what comes after the first END."""
    is_end = (token_ids == END).long()
    return is_end.cumsum(1) > is_end


def on_device_of(model: Model, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the batches, on the device of the model."""
    device = device_of(model)
    return (batch.to(device) for batch in batches)


def traces(
    model: Model,
    data: Data,
    *,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
    **forward: Any,
) -> Iterator[tuple[Batch, Trace]]:
    """Yield each batch and the Trace of a pass over it, without gradients and in evaluation mode.

    Args:
        model: What gives Traces.
        data: Batches, or anything else that `inputs.as_batches` takes: texts, a path, a table, a Task.
        attention: As in a forward pass.
        decoding: "teacher_forced" or "greedy"; None: as the model's own `decoding` says.
        forward: Further keywords of the forward pass.
    """
    from attnscope.models.inputs import as_batches, with_tokens  # which build on this module

    module = module_of(model)
    if attention is not None:
        forward["attention"] = attention
    if decoding is not None:
        forward["teacher_forcing"] = TEACHER_FORCING[decoding]
    for batch in on_device_of(module, as_batches(model, data)):
        with evaluating(module):
            trace = module(batch, **forward)
        yield batch, with_tokens(model, trace)
