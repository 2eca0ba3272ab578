"""How much of each input word is in each state, if attention were all that moves words about? (Abnar & Zuidema 2020)

Attention rollout: a layer's map is the mean over heads, and half of it the identity, for the residual stream that
passes attention by; the maps of all layers are multiplied. Values, the size of states and everything between attention
layers are left out, so that it says where words may have gone, not what came of them.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.errors import require


def rollout(
    weights: Sequence[Float[Tensor, "batch heads source source"]], residual: float = 0.5
) -> Float[Tensor, "batch source source"]:
    """From the recorded self-attention of every layer, the first layer first: row i says what state i is made of.

    For a classifier, row 0 is that of the classification token.

    >>> rollout([torch.tensor([[[[0.0, 1.0], [1.0, 0.0]]]])] * 2)
    tensor([[[0.5000, 0.5000],
             [0.5000, 0.5000]]])
    """
    require(len(weights) > 0, "rollout needs the self-attention of at least one layer")
    require(0 <= residual <= 1, f"residual is the share of the residual stream, from 0 to 1, not {residual}")
    itself = torch.eye(weights[0].shape[-1]).to(weights[0])
    flow = itself.expand(len(weights[0]), -1, -1)
    for layer in weights:
        flow = (residual * itself + (1 - residual) * layer.mean(1)) @ flow
    return flow
