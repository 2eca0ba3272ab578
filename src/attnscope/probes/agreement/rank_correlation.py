"""Do two scores rank the words alike? Kendall's τ-b of many rows at once (snell2021 A.4, table 3)

τ-b = Σ sign(x_j − x_i) sign(y_j − y_i) / √(pairs untied in x · pairs untied in y), over all pairs of positions i < j.
The pairs are taken offset by offset, all rows at once. A comparison with NaN is false, so a pair with a position that
takes no part adds to none of the three sums.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

BLOCK = 1 << 17  # numbers of one score that are compared at a time: few enough to stay in the processor's cache


def kendall(
    x: Float[Tensor, "*rows places"],
    y: Float[Tensor, "*rows places"],
    mask: Bool[Tensor, "*rows places"] | None = None,
) -> Float[Tensor, "*rows"]:
    """τ-b of each row; NaN where it has no meaning: fewer than two positions, or a score that ties them all.

    >>> kendall(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])).item()
    0.33333333333333337
    """
    both = torch.stack([at_least_single(x), at_least_single(y)])  # 2 x rows x places
    if mask is not None:
        both = both.masked_fill(~mask, torch.nan)
    places = both.shape[-1]
    flat = both.reshape(2, -1, places)
    blocks = flat.split(max(1, BLOCK // max(1, places)), 1)
    return torch.cat([tau_b(block) for block in blocks]).view(x.shape[:-1])


def at_least_single(values: Tensor) -> Tensor:
    """Half precision cannot count pairs."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def tau_b(both: Float[Tensor, "2 rows places"]) -> Float[Tensor, " rows"]:
    """τ-b of the rows of two scores, in double precision."""
    across = both.mT.contiguous()  # 2 x places x rows: what is compared lies side by side
    agreeing, untied = torch.zeros_like(across[0]), torch.zeros_like(across)
    for offset in range(1, across.shape[1]):
        order = signs(across[:, offset:], across[:, :-offset])
        agreeing[offset:].addcmul_(order[0], order[1])
        untied[:, offset:].addcmul_(order, order)
    untied_x, untied_y = untied.sum(1, dtype=torch.float64).sqrt().unbind()
    return (agreeing.sum(0, dtype=torch.float64) / untied_x / untied_y).clamp(-1, 1)


def signs(
    later: Float[Tensor, "2 pairs rows"], earlier: Float[Tensor, "2 pairs rows"]
) -> Float[Tensor, "2 pairs rows"]:
    """1 where the later is higher, −1 where it is lower. As numbers at once: torch is slow to make booleans."""
    higher = torch.gt(later, earlier, out=torch.empty_like(later))
    lower = torch.lt(later, earlier, out=torch.empty_like(later))
    return higher.sub_(lower)
