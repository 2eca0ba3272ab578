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

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.models.adapters import up_to
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Sums
from attnscope.probes.decomposition.components import Components, ComponentSums, component_sums
from attnscope.probes.decomposition.geometry import GeometrySums, geometry_sums, inner_products
from attnscope.probes.decomposition.shares import FEW, TOP, ShareSums, share_sums
from attnscope.probes.decomposition.sides import Side, fed_words, pairs, read
from attnscope.probes.decomposition.terms import terms
from attnscope.probes.heads.stream import Pass

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
    def measure(self, seen: Pass) -> None:
        trace = seen.trace
        self.fitted = self.fitted or [[sums.components() for sums in layer] for layer in self.sums]
        measured = list(zip(self.sides(trace), self.fitted, strict=True))
        if has_terms(trace):
            shares = [self.shared(trace.layers[i].alignment, seen.attended, *both) for i, both in enumerate(measured)]
            self.shares = added(self.shares, shares)
        else:
            (encoder,), (components,) = measured[0]
            products = inner_products(components.split(encoder.vectors, encoder.words), encoder.mask)
            self.lengths = added(self.lengths, [geometry_sums(products, encoder.mask)])

    def sides(self, trace: Trace) -> list[list[Side]]:
        """Of each layer, keys and queries; where there are none, the encoder's states alone."""
        numbered = replace(trace, source=self.source(trace.source), fed=self.target(fed_words(trace)))
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
