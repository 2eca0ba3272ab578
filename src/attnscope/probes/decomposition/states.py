"""How large are the parts of a state, at what angles are they, and how much variance does time explain?

Lengths and angles of the parts (aitken2021 §3), and the variance of each token's states with and without their temporal
components (§4.1, figure 5c).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.linalg import vecdot
from torch.nn.functional import normalize

from attnscope.display import Axes, Displayed
from attnscope.probes.accumulator import Sums
from attnscope.probes.decomposition.components import (
    PARTS,
    Components,
    Parts,
    SideVectors,
    check_same_model,
    mean_temporal,
    special_counts,
    sums_by_label,
    word_time_counts,
    zero_padded_lookup,
)
from attnscope.probes.decomposition.terms import MIN_COUNT
from attnscope.probes.decomposition.trajectories import Cloud, MomentSums, Principal, cloud, moment_sums

KINDS = (*PARTS, "input-delta")
PAIRS = (("temporal", "input"), ("temporal", "delta"), ("temporal", "input-delta"), ("input", "delta"))
NEGLIGIBLE = 1e-10  # of a vector's squared length: a part below it is rounding error, and has no direction


@dataclass(frozen=True)
class Geometry(Displayed):
    """The root mean squared length of each part, and the mean |cosine| of pairs of parts of one vector.

    "The delta is small" is a ratio of lengths; "time and input are orthogonal" a mean |cosine| near zero. Pairs in
    which one part is zero have no angle and are left out (the start token's input component: it only ever comes first).
    """

    lengths: Float[Tensor, "heads 4"]  # in the order of KINDS
    cosines: Float[Tensor, "heads 4"]  # in the order of PAIRS; NaN where no pair had an angle
    states: Int[Tensor, ""]

    def length(self, part: str) -> Float[Tensor, " heads"]:
        return self.lengths[:, KINDS.index(part)]

    def cosine(self, one: str, other: str) -> Float[Tensor, " heads"]:
        return self.cosines[:, PAIRS.index((one, other))]

    def table(self) -> pd.DataFrame:
        """Return one column per head: the length of each part, the mean |cosine| of each pair."""
        rows = [*(f"length of {kind}" for kind in KINDS), *(f"|cos| of {one}, {other}" for one, other in PAIRS)]
        values = torch.cat([self.lengths, self.cosines], 1).T.cpu().numpy()
        return pd.DataFrame(values, rows, [f"head {head}" for head in range(values.shape[1])])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean |cosine| of each pair, one column per head."""
        from attnscope import plots

        rows = [f"{one}, {other}" for one, other in PAIRS]
        columns = [f"head {head}" for head in range(len(self.cosines))]
        return plots.heatmap(self.cosines.T.cpu().numpy(), rows=rows, columns=columns, ax=ax, title="mean |cosine|")


@dataclass(frozen=True)
class InnerProducts:
    """The inner products of the parts of every vector, from which all lengths and angles follow."""

    squares: Float[Tensor, "batch heads time 4"]  # in the order of KINDS
    dots: Float[Tensor, "batch heads time 4"]  # in the order of PAIRS
    inverse: Float[Tensor, "batch heads time 4"]  # one over each length; zero for padding and for negligible parts

    def square(self, kind: str) -> Float[Tensor, "batch heads time"]:
        return self.squares[..., KINDS.index(kind)]

    def dot(self, one: str, other: str) -> Float[Tensor, "batch heads time"]:
        return self.dots[..., PAIRS.index((one, other))]


def inner_products(parts: Parts, mask: Bool[Tensor, "batch time"]) -> InnerProducts:
    nine = parts.stacked @ parts.stacked.mT  # batch x heads x time x 3 x 3
    three, with_temporal, within = nine.diagonal(dim1=-2, dim2=-1), nine[..., 0, 1:], nine[..., 1, 2:]
    squares = torch.cat([three, vecdot(parts.input_delta, parts.input_delta)[..., None]], -1)
    dots = torch.cat([with_temporal, with_temporal.sum(-1, keepdim=True), within], -1)
    directed = (squares > NEGLIGIBLE * three.sum(-1, keepdim=True)) & mask[:, None, :, None]
    return InnerProducts(squares, dots, inverse=squares.rsqrt().where(directed, 0))


@dataclass(frozen=True)
class GeometrySums(Sums):
    """The totals behind Geometry."""

    squares: Float[Tensor, "heads 4"]
    cosines: Float[Tensor, "heads 4"]
    angles: Int[Tensor, "heads 4"]  # how many pairs had an angle
    states: Int[Tensor, ""]

    def geometry(self) -> Geometry:
        return Geometry((self.squares / self.states).sqrt(), self.cosines / self.angles, self.states)


def geometry_sums(products: InnerProducts, mask: Bool[Tensor, "batch time"]) -> GeometrySums:
    temporal, input_, delta, input_delta = products.inverse.unbind(-1)  # each batch x heads x time
    others = torch.stack([input_, delta, input_delta], -1)
    inverse = torch.cat([temporal[..., None] * others, (input_ * delta)[..., None]], -1)
    return GeometrySums(
        squares=(products.squares * mask[:, None, :, None]).sum((0, 2), dtype=torch.float64),
        cosines=(products.dots.abs() * inverse).sum((0, 2), dtype=torch.float64),
        angles=(inverse > 0).sum((0, 2)),
        states=mask.sum(),
    )


@dataclass(frozen=True)
class CrossingSums(Sums):
    """|cosine| between the decoder's temporal component and the encoder's input-delta, over all pairs of steps."""

    cosines: Float[Tensor, " heads"]
    angles: Int[Tensor, " heads"]

    def cosine(self) -> Float[Tensor, " heads"]:
        return self.cosines / self.angles


def crossing_sums(
    nine: Float[Tensor, "3 3 batch heads target source"], queries: InnerProducts, keys: InnerProducts
) -> CrossingSums:
    """Return the totals of one batch, from the nine terms and the lengths on both sides."""
    target, source = queries.inverse[..., KINDS.index("temporal")], keys.inverse[..., KINDS.index("input-delta")]
    dots = (nine[0, 1] + nine[0, 2]).abs()  # batch x heads x target x source
    cosines = (dots @ source[..., None])[..., 0] * target  # batch x heads x target
    angles = (target > 0).sum(-1) * (source > 0).sum(-1)  # batch x heads
    return CrossingSums(cosines.sum((0, 2), dtype=torch.float64), angles.sum(0))


def cosines(
    one: Float[Tensor, "*heads left key"], other: Float[Tensor, "*heads right key"]
) -> Float[Tensor, "*heads left right"]:
    """Return the cosine of every vector of one set with every vector of another."""
    return normalize(one, dim=-1) @ normalize(other, dim=-1).mT


@dataclass(frozen=True)
class WordVariance(Displayed):
    """The trace of the covariance of each token's states, before and after their temporal components are subtracted.

    The mean ratio is over words: special tokens are in the table but not in the mean (the author leaves out the
    pad, which doubles as end token). Words that occur fewer than `min_count` times in the fit have a mean of their own.
    """

    before: Float[Tensor, "heads words"]
    after: Float[Tensor, "heads words"]
    counts: Int[Tensor, " words"]  # occurrences behind these variances
    fit_counts: Int[Tensor, " words"]  # occurrences in the fit
    is_word: Bool[Tensor, " words"]  # occurs as a word, not only as a special token
    min_count: int = MIN_COUNT

    @property
    def ratio(self) -> Float[Tensor, "heads words"]:
        """The variance after over before; NaN for a token whose states do not vary."""
        varies = (self.counts > 1) & (self.before > 0)
        return (self.after / self.before).masked_fill(~varies, torch.nan)

    @property
    def rare(self) -> Bool[Tensor, " words"]:
        return self.fit_counts < self.min_count

    @property
    def mean(self) -> Float[Tensor, " heads"]:
        """The mean ratio of common words."""
        return self.mean_over(~self.rare)

    @property
    def mean_rare(self) -> Float[Tensor, " heads"]:
        return self.mean_over(self.rare)

    def mean_over(self, words: Bool[Tensor, " words"]) -> Float[Tensor, " heads"]:
        """Return the mean ratio of these tokens, special tokens left out."""
        return self.ratio[:, words & self.is_word].nanmean(-1)

    def table(self, words: Sequence[str] | None = None, head: int = 0) -> pd.DataFrame:
        """Return one row per token that occurs."""
        columns = {"before": self.before[head], "after": self.after[head], "ratio": self.ratio[head]}
        columns |= {"count": self.counts, "rare": self.rare}
        table = pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})
        table.index = pd.Index(words[: len(table)] if words else table.index, name="word")
        return table[table["count"] > 0]

    def plot(self, ax: Axes | None = None, words: Sequence[str] | None = None, head: int = 0) -> Axes:
        """Draw, for each token, the variance that is left and the share of the temporal component."""
        from attnscope import plots

        ratio = self.table(words, head)["ratio"].dropna()
        return plots.stacked_shares(pd.DataFrame({"left": ratio, "temporal": 1 - ratio}), ax=ax)


@dataclass(frozen=True)
class VarianceSums(Sums):
    """The totals behind WordVariance: per token χ + Δ, |μ + Δ|² and |Δ|² of its states, and its time steps.

    χ is the same for all states of a token. It adds nothing to their variance, and leaving it out saves digits.
    """

    input_delta: Float[Tensor, "words heads key"]
    before: Float[Tensor, "words heads"]
    after: Float[Tensor, "words heads"]
    counts: Int[Tensor, "words time"]
    special_counts: Int[Tensor, " words"]

    def __add__(self, other: "VarianceSums") -> "VarianceSums":
        check_same_model(self.input_delta, other.input_delta)
        return super().__add__(other)

    def word_variance(self, components: Components, min_count: int = MIN_COUNT) -> WordVariance:
        words, times = (torch.arange(size, device=self.counts.device) for size in self.counts.shape)
        occurrences = self.counts.sum(1)
        input_ = zero_padded_lookup(components.input.transpose(0, 1), words)  # words x heads x key
        delta = self.input_delta / occurrences.clamp_min(1)[:, None, None] - input_
        temporal = mean_temporal(self.counts, zero_padded_lookup(components.temporal.transpose(0, 1), times))
        return WordVariance(
            before=variance(self.before, temporal + delta, occurrences).T,
            after=variance(self.after, delta, occurrences).T,
            counts=occurrences,
            fit_counts=zero_padded_lookup(components.word_counts, words),
            is_word=occurrences > self.special_counts,
            min_count=min_count,
        )


def variance(
    squares: Float[Tensor, "words heads"], mean: Float[Tensor, "words heads key"], counts: Int[Tensor, " words"]
) -> Float[Tensor, "words heads"]:
    """Return the mean squared length less the squared length of the mean."""
    return (squares / counts.clamp_min(1)[:, None] - mean.square().sum(-1)).clamp_min(0)


def variance_sums(side: SideVectors, parts: Parts, products: InnerProducts) -> VarianceSums:
    """Return the totals of one batch."""
    after = products.square("delta").double()
    before = products.square("temporal") + 2 * products.dot("temporal", "delta") + after
    squares = torch.stack([before, after], -1).transpose(1, 2)  # batch x time x heads x 2
    by_word = sums_by_label(side.by_word, squares, side.vocabulary)
    input_delta = sums_by_label(side.by_word, parts.input_delta.transpose(1, 2), side.vocabulary)
    counts = word_time_counts(side)
    return VarianceSums(input_delta, by_word[..., 0], by_word[..., 1], counts, special_counts(side))


@dataclass(frozen=True)
class StateMeasures:
    """Lengths and angles of the parts, the variance of each token's states, and the input-delta vectors as a cloud."""

    geometry: Geometry
    variance: WordVariance
    principal: tuple[Principal, ...]  # of all input-delta vectors, one per head
    cloud: Cloud
    unseen: int  # states whose token or time step does not occur in the fit: that component is zero

    @property
    def delta_over_temporal(self) -> Float[Tensor, " heads"]:
        return self.geometry.length("delta") / self.geometry.length("temporal")


@dataclass(frozen=True)
class SideSums(Sums):
    """The totals behind StateMeasures."""

    geometry: GeometrySums
    variance: VarianceSums
    moments: MomentSums
    cloud: Cloud
    unseen: Int[Tensor, ""]

    def measures(self, components: Components, min_count: int) -> StateMeasures:
        return StateMeasures(
            geometry=self.geometry.geometry(),
            variance=self.variance.word_variance(components, min_count),
            principal=self.moments.principal(),
            cloud=self.cloud,
            unseen=int(self.unseen),
        )


@dataclass(frozen=True)
class SplitSide:
    """The vectors of one side of a batch, split into their parts."""

    side: SideVectors
    parts: Parts
    products: InnerProducts
    fit_counts: Int[Tensor, "batch time"]  # how often the token occurs in the fit


def split_side(side: SideVectors, components: Components) -> SplitSide:
    parts = components.split(side.vectors, side.words)
    return SplitSide(side, parts, inner_products(parts, side.mask), components.fit_counts(side.words))


def side_sums(split: SplitSide, room: int) -> SideSums:
    """Return the totals of one batch, with up to `room` vectors for a figure."""
    side, parts = split.side, split.parts
    return SideSums(
        geometry=geometry_sums(split.products, side.mask),
        variance=variance_sums(side, parts, split.products),
        moments=moment_sums(parts.input_delta, side.mask),
        cloud=cloud(side, parts, room),
        unseen=((split.fit_counts == 0) & side.mask).sum(),
    )
