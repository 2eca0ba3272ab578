"""Which attention is the farthest of all that keep the output? Without a search, for two classes.

The logit of a linear readout is Σ α x, where x is what each position alone would say (tutek2020 eq. 9). So attentions
that keep the output within ε are those with Σ α x between two bounds: a polytope. JSD is convex in α, so it is largest
at a vertex: all weight on one position, or on two that together meet a bound. There are few enough to try them all.
What a search finds cannot be farther.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnscope.errors import BadSetting, require
from attnscope.probes.adversary.divergences import MOST, logarithm
from attnscope.probes.adversary.search import Adversaries, Found, admitted, gathered, proven
from attnscope.probes.reweighing import Reweighing
from attnscope.tasks.batch import Batch

EPSILON = 0.01  # Jain and Wallace 2019
CELLS = 1 << 22  # vertices that are tried at a time


def farthest(model: nn.Module, batches: Iterable[Batch], epsilon: float = EPSILON) -> Adversaries:
    """The farthest attention to every text of which the output differs by at most ε (TVD)."""
    return gathered([farthest_batch(model, batch, epsilon) for batch in batches], epsilon)


def farthest_batch(model: nn.Module, batch: Batch, epsilon: float = EPSILON) -> Found:
    """Those of a batch, weights included."""
    require(epsilon > 0, f"epsilon must be positive, not {epsilon}")
    asked = Reweighing.of(model, batch)
    if asked.places is None or asked.places.shape[-1] != 2:
        raise BadSetting(
            "the farthest attention is known only for two classes, one head, and a readout that is linear in the "
            "context; for other models, search for it"
        )
    logits = (asked.places[..., 1] - asked.places[..., 0]).double()  # batch x source
    own = asked.own[:, 0].double()
    some = max(1, CELLS // logits.shape[1] ** 2)
    parts = (part.split(some) for part in (logits, own, asked.attended, bounds(asked.said[:, 1], admitted(epsilon))))
    best = torch.cat([best_vertex(*part) for part in zip(*parts, strict=True)])
    return proven(asked, best[:, None].to(asked.own), epsilon)


def bounds(said: Float[Tensor, " batch"], epsilon: float) -> Float[Tensor, "batch 2"]:
    """Between which logits the probability of the second class moves by at most ε."""
    return torch.logit(torch.stack([said - epsilon, said + epsilon], -1).clamp(0, 1))


def best_vertex(
    logits: Float[Tensor, "batch source"],
    own: Float[Tensor, "batch source"],
    attended: Bool[Tensor, "batch source"],
    between: Float[Tensor, "batch 2"],
) -> Float[Tensor, "batch source"]:
    """Of all vertices, the one of the largest JSD; NaN if rounding leaves none."""
    inside = attended & (between[:, :1] <= logits) & (logits <= between[:, 1:])
    pairs = (attended[:, :, None] & attended[:, None])[:, None]  # batch x 1 x i x j
    share = shares(logits, between)  # of i; the rest is that of j
    allowed = torch.where(one_position(share), inside[:, None, :, None], pairs & (share > 0) & (share < 1))
    share = share.where(allowed, 0.5)
    apart = gain(share, own[:, None, :, None]) + gain(1 - share, own[:, None, None])
    best = apart.masked_fill(~allowed, -torch.inf).flatten(1).argmax(1)[:, None]
    i, j = best // logits.shape[1] % logits.shape[1], best % logits.shape[1]
    on_i = share.flatten(1).gather(1, best)
    made = torch.zeros_like(own).scatter_add_(1, i, on_i).scatter_add_(1, j, 1 - on_i)
    return made.masked_fill(~allowed.flatten(1).any(1)[:, None], torch.nan)


def shares(logits: Float[Tensor, "batch source"], between: Float[Tensor, "batch 2"]) -> Float[Tensor, "batch 2 i j"]:
    """The weight on position i that meets a bound if j has the rest; all of it where i and j are one position."""
    x, bound = logits[:, None], between[:, :, None, None]
    share = (bound - x[..., None, :]) / (x[..., None] - x[..., None, :])
    return share.masked_fill(one_position(share), 1.0)


def one_position(pairs: Float[Tensor, "*any i j"]) -> Bool[Tensor, "i j"]:
    return torch.eye(pairs.shape[-1], dtype=torch.bool, device=pairs.device)


def gain(weight: Tensor, own: Tensor) -> Tensor:
    """What a position adds to JSD when it is given this weight, beyond what it adds with none, which is ½ q ln 2."""
    mean = logarithm((weight + own) / 2)
    return (weight * (logarithm(weight) - mean) + own * (logarithm(own) - mean) - own * MOST) / 2
