"""Running a model without changing anything about it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnscope.models.capabilities import TEACHER_FORCING, Decoding, WrapsModel
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import Batch

if TYPE_CHECKING:
    from attnscope.models.inputs import Data
else:
    Data = object

Model = WrapsModel | Callable[..., Any]  # a LoadedModel, a model, or any function that gives a Trace


def module_of(model: Model) -> Callable[..., Any]:
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
    from attnscope.models.inputs import as_batches  # which builds on this module

    module = module_of(model)
    if attention is not None:
        forward["attention"] = attention
    if decoding is not None:
        forward["teacher_forcing"] = TEACHER_FORCING[decoding]
    for batch in on_device_of(module, as_batches(model, data)):
        with evaluating(module):
            trace = module(batch, **forward)
        yield batch, trace
