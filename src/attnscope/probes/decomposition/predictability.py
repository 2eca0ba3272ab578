"""How well does the mean attention matrix predict a sample's attention? (aitken2021 §1, second contribution)"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.probes.accumulator import Sums, widened
from attnscope.probes.decomposition.components import looked_up
from attnscope.probes.decomposition.shares import heads
from attnscope.probes.drawing import Axes


@dataclass(frozen=True)
class MeanAttention(Displayed):
    """The mean attention matrix, each decoder step over the sequences that reach it."""

    weights: Float[Tensor, "heads target source"]
    steps: Int[Tensor, " target"]  # how many sequences reach each decoder step

    def table(self, head: int = 0) -> pd.DataFrame:
        """A row a decoder step, a column an encoder position."""
        return pd.DataFrame(self.weights[head].cpu().numpy()).rename_axis(index="step", columns="position")

    def plot(self, ax: Axes | None = None, head: int = 0) -> Axes:
        from attnscope import plots

        return plots.heatmap(self.weights[head].cpu().numpy(), ax=ax, title="mean attention")


@dataclass(frozen=True)
class AttentionSums(Sums):
    """Attention summed over sequences."""

    total: Float[Tensor, "heads target source"]
    steps: Int[Tensor, " target"]

    def mean(self) -> MeanAttention:
        return MeanAttention(self.total / self.steps.clamp_min(1)[:, None], self.steps)


def attention_sums(
    attention: Float[Tensor, "batch heads target source"], target_mask: Bool[Tensor, "batch target"]
) -> AttentionSums:
    real = attention * target_mask[:, None, :, None]
    return AttentionSums(real.sum(0, dtype=torch.float64), target_mask.sum(0))


@dataclass(frozen=True)
class Predictability(Displayed):
    """1 − the mean total variation distance between a sample's attention and the mean attention of that step.

    1 where every sample attends alike, towards 0 where each attends elsewhere.
    """

    overall: Float[Tensor, " heads"]
    by_step: Float[Tensor, "target heads"]
    steps: Int[Tensor, " target"]

    def table(self) -> pd.DataFrame:
        """A row a decoder step, a column a head."""
        return pd.DataFrame(self.by_step.cpu().numpy(), columns=heads(len(self.overall))).rename_axis("step")

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        table = self.table()
        curves = {str(head): table[head].to_numpy() for head in table}
        return plots.profiles(table.index.to_numpy(), curves, ax=ax, xlabel="decoder step", ylabel="predictability")


@dataclass(frozen=True)
class ClosenessSums(Sums):
    """Closeness to the mean attention, summed over the decoder steps that the mean knows."""

    closeness: Float[Tensor, "target heads"]
    steps: Int[Tensor, " target"]

    def predictability(self) -> Predictability:
        return Predictability(
            overall=self.closeness.sum(0) / self.steps.sum(),
            by_step=self.closeness / self.steps[:, None],
            steps=self.steps,
        )


def closeness_sums(
    attention: Float[Tensor, "batch heads target source"],
    target_mask: Bool[Tensor, "batch target"],
    mean: MeanAttention,
) -> ClosenessSums:
    """The totals of one batch. A decoder step that the mean never saw is not counted."""
    times = torch.arange(attention.shape[2], device=attention.device)
    known = target_mask & (looked_up(mean.steps.to(attention.device), times) > 0)
    closeness = (1 - distance_to(mean.weights.to(attention), attention)) * known[:, None]
    return ClosenessSums(closeness.sum(0, dtype=torch.float64).T, known.sum(0))


def distance_to(
    mean: Float[Tensor, "heads steps positions"], attention: Float[Tensor, "batch heads target source"]
) -> Float[Tensor, "batch heads target"]:
    """Total variation distance; mass that the mean puts beyond the end of this batch counts too."""
    target, source = attention.shape[2:]
    room = [mean.shape[0], max(target, mean.shape[1]), max(source, mean.shape[2])]
    mean = widened(mean, room)[:, :target]
    beyond = mean[..., source:].sum(-1)  # heads x target
    return ((attention - mean[..., :source]).abs().sum(-1) + beyond) / 2
