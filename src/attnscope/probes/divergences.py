"""Divergences between attention distributions and between outputs (tutek2020 eq. 7 and 8).

Attention is exactly zero on padding. No logarithm of zero is taken: every value and gradient is finite.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MAX_JSD = math.log(2)  # of two distributions that share no position


def jsd(
    p: Float[Tensor, "*rows source"],
    q: Float[Tensor, "*others source"],
    mask: Bool[Tensor, "*some source"] | None = None,
) -> Float[Tensor, "*rows"]:
    """Return the Jensen-Shannon divergence in nats, from 0 to ln 2; positions outside of the mask are ignored.

    >>> jsd(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    p, q = apply_mask(p, mask), apply_mask(q, mask)
    mean = safe_log((p + q) / 2)
    parts = p * (safe_log(p) - mean) + q * (safe_log(q) - mean)
    return (parts.sum(-1) / 2).clamp(0, MAX_JSD)


def kl(
    p: Float[Tensor, "*rows source"],
    q: Float[Tensor, "*others source"],
    mask: Bool[Tensor, "*some source"] | None = None,
) -> Float[Tensor, "*rows"]:
    """Return the Kullback-Leibler divergence KL(p‖q) in nats; where q is zero but p is not, large, yet finite."""
    p, q = apply_mask(p, mask), apply_mask(q, mask)
    return (p * (safe_log(p) - safe_log(q))).sum(-1)


def tvd(p: Float[Tensor, "*rows classes"], q: Float[Tensor, "*others classes"]) -> Float[Tensor, "*rows"]:
    """Return the total variation distance, ½ Σ|p − q| over classes.

    For two classes it is |Δp| of either. (The code of Wiegreffe and Pinter 2019 halves that once more.)

    >>> tvd(torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5]))
    tensor(0.4000)
    """
    return (p - q).abs().sum(-1) / 2


DIVERGENCES: dict[str, Callable[..., Tensor]] = {"jsd": jsd, "kl": kl}


def apply_mask(weights: Tensor, mask: Bool[Tensor, "*some source"] | None) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def safe_log(weights: Tensor) -> Tensor:
    """Return the logarithm, bounded below by that of the smallest normal number, where it has no slope."""
    return weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
