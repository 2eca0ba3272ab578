"""How large are the parts of a state, and at what angles do they stand? (aitken2021 §3)"""

# TODO(docstring) join:
#   How much of the variance of a word's states is left when the time step is taken out? (aitken2021 §4.1, figure 5c)
#   What do the components make of the states of one side? (aitken2021 §3 and §4.1)
from collections.abc import Mapping, Sequence
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
    Side,
    check_same_vectors,
    mean_times,
    totals_by,
    word_time_counts,
    zero_padded_lookup,
)
from attnscope.probes.decomposition.terms import FEW
from attnscope.probes.decomposition.trajectories import Cloud, MomentSums, Principal, cloud, moment_sums
from attnscope.tasks.batch import SPECIALS

KINDS = (*PARTS, "input-delta")
PAIRS = (("temporal", "input"), ("temporal", "delta"), ("temporal", "input-delta"), ("input", "delta"))
NOTHING = 1e-10  # a part with less than this fraction of its vector's squared length is rounding, and has no direction


@dataclass(frozen=True)
class Geometry(Displayed):
    """Root mean squared length of each part, and the mean |cosine| of pairs of parts of one vector.

    "The delta is small" is a ratio of lengths; "time and word are orthogonal" a mean |cosine| near zero. A pair of
    which one is zero (the start token's input component: it only ever comes first) has no angle, and is left out.
    """

    lengths: Float[Tensor, "heads 4"]  # in the order of KINDS
    cosines: Float[Tensor, "heads 4"]  # in the order of PAIRS; NaN where no pair had an angle
    states: Int[Tensor, ""]

    def length(self, part: str) -> Float[Tensor, " heads"]:
        return self.lengths[:, KINDS.index(part)]

    def cosine(self, one: str, other: str) -> Float[Tensor, " heads"]:
        return self.cosines[:, PAIRS.index((one, other))]

    def table(self) -> pd.DataFrame:
        """A column a head: the length of each part, the mean |cosine| of each pair."""
        rows = [*(f"length of {kind}" for kind in KINDS), *(f"|cos| of {one}, {other}" for one, other in PAIRS)]
        values = torch.cat([self.lengths, self.cosines], 1).T.cpu().numpy()
        return pd.DataFrame(values, rows, [f"head {head}" for head in range(values.shape[1])])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The mean |cosine| of each pair, a column a head."""
        from attnscope import plots

        rows = [f"{one}, {other}" for one, other in PAIRS]
        columns = [f"head {head}" for head in range(len(self.cosines))]
        return plots.heatmap(self.cosines.T.cpu().numpy(), rows=rows, columns=columns, ax=ax, title="mean |cosine|")


@dataclass(frozen=True)
class InnerProducts:
    """The inner products of the parts of every vector with each other, by which all lengths and angles are known."""

    squares: Float[Tensor, "batch heads time 4"]  # in the order of KINDS
    dots: Float[Tensor, "batch heads time 4"]  # in the order of PAIRS
    inverse: Float[Tensor, "batch heads time 4"]  # one over each length; zero for padding, and where nothing is there

    def square(self, kind: str) -> Float[Tensor, "batch heads time"]:
        return self.squares[..., KINDS.index(kind)]

    def dot(self, one: str, other: str) -> Float[Tensor, "batch heads time"]:
        return self.dots[..., PAIRS.index((one, other))]


def inner_products(parts: Parts, mask: Bool[Tensor, "batch time"]) -> InnerProducts:
    nine = parts.stacked @ parts.stacked.mT  # batch x heads x time x 3 x 3
    three, with_temporal, within = nine.diagonal(dim1=-2, dim2=-1), nine[..., 0, 1:], nine[..., 1, 2:]
    squares = torch.cat([three, vecdot(parts.input_delta, parts.input_delta)[..., None]], -1)
    dots = torch.cat([with_temporal, with_temporal.sum(-1, keepdim=True), within], -1)
    directed = (squares > NOTHING * three.sum(-1, keepdim=True)) & mask[:, None, :, None]
    return InnerProducts(squares, dots, inverse=squares.rsqrt().where(directed, 0))


@dataclass(frozen=True)
class GeometrySums(Sums):
    """Squared lengths, |cosines| and numbers of states, summed over a stream."""

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
    """Of one batch, from the nine terms and the lengths on both sides."""
    target, source = queries.inverse[..., KINDS.index("temporal")], keys.inverse[..., KINDS.index("input-delta")]
    dots = (nine[0, 1] + nine[0, 2]).abs()  # batch x heads x target x source
    cosines = (dots @ source[..., None])[..., 0] * target  # batch x heads x target
    angles = (target > 0).sum(-1) * (source > 0).sum(-1)  # batch x heads
    return CrossingSums(cosines.sum((0, 2), dtype=torch.float64), angles.sum(0))


def cosines(
    one: Float[Tensor, "*heads left key"], other: Float[Tensor, "*heads right key"]
) -> Float[Tensor, "*heads left right"]:
    """Of every vector of one set with every vector of another: say, temporal with input components."""
    return normalize(one, dim=-1) @ normalize(other, dim=-1).mT


def mean_angles(sets: Mapping[str, Float[Tensor, "_ key"]]) -> pd.DataFrame:
    """The mean |cosine| between the vectors of every two sets, say all temporal and all input components.

    A vector of length zero (a word that was never seen) is left out.
    """
    kept = {name: vectors[exists(vectors)] for name, vectors in sets.items()}
    values = [[float(cosines(one, other).abs().mean()) for other in kept.values()] for one in kept.values()]
    return pd.DataFrame(values, list(kept), list(kept))


def exists(vectors: Float[Tensor, "rows key"]) -> Tensor:
    squares = vectors.square().sum(-1)
    return squares > NOTHING * squares.max()


@dataclass(frozen=True)
class WordVariance(Displayed):
    """The trace of the covariance of each word's states, before and after their temporal components are subtracted.

    The mean ratio is one over words proper: padding is never counted, and the end and start tokens are in the table
    but not in the mean (the author leaves out the pad, which doubles as end token). Words that the fit saw fewer than
    ten times have a mean of their own.
    """

    before: Float[Tensor, "heads words"]
    after: Float[Tensor, "heads words"]
    counts: Int[Tensor, " words"]  # occurrences behind these variances
    seen: Int[Tensor, " words"]  # occurrences in the fit
    few: int = FEW

    @property
    def ratio(self) -> Float[Tensor, "heads words"]:
        """After over before; NaN for a word whose states do not vary."""
        varies = (self.counts > 1) & (self.before > 0)
        return (self.after / self.before).masked_fill(~varies, torch.nan)

    @property
    def rare(self) -> Bool[Tensor, " words"]:
        return self.seen < self.few

    @property
    def mean(self) -> Float[Tensor, " heads"]:
        """The mean ratio of common words."""
        return self.mean_over(~self.rare)

    @property
    def mean_rare(self) -> Float[Tensor, " heads"]:
        return self.mean_over(self.rare)

    def mean_over(self, words: Bool[Tensor, " words"]) -> Float[Tensor, " heads"]:
        proper = torch.arange(len(words), device=words.device) >= len(SPECIALS)
        return self.ratio[:, words & proper].nanmean(-1)

    def table(self, words: Sequence[str] | None = None, head: int = 0) -> pd.DataFrame:
        """A row a word that came by."""
        columns = {"before": self.before[head], "after": self.after[head], "ratio": self.ratio[head]}
        columns |= {"count": self.counts, "rare": self.rare}
        table = pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})
        table.index = pd.Index(words[: len(table)] if words else table.index, name="word")
        return table[table["count"] > 0]

    def plot(self, ax: Axes | None = None, words: Sequence[str] | None = None, head: int = 0) -> Axes:
        """For each word, what is left and what the time step took."""
        from attnscope import plots

        ratio = self.table(words, head)["ratio"].dropna()
        return plots.stacked_shares(pd.DataFrame({"left": ratio, "temporal": 1 - ratio}), ax=ax)


@dataclass(frozen=True)
class VarianceSums(Sums):
    """By word: χ + Δ, |μ + Δ|² and |Δ|² of its states, and the time steps that they fell on.

    χ is the same for all states of a word. So it adds nothing to their variance, and leaving it out saves digits.
    """

    input_delta: Float[Tensor, "words heads key"]
    before: Float[Tensor, "words heads"]
    after: Float[Tensor, "words heads"]
    counts: Int[Tensor, "words time"]

    def __add__(self, other: "VarianceSums") -> "VarianceSums":
        check_same_vectors(self.input_delta, other.input_delta)
        return super().__add__(other)

    def word_variance(self, components: Components, few: int = FEW) -> WordVariance:
        words, times = (torch.arange(size, device=self.counts.device) for size in self.counts.shape)
        occurrences = self.counts.sum(1)
        input_ = zero_padded_lookup(components.input.transpose(0, 1), words)  # words x heads x key
        delta = self.input_delta / occurrences.clamp_min(1)[:, None, None] - input_
        temporal = mean_times(self.counts, zero_padded_lookup(components.temporal.transpose(0, 1), times))
        return WordVariance(
            before=variance(self.before, temporal + delta, occurrences).T,
            after=variance(self.after, delta, occurrences).T,
            counts=occurrences,
            seen=zero_padded_lookup(components.word_counts, words),
            few=few,
        )


def variance(
    squares: Float[Tensor, "words heads"], mean: Float[Tensor, "words heads key"], counts: Int[Tensor, " words"]
) -> Float[Tensor, "words heads"]:
    """The mean squared length less the squared length of the mean."""
    return (squares / counts.clamp_min(1)[:, None] - mean.square().sum(-1)).clamp_min(0)


def variance_sums(side: Side, parts: Parts, products: InnerProducts) -> VarianceSums:
    """The totals of one batch."""
    after = products.square("delta").double()
    before = products.square("temporal") + 2 * products.dot("temporal", "delta") + after
    squares = torch.stack([before, after], -1).transpose(1, 2)  # batch x time x heads x 2
    of_words = totals_by(side.by_word, squares, side.vocabulary)
    input_delta = totals_by(side.by_word, parts.input_delta.transpose(1, 2), side.vocabulary)
    return VarianceSums(input_delta, of_words[..., 0], of_words[..., 1], word_time_counts(side))


@dataclass(frozen=True)
class StateMeasures:
    """Lengths and angles of the parts, the variance of each word's states, and the input-delta vectors as a cloud."""

    geometry: Geometry
    variance: WordVariance
    principal: tuple[Principal, ...]  # of all input-delta vectors, one a head
    cloud: Cloud
    unseen: int  # states whose word or time step the fit never saw: that component is zero, and the delta takes over

    @property
    def delta_over_temporal(self) -> Float[Tensor, " heads"]:
        return self.geometry.length("delta") / self.geometry.length("temporal")


@dataclass(frozen=True)
class SideSums(Sums):
    """The totals behind it."""

    geometry: GeometrySums
    variance: VarianceSums
    moments: MomentSums
    cloud: Cloud
    unseen: Int[Tensor, ""]

    def measured(self, components: Components, few: int) -> StateMeasures:
        return StateMeasures(
            geometry=self.geometry.geometry(),
            variance=self.variance.word_variance(components, few),
            principal=self.moments.principal(),
            cloud=self.cloud,
            unseen=int(self.unseen),
        )


@dataclass(frozen=True)
class Opened:
    """One side of a batch, taken apart."""

    side: Side
    parts: Parts
    products: InnerProducts
    seen: Int[Tensor, "batch time"]  # how often the fit saw the word


def opened(side: Side, components: Components) -> Opened:
    parts = components.split(side.vectors, side.words)
    return Opened(side, parts, inner_products(parts, side.mask), components.seen(side.words))


def side_sums(opened: Opened, room: int) -> SideSums:
    """The totals of one batch; `room`: how many vectors are still wanted for a picture."""
    side, parts = opened.side, opened.parts
    return SideSums(
        geometry=geometry_sums(opened.products, side.mask),
        variance=variance_sums(side, parts, opened.products),
        moments=moment_sums(parts.input_delta, side.mask),
        cloud=cloud(side, parts, room),
        unseen=((opened.seen == 0) & side.mask).sum(),
    )
