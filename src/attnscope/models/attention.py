"""Attention layers of an encoder-decoder: the scores of the papers, each with any number of heads; interventions.

A tensor or a function given as `attention=` acts on the last layer, which `trace.attention` shows. A dictionary says
where: {layer: ...} for all heads of a layer, {(layer, head): ...} for one of them, from 0 (and -1 is the last layer).

    model(batch, attention={(2, 5): ablated})                              one head without any weight
    model(batch, attention={(2, 5): uniform, (3, 0): uniform})             two heads with uniform weights
    model(batch, attention={layer: uniform for layer in range(model.depth)})
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from attnscope.errors import BadSetting, require
from attnscope.models.trace import Attention, Intervention, Interventions, Trace


@dataclass(frozen=True)
class Memory:
    """Keys and values of the encoder states, ready to be attended to."""

    keys: Float[Tensor, "batch heads source key"]
    values: Float[Tensor, "batch heads source value"]
    mask: Bool[Tensor, "batch source"]

    @cached_property
    def padding(self) -> Bool[Tensor, "batch 1 1 source"]:
        """Positions without weight; none of an empty sentence, whose weights would be NaN."""
        return (~self.mask & self.mask.any(-1, keepdim=True))[:, None, None]


class AttentionLayer(nn.Module, ABC):
    """Scores every source position, normalises over the source, and mixes the values.

    `combine` is what several heads do: each attends to a part of the states and the outputs are concatenated, or each
    attends to whole states and the outputs are added ("sum", snell2021 eq. 21), averaged ("mean"), or averaged after a
    linear layer of each head's own ("projected", snell2021, author's code of figure 6).
    """

    def __init__(self, units: int, states: int, heads: int, combine: str = "concatenate"):
        super().__init__()
        self.heads, self.combine = heads, combine
        self.context_size = states
        self.value: nn.Linear | None = nn.Linear(states, heads * states) if combine == "projected" else None

    @property
    def width(self) -> int:
        """Size of the states of all heads together."""
        return self.context_size if self.combine == "concatenate" else self.heads * self.context_size

    def by_head(self, encoder: Tensor) -> Tensor:
        """Return the states for each head: batch x heads x source x value."""
        if self.combine == "concatenate":
            return split_heads(encoder, self.heads)
        return encoder[:, None].expand(-1, self.heads, -1, -1)

    def values_of(self, encoder: Tensor) -> Tensor:
        """Return the values of each head. Weights sum to one, so a layer on values is a layer on contexts."""
        return self.by_head(encoder) if self.value is None else split_heads(self.value(encoder), self.heads)

    def memorise(self, encoder: Tensor, mask: Tensor) -> Memory:
        return Memory(keys=self.by_head(encoder), values=self.values_of(encoder), mask=mask)

    @abstractmethod
    def queries(self, decoder: Tensor) -> Tensor:
        """Return batch x heads x target x key."""

    def compute_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.mT  # batch x heads x target x source

    def merge(self, mixed: Tensor) -> Tensor:
        if self.combine == "concatenate":
            return mixed.transpose(1, 2).flatten(2)  # batch x target x (heads value)
        return mixed.sum(1) if self.combine == "sum" else mixed.mean(1)

    def record(self, queries: Tensor, memory: Memory, scores: Tensor, weights: Tensor) -> Attention:
        return Attention(queries=queries, keys=memory.keys, values=memory.values, scores=scores, weights=weights)

    def forward(
        self, decoder: Float[Tensor, "batch target units"], memory: Memory, intervention: Intervention | None = None
    ) -> tuple[Attention, Float[Tensor, "batch target context"]]:
        queries = self.queries(decoder)
        scores = self.compute_scores(queries, memory.keys)
        own = scores.masked_fill(memory.padding, -math.inf).softmax(-1)
        weights = intervene(own, memory.mask, intervention)
        return self.record(queries, memory, scores, weights), self.merge(weights @ memory.values)


class Dot(AttentionLayer):
    """Dot attention, a = s · h (aitken2021 §2): queries, keys and values are the states themselves."""

    def __init__(self, units: int, states: int, heads: int, combine: str = "concatenate"):
        super().__init__(units, states, heads, combine)
        require(units == states, f"dot attention compares states of one size, not {units} and {states}; use bilinear")

    def queries(self, decoder: Tensor) -> Tensor:
        return self.by_head(decoder)


class Bilinear(AttentionLayer):
    """Bilinear attention, a = s W h (snell2021 eq. 1; one W per head, eq. 20)."""

    def __init__(self, units: int, states: int, heads: int, combine: str = "concatenate"):
        super().__init__(units, states, heads, combine)
        self.query = nn.Linear(units, self.width)  # W has a bias in the author's code

    def queries(self, decoder: Tensor) -> Tensor:
        return split_heads(self.query(decoder), self.heads)

    @torch.no_grad()
    def restart(self, head: int, seed: int) -> None:
        """Sample one head's layers anew, as torch would for that head alone, from its own seed."""
        require(head < self.heads, f"there are seeds for more heads than the {self.heads} of this model")
        generator = torch.Generator().manual_seed(seed)
        for layer in (self.query,) if self.value is None else (self.query, self.value):
            bound = layer.in_features**-0.5
            for parameter in (layer.weight, layer.bias):
                own = parameter.chunk(self.heads)[head]
                own.copy_(torch.rand(own.shape, generator=generator) * 2 * bound - bound)


class QueryKeyValue(AttentionLayer):
    """Scaled dot-product attention with learned queries, keys and values; queries are scaled, so that a = q · k."""

    def __init__(self, units: int, states: int, heads: int, key_size: int = 32):
        super().__init__(units, units, heads)
        self.query = nn.Linear(units, heads * key_size, bias=False)
        self.key = nn.Linear(states, heads * key_size, bias=False)
        self.value = nn.Linear(states, heads * key_size, bias=False)
        self.output = nn.Linear(heads * key_size, units, bias=False)

    def memorise(self, encoder: Tensor, mask: Tensor) -> Memory:
        return Memory(split_heads(self.key(encoder), self.heads), self.values_of(encoder), mask)

    def queries(self, decoder: Tensor) -> Tensor:
        queries = split_heads(self.query(decoder), self.heads)
        return queries / math.sqrt(queries.shape[-1])

    def merge(self, mixed: Tensor) -> Tensor:
        return self.output(super().merge(mixed))  # type: ignore[no-any-return]


class Additive(AttentionLayer):
    """Additive attention, a = v · tanh(W s + U h) (Bahdanau et al. 2014). A trace has no queries and keys of it."""

    def __init__(self, units: int, states: int, heads: int, combine: str = "concatenate"):
        super().__init__(units, states, heads, combine)
        part = self.width // heads
        self.query = nn.Linear(units, self.width, bias=False)
        self.key = nn.Linear(states, self.width)
        self.score = nn.Parameter(torch.empty(heads, part).uniform_(-1, 1) / math.sqrt(part))

    def memorise(self, encoder: Tensor, mask: Tensor) -> Memory:
        return Memory(split_heads(self.key(encoder), self.heads), self.values_of(encoder), mask)

    def queries(self, decoder: Tensor) -> Tensor:
        return split_heads(self.query(decoder), self.heads)

    def compute_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        hidden = self.activation(queries[:, :, :, None] + keys[:, :, None])  # batch x heads x target x source x key
        return (hidden @ self.score[:, None, :, None]).squeeze(-1)

    def activation(self, total: Tensor) -> Tensor:
        return torch.tanh(total)

    def record(self, queries: Tensor, memory: Memory, scores: Tensor, weights: Tensor) -> Attention:
        return Attention(queries=None, keys=None, values=memory.values, scores=scores, weights=weights)


class MLP(Additive):
    """Additive attention with ReLU, a = v · ReLU(W [s; h] + b) + c (baan2019, author's code).

    W comes in two halves, so that source states are projected once, and not once for each target token.
    """

    def __init__(self, units: int, states: int, heads: int, combine: str = "concatenate"):
        super().__init__(units, states, heads, combine)
        self.bias = nn.Parameter(torch.zeros(heads))  # c has no effect on the weights; it is in the author's code

    def compute_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().compute_scores(queries, keys) + self.bias[:, None, None]

    def activation(self, total: Tensor) -> Tensor:
        return torch.relu(total)


COMBINATIONS = ("concatenate", "sum", "mean", "projected")
ATTENTIONS: dict[str, type[AttentionLayer]] = {
    "dot": Dot,
    "bilinear": Bilinear,
    "query_key_value": QueryKeyValue,
    "additive": Additive,
    "mlp": MLP,
}


def split_heads(states: Tensor, heads: int) -> Float[Tensor, "batch heads steps part"]:
    parts: Tensor = states.unflatten(-1, (heads, -1))
    return parts.transpose(1, 2)


def masked_softmax(scores: Tensor, mask: Bool[Tensor, "batch *target source"]) -> Tensor:
    """Return the softmax over source positions, exactly zero on padding; a sentence of padding only attends to it."""
    closed = ~mask & mask.any(-1, keepdim=True)
    return scores.masked_fill(by_row(closed)[:, None], -math.inf).softmax(-1)


def uniform(weights: Tensor, mask: Bool[Tensor, "batch *target source"]) -> Tensor:
    """Return the same weight on every position of the mask, or none where the mask is empty: an intervention.

    Args:
        weights: The model's own weights, batch x heads x target x source.
        mask: True where attention is allowed.
    """
    shares = mask / mask.sum(-1, keepdim=True).clamp(min=1)
    return by_row(shares)[:, None].to(weights).expand_as(weights)


def by_row(values: Shaped[Tensor, "batch *target source"]) -> Shaped[Tensor, "batch rows source"]:
    """Return a mask with a dimension of target positions: one for all of them, or that of a language model."""
    return values if values.dim() == 3 else values[:, None]


def intervene(weights: Tensor, mask: Tensor, intervention: Intervention | None) -> Tensor:
    """Return the weights to use.

    Args:
        weights: The model's own: batch x heads x target x source.
        mask: The source positions that may be attended to.
        intervention: None for the model's own; other weights (with or without heads); or a function of both arguments.
    """
    if intervention is None:
        return weights
    if isinstance(intervention, Tensor):
        replacement = intervention[:, None] if intervention.dim() == 3 else intervention
    elif callable(intervention):
        replacement = intervention(weights, mask)
    else:
        raise BadSetting(
            f"attention= is weights, or a function of weights and mask such as attnscope.uniform, not {intervention!r}"
        )
    try:
        return replacement.to(weights).expand_as(weights)
    except RuntimeError:
        expected = tuple(weights.shape)
        raise BadSetting(
            f"attention= has shape {tuple(replacement.shape)}; this pass needs batch x heads x target x source = "
            f"{expected}"
        ) from None


def at_step(intervention: Intervention | None, step: int) -> Intervention | None:
    """Return the part of an intervention for one target position; a function is called anew at each."""
    return intervention[..., step : step + 1, :] if isinstance(intervention, Tensor) else intervention


# Several layers: interventions in single layers and heads, the trace of a layer, attention rollout -------------------


Change = Callable[[Tensor, Tensor], Tensor]  # a function of (weights, mask)


def ablated(weights: Tensor, mask: Tensor) -> Tensor:
    """Return zero weights, so that a head adds nothing: an intervention.

    Args:
        weights: The model's own weights, batch x heads x target x source.
        mask: True where attention is allowed; unused.
    """
    return torch.zeros_like(weights)


def changes_by_layer(attention: Interventions | None, layers: int, heads: int) -> dict[int, list[Change]]:
    """Return the changes of each layer's weights, in their order: whole layers, then single heads."""
    if attention is None:
        return {}
    if not isinstance(attention, Mapping):
        return {layers - 1: [at_all_heads(attention)]}
    changes: dict[int, list[Change]] = {}
    for where in sorted(attention, key=lambda where: isinstance(where, tuple)):
        layer, head = where if isinstance(where, tuple) else (where, None)
        require(
            -layers <= layer < layers,
            f"attention= names layer {layer}; this model's layers are numbered from 0 to {layers - 1}",
        )
        require(
            head is None or 0 <= head < heads,
            f"attention= names head {head}; this model's heads are numbered from 0 to {heads - 1}",
        )
        change = at_all_heads(attention[where]) if head is None else at_head(head, attention[where])
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

    Args:
        trace: The trace of a pass.
        layer: Which layer, from 0; -1 is the last.
    """
    trace.layer(layer)  # raises an error if there is none
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
