"""How much of the largest alignments does each of the nine terms make? (aitken2021 §4.1, figure 5a)

For every decoder step take the five encoder positions of the largest alignment (fewer where the source is shorter). At
each, the absolute share of a term is |term| over the sum of the nine |terms|. It is averaged over these positions,
then over decoder steps and sequences: as the paper's author computed figure 5a. The signed share is a ratio of sums,
Σ term / Σ alignment over the same positions and with the same weights, so that single alignments near zero do no harm.
"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.probes.accumulator import Sums
from attnscope.probes.decomposition.terms import TERMS, name
from attnscope.probes.drawing import Axes

TOP = 5  # positions of each decoder step: figure 5a, author's code
FEW = 10  # a word seen less often is rare: its delta is small by construction, and zero if it was seen once
GROUPS = ("all", "common", "rare")
BARS = ("temporal·temporal", "temporal·(input + delta)", "the other six")  # figure 5a: dark, medium, light


@dataclass(frozen=True)
class Shares(Displayed):
    """The share of each term (decoder part, encoder part), overall and by decoder step; NaN where no step counted."""

    absolute: Float[Tensor, "heads 3 3"]
    signed: Float[Tensor, "heads 3 3"]
    absolute_by_step: Float[Tensor, "target heads 3 3"]
    signed_by_step: Float[Tensor, "target heads 3 3"]
    steps: Int[Tensor, "target heads"]  # how many sequences stand behind each decoder step

    @property
    def temporal(self) -> Float[Tensor, " heads"]:
        """The absolute share of μ·μ."""
        return self.absolute[:, 0, 0]

    @property
    def temporal_query(self) -> Float[Tensor, " heads"]:
        """The absolute share of μ·μ + μ·χ + μ·Δ."""
        return self.absolute[:, 0].sum(-1)

    def table(self, signed: bool = False) -> pd.DataFrame:
        """A row a head, a column a term."""
        values = self.signed if signed else self.absolute
        return pd.DataFrame(values.flatten(1).cpu().numpy(), heads(len(values)), [name(term) for term in TERMS])

    def by_step(self, head: int = 0, signed: bool = False) -> pd.DataFrame:
        """A row a decoder step, a column a term."""
        values = (self.signed_by_step if signed else self.absolute_by_step)[:, head]
        table = pd.DataFrame(values.flatten(1).cpu().numpy(), columns=[name(term) for term in TERMS])
        return table.rename_axis("step")

    def bars(self) -> pd.DataFrame:
        """A row a head, the three stacked bars of figure 5a as columns."""
        first, medium = self.temporal, self.absolute[:, 0, 1:].sum(-1)
        rest = self.absolute[:, 1:].sum((-1, -2))
        values = torch.stack([first, medium, rest], -1).cpu().numpy()
        return pd.DataFrame(values, heads(len(values)), list(BARS))

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.stacked_shares(self.bars(), ax=ax)


@dataclass(frozen=True)
class ShareSums(Sums):
    """Totals by decoder step, for all positions, for those between common words, and for those with a rare word."""

    absolute: Float[Tensor, "target groups heads 3 3"]
    signed: Float[Tensor, "target groups heads 3 3"]
    steps: Int[Tensor, "target groups heads"]

    def shares(self, group: str) -> Shares:
        g = GROUPS.index(group)
        absolute, signed, steps = self.absolute[:, g], self.signed[:, g], self.steps[:, g]
        return Shares(
            absolute=absolute.sum(0) / steps.sum(0)[:, None, None],
            signed=of_the_whole(signed.sum(0)),
            absolute_by_step=absolute / steps[..., None, None],
            signed_by_step=of_the_whole(signed),
            steps=steps,
        )


def share_sums(
    nine: Float[Tensor, "3 3 batch heads target source"],
    alignment: Float[Tensor, "batch heads target source"],
    counted: Bool[Tensor, "batch target source"],
    rare: Bool[Tensor, "batch target source"],
    top: int = TOP,
) -> ShareSums:
    """The totals of one batch. Pairs of steps that are not counted are padding; `rare` pairs are reported apart."""
    scores = alignment.masked_fill(~counted[:, None], -torch.inf)
    positions = scores.topk(min(top, scores.shape[-1]), sorted=False).indices  # batch x heads x target x top
    chosen = nine.gather(-1, positions.expand(3, 3, *positions.shape))
    sizes = chosen.abs()
    whole = sizes.sum((0, 1))  # batch x heads x target x top
    weights = step_weights(at(positions, counted) & (whole > 0), at(positions, rare), whole.dtype)
    shares = sizes / whole.clamp_min(torch.finfo(whole.dtype).tiny)
    absolute, signed = weighted(weights, torch.stack([shares, chosen])).unbind(0)
    return ShareSums(absolute, signed, steps=weights.any(-1).sum(1).permute(2, 0, 1))


def at(
    positions: Int[Tensor, "batch heads target top"], pairs: Bool[Tensor, "batch target source"]
) -> Bool[Tensor, "batch heads target top"]:
    return pairs[:, None].expand(-1, positions.shape[1], -1, -1).gather(-1, positions)


def step_weights(
    real: Bool[Tensor, "batch heads target top"], rare: Bool[Tensor, "batch heads target top"], dtype: torch.dtype
) -> Float[Tensor, "groups batch heads target top"]:
    """For each group, weights that sum to one over those positions of a decoder step that belong to it."""
    members = torch.stack([real, real & ~rare, real & rare]).to(dtype)
    return members / members.sum(-1, keepdim=True).clamp_min(1)


def weighted(
    weights: Float[Tensor, "groups batch heads target top"], values: Float[Tensor, "kinds 3 3 batch heads target top"]
) -> Float[Tensor, "kinds target groups heads 3 3"]:
    """Summed over the positions of a step, and over sequences."""
    return torch.einsum("gbhtp,nijbhtp->ntghij", weights, values).double()


def of_the_whole(signed: Float[Tensor, "*steps 3 3"]) -> Float[Tensor, "*steps 3 3"]:
    """Each term over the alignment, which is the sum of the nine."""
    return signed / signed.sum((-1, -2), keepdim=True)


def heads(count: int) -> pd.Index:
    return pd.Index([f"head {head}" for head in range(count)])
