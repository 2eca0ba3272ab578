"""How much of each head's alignment do time and words make? (aitken2021 eq. 3 and figure 5a, layer by layer)

The nine terms in three groups: time is temporal · temporal, which is known before any word is read; word is the three
other terms without a delta, which are known once the two words are; rest is the five with a delta, which depend on what
else was read. Components come from a first pass over the sentences, shares from a second. Words seen once have no
delta by construction, so that in a small sample the word is given more than its due: `common` counts only pairs of
words that were both seen often. As in the paper, a term counts in full even if it is the same at all positions, where
softmax does not feel it.

Where the score is no inner product there are no nine terms: the shares are then those of the encoder's states, by the
length of their temporal, input and delta part, the same for each head.
"""

# TODO(docstring) join:
#   How widely does each head look, how far from the diagonal, and how much at special tokens?
#   How is attention formed, by layer and head? (aitken2021, for models of any depth)
from dataclasses import dataclass, replace
from typing import TypeVar

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed, Figure
from attnscope.models.adapters import up_to
from attnscope.models.capabilities import Decoding
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Model, Stream, Sums, check_twice
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.decomposition.components import (
    Components,
    ComponentSums,
    Side,
    component_sums,
    decoder_tokens,
    pairs,
    read,
)
from attnscope.probes.decomposition.states import GeometrySums, geometry_sums, inner_products
from attnscope.probes.decomposition.terms import FEW, TOP, ShareSums, share_sums, terms
from attnscope.probes.heads.stream import Heads, Item, by_head, grid, grids, is_special, taken

GROUPS = ("time", "word", "rest")
S = TypeVar("S", bound=Sums)


@dataclass(frozen=True)
class Parts:
    """Shares, which sum to one; NaN where nothing counted."""

    groups: Float[Tensor, "layers heads 3"]  # in the order of GROUPS
    common: Float[Tensor, "layers heads 3"] | None  # of pairs of words that were both seen often; None for states
    terms: Float[Tensor, "layers heads 3 3"] | None  # part of the query, part of the key; None for states

    @property
    def of(self) -> str:
        return "encoder states" if self.terms is None else "nine terms"


class Numbers:
    """Numbers for words in the order in which they come, so that sums are as long as the words that were seen.

    >>> numbers = Numbers()
    >>> numbers(torch.tensor([[900, 30]])), numbers(torch.tensor([[7, 900]]))
    (tensor([[1, 0]]), tensor([[2, 1]]))
    """

    def __init__(self) -> None:
        self.of_word: Int[Tensor, " words"] = torch.empty(0, dtype=torch.long)
        self.count = 0

    def __call__(self, words: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
        found = words.unique().cpu()
        missing = int(found.max()) + 1 - len(self.of_word)
        if missing > 0:
            self.of_word = torch.cat([self.of_word, torch.full((missing,), -1)])
        new = found[self.of_word[found] < 0]
        self.of_word[new] = torch.arange(self.count, self.count + len(new))
        self.count += len(new)
        return self.of_word.to(words.device)[words]


class Split:
    """Two passes over the same sentences: `fit` every trace, then `measure` every trace, then ask for the `result`."""

    def __init__(self, top: int = TOP, few: int = FEW):
        self.top, self.few = top, few
        self.source, self.target = Numbers(), Numbers()
        self.sums: list[list[ComponentSums]] = []  # of each layer: encoder's, and decoder's where there is one
        self.fitted: list[list[Components]] = []
        self.shares: list[ShareSums] = []
        self.lengths: list[GeometrySums] = []
        self.heads = 0

    @torch.no_grad()
    def fit(self, trace: Trace) -> None:
        self.heads = trace.last.weights.shape[1]
        sums = [[component_sums(side) for side in sides] for sides in self.sides(trace)]
        self.sums = [added(*both) for both in zip(self.sums, sums, strict=True)] if self.sums else sums

    @torch.no_grad()
    def measure(self, seen: CounterfactualAttention) -> None:
        trace = seen.trace
        self.fitted = self.fitted or [[sums.components() for sums in layer] for layer in self.sums]
        measured = list(zip(self.sides(trace), self.fitted, strict=True))
        if has_terms(trace):
            shares = [self.shared(trace.layers[i].scores, seen.attended, *both) for i, both in enumerate(measured)]
            self.shares = added(self.shares, shares)
        else:
            (encoder,), (components,) = measured[0]
            products = inner_products(components.split(encoder.vectors, encoder.words), encoder.mask)
            self.lengths = added(self.lengths, [geometry_sums(products, encoder.mask)])

    def sides(self, trace: Trace) -> list[list[Side]]:
        """Of each layer, keys and queries; where there are none, the encoder's states alone."""
        numbered = replace(trace, source=self.source(trace.source), decoder_input=self.target(decoder_tokens(trace)))
        if not has_terms(trace):
            return [[read(numbered, "states").encoder]]
        layers = (read(up_to(numbered, i), "attention") for i in range(len(trace.layers)))
        return [[layer.encoder, layer.decoder] for layer in layers if layer.decoder is not None]

    def shared(
        self,
        alignment: Float[Tensor, "batch heads target source"],
        attended: Bool[Tensor, "batch source"],
        sides: list[Side],
        fitted: list[Components],
    ) -> ShareSums:
        """The totals of one layer; positions that may not be attended to are no choice."""
        keys, queries = sides
        of_keys, of_queries = fitted
        nine = terms(of_queries.split(queries.vectors, queries.words), of_keys.split(keys.vectors, keys.words))
        common = pairs(of_queries.seen(queries.words) >= self.few, of_keys.seen(keys.words) >= self.few)
        target, source = queries.mask.shape[1], keys.mask.shape[1]
        counted = pairs(queries.mask, attended[:, :source])
        return share_sums(nine, alignment[:, :, :target, :source], counted, ~common, self.top)

    def result(self) -> Parts:
        if self.lengths:
            lengths = self.lengths[0].geometry().lengths[:, :3].cpu()  # 1 x 3
            return Parts((lengths / lengths.sum(-1)).expand(1, self.heads, -1), None, None)
        overall, common = (
            torch.stack([sums.shares(group).absolute for sums in self.shares]).cpu() for group in ("all", "common")
        )
        return Parts(grouped(overall), grouped(common), overall)


def has_terms(trace: Trace) -> bool:
    return all(layer.queries is not None and layer.keys is not None for layer in (*trace.layers, trace.last))


def added(so_far: list[S], more: list[S]) -> list[S]:
    return [one + other for one, other in zip(so_far, more, strict=True)] if so_far else more


def grouped(nine: Float[Tensor, "layers heads 3 3"]) -> Float[Tensor, "layers heads 3"]:
    """Time, word and rest of the nine terms.

    >>> grouped(torch.tensor([[[[0.2, 0.1, 0.0], [0.3, 0.0, 0.0], [0.1, 0.1, 0.2]]]], dtype=torch.float64))
    tensor([[[0.2000, 0.4000, 0.4000]]], dtype=torch.float64)
    """
    time, known = nine[..., 0, 0], nine[..., :2, :2].sum((-1, -2))
    return torch.stack([time, known - time, nine.sum((-1, -2)) - known], -1)


@dataclass(frozen=True)
class AttentionProfile:
    """Means over output words, of each layer and head.

    `offset` is by how many positions attention lies behind the diagonal, `spread` the standard deviation of that, over
    output words and attention alike: a head that always looks at the same offset has none. `entropy` is that of
    attention over that of uniform attention: 0 looks at one position, 1 at all alike.
    """

    entropy: Heads
    offset: Heads
    spread: Heads
    specials: Heads  # the weight on special tokens
    specials_if_uniform: float


@dataclass(frozen=True)
class AttentionProfileSums(Sums):
    """The totals behind it."""

    entropy: Heads
    offset: Heads
    squares: Heads
    specials: Heads
    even: Float[Tensor, ""]
    words: Int[Tensor, ""]
    choices: Int[Tensor, ""]  # words with more than one position to look at: others have no entropy
    sentences: int

    def looking(self) -> AttentionProfile:
        offset = self.offset / self.words
        return AttentionProfile(
            entropy=self.entropy / self.choices,
            offset=offset,
            spread=(self.squares / self.words - offset**2).clamp_min(0).sqrt(),
            specials=self.specials / self.words,
            specials_if_uniform=float(self.even / self.words),
        )


def attention_profile_sums(
    seen: CounterfactualAttention, special: Bool[Tensor, "batch source"]
) -> AttentionProfileSums:
    """The totals of one batch."""
    weights, words = seen.layer_weights.double(), seen.trace.target_mask  # layers x batch x heads x target x source
    places = seen.attended.sum(1).double()  # batch
    choice = words & (places > 1)[:, None]
    distances = from_diagonal(seen.trace)[:, None]  # batch x 1 x target x source
    even = (special & seen.attended).sum(1) / places
    return AttentionProfileSums(
        entropy=total(relative_entropy(weights, places), choice),
        offset=total((weights * distances).sum(-1), words),
        squares=total((weights * distances**2).sum(-1), words),
        specials=total((weights * special[:, None, None]).sum(-1), words),
        even=(even * words.sum(1)).sum().cpu(),
        words=words.sum().cpu(),
        choices=choice.sum().cpu(),
        sentences=len(words),
    )


def total(values: Float[Tensor, "layers batch heads target"], counted: Bool[Tensor, "batch target"]) -> Heads:
    return values.masked_fill(~counted[:, None], 0).sum((1, 3)).cpu()


def relative_entropy(
    weights: Float[Tensor, "layers batch heads target source"], places: Float[Tensor, " batch"]
) -> Float[Tensor, "layers batch heads target"]:
    """1 where all places are alike, 0 where one has all the weight; of one place, it has no meaning."""
    entropy: Tensor = torch.special.entr(weights).sum(-1)
    return entropy / places.log()[:, None, None]


def from_diagonal(trace: Trace) -> Float[Tensor, "batch target source"]:
    """How far each source position lies behind the place that corresponds to an output word.

    The diagonal goes from the beginning of both sentences to their ends, whatever their lengths: position t of T
    corresponds to (t + ½) L / T − ½. The one word of a classifier corresponds to the middle of the text.
    """
    source, target = (torch.arange(words.shape[1], device=words.device) for words in (trace.source, trace.target))
    lengths = trace.source_mask.sum(1) / trace.target_mask.sum(1).clamp_min(1)  # batch
    diagonal = (target + 0.5) * lengths[:, None].double() - 0.5  # batch x target
    return source - diagonal[:, :, None]


@dataclass(frozen=True)
class HeadFormation(Displayed):
    """What makes the attention of each head, and how it looks about."""

    parts: Parts
    looking: AttentionProfile
    sentences: int
    words: int  # output words, end tokens among them

    def table(self) -> pd.DataFrame:
        """A row a layer and head: shares of time, word and rest, then how it looks about."""
        shares = dict(zip(GROUPS, self.parts.groups.unbind(-1), strict=True))
        looks = {
            "entropy": self.looking.entropy, "offset": self.looking.offset, "spread": self.looking.spread,
            "on specials": self.looking.specials,
        }  # fmt: skip
        common = self.parts.common
        often = {} if common is None else dict(zip(GROUPS, common.unbind(-1), strict=True))
        return by_head(shares | looks | {f"{name}, common words": values for name, values in often.items()})

    def plot(self, column: str = "time", ax: Axes | None = None) -> Axes:
        """One column of the table, a layer a row, a head a column."""
        return grid(self.table(), column, ax)

    def pictures(self) -> Figure:
        """Small multiples: all but what is measured on common words."""
        table = self.table()
        return grids(table, [name for name in table.columns if not name.endswith("common words")])


def head_formation(
    model: Model,
    batches: Stream[Item],
    most: int | None = None,
    top: int = TOP,
    few: int = FEW,
    decoding: Decoding | None = None,
) -> HeadFormation:
    """Of all layers and heads, from two passes of the model over the first `most` sentences.

    The first pass finds the components, the second the shares; memory goes with the words that were seen, and not with
    the sentences. `decoding` is that of the model unless it is given.
    """
    check_twice(batches, ", one for components and one for their shares")
    split, looked = Split(top, few), Accumulator[AttentionProfileSums]()
    for sentences in taken(batches, model, most):
        seen = CounterfactualAttention.of(model, sentences.batch, decoding)
        split.fit(seen.trace)
        looked.add(attention_profile_sums(seen, is_special(model, sentences.batch)))
    for sentences in taken(batches, model, most):
        split.measure(CounterfactualAttention.of(model, sentences.batch, decoding))
    total = looked.total
    return HeadFormation(split.result(), total.looking(), total.sentences, int(total.words))
