"""Attention layers of an encoder-decoder: the scores of the papers, each with any number of heads; interventions."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnscope.errors import BadSetting, require
from attnscope.models.trace import Attention, Intervention


@dataclass(frozen=True)
class Memory:
    """Keys and values of the encoder states, ready to be attended to."""

    keys: Float[Tensor, "batch heads source key"]
    values: Float[Tensor, "batch heads source value"]
    mask: Bool[Tensor, "batch source"]

    @cached_property
    def padding(self) -> Bool[Tensor, "batch 1 1 source"]:
        return ~self.mask[:, None, None]


class AttentionLayer(nn.Module, ABC):
    """Scores every source position, normalises over the source, and mixes the values.

    `combine` is what several heads do: each attends to a part of the states and the outputs are concatenated, or each
    attends to whole states and the outputs are added ("sum", snell2021 eq. 21) or averaged ("mean").
    """

    def __init__(self, units: int, states: int, heads: int, combine: str = "concatenate"):
        super().__init__()
        self.heads, self.combine = heads, combine
        self.context_size = states

    @property
    def width(self) -> int:
        """Size of the states of all heads together."""
        return self.context_size if self.combine == "concatenate" else self.heads * self.context_size

    def by_head(self, encoder: Tensor) -> Tensor:
        """Return the states for each head: batch x heads x source x value."""
        if self.combine == "concatenate":
            return split_heads(encoder, self.heads)
        return encoder[:, None].expand(-1, self.heads, -1, -1)

    def memorise(self, encoder: Tensor, mask: Tensor) -> Memory:
        states = self.by_head(encoder)
        return Memory(keys=states, values=states, mask=mask)

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
        """Sample one head's W and bias anew, as torch would for that head alone, from its own seed."""
        require(head < self.heads, f"there are seeds for more heads than the {self.heads} of this model")
        reach = self.query.in_features**-0.5
        generator = torch.Generator().manual_seed(seed)
        for parameter in (self.query.weight, self.query.bias):
            own = parameter.chunk(self.heads)[head]
            own.copy_(torch.rand(own.shape, generator=generator) * 2 * reach - reach)


class QueryKeyValue(AttentionLayer):
    """Scaled dot-product attention with learned queries, keys and values; queries are scaled, so that a = q · k."""

    def __init__(self, units: int, states: int, heads: int, key_size: int = 32):
        super().__init__(units, units, heads)
        self.query = nn.Linear(units, heads * key_size, bias=False)
        self.key = nn.Linear(states, heads * key_size, bias=False)
        self.value = nn.Linear(states, heads * key_size, bias=False)
        self.output = nn.Linear(heads * key_size, units, bias=False)

    def memorise(self, encoder: Tensor, mask: Tensor) -> Memory:
        return Memory(split_heads(self.key(encoder), self.heads), split_heads(self.value(encoder), self.heads), mask)

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
        return Memory(split_heads(self.key(encoder), self.heads), self.by_head(encoder), mask)

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
        self.bias = nn.Parameter(torch.zeros(heads))  # c shifts all positions alike; it is there as in the code

    def compute_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super().compute_scores(queries, keys) + self.bias[:, None, None]

    def activation(self, total: Tensor) -> Tensor:
        return torch.relu(total)


COMBINATIONS = ("concatenate", "sum", "mean")
ATTENTIONS: dict[str, type[AttentionLayer]] = {
    "dot": Dot,
    "bilinear": Bilinear,
    "query_key_value": QueryKeyValue,
    "additive": Additive,
    "mlp": MLP,
}


def split_heads(states: Tensor, heads: int) -> Float[Tensor, "batch heads steps part"]:
    apart: Tensor = states.unflatten(-1, (heads, -1))
    return apart.transpose(1, 2)


def masked_softmax(scores: Tensor, mask: Bool[Tensor, "batch source"]) -> Tensor:
    """Return the softmax over source positions, exactly zero on padding; a sentence of padding only attends to it."""
    closed = ~mask & mask.any(1, keepdim=True)
    return scores.masked_fill(closed[:, None, None], -math.inf).softmax(-1)


def uniform(weights: Tensor, mask: Bool[Tensor, "batch source"]) -> Tensor:
    """Return the same weight on every position of the mask: an intervention."""
    return (mask / mask.sum(1, keepdim=True))[:, None, None].to(weights).expand_as(weights)


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
        given = intervention[:, None] if intervention.dim() == 3 else intervention
    elif callable(intervention):
        given = intervention(weights, mask)
    else:
        raise BadSetting(
            f"attention= is weights, or a function of weights and mask such as attnscope.uniform, not {intervention!r}"
        )
    try:
        return given.to(weights).expand_as(weights)
    except RuntimeError:
        expected = tuple(weights.shape)
        raise BadSetting(
            f"attention= has shape {tuple(given.shape)}; this pass needs batch x heads x target x source = {expected}"
        ) from None


def at_step(intervention: Intervention | None, step: int) -> Intervention | None:
    """Return the part of an intervention for one target position; a function is called anew at each."""
    return intervention[..., step : step + 1, :] if isinstance(intervention, Tensor) else intervention
