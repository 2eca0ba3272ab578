"""What do the components make of the states of one side? (aitken2021 §3 and §4.1)"""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from attnscope.probes.accumulator import Sums
from attnscope.probes.decomposition.clouds import Cloud, cloud
from attnscope.probes.decomposition.components import Components, Parts
from attnscope.probes.decomposition.geometry import Geometry, GeometrySums, InnerProducts, geometry_sums, inner_products
from attnscope.probes.decomposition.principal import MomentSums, Principal, moment_sums
from attnscope.probes.decomposition.sides import Side
from attnscope.probes.decomposition.variance import VarianceSums, WordVariance, variance_sums


@dataclass(frozen=True)
class SideMeasured:
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

    def measured(self, components: Components, few: int) -> SideMeasured:
        return SideMeasured(
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
