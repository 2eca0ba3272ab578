"""Where do the weights start?"""

from collections.abc import Callable

import torch
from torch import nn


@torch.no_grad()
def fan_in(model: nn.Module) -> None:
    """Normal with variance 1 / fan-in, biases and first states zero (aitken2021, author's code)."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, parameter.shape[1] ** -0.5)
        else:
            parameter.zero_()


def as_torch_does(model: nn.Module) -> None:
    """Each layer's own default."""


INITIALISATIONS: dict[str, Callable[[nn.Module], None]] = {"fan_in": fan_in, "torch": as_torch_does}
