"""Do two scores of tokens agree? (snell2021 §3.1, tables 2, 3, 5 and 7)

The top-5 % agreement A(u, v) of eq. 10: is the highest position of u among the highest 5 % of v? In integers: a
position of v is in its top when k positions lie strictly above it and 20 k < L. Nothing is rounded, and tied positions
are in the top together or not at all. `mask` says which positions count; L is their number.

Kendall's τ-b (A.4, table 3): Σ sign(x_j − x_i) sign(y_j − y_i) / √(pairs untied in x · pairs untied in y), over all
pairs of positions i < j. The pairs are taken offset by offset, all rows at once. A comparison with NaN is false, so a
pair with a position that does not count adds to none of the three sums.
"""

from dataclasses import dataclass
from typing import cast

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, choose, require
from attnscope.models.capabilities import Decoding, ReadsOut, needs
from attnscope.models.inference import Model, module_of, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.saliency import METHODS
from attnscope.probes.scores import TokenScores, attention_scores
from attnscope.tasks.batch import END, START, Batch

ONE_IN = 20  # 5 %


def top_agreement(
    u: Float[Tensor, "*rows source"],
    v: Float[Tensor, "*rows source"],
    mask: Bool[Tensor, "*rows source"],
    one_in: int = ONE_IN,
) -> Float[Tensor, "*rows"]:
    """Return A(u, v) of each row. Where u has several highest positions, their mean; NaN where no position counts.

    >>> attention, probe = torch.tensor([0.1, 0.7, 0.2]), torch.tensor([0.3, 0.9, 0.4])
    >>> top_agreement(attention, probe, torch.ones(3, dtype=torch.bool)).item()
    1.0
    """
    highest = peaks(u, mask)
    hits = highest & in_top(v, mask, one_in)
    return hits.sum(-1) / highest.sum(-1)


def chance_agreement(
    v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"], one_in: int = ONE_IN
) -> Float[Tensor, "*rows"]:
    """Return Â, the agreement of a random position: the share of v's positions that are in its top.

    A constant v has all its positions there: chance agrees with it as well as any score.
    """
    return in_top(v, mask, one_in).sum(-1) / mask.sum(-1)


def in_top(
    v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"], one_in: int = ONE_IN
) -> Bool[Tensor, "*rows source"]:
    """Return the positions that satisfy eq. 10."""
    length = mask.sum(-1, keepdim=True)
    return mask & (one_in * strictly_above(v, mask) < length)


def strictly_above(v: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"]) -> Int[Tensor, "*rows source"]:
    """Return how many of the positions that count are higher than each."""
    lowered = v.masked_fill(~mask, -torch.inf).contiguous()  # what does not count lies above nothing
    ordered = lowered.sort(-1).values
    return v.shape[-1] - torch.searchsorted(ordered, lowered, right=True)


def peaks(u: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"]) -> Bool[Tensor, "*rows source"]:
    """Return the highest position of u, or all that are tied for it."""
    highest = u.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    return mask & (u == highest)


BLOCK = 1 << 17  # numbers of one score that are compared at a time, to stay in the processor's cache


def kendall(
    x: Float[Tensor, "*rows places"],
    y: Float[Tensor, "*rows places"],
    mask: Bool[Tensor, "*rows places"] | None = None,
) -> Float[Tensor, "*rows"]:
    """Return τ-b of each row; NaN where it is undefined: fewer than two positions, or a score that ties them all.

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
    """Return the values in single precision at least: half precision cannot count pairs."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def tau_b(both: Float[Tensor, "2 rows places"]) -> Float[Tensor, " rows"]:
    """Return τ-b of the rows of two scores, in double precision."""
    across = both.mT.contiguous()  # 2 x places x rows: contiguous where it is compared
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
    """Return 1 where the later is higher, −1 where it is lower, as floats at once: booleans are slow in torch."""
    higher = torch.gt(later, earlier, out=torch.empty_like(later))
    lower = torch.lt(later, earlier, out=torch.empty_like(later))
    return higher.sub_(lower)


@dataclass(frozen=True)
class Agreement(Displayed):
    """Means over output tokens."""

    top: float  # A(u, v)
    chance: float  # Â; that of τ is zero
    kendall: float  # τ-b, over the output tokens where it is defined
    words: int  # output tokens
    ranked: int  # output tokens where τ is defined
    source_specials: bool  # start and end tokens count as positions
    target_specials: bool  # ... and as output tokens
    one_in: int = ONE_IN  # the top is one position in this many

    @property
    def tokens(self) -> str:
        """A sentence about which tokens count."""
        sides = {"source": self.source_specials, "target": self.target_specials}
        parts = [f"{'with' if counts else 'without'} those of the {side}" for side, counts in sides.items()]
        return f"start and end tokens: {', '.join(parts)}"

    def table(self) -> pd.DataFrame:
        """Return one row, one column per measure."""
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
    """A(u, v), its chance level and Kendall's τ over several batches.

    Args:
        source_specials: Whether start and end tokens count as source positions (in the paper they do).
        target_specials: Whether they count as output tokens; leave it for a classifier, whose targets are classes.
        one_in: The top is one position in this many.
    """

    def __init__(self, source_specials: bool = True, target_specials: bool = True, one_in: int = ONE_IN):
        super().__init__()
        require(one_in > 0, f"one_in={one_in}: the top is one position in this many, at least 1")
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
            raise AttnscopeError("these two count different tokens or another top; merge those of the same settings")
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
            raise AttnscopeError(f"the score {name} is NaN at a token that is no padding; give it a number there")


def agreement_sums(
    u: Float[Tensor, "batch target source"],
    v: Float[Tensor, "batch target source"],
    mask: Bool[Tensor, "batch target source"],
    words: Bool[Tensor, "batch target"],
    one_in: int = ONE_IN,
) -> AgreementSums:
    """Return the totals of one batch."""
    tau = kendall(u, v, mask)
    ranked = words & ~tau.isnan()
    return AgreementSums(
        top=total_where(words, top_agreement(u, v, mask, one_in)),
        chance=total_where(words, chance_agreement(v, mask, one_in)),
        kendall=total_where(ranked, tau),
        words=words.sum(),
        ranked=ranked.sum(),
    )


def total_where(chosen: Bool[Tensor, "batch target"], values: Float[Tensor, "batch target"]) -> Float[Tensor, ""]:
    return values.double().masked_fill(~chosen, 0).sum()


# By name -------------------------------------------------------------------------------------------------------------


def agreement(
    model: Model,
    data: Data,
    first: str = "attention",
    second: str = "lexical",
    decoding: Decoding | None = None,
    source_specials: bool = True,
    target_specials: bool = True,
) -> Agreement:
    """Return the agreement of two scores of a model's tokens, A(first, second) and Kendall's τ.

    Args:
        model: A LoadedModel, or any model that gives Traces; what else it needs depends on the scores.
        data: Texts, a path, a table, a Task or Batches. Without labels or translations, the target is the prediction.
        first: "attention", "lexical", or a method of saliency, such as "influence" or "leave_one_out".
        second: The score whose top 5 % count, by the same names.
        decoding: "teacher_forced" or "greedy"; None: as the model says.
        source_specials: Whether start and end tokens count as source positions.
        target_specials: Whether they count as output tokens.
    """
    for name in (first, second):
        choose("score", name, ("attention", "lexical", *METHODS))
    total = AgreementAccumulator(source_specials, target_specials)
    for batch, trace in traces(model, data, decoding=decoding):
        u, v = (named_score(name, model, batch, trace, decoding) for name in (first, second))
        total.update(u.values, v.values, batch)
    return total.result()


def named_score(name: str, model: Model, batch: Batch, trace: Trace, decoding: Decoding | None) -> TokenScores:
    """Return one score of a batch by its name."""
    if name == "attention":
        return attention_scores(trace)
    module = module_of(model)
    if name == "lexical":
        needs(module, ReadsOut, by="the lexical probe")
        return lexical_scores(cast(ReadsOut, module), trace)
    return METHODS[name](module, batch, decoding=decoding)
