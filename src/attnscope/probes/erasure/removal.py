"""What is decided when some words are gone?

A word goes in one of two ways: it is cut out of the text, which the model then reads anew, or the attention on it is
set to zero and the rest renormalised, and what the encoder made of it stays in its neighbours (Serrano & Smith 2019).
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import choose
from attnscope.models.asking import as_it_was
from attnscope.probes.erasure.ordering import erasable
from attnscope.probes.reweighing import Reweighing, class_probabilities
from attnscope.tasks.batch import PAD, Batch

# Of some texts (by number), each with several choices of what is kept, the probability of every class.
Decide = Callable[[Int[Tensor, " texts"], Bool[Tensor, "texts choices source"]], Float[Tensor, "texts choices classes"]]

WORDS_AT_ONCE = 1 << 17  # of shortened texts, padding included, that are read in one pass


def without_words(reading: Reweighing, batch: Batch) -> Decide:
    """Words are cut out of the text, which closes over the gap, and is read anew."""

    def decide(texts: Tensor, kept: Tensor) -> Tensor:
        rows = texts.repeat_interleave(kept.shape[1])  # texts times choices
        size = max(1, WORDS_AT_ONCE // kept.shape[2])
        pieces = zip(rows.split(size), kept.flatten(0, 1).split(size), strict=True)
        with as_it_was(reading.model):
            logits: Tensor = torch.cat([reading.model(closed(batch, *piece)).logits for piece in pieces])
        classes: Tensor = class_probabilities(logits).unflatten(0, kept.shape[:2])
        return classes

    return decide


def without_attention(reading: Reweighing, batch: Batch) -> Decide:
    """Words lose their attention to the others; the encoder has run once."""
    words = erasable(batch)

    def decide(texts: Tensor, kept: Tensor) -> Tensor:
        everything = words.new_ones(kept.shape[1], *words.shape)  # choices x batch x source
        everything[:, texts] = kept.transpose(0, 1)
        with torch.no_grad():
            return reading.probabilities(renormalised(reading.own, everything, words))[:, texts].transpose(0, 1)

    return decide


WAYS: dict[str, Callable[[Reweighing, Batch], Decide]] = {"attention": without_attention, "text": without_words}


def way_named(name: str) -> Callable[[Reweighing, Batch], Decide]:
    return WAYS[choose("way to erase words", name, WAYS)]


def closed(batch: Batch, rows: Int[Tensor, " rows"], kept: Bool[Tensor, "rows source"]) -> Batch:
    """These texts with only the kept positions, moved together, and no wider than they need to be."""
    order = (~kept).long().argsort(dim=1, stable=True)[:, : int(kept.sum(1).max())]  # kept ones first, in their order
    mask = kept.gather(1, order)
    return replace(
        batch,
        source=batch.source[rows].gather(1, order).masked_fill(~mask, PAD),
        source_mask=mask,
        target=batch.target[rows],
        target_mask=batch.target_mask[rows],
        guide=None,
        rationale=None,
    )


def renormalised(
    weights: Float[Tensor, "batch heads source"],
    kept: Bool[Tensor, "choices batch source"],
    words: Bool[Tensor, "batch source"],
) -> Float[Tensor, "choices batch heads source"]:
    """The attention of each head on what is kept; where it had none there, uniform over the words that are kept."""
    left = weights * kept[:, :, None]
    mass = left.sum(-1, keepdim=True)
    remaining = (kept & words)[:, :, None].to(weights)
    uniform = remaining / remaining.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(mass > 0, left / mass, uniform)
