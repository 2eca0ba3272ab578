"""What is left to chance in a forward pass, and whose chance is it?

Alone, a model draws from torch's global generator. As one of many replicas it draws from a generator of its own, seeded
as the global one would be, so that it sees what it would see alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.errors import require

GENERATORS: ContextVar[Sequence[torch.Generator]] = ContextVar("generators", default=())


class Dropout(nn.Module):
    """In training, each number is zero with this chance, and otherwise raised so that its mean stays."""

    def __init__(self, chance: float):
        super().__init__()
        require(0 <= chance < 1, f"dropout must be from 0 to below 1, not {chance}")
        self.chance = chance

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.chance == 0:
            return values
        return values * (uniform_like(values) >= self.chance) / (1 - self.chance)


def uniform_like(values: Tensor) -> Tensor:
    """Numbers from 0 to 1 in the shape of `values`; under vmap, each replica's from its own generator."""
    drawn: Tensor = Draw.apply(values)
    return drawn


@contextmanager
def generators(each: Sequence[torch.Generator]) -> Iterator[None]:
    """One for each replica of what is mapped over inside the block."""
    token = GENERATORS.set(each)
    try:
        yield
    finally:
        GENERATORS.reset(token)


class Draw(torch.autograd.Function):
    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return torch.rand(values.shape, device=values.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, d_drawn: Tensor) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, ...], values: Tensor) -> tuple[Tensor, int]:
        shape = values.select(in_dims[0], 0).shape
        own = [torch.rand(shape, generator=generator, device=values.device) for generator in GENERATORS.get()]
        return torch.stack(own), 0
