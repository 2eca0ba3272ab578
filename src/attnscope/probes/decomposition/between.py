"""What do the components make of the alignment between the two sides? (aitken2021 §4.1)"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from attnscope.probes.accumulator import Sums
from attnscope.probes.decomposition.geometry import CrossingSums, crossing_sums
from attnscope.probes.decomposition.one_side import Opened
from attnscope.probes.decomposition.predictability import ClosenessSums, MeanAttention, Predictability, closeness_sums
from attnscope.probes.decomposition.shares import Shares, ShareSums, share_sums
from attnscope.probes.decomposition.sides import Between, pairs
from attnscope.probes.decomposition.terms import terms


@dataclass(frozen=True)
class BetweenMeasured:
    """The shares of the nine terms, and how well the mean attention predicts a sample's.

    `shares` counts every pair of words, as in the paper. `common` counts those of which both were seen often in the
    fit, `rare` the others: a word seen once has no delta by construction, one never seen is all delta.
    """

    shares: Shares
    common: Shares
    rare: Shares
    predictability: Predictability
    cosine: Float[Tensor, " heads"]  # mean |cosine| of the decoder's temporal components, the encoder's input-delta


@dataclass(frozen=True)
class BetweenSums(Sums):
    """The totals behind it."""

    shares: ShareSums
    closeness: ClosenessSums
    crossing: CrossingSums

    def measured(self) -> BetweenMeasured:
        return BetweenMeasured(
            shares=self.shares.shares("all"),
            common=self.shares.shares("common"),
            rare=self.shares.shares("rare"),
            predictability=self.closeness.predictability(),
            cosine=self.crossing.cosine(),
        )


def between_sums(
    between: Between, queries: Opened, keys: Opened, mean: MeanAttention, top: int, few: int
) -> BetweenSums:
    """The totals of one batch."""
    nine = terms(queries.parts, keys.parts)
    common = pairs(queries.seen >= few, keys.seen >= few)
    return BetweenSums(
        shares=share_sums(nine, between.alignment, between.counted, ~common, top),
        closeness=closeness_sums(between.attention, between.target_mask, mean),
        crossing=crossing_sums(nine, queries.products, keys.products),
    )
