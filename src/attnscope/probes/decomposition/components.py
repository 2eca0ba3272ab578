"""Which vectors of a trace are taken apart, and which word came in with each? (aitken2021 §2.1)"""

# TODO(docstring) join:
#   Which part of a state is its time step, which is its word, and which is neither? (aitken2021 §2.1, eq. 1 and 2)
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import AttnscopeError, choose
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Sums
from attnscope.tasks.batch import START

OF = ("attention", "states")


@dataclass(frozen=True)
class Side:
    """The encoder's or the decoder's vectors, the word that came in at each time step, and what is no padding.

    The end token counts. The decoder's words are those it was fed, and the start token is a word of its own.
    """

    vectors: Float[Tensor, "batch heads time key"]
    words: Int[Tensor, "batch time"]
    mask: Bool[Tensor, "batch time"]

    @cached_property
    def vocabulary(self) -> int:
        """One more than the highest word."""
        return int(self.words.where(self.mask, -1).max()) + 1

    @cached_property
    def by_word(self) -> Int[Tensor, "batch time"]:
        """The word that each vector is to be counted for; that of padding lies beyond the vocabulary."""
        return self.words.where(self.mask, self.vocabulary)

    @cached_property
    def by_time(self) -> Int[Tensor, "batch time"]:
        """The time step that each vector is to be counted for; that of padding lies beyond the last."""
        steps = self.words.shape[1]
        return torch.arange(steps, device=self.words.device).where(self.mask, steps)

    def cut(self) -> "Side":
        """Without the steps at which every sequence is padding."""
        steps = longest(self.mask)
        return Side(self.vectors[:, :, :steps], self.words[:, :steps], self.mask[:, :steps])


@dataclass(frozen=True)
class Between:
    """Alignment and attention between the two sides."""

    alignment: Float[Tensor, "batch heads target source"]
    attention: Float[Tensor, "batch heads target source"]
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]

    @property
    def counted(self) -> Bool[Tensor, "batch target source"]:
        """The pairs of steps that are no padding."""
        return pairs(self.target_mask, self.source_mask)


@dataclass(frozen=True)
class Reading:
    """What this probe takes from a trace: both sides, and what is between them where attention is taken apart."""

    encoder: Side
    decoder: Side | None
    between: Between | None


def read(trace: Trace, of: str) -> Reading:
    """of="attention": keys and queries of the last layer; of="states": hidden states, as one head."""
    choose("way to take a trace apart", of, OF)
    return read_attention(trace) if of == "attention" else read_states(trace)


def read_attention(trace: Trace) -> Reading:
    layer = trace.last
    if layer.queries is None or layer.keys is None:
        raise AttnscopeError(
            "the alignment of this model is no inner product (additive attention), so it has no nine terms; "
            "take its states apart instead: of='states'"
        )
    encoder = Side(layer.keys, trace.source, trace.source_mask).cut()
    decoder = Side(layer.queries, decoder_tokens(trace), trace.target_mask).cut()
    real = ..., slice(decoder.words.shape[1]), slice(encoder.words.shape[1])
    between = Between(layer.scores[real], layer.weights[real], encoder.mask, decoder.mask)
    return Reading(encoder, decoder, between)


def read_states(trace: Trace) -> Reading:
    encoder = Side(trace.encoder[:, None], trace.source, trace.source_mask).cut()
    decoder = None
    if trace.decoder is not None:
        decoder = Side(trace.decoder[:, None], decoder_tokens(trace), trace.target_mask).cut()
    return Reading(encoder, decoder, between=None)


def decoder_tokens(trace: Trace) -> Int[Tensor, "batch target"]:
    """The words given to the decoder; a classifier is given none, which is to say the start token only."""
    return torch.full_like(trace.target, START) if trace.decoder_input is None else trace.decoder_input


def longest(mask: Bool[Tensor, "batch time"]) -> int:
    """The number of steps up to the last one that is real in any sequence."""
    return int(mask.any(0).nonzero().max()) + 1 if mask.any() else 0


def pairs(
    target: Bool[Tensor, "batch target"], source: Bool[Tensor, "batch source"]
) -> Bool[Tensor, "batch target source"]:
    """True where both are."""
    return target[:, :, None] & source[:, None]


PARTS = ("temporal", "input", "delta")
BLOCK = 256  # sequences that are summed in the precision of the model, before double precision takes over


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
    """What each time step and each word adds to the vectors of one side, whatever else was read (eq. 1).

    A time step or word that the fit never saw has a component of zero; `seen` tells.
    """

    temporal: Float[Tensor, "heads time key"]  # μ
    input: Float[Tensor, "heads words key"]  # χ
    counts: Int[Tensor, "words time"]

    def split(self, vectors: Float[Tensor, "batch heads time key"], words: Int[Tensor, "batch time"]) -> Parts:
        """Take vectors apart; the delta is what time step and word leave over."""
        steps = torch.arange(vectors.shape[2], device=vectors.device)
        temporal = zero_padded_lookup(self.temporal.to(vectors).transpose(0, 1), steps).transpose(
            0, 1
        )  # heads x time x key
        input_ = zero_padded_lookup(self.input.to(vectors).transpose(0, 1), words).transpose(
            1, 2
        )  # batch x heads x time x key
        input_delta = vectors - temporal
        return Parts(torch.stack([temporal.expand_as(vectors), input_, input_delta - input_], -2), input_delta)

    @cached_property
    def word_counts(self) -> Int[Tensor, " words"]:
        return self.counts.sum(1)

    @cached_property
    def time_counts(self) -> Int[Tensor, " time"]:
        return self.counts.sum(0)

    def seen(self, words: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
        """How often the fit saw each word; 0 at a time step that it never reached."""
        steps = torch.arange(words.shape[1], device=words.device)
        return zero_padded_lookup(self.word_counts, words) * (zero_padded_lookup(self.time_counts, steps) > 0)


@dataclass(frozen=True)
class ComponentSums(Sums):
    """All that the components need to know about a stream: its size is that of the vocabulary, not of the stream."""

    by_time: Float[Tensor, "time heads key"]
    by_word: Float[Tensor, "words heads key"]
    counts: Int[Tensor, "words time"]

    def __add__(self, other: "ComponentSums") -> "ComponentSums":
        check_same_vectors(self.by_time, other.by_time)
        return super().__add__(other)

    def components(self) -> Components:
        temporal = self.by_time / self.counts.sum(0).clamp_min(1)[:, None, None]
        # χ is a word's mean of h − μ: what its occurrences sum to, less the time steps that they fell on.
        fell_on = mean_times(self.counts, temporal)
        input_ = self.by_word / self.counts.sum(1).clamp_min(1)[:, None, None] - fell_on
        return Components(temporal.transpose(0, 1), input_.transpose(0, 1), self.counts)


def check_same_vectors(one: Float[Tensor, "_ heads key"], other: Float[Tensor, "_ heads_ key_"]) -> None:
    mine, theirs = tuple(one.shape[1:]), tuple(other.shape[1:])
    if mine != theirs:
        raise AttnscopeError(
            f"vectors of (heads, key) = {mine} and {theirs} do not add; merge passes of one model only"
        )


def component_sums(side: Side) -> ComponentSums:
    """The totals of one batch."""
    vectors = side.vectors.transpose(1, 2)  # batch x time x heads x key
    return ComponentSums(
        by_time=totals_by(side.by_time, vectors, side.words.shape[1]),
        by_word=totals_by(side.by_word, vectors, side.vocabulary),
        counts=word_time_counts(side),
    )


def word_time_counts(side: Side) -> Int[Tensor, "words time"]:
    """How often each word came in at each time step."""
    words, times = side.vocabulary + 1, side.words.shape[1] + 1  # with a class for padding
    pairs = torch.bincount((side.by_word * times + side.by_time).flatten(), minlength=words * times)
    return pairs.view(words, times)[:-1, :-1]


def mean_times(
    counts: Int[Tensor, "words time"], temporal: Float[Tensor, "time heads key"]
) -> Float[Tensor, "words heads key"]:
    """For each word, the mean temporal component of the time steps at which it came in."""
    total = torch.einsum("wt,thk->whk", counts.to(temporal), temporal)
    return total / counts.sum(1).clamp_min(1)[:, None, None]


def zero_padded_lookup(table: Tensor, rows: Int[Tensor, "..."]) -> Tensor:
    """table[rows], zero beyond its end: what was never seen adds nothing."""
    beyond = table.new_zeros(1, *table.shape[1:])
    found = torch.cat([table, beyond]).index_select(0, rows.clamp(max=len(table)).flatten())
    return found.view(*rows.shape, *table.shape[1:])


def totals_by(
    labels: Int[Tensor, "batch time"], values: Float[Tensor, "batch time ..."], size: int
) -> Float[Tensor, "labels ..."]:
    """For each label, the sum of the values that bear it; labels from `size` on (padding) are left out.

    >>> totals_by(torch.tensor([[0, 2, 0]]), torch.tensor([[1.0, 5.0, 3.0]]), size=2)
    tensor([4., 0.], dtype=torch.float64)
    """
    totals = torch.zeros(size, *values.shape[2:], dtype=torch.float64, device=values.device)
    for some, theirs in zip(labels.split(BLOCK), values.split(BLOCK), strict=True):
        block = values.new_zeros(size + 1, *values.shape[2:])
        totals += block.index_add_(0, some.flatten(), theirs.flatten(0, 1).contiguous())[:size]
    return totals
