"""How well do two scores agree over a whole corpus, beside chance? (snell2021 §3.1, tables 2, 3, 5 and 7)"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.agreement.rank_correlation import kendall
from attnscope.probes.agreement.top import ONE_IN, agreement, chance
from attnscope.probes.drawing import Axes
from attnscope.tasks.batch import END, START, Batch


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
        """One row, a column a number."""
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


class Agree(Accumulator[AgreementSums]):
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
        source = taking_part(sentences.source, sentences.source_mask, self.source_specials)
        target = taking_part(sentences.target, sentences.target_mask, self.target_specials)
        words = target & source.any(1)[:, None]
        mask = source[:, None].expand_as(u)
        check_numbers(u, v, mask & words[:, :, None])
        self.add(agreement_sums(u, v, mask, words, self.one_in))

    def merge(self, other: Accumulator[AgreementSums]) -> None:
        mine = (self.source_specials, self.target_specials, self.one_in)
        if isinstance(other, Agree) and mine != (other.source_specials, other.target_specials, other.one_in):
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


def taking_part(
    words: Int[Tensor, "batch steps"], mask: Bool[Tensor, "batch steps"], specials: bool
) -> Bool[Tensor, "batch steps"]:
    return mask if specials else mask & (words != START) & (words != END)


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
