"""Several layers of attention: `attention=` for single layers and heads, the trace of a layer, attention rollout.

A tensor or a function given as `attention=` acts on the last layer, which `trace.attention` shows. A dictionary says
where: {layer: ...} for all heads of a layer, {(layer, head): ...} for one of them, from 0 (and -1 is the last layer).

    model(batch, attention={(2, 5): ablated})                              one head without any weight
    model(batch, attention={(2, 5): uniform, (3, 0): uniform})             two heads with uniform weights
    model(batch, attention={layer: uniform for layer in range(model.depth)})
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.errors import require
from attnscope.models.attention import intervene
from attnscope.models.trace import Intervention, Interventions, Trace

Change = Callable[[Tensor, Tensor], Tensor]  # a function of (weights, mask)


def ablated(weights: Tensor, mask: Tensor) -> Tensor:
    """Return zero weights, so that a head adds nothing: an intervention."""
    return torch.zeros_like(weights)


def changes_by_layer(given: Interventions | None, layers: int, heads: int) -> dict[int, list[Change]]:
    """Return the changes of each layer's weights, in their order: whole layers, then single heads."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {layers - 1: [at_all_heads(given)]}
    changes: dict[int, list[Change]] = {}
    for where in sorted(given, key=lambda where: isinstance(where, tuple)):
        layer, head = where if isinstance(where, tuple) else (where, None)
        require(
            -layers <= layer < layers,
            f"attention= names layer {layer}; this model's layers are numbered from 0 to {layers - 1}",
        )
        require(
            head is None or 0 <= head < heads,
            f"attention= names head {head}; this model's heads are numbered from 0 to {heads - 1}",
        )
        change = at_all_heads(given[where]) if head is None else at_head(head, given[where])
        changes.setdefault(layer % layers, []).append(change)
    return changes


def at_all_heads(intervention: Intervention) -> Change:
    return lambda weights, mask: intervene(weights, mask, intervention)


def at_head(head: int, intervention: Intervention) -> Change:
    """Return an intervention on one head, whose weights are batch x 1 x target x source."""

    def change(weights: Tensor, mask: Tensor) -> Tensor:
        before, own, after = weights.tensor_split((head, head + 1), dim=1)
        return torch.cat([before, intervene(own, mask, intervention), after], 1)

    return change


def up_to(trace: Trace, layer: int) -> Trace:
    """Return the trace with this layer as the last, for probes that read the last layer.

    Context, decoder state and logits stay those of the whole pass, so a readout from this trace is meaningless.
    """
    trace.layer(layer)  # refused where there is none
    return replace(trace, layers=trace.layers[: layer % len(trace.layers) + 1])


def rollout(
    weights: Sequence[Float[Tensor, "batch heads source source"]], residual: float = 0.5
) -> Float[Tensor, "batch source source"]:
    """Return attention rollout (Abnar & Zuidema 2020): row i says how much of each input token is in state i.

    A layer's map is the mean over heads, mixed with the identity for the residual stream; the maps of all layers are
    multiplied. Values, norms and feed-forward layers are ignored. In a classifier, row 0 is the classification token's.

    Args:
        weights: The self-attention of every layer, the first one first.
        residual: The share of the residual stream.

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
