"""Running a model without changing anything about it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnscope.models.capabilities import TEACHER_FORCING, Decoding, Generates, WrapsModel, needs
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import END, PAD, Batch

if TYPE_CHECKING:
    from attnscope.models.inputs import Data
else:
    Data = object

Model = WrapsModel | Callable[..., Any]  # a LoadedModel, a model, or any function that gives a Trace


def module_of(model: Model) -> Callable[..., Trace]:
    """Return the model itself, where it comes as a LoadedModel."""
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
    """Return the device of the model's parameters; the CPU if it has none."""
    module = module_of(model)
    parameters = module.parameters() if isinstance(module, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


def with_predicted_target(model: Model, batch: Batch, max_length: int = 128, **options: object) -> Batch:
    """Return the same texts with the model's own output as the target.

    A pass over it with teacher forcing shows the attention behind that output, by whatever search it was generated.

    Args:
        model: A classifier, or a model that Generates.
        batch: The texts.
        max_length: At most so many target tokens, the same for every batch, so that batches do not matter.
        options: Further options of the model's own `generate`.
    """
    module = module_of(model)
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
