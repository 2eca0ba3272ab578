"""Which heads are faithful, and do different criteria rank them alike? (beyond the papers)

Four rankings, in each of which rank 1 is the best:

- alignment: the word alignment error of each head's strongest source word, against gold alignments or the likeliest
  alignments of IBM Model 1, which uses co-occurrence alone and needs many sentences;
- ablation and uniform: the log-probability that an output token loses on average when the head adds nothing, or attends
  uniformly. The decoder input stays the same;
- saliency: Kendall's τ of the head's attention with a saliency (snell2021 §3.1 and §5.1), special tokens left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed, Figure
from attnscope.errors import choose, require
from attnscope.models.adapters import Words, ablated, by_word
from attnscope.models.attention import Change, uniform
from attnscope.models.capabilities import Decoding, EmbedsSource, PredictsNextToken
from attnscope.models.ibm import Bags, IBMModel1
from attnscope.models.inference import Model, evaluating, module_of
from attnscope.models.inputs import Data
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.agreement import AgreementAccumulator
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.heads.sentences import (
    HeadValues,
    PerHead,
    Sentences,
    SpecialTokens,
    head_table,
    plot_columns,
    plot_heads,
    read_sentences,
    with_own_output,
)
from attnscope.probes.saliency import influence
from attnscope.probes.scores import TokenScores
from attnscope.probes.word_alignment import Alignment, AlignmentAccumulator, GoldAlignment, argmax_alignment
from attnscope.tasks.batch import NOWHERE, Batch

CHANGES: dict[str, Change] = {"ablated": ablated, "uniform": uniform}
OUTPUTS = ("gold", "own")
CORRELATIONS = ("kendall", "spearman")
# Each ranking: its column, and whether smaller is better.
RANKINGS = {
    "alignment": ("alignment error", True),
    "ablation": ("loss if ablated", False),
    "uniform": ("loss if uniform", False),
    "saliency": ("τ with saliency", False),
}
SaliencyMethod = Callable[..., TokenScores]  # of a model, a batch and decoding=
Reference = Callable[[Sentences], Sequence[GoldAlignment]]
AllWeights = Float[Tensor, "layers batch heads target source"]


# Ablation and uniform attention --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadEffect:
    """The effect of changing each head alone in one way."""

    loss: HeadValues  # log-probability lost, per output token
    error: HeadValues  # its standard error, over sentences
    changed: HeadValues  # the share of output tokens with another prediction


@dataclass(frozen=True)
class EffectSums(Sums):
    """Totals over sentences of log-probability lost and of tokens; standard errors need their squares."""

    loss: Float[Tensor, "changes layers heads"]
    squares: Float[Tensor, "changes layers heads"]
    products: Float[Tensor, "changes layers heads"]  # loss times tokens
    changed: Int[Tensor, "changes layers heads"]
    tokens: Int[Tensor, ""]
    squared_tokens: Int[Tensor, ""]
    sentences: int

    def effects(self) -> dict[str, HeadEffect]:
        mean = self.loss / self.tokens
        # The mean is a ratio of two sums over sentences: its variance, to first order.
        deviation = self.squares - 2 * mean * self.products + mean**2 * self.squared_tokens
        unbiased = self.sentences / (self.sentences - 1) if self.sentences > 1 else torch.nan
        error = (deviation.clamp_min(0) * unbiased).sqrt() / self.tokens
        changed = self.changed / self.tokens
        return {name: HeadEffect(*values) for name, *values in zip(CHANGES, mean, error, changed.double(), strict=True)}


def effect_sums(counterfactual: CounterfactualAttention) -> EffectSums:
    """Return the totals of one batch, from one pass per change and head."""
    trace = counterfactual.trace
    log_likelihood, predictions = likelihood_and_predictions(trace)
    shape = len(CHANGES), len(trace.layers), trace.last.weights.shape[1]
    others = [
        likelihood_and_predictions(counterfactual.change_head(layer, head, change))
        for change in CHANGES.values() for layer in range(shape[1]) for head in range(shape[2])
    ]  # fmt: skip
    lost = torch.stack([log_likelihood - other for other, _ in others])  # changes x batch
    changed = torch.stack([(predictions != other).sum() for _, other in others])
    tokens = trace.target_mask.sum(1).cpu()
    return EffectSums(
        loss=lost.sum(1).view(shape), squares=(lost**2).sum(1).view(shape),
        products=(lost @ tokens.double()).view(shape), changed=changed.cpu().view(shape),
        tokens=tokens.sum(), squared_tokens=(tokens**2).sum(), sentences=len(tokens),
    )  # fmt: skip


def likelihood_and_predictions(trace: Trace) -> tuple[Float[Tensor, " batch"], Int[Tensor, " tokens"]]:
    """Return the log-likelihood of each target sentence, and the prediction at each of its tokens."""
    mask: Bool[Tensor, "batch target"] = trace.target_mask
    logits = trace.logits[mask]  # tokens x vocabulary
    gold = logits.gather(1, trace.target[mask][:, None])[:, 0] - logits.logsumexp(1)
    by_token = gold.new_zeros(mask.shape, dtype=torch.float64).masked_scatter(mask, gold.double())
    return by_token.sum(1).cpu(), logits.argmax(1)


# Saliency ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SaliencyAgreement:
    """The agreement of each head with a saliency: means over output tokens."""

    kendall: HeadValues
    top: HeadValues  # whether the most attended token is among the 5 % most salient
    chance: float  # of `top`; that of τ is zero
    saliency: str  # its name


class SaliencyAgreementAccumulator:
    """Agreement of every layer and head with a saliency, over several batches."""

    def __init__(self) -> None:
        self.agreements = PerHead(AgreementAccumulator)
        self.name = ""

    @torch.no_grad()
    def update(self, weights: AllWeights, saliency: TokenScores, batch: Batch, special: SpecialTokens) -> None:
        self.name = saliency.name
        words = replace(batch, source_mask=batch.source_mask & ~special.source)
        for agreement, head in self.agreements.zip(layer.unbind(1) for layer in weights):
            agreement.update(head, saliency.values, words)

    def merge(self, other: "SaliencyAgreementAccumulator") -> None:
        self.name = self.name or other.name
        self.agreements.merge(other.agreements)

    def result(self) -> SaliencyAgreement:
        kendall = self.agreements.values(lambda agreement: agreement.result().kendall)
        top = self.agreements.values(lambda agreement: agreement.result().top)
        return SaliencyAgreement(kendall, top, self.agreements.layers[0][0].result().chance, self.name)


# Word alignment ------------------------------------------------------------------------------------------------------


class HeadAlignmentAccumulator:
    """The alignment error of every layer and head against a reference, over several batches."""

    def __init__(self, reference: Reference):
        self.reference = reference
        self.counts = PerHead(AlignmentAccumulator)

    @torch.no_grad()
    def update(self, weights: AllWeights, sentences: Sentences, special: SpecialTokens) -> None:
        gold = self.reference(sentences)
        for count, head in self.counts.zip(head_alignments(weights, sentences, special)):
            for alignment, reference in zip(head, gold, strict=True):
                count.update(alignment, reference)

    def merge(self, other: "HeadAlignmentAccumulator") -> None:
        self.counts.merge(other.counts)

    def result(self) -> HeadValues:
        return self.counts.values(lambda count: count.result().error_rate)


def head_alignments(weights: AllWeights, sentences: Sentences, special: SpecialTokens) -> list[list[list[Alignment]]]:
    """Return the alignment of each layer, head and sentence: each output word with its most attended source word.

    Where tokens are subwords, their weights are joined first. A word whose most attended token is special is unaligned.
    """
    batch, source, target = sentences.batch, sentences.source, sentences.target
    if source is None or target is None:
        tokens = batch.target_mask & ~special.target
        return [
            [argmax_alignment(head, batch.source_mask, tokens, special.source) for head in layer.unbind(1)]
            for layer in weights
        ]
    return [word_alignments(by_word(layer, source, target), source, target) for layer in weights]


def word_alignments(
    weights: Float[Tensor, "batch heads target_units source_units"], source: Words, target: Words
) -> list[list[Alignment]]:
    """Return the alignment of each head and sentence, by the positions of words in their texts."""
    by_unit = [
        argmax_alignment(head, source.mask, target.is_word, unlinked=source.mask & ~source.is_word)
        for head in weights.cpu().unbind(1)
    ]
    places = list(zip(source.places.tolist(), target.places.tolist(), strict=True))
    return [
        [frozenset((s[i], t[j]) for i, j in sentence) for sentence, (s, t) in zip(head, places, strict=True)]
        for head in by_unit
    ]


def gold_reference(gold: Sequence[GoldAlignment]) -> Reference:
    """Return gold alignments in the order of the sentences: between words, or tokens if there are no words."""
    end = 0

    def following(sentences: Sentences) -> Sequence[GoldAlignment]:
        nonlocal end
        end += len(sentences)
        require(end <= len(gold), f"there are gold alignments for {len(gold)} sentences only; the data have more")
        return gold[end - len(sentences) : end]

    return following


def model_1_reference(model: Model, sentences: Sequence[Sentences], aligner: IBMModel1 | None = None) -> Reference:
    """Return the likeliest alignments of IBM Model 1, with a NULL word, by default fitted to these sentences."""
    aligner = fit_model_1(model, [part.batch for part in sentences]) if aligner is None else aligner

    def likeliest(part: Sentences) -> Sequence[GoldAlignment]:
        origins = aligner.viterbi(without_special(model, part.batch)).cpu()
        return [GoldAlignment.of(row) for row in alignments_from_origins(origins, part)]

    return likeliest


def fit_model_1(model: Model, batches: Sequence[Batch]) -> IBMModel1:
    source = 1 + max(int(batch.source.max()) for batch in batches)
    target = 1 + max(int(batch.target.max()) for batch in batches)
    return IBMModel1.fitted(Bags.of([without_special(model, batch) for batch in batches], source, target, null=True))


def without_special(model: Model, batch: Batch) -> Batch:
    """Return the batch with special tokens masked like padding: they translate nothing."""
    special = SpecialTokens.of(model, batch)
    return replace(
        batch, source_mask=batch.source_mask & ~special.source, target_mask=batch.target_mask & ~special.target
    )


def alignments_from_origins(origins: Int[Tensor, "batch target"], sentences: Sentences) -> list[Alignment]:
    """Return alignments from the source position of each target position; between words where the data have them."""
    pairs = [frozenset((origin, j) for j, origin in enumerate(row) if origin != NOWHERE) for row in origins.tolist()]
    if sentences.source is None or sentences.target is None:
        return pairs
    source, target = word_positions(sentences.source), word_positions(sentences.target)
    return [frozenset((s[i], t[j]) for i, j in row) for row, s, t in zip(pairs, source, target, strict=True)]


def word_positions(words: Words) -> list[list[int]]:
    """Return, for each token, the position of its word in the text."""
    positions: list[list[int]] = words.places.gather(1, words.unit.clamp(min=0)).tolist()
    return positions


# All rankings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadRanking(Displayed):
    """The value of each criterion for each layer and head, and the rankings that follow."""

    ablated: HeadEffect
    uniform: HeadEffect
    alignment_error: HeadValues | None  # None for a classifier
    reference: str | None  # what the alignments were compared with
    saliency: SaliencyAgreement | None  # None where it was left out, or the embeddings cannot be reached
    of: str  # the output: "gold", or the model's "own"
    sentences: int
    tokens: int

    def columns(self) -> dict[str, HeadValues]:
        columns = {} if self.alignment_error is None else {"alignment error": self.alignment_error}
        for name, effect in {"ablated": self.ablated, "uniform": self.uniform}.items():
            columns |= {f"loss if {name}": effect.loss, f"± if {name}": effect.error}
            columns |= {f"changed if {name}": effect.changed}
        if self.saliency is not None:
            columns |= {"τ with saliency": self.saliency.kendall, "top 5 % of saliency": self.saliency.top}
        return columns

    def ranks(self) -> pd.DataFrame:
        """Return one row per layer and head, one column per ranking; ties share the better rank, and NaN has none."""
        table = head_table(self.columns())
        ranks = {
            name: table[column].rank(method="min", ascending=smaller)
            for name, (column, smaller) in RANKINGS.items() if column in table
        }  # fmt: skip
        return pd.DataFrame(ranks)

    def table(self) -> pd.DataFrame:
        """Return one row per layer and head: the measured values, then the rank by each criterion."""
        return head_table(self.columns()).join(self.ranks().add_prefix("rank by "))

    def agreement_between(self, correlation: str = "kendall") -> pd.DataFrame:
        """Return the rank correlation of every two rankings, Kendall's τ-b or Spearman's ρ; NaN where one ties all."""
        choose("rank correlation", correlation, CORRELATIONS)
        return self.ranks().corr(method="kendall" if correlation == "kendall" else "spearman", min_periods=2)

    def plot(self, ax: Axes | None = None, column: str = "loss if ablated") -> Axes:
        """Draw one column of the table, one row per layer, one column per head."""
        return plot_heads(self.table(), column, ax)

    def plot_all(self) -> Figure:
        """Draw small multiples of the columns that the rankings go by."""
        return plot_columns(self.table(), [RANKINGS[str(name)][0] for name in self.ranks()])


class HeadRankingAccumulator:
    """All criteria of one model's heads, over several batches."""

    def __init__(
        self,
        model: Model,
        reference: Reference | None = None,
        saliency: SaliencyMethod | None = influence,
        of: str = "gold",
        named: str | None = None,
        decoding: Decoding | None = None,
    ):
        self.model, self.of, self.named, self.decoding = module_of(model), of, named, decoding
        self.method = saliency if isinstance(self.model, EmbedsSource) else None
        self.effects = Accumulator[EffectSums]()
        self.alignments = None if reference is None else HeadAlignmentAccumulator(reference)
        self.saliency = None if self.method is None else SaliencyAgreementAccumulator()

    def update(self, sentences: Sentences) -> None:
        batch, special = sentences.batch, SpecialTokens.of(self.model, sentences.batch)
        with evaluating(self.model):
            counterfactual = CounterfactualAttention.of(self.model, batch, self.decoding)
            self.effects.add(effect_sums(counterfactual))
        weights = counterfactual.layer_weights
        if self.alignments is not None:
            self.alignments.update(weights, sentences, special)
        if self.saliency is not None and self.method is not None:
            forward = {} if self.decoding is None else {"decoding": self.decoding}
            self.saliency.update(weights, self.method(self.model, batch, **forward), batch, special)

    def merge(self, other: "HeadRankingAccumulator") -> None:
        """Add what was accumulated over other batches, with the same settings."""
        self.effects.merge(other.effects)
        if self.alignments is not None and other.alignments is not None:
            self.alignments.merge(other.alignments)
        if self.saliency is not None and other.saliency is not None:
            self.saliency.merge(other.saliency)

    def result(self) -> HeadRanking:
        total = self.effects.total
        effects = total.effects()
        return HeadRanking(
            ablated=effects["ablated"], uniform=effects["uniform"],
            alignment_error=None if self.alignments is None else self.alignments.result(), reference=self.named,
            saliency=None if self.saliency is None else self.saliency.result(),
            of=self.of, sentences=total.sentences, tokens=int(total.tokens),
        )  # fmt: skip


def head_ranking(
    model: Model,
    data: Data,
    gold: Sequence[GoldAlignment] | None = None,
    max_sentences: int | None = None,
    of: str = "gold",
    aligner: IBMModel1 | None = None,
    saliency: SaliencyMethod | None = influence,
    decoding: Decoding | None = None,
) -> HeadRanking:
    """Return rankings of all heads; for each batch, two passes of the model per layer and head.

    Args:
        model: A LoadedModel, or any model that gives Traces.
        data: Texts, a path, a table, a Task or Batches.
        gold: Word alignments in the order of the sentences: between words where the data are texts, between tokens
            where they are Batches. Without them, alignments of translators are compared with those of IBM Model 1.
        max_sentences: How many sentences to read; None: all.
        of: Which output is probed: "gold", or the model's "own".
        aligner: IBM Model 1; None: one fitted to these sentences.
        saliency: A method of attnscope.probes.saliency; None leaves that ranking out, which takes a backward pass per
            output token.
        decoding: "teacher_forced" or "greedy"; None: the model's default.
    """
    choose("output", of, OUTPUTS)
    require(gold is None or of == "gold", "gold alignments are between gold sentences; with of='own' there are none")
    sentences = read_sentences(model, data, max_sentences)
    if of == "own":
        sentences = (with_own_output(model, part) for part in sentences)
    reference, named = None, None
    if gold is not None:
        reference, named = gold_reference(gold), "gold alignments"
    else:
        parts = list(sentences)  # token ids only
        sentences = iter(parts)
        translates = not isinstance(module_of(model), PredictsNextToken)  # nor does a classifier: it outputs one token
        if translates and any(part.batch.target.shape[1] > 1 for part in parts):
            reference, named = model_1_reference(model, parts, aligner), "IBM Model 1"
    ranking = HeadRankingAccumulator(model, reference, saliency, of, named, decoding)
    for part in sentences:
        ranking.update(part)
    return ranking.result()
