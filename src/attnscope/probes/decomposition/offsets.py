"""At which offset from its own time does each decoder step look, by time alone? (aitken2021 §4.1, figure 5b)"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.decomposition.components import Components
from attnscope.probes.drawing import Axes
from attnscope.tasks.batch import NOWHERE, Batch

REACH = 5  # figure 5b shows offsets from −5 to 5


@dataclass(frozen=True)
class OffsetProfile(Displayed):
    """μ(s) · μ(t) of decoder and encoder as a function of the offset t − s, and the offset that the task asks for."""

    offsets: Int[Tensor, " offsets"]
    values: Float[Tensor, "heads target offsets"]  # NaN where there is no encoder step s + offset
    expected: Float[Tensor, " steps"] | None  # mean of guide − s; None where the task does not say, NaN at such steps

    @property
    def largest(self) -> Float[Tensor, "heads target"]:
        """The offset of the largest value at each decoder step; NaN where no encoder step lies in reach."""
        found = self.offsets[self.values.nan_to_num(-torch.inf).argmax(-1)].double()
        return found.masked_fill(self.values.isnan().all(-1), torch.nan)

    def table(self, head: int = 0) -> pd.DataFrame:
        """A row a decoder step: the value at each offset, the offset of the largest, and the one expected."""
        table = pd.DataFrame(self.values[head].cpu().numpy(), columns=self.offsets.tolist()).rename_axis("step")
        table["largest"] = self.largest[head].cpu().numpy()
        expected = pd.Series(np.nan if self.expected is None else self.expected.cpu().numpy(), dtype=float)
        return table.assign(expected=expected.reindex(table.index))

    def plot(self, ax: Axes | None = None, head: int = 0, steps: tuple[int, ...] | None = None) -> Axes:
        """Curves of a few decoder steps, with a mark at the offset expected there."""
        from attnscope import plots

        table = self.table(head)
        shown = steps or tuple(sorted({0, len(table) // 4, len(table) // 2, 3 * len(table) // 4}))
        curves = {f"s = {s}": table.loc[s, self.offsets.tolist()].to_numpy(dtype=float) for s in shown}
        marks = {f"s = {s}": float(table["expected"][s]) for s in shown if np.isfinite(table["expected"][s])}
        x = self.offsets.cpu().numpy()
        return plots.profiles(x, curves, ax=ax, xlabel="offset t − s", ylabel="μ(s) · μ(t)", marks=marks or None)


def offset_profile(
    decoder: Components,
    encoder: Components,
    reach: int = REACH,
    expected: Float[Tensor, " steps"] | None = None,
) -> OffsetProfile:
    products = decoder.temporal @ encoder.temporal.mT  # heads x target x source
    offsets = torch.arange(-reach, reach + 1, device=products.device)
    positions = torch.arange(products.shape[1], device=products.device)[:, None] + offsets  # target x offsets
    inside = (positions >= 0) & (positions < products.shape[2])
    inner = positions.clamp(0, products.shape[2] - 1).expand(len(products), -1, -1)
    return OffsetProfile(offsets, products.gather(2, inner).masked_fill(~inside, torch.nan), expected)


@dataclass(frozen=True)
class OffsetSums(Sums):
    """Offsets of the guide, summed over sequences."""

    total: Float[Tensor, " target"]
    steps: Int[Tensor, " target"]


class ExpectedOffset(Accumulator[OffsetSums]):
    """The mean over a stream of guide(s) − s: by how much the source runs ahead of a decoder step.

    Steps whose guide says NOWHERE do not count.
    """

    def update(self, batch: Batch) -> None:
        if batch.guide is not None:
            self.add(offset_sums(batch.guide, batch.target_mask))

    def result(self) -> Float[Tensor, " target"] | None:
        """NaN at a step without a guide; None where no batch had one."""
        return None if self.sums is None else self.sums.total / self.sums.steps


def offset_sums(guide: Int[Tensor, "batch target"], target_mask: Bool[Tensor, "batch target"]) -> OffsetSums:
    known = target_mask & (guide != NOWHERE)
    offsets = guide - torch.arange(guide.shape[1], device=guide.device)
    return OffsetSums((offsets * known).sum(0).double(), known.sum(0))
