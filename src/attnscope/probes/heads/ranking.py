"""What becomes of the output when a head adds nothing, or looks at all positions alike?

The output is the gold one, or the model's own said again; the decoder hears the same words as before. A loss is what
the log-probability of an output word loses on average: positive where the head helped. `changed` is the share of output
words, or of a classifier's decisions, for which another word becomes the likeliest.
"""

# TODO(docstring) join:
#   Which head points at the words that influence the output? (snell2021 §3.1 and §5.1, head by head)
#   Which head finds the words that translate each other? Alignment error, of each layer and head.
#   Which heads are to be believed, and do the ways to tell agree? (beyond the papers)
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed, Figure
from attnscope.errors import choose, require
from attnscope.models.adapters import Words, ablated, by_word
from attnscope.models.adapters.layers import Change
from attnscope.models.attention import uniform
from attnscope.models.capabilities import Decoding, EmbedsSource
from attnscope.models.ibm import Bags, IBMModel1
from attnscope.models.inference import evaluating
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Model, Stream, Sums
from attnscope.probes.agreement import AgreementAccumulator
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.heads.stream import (
    Heads,
    Item,
    PerHead,
    Sentences,
    by_head,
    grid,
    grids,
    is_special,
    replayed,
    taken,
)
from attnscope.probes.saliency import influence
from attnscope.probes.scores import TokenScores
from attnscope.probes.word_alignment import Alignment, AlignmentAccumulator, GoldAlignment, argmax_alignment
from attnscope.tasks.batch import NOWHERE, Batch

CHANGES: dict[str, Change] = {"ablated": ablated, "uniform": uniform}


@dataclass(frozen=True)
class Effect:
    """Of one change, made to each head alone."""

    loss: Heads  # log-probability lost, per output word
    error: Heads  # its standard error, over sentences
    changed: Heads  # share of output words


@dataclass(frozen=True)
class EffectSums(Sums):
    """Totals over sentences, of what each lost and how many words it has; standard errors need squares."""

    loss: Float[Tensor, "changes layers heads"]
    squares: Float[Tensor, "changes layers heads"]
    products: Float[Tensor, "changes layers heads"]  # loss times words
    changed: Int[Tensor, "changes layers heads"]
    words: Int[Tensor, ""]
    squared_words: Int[Tensor, ""]
    sentences: int

    def effects(self) -> dict[str, Effect]:
        mean = self.loss / self.words
        # The mean is a ratio of two sums over sentences: its variance, to first order.
        around = self.squares - 2 * mean * self.products + mean**2 * self.squared_words
        small = self.sentences / (self.sentences - 1) if self.sentences > 1 else torch.nan
        error = (around.clamp_min(0) * small).sqrt() / self.words
        changed = self.changed / self.words
        return {name: Effect(*of_all) for name, *of_all in zip(CHANGES, mean, error, changed.double(), strict=True)}


def effect_sums(counterfactual: CounterfactualAttention) -> EffectSums:
    """The totals of one batch: a pass for each change and head."""
    trace = counterfactual.trace
    own = said(trace)
    shape = len(CHANGES), len(trace.layers), trace.last.weights.shape[1]
    changes = [
        said(counterfactual.change_head(layer, head, change))
        for change in CHANGES.values() for layer in range(shape[1]) for head in range(shape[2])
    ]  # fmt: skip
    lost = torch.stack([own.by_sentence - made.by_sentence for made in changes])  # changes x batch
    flipped = torch.stack([(own.likeliest != made.likeliest).sum() for made in changes])
    words = trace.target_mask.sum(1).cpu()
    return EffectSums(
        loss=lost.sum(1).view(shape), squares=(lost**2).sum(1).view(shape),
        products=(lost @ words.double()).view(shape),
        changed=flipped.cpu().view(shape), words=words.sum(), squared_words=(words**2).sum(), sentences=len(words),
    )  # fmt: skip


@dataclass(frozen=True)
class Said:
    """How likely each sentence of the output is, as a logarithm, and the likeliest word at each of its places."""

    by_sentence: Float[Tensor, " batch"]
    likeliest: Int[Tensor, " words"]


def said(trace: Trace) -> Said:
    mask: Bool[Tensor, "batch target"] = trace.target_mask
    logits = trace.logits[mask]  # words x vocabulary
    gold = logits.gather(1, trace.target[mask][:, None])[:, 0] - logits.logsumexp(1)
    each = gold.new_zeros(mask.shape, dtype=torch.float64).masked_scatter(mask, gold.double())
    return Said(each.sum(1).cpu(), logits.argmax(1))


@dataclass(frozen=True)
class SaliencyAgreement:
    """Means over output words."""

    kendall: Heads
    top: Heads
    chance: float  # of `top`; that of τ is zero
    saliency: str  # its name


class SaliencyAgreementAccumulator:
    """Agreement of every layer and head with a saliency, over a stream."""

    def __init__(self) -> None:
        self.agree = PerHead(AgreementAccumulator)
        self.name = ""

    @torch.no_grad()
    def update(
        self,
        weights: Float[Tensor, "layers batch heads target source"],
        saliency: TokenScores,
        batch: Batch,
        special: Bool[Tensor, "batch source"],
    ) -> None:
        self.name = saliency.name
        words = replace(batch, source_mask=batch.source_mask & ~special)
        for agree, head in self.agree.beside(layer.unbind(1) for layer in weights):
            agree.update(head, saliency.values, words)

    def merge(self, other: "SaliencyAgreementAccumulator") -> None:
        self.name = self.name or other.name
        self.agree.merge(other.agree)

    def result(self) -> SaliencyAgreement:
        kendall = self.agree.numbers(lambda agree: agree.result().kendall)
        top = self.agree.numbers(lambda agree: agree.result().top)
        return SaliencyAgreement(kendall, top, self.agree.layers[0][0].result().chance, self.name)


Reference = Callable[[Sentences], Sequence[GoldAlignment]]


@dataclass(frozen=True)
class Special:
    """What is no word on either side."""

    source: Bool[Tensor, "batch source"]
    target: Bool[Tensor, "batch target"]

    @classmethod
    def of(cls, model: Model, batch: Batch) -> "Special":
        return cls(is_special(model, batch), is_special(model, batch, "target"))


class HeadAlignmentAccumulator:
    """Counts the links of every layer and head against a reference."""

    def __init__(self, reference: Reference):
        self.reference = reference
        self.counts = PerHead(AlignmentAccumulator)

    @torch.no_grad()
    def update(
        self, weights: Float[Tensor, "layers batch heads target source"], sentences: Sentences, special: Special
    ) -> None:
        gold = self.reference(sentences)
        for count, head in self.counts.beside(links(weights, sentences, special)):
            for found, reference in zip(head, gold, strict=True):
                count.update(found, reference)

    def merge(self, other: "HeadAlignmentAccumulator") -> None:
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


Method = Callable[[EmbedsSource, Batch], TokenScores]
OF = ("gold", "own")
CORRELATIONS = ("kendall", "spearman")
# Each way to rank: its column, and whether less is better.
RANKINGS = {
    "alignment": ("alignment error", True),
    "ablation": ("loss if ablated", False),
    "uniform": ("loss if uniform", False),
    "saliency": ("τ with saliency", False),
}


@dataclass(frozen=True)
class HeadRanking(Displayed):
    """What each criterion says of each layer and head."""

    ablated: Effect
    uniform: Effect
    alignment_error: Heads | None  # None for a classifier
    reference: str | None  # what the links were held against
    pointing: SaliencyAgreement | None  # None where a saliency was not asked for, or the embeddings cannot be reached
    of: str  # whose output: "gold" or the model's "own"
    sentences: int
    words: int

    def columns(self) -> dict[str, Heads]:
        found = {} if self.alignment_error is None else {"alignment error": self.alignment_error}
        for name, effect in {"ablated": self.ablated, "uniform": self.uniform}.items():
            found |= {f"loss if {name}": effect.loss, f"± if {name}": effect.error}
            found |= {f"changed if {name}": effect.changed}
        if self.pointing is not None:
            found |= {"τ with saliency": self.pointing.kendall, "top 5 % of saliency": self.pointing.top}
        return found

    def ranks(self) -> pd.DataFrame:
        """A row a layer and head, a column a ranking; equals share the better rank, and NaN has none."""
        table = by_head(self.columns())
        known = {name: how for name, how in RANKINGS.items() if how[0] in table}
        return pd.DataFrame(
            {name: table[column].rank(method="min", ascending=less) for name, (column, less) in known.items()}
        )

    def table(self) -> pd.DataFrame:
        """A row a layer and head: what was measured, then the rank by each criterion."""
        return by_head(self.columns()).join(self.ranks().add_prefix("rank by "))

    def agreement_between(self, correlation: str = "kendall") -> pd.DataFrame:
        """The rank correlation of every two rankings, Kendall's τ-b or Spearman's ρ; NaN where one ties all heads."""
        choose("rank correlation", correlation, CORRELATIONS)
        return self.ranks().corr(method="kendall" if correlation == "kendall" else "spearman", min_periods=2)

    def plot(self, column: str = "loss if ablated", ax: Axes | None = None) -> Axes:
        """One column of the table, a layer a row, a head a column."""
        return grid(self.table(), column, ax)

    def pictures(self) -> Figure:
        """Small multiples of what the rankings go by."""
        return grids(self.table(), [RANKINGS[str(name)][0] for name in self.ranks()])

    def plot_between(self, correlation: str = "kendall", ax: Axes | None = None) -> Axes:
        """How far the rankings agree."""
        from attnscope import plots

        table = self.agreement_between(correlation)
        return plots.heatmap(
            table.to_numpy(), rows=table.index, columns=table.columns, ax=ax, diverging=True, annotate=True,
            title=f"agreement of rankings ({correlation})",
        )  # fmt: skip


class HeadRankingAccumulator:
    """Everything behind the rankings of one model's heads, over a stream of sentences."""

    def __init__(
        self,
        model: Model,
        reference: Reference | None = None,
        saliency: Method | None = influence,
        of: str = "gold",
        named: str | None = None,
        decoding: Decoding | None = None,
    ):
        self.model, self.of, self.named, self.decoding = model, of, named, decoding
        self.saliency = saliency if isinstance(model, EmbedsSource) else None
        self.effects = Accumulator[EffectSums]()
        self.align = None if reference is None else HeadAlignmentAccumulator(reference)
        self.point = None if self.saliency is None else SaliencyAgreementAccumulator()

    def update(self, sentences: Sentences) -> None:
        batch, special = sentences.batch, Special.of(self.model, sentences.batch)
        with evaluating(self.model):
            counterfactual = CounterfactualAttention.of(self.model, batch, self.decoding)
            self.effects.add(effect_sums(counterfactual))
        weights = counterfactual.layer_weights
        if self.align is not None:
            self.align.update(weights, sentences, special)
        if self.point is not None and self.saliency is not None:
            forward = {} if self.decoding is None else {"decoding": self.decoding}
            found = self.saliency(cast(EmbedsSource, self.model), batch, **forward)
            self.point.update(weights, found, batch, special.source)

    def merge(self, other: "HeadRankingAccumulator") -> None:
        """Take in what was gathered of another part of the stream, in the same way."""
        self.effects.merge(other.effects)
        if self.align is not None and other.align is not None:
            self.align.merge(other.align)
        if self.point is not None and other.point is not None:
            self.point.merge(other.point)

    def result(self) -> HeadRanking:
        total = self.effects.total
        effects = total.effects()
        return HeadRanking(
            ablated=effects["ablated"], uniform=effects["uniform"],
            alignment_error=None if self.align is None else self.align.result(), reference=self.named,
            pointing=None if self.point is None else self.point.result(),
            of=self.of, sentences=total.sentences, words=int(total.words),
        )  # fmt: skip


def head_ranking(
    model: Model,
    batches: Stream[Item],
    gold: Sequence[GoldAlignment] | None = None,
    most: int | None = None,
    of: str = "gold",
    aligner: IBMModel1 | None = None,
    saliency: Method | None = influence,
    decoding: Decoding | None = None,
) -> HeadRanking:
    """Order all heads by the first `most` sentences; for each batch, two passes of the model for each layer and head.

    `gold` are links in the order of the sentences: between words where the stream gives texts, between positions where
    it gives batches. Without them a translation is held against IBM Model 1: `aligner`, or one fitted to these very
    sentences. of="own" asks about what the model itself says. saliency=None leaves that ranking out: it takes a pass
    back for each output word. `decoding` is that of the model unless it is given.
    """
    choose("output", of, OF)
    require(gold is None or of == "gold", "gold links are between gold sentences; with of='own' there are none to give")
    stream = taken(batches, model, most)
    if of == "own":
        stream = (replayed(model, sentences) for sentences in stream)
    reference, named = None, None
    if gold is not None:
        reference, named = gold_reference(gold), "gold links"
    else:
        held = list(stream)  # numbers of words only
        stream = iter(held)
        if any(sentences.batch.target.shape[1] > 1 for sentences in held):  # a classifier says one word
            reference, named = model_1_reference(model, held, aligner), "IBM Model 1"
    rank = HeadRankingAccumulator(model, reference, saliency, of, named, decoding)
    for sentences in stream:
        rank.update(sentences)
    return rank.result()
