"""Is the highest position of u among the highest 5 % of v? (snell2021 eq. 10)

In integers: a position of v is in its top when k positions lie strictly above it and 20 k < L. Nothing is rounded, and
tied positions are in the top together or not at all. `mask` says which positions take part; L is their number.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

ONE_IN = 20  # 5 %


def agreement(
    u: Float[Tensor, "*rows source"],
    v: Float[Tensor, "*rows source"],
    mask: Bool[Tensor, "*rows source"],
    one_in: int = ONE_IN,
) -> Float[Tensor, "*rows"]:
    """A(u, v) of each row. Where u has several highest positions, their mean; NaN where no position takes part.

    >>> attention, probe = torch.tensor([0.1, 0.7, 0.2]), torch.tensor([0.3, 0.9, 0.4])
    >>> agreement(attention, probe, torch.ones(3, dtype=torch.bool)).item()
    1.0
    """
    highest = peaks(u, mask)
    hits = highest & in_top(v, mask, one_in)
    return hits.sum(-1) / highest.sum(-1)


def chance(
    v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"], one_in: int = ONE_IN
) -> Float[Tensor, "*rows"]:
    """Â: what a position drawn at random would get, the share of v's positions that are in its top.

    A constant v has all its positions there: whatever agrees with it, chance does as well.
    """
    return in_top(v, mask, one_in).sum(-1) / mask.sum(-1)


def in_top(
    v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"], one_in: int = ONE_IN
) -> Bool[Tensor, "*rows source"]:
    """The positions that satisfy eq. 10."""
    length = mask.sum(-1, keepdim=True)
    return mask & (one_in * strictly_above(v, mask) < length)


def strictly_above(v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"]) -> Int[Tensor, "*rows source"]:
    """How many of the positions that take part are higher than this one."""
    lowered = v.masked_fill(~mask, -torch.inf).contiguous()  # what takes no part lies above nothing
    ordered = lowered.sort(-1).values
    return v.shape[-1] - torch.searchsorted(ordered, lowered, right=True)


def peaks(u: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"]) -> Bool[Tensor, "*rows source"]:
    """The highest position of u, or all that are tied for it."""
    highest = u.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    return mask & (u == highest)
