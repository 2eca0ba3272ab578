"""The nine terms of each score, their shares, and the attention that time alone would give. (aitken2021 eq. 3, §4.1)

Figure 5a: for every decoder step take the five encoder positions of the largest score (fewer where the source is
shorter). At each, the absolute share of a term is |term| over the sum of the nine |terms|. It is averaged over these
positions, then over decoder steps and sequences: as the paper's author computed figure 5a. The signed share is a ratio
of sums, Σ term / Σ score over the same positions and with the same weights, so that single scores near zero do no harm.
Predictability (§1, second contribution) is how well the mean attention matrix predicts that of a sentence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting
from attnscope.models.attention import masked_softmax
from attnscope.probes.accumulator import Sums, zero_padded
from attnscope.probes.decomposition.components import PARTS, Parts, zero_padded_lookup

Term = tuple[str, str]  # a part of the decoder's vector, a part of the encoder's
TERMS: tuple[Term, ...] = tuple(product(PARTS, PARTS))
TEMPORAL: tuple[Term, ...] = (("temporal", "temporal"),)  # μ·μ, sufficient for one-to-one (§3)
TEMPORAL_QUERY: tuple[Term, ...] = TERMS[:3]  # μ·μ + μ·χ + μ·Δ, the better approximation for eSCAN (§4.1)


def term_name(term: Term) -> str:
    """Return the name of a term in tables.

    >>> term_name(("temporal", "delta"))
    'temporal·delta'
    """
    return "·".join(term)


def terms(queries: Parts, keys: Parts) -> Float[Tensor, "3 3 batch heads target source"]:
    """Return terms[i, j] = part i of each query · part j of each key; the nine sum to the score."""
    rows = queries.stacked.flatten(2, 3)  # batch x heads x (target 3) x key
    columns = keys.stacked.flatten(2, 3)  # batch x heads x (source 3) x key
    products = rows @ columns.mT  # batch x heads x (target 3) x (source 3)
    split = products.view(*products.shape[:2], queries.stacked.shape[2], 3, keys.stacked.shape[2], 3)
    return split.permute(3, 5, 0, 1, 2, 4)


def scores_from_terms(
    nine: Float[Tensor, "3 3 batch heads target source"], keep: Iterable[Term] = TERMS
) -> Float[Tensor, "batch heads target source"]:
    """Return the sum of some of the terms."""
    return sum((nine[term_index(term)] for term in keep), start=nine.new_zeros(nine.shape[2:]))


def attention_from_terms(
    nine: Float[Tensor, "3 3 batch heads target source"],
    source_mask: Bool[Tensor, "batch source"],
    keep: Iterable[Term] = TERMS,
) -> Float[Tensor, "batch heads target source"]:
    """Return attention from some of the terms, a softmax over source positions (not over columns, as printed)."""
    return masked_softmax(scores_from_terms(nine, keep), source_mask)


def term_index(term: Term) -> tuple[int, int]:
    if term not in TERMS:
        raise BadSetting(f"there is no term {term!r}; give (part of the decoder, part of the encoder), each of {PARTS}")
    return PARTS.index(term[0]), PARTS.index(term[1])


TOP_K = 5  # positions of each decoder step: figure 5a, author's code
MIN_COUNT = 10  # a token that occurs less often is rare: its delta is small by construction, and zero if it is single
GROUPS = ("all", "common", "rare")
BARS = ("temporal·temporal", "temporal·(input + delta)", "the other six")  # figure 5a: dark, medium, light


@dataclass(frozen=True)
class Shares(Displayed):
    """The share of each term (decoder part, encoder part), overall and by decoder step; NaN where no step counts."""

    absolute: Float[Tensor, "heads 3 3"]
    signed: Float[Tensor, "heads 3 3"]
    absolute_by_step: Float[Tensor, "target heads 3 3"]
    signed_by_step: Float[Tensor, "target heads 3 3"]
    steps: Int[Tensor, "target heads"]  # how many sequences reach each decoder step

    @property
    def temporal(self) -> Float[Tensor, " heads"]:
        """The absolute share of μ·μ."""
        return self.absolute[:, 0, 0]

    @property
    def temporal_query(self) -> Float[Tensor, " heads"]:
        """The absolute share of μ·μ + μ·χ + μ·Δ."""
        return self.absolute[:, 0].sum(-1)

    def table(self, signed: bool = False) -> pd.DataFrame:
        """Return one row per head, one column per term."""
        values = self.signed if signed else self.absolute
        return pd.DataFrame(
            values.flatten(1).cpu().numpy(), head_index(len(values)), [term_name(term) for term in TERMS]
        )

    def by_step(self, head: int = 0, signed: bool = False) -> pd.DataFrame:
        """Return one row per decoder step, one column per term."""
        values = (self.signed_by_step if signed else self.absolute_by_step)[:, head]
        table = pd.DataFrame(values.flatten(1).cpu().numpy(), columns=[term_name(term) for term in TERMS])
        return table.rename_axis("step")

    def bars(self) -> pd.DataFrame:
        """Return one row per head, the three stacked bars of figure 5a as columns."""
        first, medium = self.temporal, self.absolute[:, 0, 1:].sum(-1)
        rest = self.absolute[:, 1:].sum((-1, -2))
        values = torch.stack([first, medium, rest], -1).cpu().numpy()
        return pd.DataFrame(values, head_index(len(values)), list(BARS))

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.stacked_shares(self.bars(), ax=ax)


@dataclass(frozen=True)
class ShareSums(Sums):
    """Totals by decoder step, for all positions, for pairs of common tokens, and for those with a rare token."""

    absolute: Float[Tensor, "target groups heads 3 3"]
    signed: Float[Tensor, "target groups heads 3 3"]
    steps: Int[Tensor, "target groups heads"]

    def shares(self, group: str) -> Shares:
        g = GROUPS.index(group)
        absolute, signed, steps = self.absolute[:, g], self.signed[:, g], self.steps[:, g]
        return Shares(
            absolute=absolute.sum(0) / steps.sum(0)[:, None, None],
            signed=normalise_terms(signed.sum(0)),
            absolute_by_step=absolute / steps[..., None, None],
            signed_by_step=normalise_terms(signed),
            steps=steps,
        )


def share_sums(
    nine: Float[Tensor, "3 3 batch heads target source"],
    scores: Float[Tensor, "batch heads target source"],
    counted: Bool[Tensor, "batch target source"],
    rare: Bool[Tensor, "batch target source"],
    top_k: int = TOP_K,
) -> ShareSums:
    """Return the totals of one batch.

    Args:
        nine: The terms.
        scores: Their sum.
        counted: Pairs of steps that count: no padding.
        rare: Pairs of steps that are reported separately.
        top_k: How many of the largest scores of each decoder step count.
    """
    scores = scores.masked_fill(~counted[:, None], -torch.inf)
    positions = scores.topk(min(top_k, scores.shape[-1]), sorted=False).indices  # batch x heads x target x top
    chosen = nine.gather(-1, positions.expand(3, 3, *positions.shape))
    magnitudes = chosen.abs()
    whole = magnitudes.sum((0, 1))  # batch x heads x target x top
    weights = position_weights(
        gather_pairs(positions, counted) & (whole > 0), gather_pairs(positions, rare), whole.dtype
    )
    shares = magnitudes / whole.clamp_min(torch.finfo(whole.dtype).tiny)
    absolute, signed = sum_weighted(weights, torch.stack([shares, chosen])).unbind(0)
    return ShareSums(absolute, signed, steps=weights.any(-1).sum(1).permute(2, 0, 1))


def gather_pairs(
    positions: Int[Tensor, "batch heads target top"], pairs: Bool[Tensor, "batch target source"]
) -> Bool[Tensor, "batch heads target top"]:
    return pairs[:, None].expand(-1, positions.shape[1], -1, -1).gather(-1, positions)


def position_weights(
    real: Bool[Tensor, "batch heads target top"], rare: Bool[Tensor, "batch heads target top"], dtype: torch.dtype
) -> Float[Tensor, "groups batch heads target top"]:
    """Return weights that sum to one over the positions of a decoder step, for each group."""
    members = torch.stack([real, real & ~rare, real & rare]).to(dtype)
    return members / members.sum(-1, keepdim=True).clamp_min(1)


def sum_weighted(
    weights: Float[Tensor, "groups batch heads target top"], values: Float[Tensor, "kinds 3 3 batch heads target top"]
) -> Float[Tensor, "kinds target groups heads 3 3"]:
    """Return the weighted sum over the positions of a step and over sequences."""
    return torch.einsum("gbhtp,nijbhtp->ntghij", weights, values).double()


def normalise_terms(signed: Float[Tensor, "*steps 3 3"]) -> Float[Tensor, "*steps 3 3"]:
    """Return each term over the score, which is the sum of the nine."""
    return signed / signed.sum((-1, -2), keepdim=True)


def head_index(count: int) -> pd.Index:
    return pd.Index([f"head {head}" for head in range(count)])


@dataclass(frozen=True)
class MeanAttention(Displayed):
    """The mean attention matrix, each decoder step over the sequences that reach it."""

    weights: Float[Tensor, "heads target source"]
    steps: Int[Tensor, " target"]  # how many sequences reach each decoder step

    def table(self, head: int = 0) -> pd.DataFrame:
        """Return one row per decoder step, one column per encoder position."""
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
    """1 − the mean total variation distance between the attention of a sentence and the mean attention of that step.

    1 where all sentences attend alike, towards 0 where each attends elsewhere.
    """

    overall: Float[Tensor, " heads"]
    by_step: Float[Tensor, "target heads"]
    steps: Int[Tensor, " target"]

    def table(self) -> pd.DataFrame:
        """Return one row per decoder step, one column per head."""
        return pd.DataFrame(self.by_step.cpu().numpy(), columns=head_index(len(self.overall))).rename_axis("step")

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        table = self.table()
        curves = {str(head): table[head].to_numpy() for head in table}
        return plots.profiles(table.index.to_numpy(), curves, ax=ax, xlabel="decoder step", ylabel="predictability")


@dataclass(frozen=True)
class PredictabilitySums(Sums):
    """Closeness to the mean attention, summed over the decoder steps that occur in the mean."""

    closeness: Float[Tensor, "target heads"]
    steps: Int[Tensor, " target"]

    def predictability(self) -> Predictability:
        return Predictability(
            overall=self.closeness.sum(0) / self.steps.sum(),
            by_step=self.closeness / self.steps[:, None],
            steps=self.steps,
        )


def predictability_sums(
    attention: Float[Tensor, "batch heads target source"],
    target_mask: Bool[Tensor, "batch target"],
    mean: MeanAttention,
) -> PredictabilitySums:
    """Return the totals of one batch; decoder steps that do not occur in the mean do not count."""
    times = torch.arange(attention.shape[2], device=attention.device)
    in_mean = target_mask & (zero_padded_lookup(mean.steps.to(attention.device), times) > 0)
    closeness = (1 - distance_from_mean(mean.weights.to(attention), attention)) * in_mean[:, None]
    return PredictabilitySums(closeness.sum(0, dtype=torch.float64).T, in_mean.sum(0))


def distance_from_mean(
    mean: Float[Tensor, "heads steps positions"], attention: Float[Tensor, "batch heads target source"]
) -> Float[Tensor, "batch heads target"]:
    """Return the total variation distance; weight that the mean puts beyond the end of this batch counts too."""
    target, source = attention.shape[2:]
    shape = [mean.shape[0], max(target, mean.shape[1]), max(source, mean.shape[2])]
    mean = zero_padded(mean, shape)[:, :target]
    beyond = mean[..., source:].sum(-1)  # heads x target
    return ((attention - mean[..., :source]).abs().sum(-1) + beyond) / 2
