"""How large are the parts of a state, and at what angles do they stand? (aitken2021 §3)"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.linalg import vecdot
from torch.nn.functional import normalize

from attnscope.display import Displayed
from attnscope.probes.accumulator import Sums
from attnscope.probes.decomposition.components import PARTS, Parts
from attnscope.probes.drawing import Axes

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
