"""Which vectors of a trace are taken apart, and which word came in with each? (aitken2021 §2.1)"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import AttnscopeError, choose
from attnscope.models.trace import Trace
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
    decoder = Side(layer.queries, fed_words(trace), trace.target_mask).cut()
    real = ..., slice(decoder.words.shape[1]), slice(encoder.words.shape[1])
    between = Between(layer.alignment[real], layer.weights[real], encoder.mask, decoder.mask)
    return Reading(encoder, decoder, between)


def read_states(trace: Trace) -> Reading:
    encoder = Side(trace.encoder[:, None], trace.source, trace.source_mask).cut()
    decoder = None
    if trace.decoder is not None:
        decoder = Side(trace.decoder[:, None], fed_words(trace), trace.target_mask).cut()
    return Reading(encoder, decoder, between=None)


def fed_words(trace: Trace) -> Int[Tensor, "batch target"]:
    """The words given to the decoder; a classifier is given none, which is to say the start token only."""
    return torch.full_like(trace.target, START) if trace.fed is None else trace.fed


def longest(mask: Bool[Tensor, "batch time"]) -> int:
    """The number of steps up to the last one that is real in any sequence."""
    return int(mask.any(0).nonzero().max()) + 1 if mask.any() else 0


def pairs(
    target: Bool[Tensor, "batch target"], source: Bool[Tensor, "batch source"]
) -> Bool[Tensor, "batch target source"]:
    """True where both are."""
    return target[:, :, None] & source[:, None]
