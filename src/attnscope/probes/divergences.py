"""How far apart are two attentions, and how far apart are two outputs? (tutek2020 eq. 7 and 8)

Attention is exactly zero on padding. Nothing here takes the logarithm of zero: every value and gradient is a number.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MAX_JSD = math.log(2)  # JSD of two attentions that share no position


def jsd(
    p: Float[Tensor, "*rows source"],
    q: Float[Tensor, "*others source"],
    mask: Bool[Tensor, "*some source"] | None = None,
) -> Float[Tensor, "*rows"]:
    """Jensen-Shannon divergence in nats, from 0 to ln 2; positions outside of the mask count for nothing.

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
    """Kullback-Leibler divergence KL(p‖q) in nats; where q is zero but p is not, large, yet a number."""
    p, q = apply_mask(p, mask), apply_mask(q, mask)
    return (p * (safe_log(p) - safe_log(q))).sum(-1)


def tvd(p: Float[Tensor, "*rows classes"], q: Float[Tensor, "*others classes"]) -> Float[Tensor, "*rows"]:
    """Total variation distance, ½ Σ|p − q| over classes.

    Of two classes it is |Δp| of either. (The code of Wiegreffe and Pinter 2019 halves that once more.)

    >>> tvd(torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5]))
    tensor(0.4000)
    """
    return (p - q).abs().sum(-1) / 2


DIVERGENCES: dict[str, Callable[..., Tensor]] = {"jsd": jsd, "kl": kl}


def apply_mask(weights: Tensor, mask: Bool[Tensor, "*some source"] | None) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def safe_log(weights: Tensor) -> Tensor:
    """Of what is too small for a logarithm, that of the least normal number, without a slope."""
    return weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
