"""How is a model asked so that nothing about it changes?"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, _ProtocolMeta

import torch
from torch import nn

from attnscope.models.trace import Trace
from attnscope.tasks.batch import Batch


class Asked(_ProtocolMeta):
    """isinstance for a protocol of models: a module in a module is found, which since Python 3.12 it would not be."""

    def __instancecheck__(cls, instance: object) -> bool:
        return callable(instance) and all(hasattr(instance, name) for name in vars(cls) if not name.startswith("_"))


@contextmanager
def as_it_was(model: Callable[..., Any]) -> Iterator[None]:
    """Without gradients and in evaluation mode; afterwards every module is in the mode it was in."""
    modes = {module: module.training for module in model.modules()} if isinstance(model, nn.Module) else {}
    try:
        for module in modes:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


def device_of(model: Callable[..., Any]) -> torch.device:
    """Where the model's parameters are; the processor if it has none."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


def beside(model: Callable[..., Any], batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, on the device of the model."""
    device = device_of(model)
    return (batch.to(device) for batch in batches)


def traced(model: Callable[..., Any], batches: Iterable[Batch], **forward: Any) -> Iterator[tuple[Batch, Trace]]:
    """Each batch and what the model shows of it; what else is given goes to the forward pass."""
    for batch in beside(model, batches):
        with as_it_was(model):
            trace = model(batch, **forward)
        yield batch, trace
