"""Which heads get other weights? What `attention=` means where there are several layers.

A tensor or a function, as for a model of one layer, acts on the last layer: that is the one `trace.attention` shows, so
that a trace's own attention given back changes nothing. A dictionary says where: {layer: ...} for all heads of a layer,
{(layer, head): ...} for a single one, counted from 0 (and -1 is the last layer).

    model(batch, attention={(2, 5): ablated})                              one head silenced
    model(batch, attention={(2, 5): uniform, (3, 0): uniform})             two heads that look nowhere in particular
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
    """No weight anywhere, so that a head adds nothing: an intervention."""
    return torch.zeros_like(weights)


def by_layer(given: Interventions | None, layers: int, heads: int) -> dict[int, list[Change]]:
    """The changes of each layer's weights, in the order in which they are made: whole layers, then single heads."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {layers - 1: [whole(given)]}
    changes: dict[int, list[Change]] = {}
    for where in sorted(given, key=lambda where: isinstance(where, tuple)):
        layer, head = where if isinstance(where, tuple) else (where, None)
        check(layer, head, layers, heads)
        change = whole(given[where]) if head is None else at_head(head, given[where])
        changes.setdefault(layer % layers, []).append(change)
    return changes


def check(layer: int, head: int | None, layers: int, heads: int) -> None:
    require(
        -layers <= layer < layers,
        f"attention= names layer {layer}; this model's layers are numbered from 0 to {layers - 1}",
    )
    require(
        head is None or 0 <= head < heads,
        f"attention= names head {head}; this model's heads are numbered from 0 to {heads - 1}",
    )


def whole(what: Intervention) -> Change:
    return lambda weights, mask: intervene(weights, mask, what)


def at_head(head: int, what: Intervention) -> Change:
    """One head's weights changed; `what` sees and gives batch x 1 x target x source, or batch x target x source."""

    def change(weights: Tensor, mask: Tensor) -> Tensor:
        before, own, after = weights.tensor_split((head, head + 1), dim=1)
        return torch.cat([before, intervene(own, mask, what), after], 1)

    return change


def up_to(trace: Trace, layer: int) -> Trace:
    """The same pass with this layer as the last: its attention, queries and keys are those that probes then read.

    Context, decoder state and logits stay those of the whole pass, so this is no trace to read out.
    """
    count = len(trace.layers)
    require(-count <= layer < count, f"there is no layer {layer}; layers are numbered from 0 to {count - 1}")
    return replace(trace, layers=trace.layers[: layer % count + 1])


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
