"""Where in the sentence? Sines and cosines added to the inputs (aitken2021 §2)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnscope.errors import require
from attnscope.kinds import check_kinds


@dataclass(frozen=True)
class Positions:
    """Settings of the code: the longest wave grows with `base`; `rotated` mixes all dimensions by a random rotation.

    One-hot words need the rotation: without it a word and a position would share single dimensions.
    """

    base: float = 20.0  # aitken2021, author's code: 20 for one-to-one, 100 for eSCAN
    rotated: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.base > 1, f"the base of a positional code must be more than 1, not {self.base}")


class PositionalCode(nn.Module):
    """sin and cos interleaved: p(t) at 2i and 2i + 1 is sin and cos of t / base^(2i / size)."""

    rotation: Tensor

    def __init__(self, settings: Positions, size: int):
        super().__init__()
        self.settings, self.size = settings, size
        self.register_buffer("rotation", random_rotation(size) if settings.rotated else torch.eye(size))

    def forward(self, steps: int) -> Float[Tensor, "steps size"]:
        return sines(steps, self.settings.base, self.rotation) @ self.rotation


def sines(steps: int, base: float, rotation: Tensor) -> Tensor:
    size, device, dtype = len(rotation), rotation.device, rotation.dtype
    times = torch.arange(steps, device=device, dtype=dtype)
    rates = base ** (-torch.arange(0, size, 2, device=device, dtype=dtype) / size)
    angles = torch.outer(times, rates)  # steps x half the size, rounded up
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]


def random_rotation(size: int) -> Tensor:
    """Uniform over rotations: the Q of a normal matrix, signs fixed by R's diagonal."""
    q, r = torch.linalg.qr(torch.randn(size, size))
    rotation: Tensor = q * torch.sign(torch.diagonal(r))
    return rotation
