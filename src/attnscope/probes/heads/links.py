"""Which head finds the words that translate each other? Alignment error, of each layer and head.

Every output word is linked to the source word that a head attends to most, and to none where that is a special token.
Positions that are pieces of words are put together first: links are between words. The reference are gold links or,
where there are none, the likeliest links of IBM Model 1, which knows co-occurrence alone, and needs many sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import require
from attnscope.models.adapters import Words, by_word
from attnscope.models.ibm import Bags, IBMModel1
from attnscope.probes.heads.each import EachHead, Heads
from attnscope.probes.heads.stream import Sentences, is_special
from attnscope.probes.stream import Model
from attnscope.probes.word_alignment import Alignment, AlignmentAccumulator, GoldAlignment, argmax_alignment
from attnscope.tasks.batch import NOWHERE, Batch

Reference = Callable[[Sentences], Sequence[GoldAlignment]]


@dataclass(frozen=True)
class Special:
    """What is no word on either side."""

    source: Bool[Tensor, "batch source"]
    target: Bool[Tensor, "batch target"]

    @classmethod
    def of(cls, model: Model, batch: Batch) -> "Special":
        return cls(is_special(model, batch), is_special(model, batch, "target"))


class AlignHeads:
    """Counts the links of every layer and head against a reference."""

    def __init__(self, reference: Reference):
        self.reference = reference
        self.counts = EachHead(AlignmentAccumulator)

    @torch.no_grad()
    def update(
        self, weights: Float[Tensor, "layers batch heads target source"], sentences: Sentences, special: Special
    ) -> None:
        gold = self.reference(sentences)
        for count, head in self.counts.beside(links(weights, sentences, special)):
            for found, reference in zip(head, gold, strict=True):
                count.update(found, reference)

    def merge(self, other: "AlignHeads") -> None:
        self.counts.merge(other.counts)

    def result(self) -> Heads:
        return self.counts.numbers(lambda count: count.result().error_rate)


def links(
    weights: Float[Tensor, "layers batch heads target source"], sentences: Sentences, special: Special
) -> list[list[list[Alignment]]]:
    """Of each layer, head and sentence."""
    batch = sentences.batch
    if sentences.source is None or sentences.target is None:
        words = batch.target_mask & ~special.target
        return [
            [argmax_alignment(head, batch.source_mask, words, special.source) for head in layer.unbind(1)]
            for layer in weights
        ]
    return [between_words(by_word(layer, sentences.source, sentences.target), sentences.source, sentences.target)
            for layer in weights]  # fmt: skip


def between_words(
    weights: Float[Tensor, "batch heads target_units source_units"], source: Words, target: Words
) -> list[list[Alignment]]:
    """Of each head and sentence, by the numbers of the words in their texts."""
    found = [
        argmax_alignment(head, source.mask, target.real, unlinked=source.mask & ~source.real)
        for head in weights.cpu().unbind(1)
    ]
    names = list(zip(source.places.tolist(), target.places.tolist(), strict=True))
    return [
        [frozenset((s[i], t[j]) for i, j in sentence) for sentence, (s, t) in zip(head, names, strict=True)]
        for head in found
    ]


def gold_reference(gold: Sequence[GoldAlignment]) -> Reference:
    """Gold links in the order of the sentences: between words, or between positions where nothing is known of words."""
    place = 0

    def following(sentences: Sentences) -> Sequence[GoldAlignment]:
        nonlocal place
        place += len(sentences)
        require(place <= len(gold), f"there are gold links for {len(gold)} sentences only; more sentences came by")
        return gold[place - len(sentences) : place]

    return following


def model_1_reference(model: Model, sentences: Sequence[Sentences], aligner: IBMModel1 | None = None) -> Reference:
    """The likeliest links of IBM Model 1, with a NULL word, fitted to these sentences where none is given."""
    fitted = fitted_model_1(model, [some.batch for some in sentences]) if aligner is None else aligner

    def likeliest(some: Sentences) -> Sequence[GoldAlignment]:
        origins = fitted.viterbi(words_only(model, some.batch)).cpu()
        return [GoldAlignment.of(row) for row in origin_links(origins, some)]

    return likeliest


def fitted_model_1(model: Model, batches: Sequence[Batch]) -> IBMModel1:
    source, target = (1 + max(int(getattr(batch, side).max()) for batch in batches) for side in ("source", "target"))
    return IBMModel1.fitted(Bags.of([words_only(model, batch) for batch in batches], source, target, null=True))


def words_only(model: Model, batch: Batch) -> Batch:
    """Special tokens masked like padding: they translate nothing."""
    special = Special.of(model, batch)
    return replace(
        batch, source_mask=batch.source_mask & ~special.source, target_mask=batch.target_mask & ~special.target
    )


def origin_links(origins: Int[Tensor, "batch target"], sentences: Sentences) -> list[Alignment]:
    """From the source position of each target position; as links between words where these are known."""
    pairs = [frozenset((origin, j) for j, origin in enumerate(row) if origin != NOWHERE) for row in origins.tolist()]
    if sentences.source is None or sentences.target is None:
        return pairs
    source, target = word_numbers(sentences.source), word_numbers(sentences.target)
    return [frozenset((s[i], t[j]) for i, j in links) for links, s, t in zip(pairs, source, target, strict=True)]


def word_numbers(words: Words) -> list[list[int]]:
    """Of each position, the number of its word in the text."""
    found: list[list[int]] = words.places.gather(1, words.unit.clamp(min=0)).tolist()
    return found
