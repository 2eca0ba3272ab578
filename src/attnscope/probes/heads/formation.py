"""How is the attention of each layer and head formed? (aitken2021 eq. 3 and figure 5a, for models of any depth)

The nine terms of each score are put in three groups. *time* is temporal · temporal, known before any token is read;
*word* is the three other terms without a delta, known once both tokens are; *rest* is the five with a delta, which
depend on the rest of the sentence. Components come from a first pass over the sentences, shares from a second. Tokens
that occur once in the fit have no delta by construction, so that a small sample overstates *word*: `common` counts only
pairs of frequent tokens. As in the paper, a term counts in full even if it is the same at all positions, where softmax
cancels it.

Where the score is not an inner product there are no nine terms: the shares are then those of the encoder's states, by
the length of their temporal, input and delta part, the same for each layer and head.

Also reported, for each head: the entropy of its attention, its offset from the diagonal, and its weight on special
tokens.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed, Figure
from attnscope.models.adapters import up_to
from attnscope.models.capabilities import Decoding
from attnscope.models.inference import Model
from attnscope.models.inputs import Data
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums, check_reiterable
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.decomposition.components import (
    Components,
    ComponentSums,
    SideVectors,
    component_sums,
    decoder_tokens,
    has_inner_products,
    pair_mask,
    vectors_of,
)
from attnscope.probes.decomposition.states import GeometrySums, geometry_sums, inner_products
from attnscope.probes.decomposition.terms import MIN_COUNT, TOP_K, ShareSums, share_sums, terms
from attnscope.probes.divergences import relative_entropy
from attnscope.probes.heads.sentences import (
    HeadValues,
    SpecialTokens,
    head_table,
    plot_columns,
    plot_heads,
    read_sentences,
)

GROUPS = ("time", "word", "rest")
S = TypeVar("S", bound=Sums)


@dataclass(frozen=True)
class ScoreShares:
    """The shares of time, word and rest, which sum to one; NaN where no position counted."""

    groups: Float[Tensor, "layers heads 3"]  # in the order of GROUPS
    common: Float[Tensor, "layers heads 3"] | None  # of pairs of frequent tokens; None for states
    terms: Float[Tensor, "layers heads 3 3"] | None  # (part of the query, part of the key); None for states

    @property
    def of(self) -> str:
        return "encoder states" if self.terms is None else "nine terms"


class DenseIds:
    """Token ids renumbered in the order in which they occur, so that sums are as long as the tokens that occurred.

    >>> dense = DenseIds()
    >>> dense(torch.tensor([[900, 30]])), dense(torch.tensor([[7, 900]]))
    (tensor([[1, 0]]), tensor([[2, 1]]))
    """

    def __init__(self) -> None:
        self.of_token: Int[Tensor, " tokens"] = torch.empty(0, dtype=torch.long)
        self.count = 0

    def __call__(self, tokens: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
        present = tokens.unique().cpu()
        missing = int(present.max()) + 1 - len(self.of_token)
        if missing > 0:
            self.of_token = torch.cat([self.of_token, torch.full((missing,), -1)])
        new = present[self.of_token[present] < 0]
        self.of_token[new] = torch.arange(self.count, self.count + len(new))
        self.count += len(new)
        return self.of_token.to(tokens.device)[tokens]


class ScoreShareAccumulator:
    """The shares of all heads, in two passes: `fit` every trace, then `measure` every trace, then take the `result`."""

    def __init__(self, top_k: int = TOP_K, min_count: int = MIN_COUNT):
        self.top_k, self.min_count = top_k, min_count
        self.source, self.target = DenseIds(), DenseIds()
        self.sums: list[list[ComponentSums]] = []  # per layer: the encoder's, and the decoder's where there is one
        self.fitted: list[list[Components]] = []
        self.shares: list[ShareSums] = []
        self.lengths: list[GeometrySums] = []
        self.depth, self.heads = 0, 0

    @torch.no_grad()
    def fit(self, trace: Trace) -> None:
        self.depth, self.heads = len(trace.layers), trace.last.weights.shape[1]
        sums = [[component_sums(side) for side in sides] for sides in self.sides(trace)]
        self.sums = [add_each(*both) for both in zip(self.sums, sums, strict=True)] if self.sums else sums

    @torch.no_grad()
    def measure(self, counterfactual: CounterfactualAttention) -> None:
        trace = counterfactual.trace
        self.fitted = self.fitted or [[sums.components() for sums in layer] for layer in self.sums]
        measured = list(zip(self.sides(trace), self.fitted, strict=True))
        if has_inner_products(trace):
            attended = counterfactual.attended
            shares = [self.layer_sums(trace.layers[i].scores, attended, *both) for i, both in enumerate(measured)]
            self.shares = add_each(self.shares, shares)
        else:
            (encoder,), (components,) = measured[0]
            products = inner_products(components.split(encoder.vectors, encoder.words), encoder.mask)
            self.lengths = add_each(self.lengths, [geometry_sums(products, encoder.mask)])

    def sides(self, trace: Trace) -> list[list[SideVectors]]:
        """Return keys and queries of each layer; where there are none, the encoder's states alone."""
        dense = replace(trace, source=self.source(trace.source), decoder_input=self.target(decoder_tokens(trace)))
        if not has_inner_products(trace):
            return [[vectors_of(dense, "states").encoder]]
        layers = (vectors_of(up_to(dense, i), "attention") for i in range(len(trace.layers)))
        return [[layer.encoder, layer.decoder] for layer in layers if layer.decoder is not None]

    def layer_sums(
        self,
        scores: Float[Tensor, "batch heads target source"],
        attended: Bool[Tensor, "batch source"],
        sides: list[SideVectors],
        fitted: list[Components],
    ) -> ShareSums:
        """Return the totals of one layer; positions that may not be attended to do not count."""
        keys, queries = sides
        key_components, query_components = fitted
        nine = terms(
            query_components.split(queries.vectors, queries.words), key_components.split(keys.vectors, keys.words)
        )
        common = pair_mask(
            query_components.fit_counts(queries.words) >= self.min_count,
            key_components.fit_counts(keys.words) >= self.min_count,
        )
        target, source = queries.mask.shape[1], keys.mask.shape[1]
        counted = pair_mask(queries.mask, attended[:, :source])
        return share_sums(nine, scores[:, :, :target, :source], counted, ~common, self.top_k)

    def result(self) -> ScoreShares:
        if self.lengths:
            lengths = self.lengths[0].geometry().lengths[:, :3].cpu()  # 1 x 3
            return ScoreShares((lengths / lengths.sum(-1)).expand(self.depth, self.heads, -1), None, None)
        overall, common = (
            torch.stack([sums.shares(group).absolute for sums in self.shares]).cpu() for group in ("all", "common")
        )
        return ScoreShares(group_terms(overall), group_terms(common), overall)


def add_each(former: list[S], new: list[S]) -> list[S]:
    return [one + other for one, other in zip(former, new, strict=True)] if former else new


def group_terms(nine: Float[Tensor, "layers heads 3 3"]) -> Float[Tensor, "layers heads 3"]:
    """Return time, word and rest of the nine terms.

    >>> group_terms(torch.tensor([[[[0.2, 0.1, 0.0], [0.3, 0.0, 0.0], [0.1, 0.1, 0.2]]]], dtype=torch.float64))
    tensor([[[0.2000, 0.4000, 0.4000]]], dtype=torch.float64)
    """
    time, without_delta = nine[..., 0, 0], nine[..., :2, :2].sum((-1, -2))
    return torch.stack([time, without_delta - time, nine.sum((-1, -2)) - without_delta], -1)


@dataclass(frozen=True)
class AttentionProfile:
    """Means over output tokens, for each layer and head.

    Attributes:
        entropy: Relative to that of uniform attention: 0 for one position, 1 for uniform.
        offset: By how many positions attention lies behind the diagonal.
        spread: The standard deviation of the offset, over output tokens and attention alike.
        special: The weight on special tokens.
        special_if_uniform: What uniform attention would put there.
    """

    entropy: HeadValues
    offset: HeadValues
    spread: HeadValues
    special: HeadValues
    special_if_uniform: float


@dataclass(frozen=True)
class AttentionProfileSums(Sums):
    """The totals behind an AttentionProfile."""

    entropy: HeadValues
    offset: HeadValues
    squares: HeadValues
    special: HeadValues
    special_if_uniform: Float[Tensor, ""]
    tokens: Int[Tensor, ""]
    choices: Int[Tensor, ""]  # tokens with more than one position to attend to: others have no entropy
    sentences: int

    def profile(self) -> AttentionProfile:
        offset = self.offset / self.tokens
        return AttentionProfile(
            entropy=self.entropy / self.choices,
            offset=offset,
            spread=(self.squares / self.tokens - offset**2).clamp_min(0).sqrt(),
            special=self.special / self.tokens,
            special_if_uniform=float(self.special_if_uniform / self.tokens),
        )


def attention_profile_sums(
    counterfactual: CounterfactualAttention, special: Bool[Tensor, "batch source"]
) -> AttentionProfileSums:
    """Return the totals of one batch."""
    weights = counterfactual.layer_weights.double()  # layers x batch x heads x target x source
    tokens, attended = counterfactual.trace.target_mask, counterfactual.attended
    positions = attended.sum(1)  # batch
    choice = tokens & (positions > 1)[:, None]
    distances = distance_from_diagonal(counterfactual.trace)[:, None]  # batch x 1 x target x source
    uniform = (special & attended).sum(1) / positions.double()
    return AttentionProfileSums(
        entropy=total(relative_entropy(weights, attended[:, None, None]), choice),
        offset=total((weights * distances).sum(-1), tokens),
        squares=total((weights * distances**2).sum(-1), tokens),
        special=total((weights * special[:, None, None]).sum(-1), tokens),
        special_if_uniform=(uniform * tokens.sum(1)).sum().cpu(),
        tokens=tokens.sum().cpu(),
        choices=choice.sum().cpu(),
        sentences=len(tokens),
    )


def total(values: Float[Tensor, "layers batch heads target"], counted: Bool[Tensor, "batch target"]) -> HeadValues:
    return values.masked_fill(~counted[:, None], 0).sum((1, 3)).cpu()


def distance_from_diagonal(trace: Trace) -> Float[Tensor, "batch target source"]:
    """Return how far each source position lies behind the one that corresponds to an output token.

    The diagonal goes from the beginning of both sentences to their ends, whatever their lengths: position t of T
    corresponds to (t + ½) L / T − ½. The one output of a classifier corresponds to the middle of the text.
    """
    source, target = (torch.arange(ids.shape[1], device=ids.device) for ids in (trace.source, trace.target))
    lengths = trace.source_mask.sum(1) / trace.target_mask.sum(1).clamp_min(1)  # batch
    diagonal = (target + 0.5) * lengths[:, None].double() - 0.5  # batch x target
    return source - diagonal[:, :, None]


@dataclass(frozen=True)
class HeadFormation(Displayed):
    """How the attention of each head is formed, and where it lies."""

    shares: ScoreShares
    profile: AttentionProfile
    sentences: int
    tokens: int  # output tokens, end tokens among them

    def table(self) -> pd.DataFrame:
        """Return one row per layer and head: shares of time, word and rest, then the profile."""
        shares = dict(zip(GROUPS, self.shares.groups.unbind(-1), strict=True))
        profile = {
            "entropy": self.profile.entropy, "offset": self.profile.offset, "spread": self.profile.spread,
            "on specials": self.profile.special,
        }  # fmt: skip
        common = self.shares.common
        frequent = {} if common is None else dict(zip(GROUPS, common.unbind(-1), strict=True))
        return head_table(shares | profile | {f"{name}, common words": values for name, values in frequent.items()})

    def plot(self, ax: Axes | None = None, column: str = "time") -> Axes:
        """Draw one column of the table, one row per layer, one column per head."""
        return plot_heads(self.table(), column, ax)

    def plot_all(self) -> Figure:
        """Draw small multiples of all columns but those of common words."""
        table = self.table()
        return plot_columns(table, [name for name in table.columns if not name.endswith("common words")])


def head_formation(
    model: Model,
    data: Data,
    max_sentences: int | None = None,
    top_k: int = TOP_K,
    min_count: int = MIN_COUNT,
    decoding: Decoding | None = None,
) -> HeadFormation:
    """Return how the attention of all layers and heads is formed, from two passes over the data.

    The first pass finds the components, the second the shares. Memory grows with the vocabulary of the data, and not
    with the number of sentences.

    Args:
        model: A LoadedModel, or any model that gives Traces.
        data: Texts, a path, a table, a Task or Batches; not an iterator, since it is read twice.
        max_sentences: How many sentences to read; None: all.
        top_k: How many of the largest scores of each decoder step count.
        min_count: Tokens that occur less often are rare.
        decoding: "teacher_forced" or "greedy"; None: the model's default.
    """
    check_reiterable(data, ", one for components and one for their shares")
    shares, profile = ScoreShareAccumulator(top_k, min_count), Accumulator[AttentionProfileSums]()
    for sentences in read_sentences(model, data, max_sentences):
        counterfactual = CounterfactualAttention.of(model, sentences.batch, decoding)
        shares.fit(counterfactual.trace)
        profile.add(attention_profile_sums(counterfactual, SpecialTokens.of(model, sentences.batch).source))
    for sentences in read_sentences(model, data, max_sentences):
        shares.measure(CounterfactualAttention.of(model, sentences.batch, decoding))
    total = profile.total
    return HeadFormation(shares.result(), total.profile(), total.sentences, int(total.tokens))
