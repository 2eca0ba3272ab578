"""Is the highest position of u among the highest 5 % of v? (snell2021 eq. 10)

In integers: a position of v is in its top when k positions lie strictly above it and 20 k < L. Nothing is rounded, and
tied positions are in the top together or not at all. `mask` says which positions take part; L is their number.
"""

# TODO(docstring) join:
#   Do two scores rank the words alike? Kendall's τ-b of many rows at once (snell2021 A.4, table 3)
#   How well do two scores agree over a whole corpus, on_device_of chance? (snell2021 §3.1, tables 2, 3, 5 and 7)
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.tasks.batch import END, START, Batch

ONE_IN = 20  # 5 %


def agreement(
    u: Float[Tensor, "*rows source"],
    v: Float[Tensor, "*rows source"],
    mask: Bool[Tensor, "*rows source"],
    one_in: int = ONE_IN,
) -> Float[Tensor, "*rows"]:
    """A(u, v) of each row. Where u has several highest positions, their mean; NaN where no position takes part.

    >>> attention, probe = torch.tensor([0.1, 0.7, 0.2]), torch.tensor([0.3, 0.9, 0.4])
    >>> agreement(attention, probe, torch.ones(3, dtype=torch.bool)).item()
    1.0
    """
    highest = peaks(u, mask)
    hits = highest & in_top(v, mask, one_in)
    return hits.sum(-1) / highest.sum(-1)


def chance(
    v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"], one_in: int = ONE_IN
) -> Float[Tensor, "*rows"]:
    """Â: what a position drawn at random would get, the share of v's positions that are in its top.

    A constant v has all its positions there: whatever agrees with it, chance does as well.
    """
    return in_top(v, mask, one_in).sum(-1) / mask.sum(-1)


def in_top(
    v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"], one_in: int = ONE_IN
) -> Bool[Tensor, "*rows source"]:
    """The positions that satisfy eq. 10."""
    length = mask.sum(-1, keepdim=True)
    return mask & (one_in * strictly_above(v, mask) < length)


def strictly_above(v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"]) -> Int[Tensor, "*rows source"]:
    """How many of the positions that take part are higher than this one."""
    lowered = v.masked_fill(~mask, -torch.inf).contiguous()  # what takes no part lies above nothing
    ordered = lowered.sort(-1).values
    return v.shape[-1] - torch.searchsorted(ordered, lowered, right=True)


def peaks(u: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"]) -> Bool[Tensor, "*rows source"]:
    """The highest position of u, or all that are tied for it."""
    highest = u.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    return mask & (u == highest)


BLOCK = 1 << 17  # numbers of one score that are compared at a time: few enough to stay in the processor's cache


def kendall(
    x: Float[Tensor, "*rows places"],
    y: Float[Tensor, "*rows places"],
    mask: Bool[Tensor, "*rows places"] | None = None,
) -> Float[Tensor, "*rows"]:
    """τ-b of each row; NaN where it has no meaning: fewer than two positions, or a score that ties them all.

    >>> kendall(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])).item()
    0.33333333333333337
    """
    both = torch.stack([at_least_single(x), at_least_single(y)])  # 2 x rows x places
    if mask is not None:
        both = both.masked_fill(~mask, torch.nan)
    places = both.shape[-1]
    flat = both.reshape(2, -1, places)
    blocks = flat.split(max(1, BLOCK // max(1, places)), 1)
    return torch.cat([tau_b(block) for block in blocks]).view(x.shape[:-1])


def at_least_single(values: Tensor) -> Tensor:
    """Half precision cannot count pairs."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def tau_b(both: Float[Tensor, "2 rows places"]) -> Float[Tensor, " rows"]:
    """τ-b of the rows of two scores, in double precision."""
    across = both.mT.contiguous()  # 2 x places x rows: what is compared lies side by side
    agreeing, untied = torch.zeros_like(across[0]), torch.zeros_like(across)
    for offset in range(1, across.shape[1]):
        order = signs(across[:, offset:], across[:, :-offset])
        agreeing[offset:].addcmul_(order[0], order[1])
        untied[:, offset:].addcmul_(order, order)
    untied_x, untied_y = untied.sum(1, dtype=torch.float64).sqrt().unbind()
    return (agreeing.sum(0, dtype=torch.float64) / untied_x / untied_y).clamp(-1, 1)


def signs(
    later: Float[Tensor, "2 pairs rows"], earlier: Float[Tensor, "2 pairs rows"]
) -> Float[Tensor, "2 pairs rows"]:
    """1 where the later is higher, −1 where it is lower. As numbers at once: torch is slow to make booleans."""
    higher = torch.gt(later, earlier, out=torch.empty_like(later))
    lower = torch.lt(later, earlier, out=torch.empty_like(later))
    return higher.sub_(lower)


@dataclass(frozen=True)
class Agreement(Displayed):
    """Means over output words. The two flags say whether start and end tokens took part."""

    top: float  # A(u, v)
    chance: float  # Â; that of τ is zero
    kendall: float  # τ-b, over the words where it has a meaning
    words: int
    ranked: int  # words behind τ
    source_specials: bool  # start and end tokens count as positions
    target_specials: bool  # ... and as output words
    one_in: int = ONE_IN  # the top is one position in so many

    @property
    def tokens(self) -> str:
        """Who took part, in words."""
        sides = {"source": self.source_specials, "target": self.target_specials}
        said = [f"{'with' if took_part else 'without'} those of the {side}" for side, took_part in sides.items()]
        return f"start and end tokens: {', '.join(said)}"

    def table(self) -> pd.DataFrame:
        """One row, one column per number."""
        return pd.DataFrame([vars(self)])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        rows = {f"top {100 / self.one_in:g} %": [self.top, self.chance], "Kendall's τ": [self.kendall, 0.0]}
        return plots.bars(pd.DataFrame(rows, ["agreement", "chance"]).T, ax=ax, ylabel="mean over output words")


@dataclass(frozen=True)
class AgreementSums(Sums):
    top: Float[Tensor, ""]
    chance: Float[Tensor, ""]
    kendall: Float[Tensor, ""]
    words: Int[Tensor, ""]
    ranked: Int[Tensor, ""]


class AgreementAccumulator(Accumulator[AgreementSums]):
    """A(u, v), its chance level and Kendall's τ over a stream of sentences.

    `source_specials`: whether start and end tokens count as positions that can be pointed at (in the paper they do);
    `target_specials`: whether they count as output words. For a classifier leave the second as it is: its labels are
    numbers of classes, not of words.
    """

    def __init__(self, source_specials: bool = True, target_specials: bool = True, one_in: int = ONE_IN):
        super().__init__()
        require(one_in > 0, f"one_in={one_in}: the top is one position in so many, at least 1")
        self.source_specials, self.target_specials, self.one_in = source_specials, target_specials, one_in

    @torch.no_grad()
    def update(
        self,
        u: Float[Tensor, "batch target source"],
        v: Float[Tensor, "batch target source"],
        sentences: Batch | Trace,
    ) -> None:
        source = sentences.source_mask if self.source_specials else sentences.word_mask
        target = sentences.target_mask
        if not self.target_specials:
            target = target & (sentences.target != START) & (sentences.target != END)
        words = target & source.any(1)[:, None]
        mask = source[:, None].expand_as(u)
        check_numbers(u, v, mask & words[:, :, None])
        self.add(agreement_sums(u, v, mask, words, self.one_in))

    def merge(self, other: Accumulator[AgreementSums]) -> None:
        mine = (self.source_specials, self.target_specials, self.one_in)
        if isinstance(other, AgreementAccumulator) and mine != (
            other.source_specials,
            other.target_specials,
            other.one_in,
        ):
            raise AttnscopeError("these two counted different tokens or another top; merge what counted alike")
        super().merge(other)

    def result(self) -> Agreement:
        total = self.total
        words, ranked = int(total.words), int(total.ranked)
        return Agreement(
            top=float(total.top / words), chance=float(total.chance / words), kendall=float(total.kendall / ranked),
            words=words, ranked=ranked, source_specials=self.source_specials, target_specials=self.target_specials,
            one_in=self.one_in,
        )  # fmt: skip


def check_numbers(u: Tensor, v: Tensor, used: Bool[Tensor, "batch target source"]) -> None:
    for name, values in {"u": u, "v": v}.items():
        if (values.isnan() & used).any():
            raise AttnscopeError(f"the score {name} is NaN at a word that is no padding; give it a number there")


def agreement_sums(
    u: Float[Tensor, "batch target source"],
    v: Float[Tensor, "batch target source"],
    mask: Bool[Tensor, "batch target source"],
    words: Bool[Tensor, "batch target"],
    one_in: int = ONE_IN,
) -> AgreementSums:
    """The totals of one batch."""
    tau = kendall(u, v, mask)
    ranked = words & ~tau.isnan()
    return AgreementSums(
        top=total_where(words, agreement(u, v, mask, one_in)),
        chance=total_where(words, chance(v, mask, one_in)),
        kendall=total_where(ranked, tau),
        words=words.sum(),
        ranked=ranked.sum(),
    )


def total_where(chosen: Bool[Tensor, "batch target"], values: Float[Tensor, "batch target"]) -> Float[Tensor, ""]:
    return values.double().masked_fill(~chosen, 0).sum()
