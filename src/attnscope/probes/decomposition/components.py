"""Which part of a vector follows from its time step, which from its token, and what is left? (aitken2021 §2.1)

Vectors are the queries and keys of attention, or hidden states. μ is the mean over all sequences at a time step, χ the
mean of what is left at a token, and Δ the rest (eq. 1 and 2).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import AttnscopeError, choose
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Sums
from attnscope.tasks.batch import SPECIALS, START

DECOMPOSABLE = ("attention", "states")


@dataclass(frozen=True)
class SideVectors:
    """The vectors of encoder or decoder, with the token at each time step.

    End tokens count. The tokens of a decoder are its inputs, the start token among them. `special` marks special tokens
    where token ids are a model's own; None: they are those of SPECIALS.
    """

    vectors: Float[Tensor, "batch heads time key"]
    words: Int[Tensor, "batch time"]
    mask: Bool[Tensor, "batch time"]
    special: Bool[Tensor, "batch time"] | None = None

    @cached_property
    def vocabulary(self) -> int:
        """One more than the highest token id."""
        return int(self.words.where(self.mask, -1).max()) + 1

    @cached_property
    def by_word(self) -> Int[Tensor, "batch time"]:
        """The token that each vector counts for; that of padding lies beyond the vocabulary."""
        return self.words.where(self.mask, self.vocabulary)

    @cached_property
    def by_time(self) -> Int[Tensor, "batch time"]:
        """The time step that each vector counts for; that of padding lies beyond the last."""
        steps = self.words.shape[1]
        return torch.arange(steps, device=self.words.device).where(self.mask, steps)

    def trim(self) -> "SideVectors":
        """Return the vectors without the steps at which every sequence is padding."""
        steps = longest_length(self.mask)
        special = None if self.special is None else self.special[:, :steps]
        return SideVectors(self.vectors[:, :, :steps], self.words[:, :steps], self.mask[:, :steps], special)


@dataclass(frozen=True)
class CrossAttention:
    """Scores (before the softmax) and attention weights between decoder and encoder."""

    scores: Float[Tensor, "batch heads target source"]
    weights: Float[Tensor, "batch heads target source"]
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]

    @property
    def pairs(self) -> Bool[Tensor, "batch target source"]:
        """True at pairs of steps that are not padding."""
        return pair_mask(self.target_mask, self.source_mask)


@dataclass(frozen=True)
class TraceVectors:
    """The vectors of a trace that are decomposed, and the attention between them."""

    encoder: SideVectors
    decoder: SideVectors | None  # None for the states of a classifier
    attention: CrossAttention | None  # None for states


def vectors_of(trace: Trace, of: str) -> TraceVectors:
    """Return keys and queries of the last layer (of="attention"), or hidden states as one head (of="states")."""
    choose("part of a trace to decompose", of, DECOMPOSABLE)
    return attention_vectors(trace) if of == "attention" else state_vectors(trace)


def has_inner_products(trace: Trace) -> bool:
    """Return whether all scores of a trace are inner products of queries and keys."""
    return bool(trace.layers) and all(layer.queries is not None and layer.keys is not None for layer in trace.layers)


def attention_vectors(trace: Trace) -> TraceVectors:
    layer = trace.last
    if layer.queries is None or layer.keys is None:
        raise AttnscopeError(
            "the score of this model is not an inner product (additive attention), so it has no nine terms; "
            "decompose its states instead: of='states'"
        )
    encoder = SideVectors(layer.keys, trace.source, trace.source_mask, trace.source_special).trim()
    decoder = SideVectors(layer.queries, decoder_tokens(trace), trace.target_mask).trim()
    real = ..., slice(decoder.words.shape[1]), slice(encoder.words.shape[1])
    attention = CrossAttention(layer.scores[real], layer.weights[real], encoder.mask, decoder.mask)
    return TraceVectors(encoder, decoder, attention)


def state_vectors(trace: Trace) -> TraceVectors:
    encoder = SideVectors(trace.encoder[:, None], trace.source, trace.source_mask, trace.source_special).trim()
    decoder = None
    if trace.decoder is not None:
        decoder = SideVectors(trace.decoder[:, None], decoder_tokens(trace), trace.target_mask).trim()
    return TraceVectors(encoder, decoder, attention=None)


def decoder_tokens(trace: Trace) -> Int[Tensor, "batch target"]:
    """Return the inputs of the decoder; a classifier has none, which counts as the start token alone."""
    return torch.full_like(trace.target, START) if trace.decoder_input is None else trace.decoder_input


def longest_length(mask: Bool[Tensor, "batch time"]) -> int:
    """Return the number of steps up to the last one that is not padding in any sequence."""
    return int(mask.any(0).nonzero().max()) + 1 if mask.any() else 0


def pair_mask(
    target: Bool[Tensor, "batch target"], source: Bool[Tensor, "batch source"]
) -> Bool[Tensor, "batch target source"]:
    """Return True where both are True."""
    return target[:, :, None] & source[:, None]


PARTS = ("temporal", "input", "delta")
BLOCK = 256  # sequences that are summed in the model's precision; sums of blocks are in double precision


@dataclass(frozen=True)
class Parts:
    """The three parts of every vector, μ + χ + Δ (eq. 2); they sum to the vector."""

    stacked: Float[Tensor, "batch heads time 3 key"]
    input_delta: Float[Tensor, "batch heads time key"]  # χ + Δ, all but the time step

    @property
    def temporal(self) -> Float[Tensor, "batch heads time key"]:  # μ
        return self.stacked[..., 0, :]

    @property
    def input(self) -> Float[Tensor, "batch heads time key"]:  # χ
        return self.stacked[..., 1, :]

    @property
    def delta(self) -> Float[Tensor, "batch heads time key"]:  # Δ
        return self.stacked[..., 2, :]


@dataclass(frozen=True)
class Components:
    """The components of each time step and each token in the vectors of one side (eq. 1).

    A time step or token that does not occur in the fit has a component of zero.
    """

    temporal: Float[Tensor, "heads time key"]  # μ
    input: Float[Tensor, "heads words key"]  # χ
    counts: Int[Tensor, "words time"]
    special_counts: Int[Tensor, " words"] | None = None  # occurrences as a special token; None: the ids of SPECIALS

    def split(self, vectors: Float[Tensor, "batch heads time key"], words: Int[Tensor, "batch time"]) -> Parts:
        """Return the three parts of vectors; the delta is what the components of time step and token leave over."""
        steps = torch.arange(vectors.shape[2], device=vectors.device)
        by_time, by_word = (table.to(vectors).transpose(0, 1) for table in (self.temporal, self.input))
        temporal = zero_padded_lookup(by_time, steps).transpose(0, 1)  # heads x time x key
        input_ = zero_padded_lookup(by_word, words).transpose(1, 2)  # batch x heads x time x key
        input_delta = vectors - temporal
        return Parts(torch.stack([temporal.expand_as(vectors), input_, input_delta - input_], -2), input_delta)

    @cached_property
    def word_counts(self) -> Int[Tensor, " words"]:
        return self.counts.sum(1)

    @cached_property
    def is_word(self) -> Bool[Tensor, " words"]:
        """True for tokens that occur in the fit as words, not only as special tokens."""
        if self.special_counts is not None:
            return self.word_counts > self.special_counts
        return (self.word_counts > 0) & (torch.arange(len(self.counts), device=self.counts.device) >= len(SPECIALS))

    @cached_property
    def time_counts(self) -> Int[Tensor, " time"]:
        return self.counts.sum(0)

    def fit_counts(self, words: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
        """Return how often each token occurs in the fit; 0 at a time step that does not occur."""
        steps = torch.arange(words.shape[1], device=words.device)
        return zero_padded_lookup(self.word_counts, words) * (zero_padded_lookup(self.time_counts, steps) > 0)


@dataclass(frozen=True)
class ComponentSums(Sums):
    """The totals behind Components; their size grows with the vocabulary, not with the data."""

    by_time: Float[Tensor, "time heads key"]
    by_word: Float[Tensor, "words heads key"]
    counts: Int[Tensor, "words time"]
    special_counts: Int[Tensor, " words"]

    def __add__(self, other: "ComponentSums") -> "ComponentSums":
        check_same_model(self.by_time, other.by_time)
        return super().__add__(other)

    def components(self) -> Components:
        temporal = self.by_time / self.counts.sum(0).clamp_min(1)[:, None, None]
        # χ is a token's mean of h − μ: the mean of its vectors, less that of the temporal components they fell on.
        mean_of_times = mean_temporal(self.counts, temporal)
        input_ = self.by_word / self.counts.sum(1).clamp_min(1)[:, None, None] - mean_of_times
        return Components(temporal.transpose(0, 1), input_.transpose(0, 1), self.counts, self.special_counts)


def check_same_model(one: Float[Tensor, "_ heads key"], other: Float[Tensor, "_ heads_ key_"]) -> None:
    first, second = tuple(one.shape[1:]), tuple(other.shape[1:])
    if first != second:
        raise AttnscopeError(
            f"vectors of (heads, key) = {first} and {second} do not add; merge totals of one model only"
        )


def component_sums(side: SideVectors) -> ComponentSums:
    """Return the totals of one batch."""
    vectors = side.vectors.transpose(1, 2)  # batch x time x heads x key
    return ComponentSums(
        by_time=sums_by_label(side.by_time, vectors, side.words.shape[1]),
        by_word=sums_by_label(side.by_word, vectors, side.vocabulary),
        counts=word_time_counts(side),
        special_counts=special_counts(side),
    )


def word_time_counts(side: SideVectors) -> Int[Tensor, "words time"]:
    """Return how often each token occurs at each time step."""
    words, times = side.vocabulary + 1, side.words.shape[1] + 1  # with a class for padding
    pairs = torch.bincount((side.by_word * times + side.by_time).flatten(), minlength=words * times)
    return pairs.view(words, times)[:-1, :-1]


def special_counts(side: SideVectors) -> Int[Tensor, " words"]:
    """Return how often each token occurs as a special token."""
    special = side.words < len(SPECIALS) if side.special is None else side.special
    return torch.bincount(side.words[side.mask & special], minlength=side.vocabulary)


def mean_temporal(
    counts: Int[Tensor, "words time"], temporal: Float[Tensor, "time heads key"]
) -> Float[Tensor, "words heads key"]:
    """Return, for each token, the mean temporal component of the time steps at which it occurs."""
    total = torch.einsum("wt,thk->whk", counts.to(temporal), temporal)
    return total / counts.sum(1).clamp_min(1)[:, None, None]


def zero_padded_lookup(table: Tensor, rows: Int[Tensor, "..."]) -> Tensor:
    """Return table[rows], zero beyond its end: what does not occur in the fit has no component."""
    beyond = table.new_zeros(1, *table.shape[1:])
    values = torch.cat([table, beyond]).index_select(0, rows.clamp(max=len(table)).flatten())
    return values.view(*rows.shape, *table.shape[1:])


def sums_by_label(
    labels: Int[Tensor, "batch time"], values: Float[Tensor, "batch time ..."], size: int
) -> Float[Tensor, "labels ..."]:
    """Return, for each label, the sum of its values; labels from `size` on (padding) are left out.

    >>> sums_by_label(torch.tensor([[0, 2, 0]]), torch.tensor([[1.0, 5.0, 3.0]]), size=2)
    tensor([4., 0.], dtype=torch.float64)
    """
    totals = torch.zeros(size, *values.shape[2:], dtype=torch.float64, device=values.device)
    for label_block, value_block in zip(labels.split(BLOCK), values.split(BLOCK), strict=True):
        sums = values.new_zeros(size + 1, *values.shape[2:])
        totals += sums.index_add_(0, label_block.flatten(), value_block.flatten(0, 1).contiguous())[:size]
    return totals
