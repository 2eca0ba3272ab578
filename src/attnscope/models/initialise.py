"""Where do the weights start?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from attnscope.errors import BadSetting


@dataclass(frozen=True)
class Start:
    """Which seed do the first weights come from? By default, the run's own."""

    weights: int | None = None  # of the whole network
    heads: tuple[int, ...] = ()  # of single heads of attention, each drawn anew from a seed of its own


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


@torch.no_grad()
def uniform_008(model: nn.Module) -> None:
    """Every parameter, biases too, uniform in [-0.08, 0.08] (baan2019, author's code)."""
    for parameter in model.parameters():
        parameter.uniform_(-0.08, 0.08)


INITIALISATIONS: dict[str, Callable[[nn.Module], None]] = {
    "fan_in": fan_in,
    "torch": as_torch_does,
    "uniform_008": uniform_008,
}


def restart_heads(model: nn.Module, seeds: Sequence[int]) -> None:
    """Draw heads of attention anew, the first ones first, each from its own seed and from nothing else."""
    if not seeds:
        return
    restart = getattr(getattr(model, "attend", None), "restart", None)
    if restart is None:
        raise BadSetting("start.heads needs a model whose heads have weights of their own (attention='bilinear')")
    for head, seed in enumerate(seeds):
        restart(head, seed)
