"""Which heads get other weights? What `attention=` means where there are several layers.

A tensor or a function, as for a model of one layer, acts on the last layer: that is the one `trace.attention` shows, so
that a trace's own attention given back changes nothing. A dictionary says where: {layer: ...} for all heads of a layer,
{(layer, head): ...} for a single one, counted from 0 (and -1 is the last layer).

    model(batch, attention={(2, 5): ablated})                              one head silenced
    model(batch, attention={(2, 5): uniform, (3, 0): uniform})             two heads that look nowhere in particular
    model(batch, attention={layer: uniform for layer in range(model.depth)})
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from attnscope.errors import require
from attnscope.models.attention import intervene
from attnscope.models.trace import Intervention, Interventions

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
