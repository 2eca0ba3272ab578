"""How is a model asked so that nothing about it changes?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


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


def device_of(model: Callable[..., Any]) -> torch.device | None:
    """Where the model's parameters are; None if it has none."""
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    return next((parameter.device for parameter in parameters), None)
