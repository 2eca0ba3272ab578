"""Do two scores of tokens agree? (snell2021 §3.1, tables 2, 3, 5 and 7)

The top-5 % agreement A(u, v) of eq. 10: is the highest position of u among the highest 5 % of v? In integers: a
position of v is in its top when k positions lie strictly above it and 20 k < L. Nothing is rounded, and tied positions
are in the top together or not at all. `mask` says which positions count; L is their number.

Kendall's τ-b (A.4, table 3): Σ sign(x_j − x_i) sign(y_j − y_i) / √(pairs untied in x · pairs untied in y), over all
pairs of positions i < j. The pairs are taken offset by offset, all rows at once. A comparison with NaN is false, so a
pair with a position that does not count adds to none of the three sums.

Contextualised agreement ξ (eq. 11, figure 2): how far had training come when attention agreed as much?
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, choose, require
from attnscope.models.attention import up_to
from attnscope.models.capabilities import Decoding, GivesTrace, ReadsOut, needs
from attnscope.models.inference import Model, module_of, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.lexical import lexical_scores, lexical_scores_at
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
    masked = v.masked_fill(~mask, -torch.inf).contiguous()  # masked positions are above none
    return v.shape[-1] - torch.searchsorted(masked.sort(-1).values, masked, right=True)


def peaks(u: Float[Tensor, "*rows source"], mask: Bool[Tensor, "*rows source"]) -> Bool[Tensor, "*rows source"]:
    """Return the highest position of u, or all that are tied for it."""
    highest = u.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    return mask & (u == highest)


BLOCK = 1 << 17  # elements of one score that are compared at a time, to stay in the processor's cache


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
    """Return the values in at least single precision: half precision cannot count pairs."""
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
        mask = source[:, None].expand_as(u)
        if isinstance(sentences, Trace):
            mask = mask & sentences.pairs
        words = target & mask.any(2)
        check_numbers(u, v, mask & words[:, :, None])
        self.add(agreement_sums(u, v, mask, words, self.one_in))

    def merge(self, other: Accumulator[AgreementSums]) -> None:
        mine = (self.source_specials, self.target_specials, self.one_in)
        if isinstance(other, AgreementAccumulator) and mine != (
            other.source_specials,
            other.target_specials,
            other.one_in,
        ):
            raise AttnscopeError("these two count different tokens or another top; merge those of equal settings")
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
            raise AttnscopeError(f"the score {name} is NaN at a token that is not padding; give it a number there")


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
    layer: int | None = None,
    sink: bool = True,
) -> Agreement:
    """Return the agreement of two scores of a model's tokens, A(first, second) and Kendall's τ.

    Args:
        model: A LoadedModel, or any model that gives Traces; what else it needs depends on the scores.
        data: Texts, a path, a table, a Task or Batches. Without labels or translations, the target is the prediction.
        first: "attention", "lexical", or a method of saliency, such as "influence" or "leave_one_out".
        second: The score whose top 5 % count, by the same names.
        decoding: "teacher_forced" or "greedy"; None: the model's default.
        source_specials: Whether start and end tokens count as source positions.
        target_specials: Whether they count as output tokens.
        layer: The layer of "attention" and "lexical", from 0 or -1; None: the last.
        sink: Whether the first position counts, the attention sink of language models.
    """
    for name in (first, second):
        choose("score", name, ("attention", "lexical", *METHODS))
    total = AgreementAccumulator(source_specials, target_specials)
    for batch, trace in traces(model, data, decoding=decoding):
        u, v = (named_score(name, model, batch, trace, decoding, layer) for name in (first, second))
        total.update(u.values, v.values, trace if sink else trace.without_sink())
    return total.result()


def named_score(
    name: str, model: Model, batch: Batch, trace: Trace, decoding: Decoding | None, layer: int | None = None
) -> TokenScores:
    """Return one score of a batch by its name."""
    if name == "attention":
        return attention_scores(trace if layer is None else up_to(trace, layer))
    module = module_of(model)
    if name == "lexical":
        needs(module, ReadsOut, by="the lexical probe")
        if layer is not None:
            return lexical_scores_at(cast(GivesTrace, module), trace, layer, decoding=decoding)
        return lexical_scores(cast(ReadsOut, module), trace)
    return METHODS[name](module, batch, decoding=decoding)


# Contextualised agreement ξ (snell2021 eq. 11, figure 2) -------------------------------------------------------------


def classification_checkpoints(last: int = 4000) -> tuple[int, ...]:
    """Return steps 0, 10, 50, 100, 150, 200, 250, then every 250, and the last (snell2021 A.8).

    >>> classification_checkpoints(600)
    (0, 10, 50, 100, 150, 200, 250, 500, 600)
    """
    return checkpoints_until(last, first=(0, 10, 50, 100, 150, 200), every=250)


def translation_checkpoints(last: int) -> tuple[int, ...]:
    """Return steps 0, 50, 100, 500, 1000, 1500, then every 2000, and the last (snell2021 A.8).

    The author counts the 2000 from zero, not from 1500.

    >>> translation_checkpoints(6000)
    (0, 50, 100, 500, 1000, 1500, 2000, 4000, 6000)
    """
    return checkpoints_until(last, first=(0, 50, 100, 500, 1000, 1500), every=2000)


def checkpoints_until(last: int, first: Sequence[int], every: int) -> tuple[int, ...]:
    require(last >= 0, f"training ends at a step of 0 or more, not {last}")
    return tuple(sorted({step for step in (*first, *range(every, last, every)) if step < last} | {last}))


@dataclass(frozen=True)
class Contextualised:
    """ξ: the performance of another seed when its attention first agreed more; ξ* (asterisk) if it never did."""

    value: float
    step: int
    exceeded: bool

    def __str__(self) -> str:
        return f"{self.value:.4g}{'' if self.exceeded else '*'}"


@dataclass(frozen=True)
class LearningCurve(Displayed):
    """Another seed during training: the agreement of its attention α̂(τ) with the trained α, and its performance."""

    steps: tuple[int, ...]
    agreement: tuple[float, ...]  # A(α, α̂(τ))
    performance: tuple[float, ...]  # p̂(τ)

    def __post_init__(self) -> None:
        check_curve(self.steps, self.agreement, self.performance)

    @classmethod
    def mean(cls, curves: Sequence["LearningCurve"]) -> "LearningCurve":
        """Return the mean curve of several seeds (the author averages five for classification)."""
        require(len({curve.steps for curve in curves}) == 1, "curves are averaged at the same steps; these differ")
        agreement, performance = (
            np.mean([getattr(curve, name) for curve in curves], axis=0).tolist()
            for name in ("agreement", "performance")
        )
        return cls(curves[0].steps, tuple(agreement), tuple(performance))

    def on(self, checkpoints: Sequence[int]) -> "LearningCurve":
        """Return the curve at these steps only: with more steps, τ could be earlier."""
        missing = sorted(set(checkpoints) - set(self.steps))
        if missing:
            raise AttnscopeError(f"the curve lacks the steps {', '.join(map(str, missing))}")
        places = [bisect_left(self.steps, step) for step in checkpoints]
        return LearningCurve(
            tuple(checkpoints), tuple(self.agreement[i] for i in places), tuple(self.performance[i] for i in places)
        )

    @property
    def final(self) -> float:
        """ξ*, the performance when training ends."""
        return self.performance[-1]

    def contextualise(self, agreement: float) -> Contextualised:
        """Return ξ(u, v) of an agreement A(u, v): p̂ at the first step with A(α, α̂(τ)) > A(u, v)."""
        require(isfinite(agreement), f"an agreement must be finite to be contextualised, not {agreement}")
        for step, reached, performance in zip(self.steps, self.agreement, self.performance, strict=True):
            if reached > agreement:
                return Contextualised(performance, step, exceeded=True)
        return Contextualised(self.final, self.steps[-1], exceeded=False)

    def table(self) -> pd.DataFrame:
        """Return one row per step."""
        columns = {"agreement": self.agreement, "performance": self.performance}
        return pd.DataFrame(columns, pd.Index(self.steps, name="step"))

    def plot(self, ax: Axes | None = None, agreements: Mapping[str, float] | None = None) -> Axes:
        """Draw figure 2: both curves; for each A(u, v), its height and the step where it is exceeded."""
        from attnscope import plots

        levels = agreements or {}
        curves = {"A(α, α̂(τ))": list(self.agreement), "p̂(τ)": list(self.performance)}
        flat = {name: [level] * len(self.steps) for name, level in levels.items()}
        reached = {name: self.contextualise(level) for name, level in levels.items()}
        marks = {name: at.step for name, at in reached.items() if at.exceeded}
        return plots.profiles(self.steps, curves | flat, ax=ax, xlabel="training step τ", marks=marks or None)


@dataclass(frozen=True)
class OverTraining(Displayed):
    """An agreement at each checkpoint, such as A(α, β^uf(τ)): the best, as published (A.7), and the last."""

    steps: tuple[int, ...]
    agreement: tuple[float, ...]

    def __post_init__(self) -> None:
        check_curve(self.steps, self.agreement)

    @property
    def best(self) -> float:
        return max(self.agreement)

    @property
    def best_step(self) -> int:
        return self.steps[self.agreement.index(self.best)]

    @property
    def last(self) -> float:
        return self.agreement[-1]

    def table(self) -> pd.DataFrame:
        """Return one row per step, with the best and the last marked."""
        table = pd.DataFrame({"agreement": self.agreement}, pd.Index(self.steps, name="step"))
        return table.assign(best=table.index == self.best_step, last=table.index == self.steps[-1])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        name = "agreement"
        return plots.profiles(
            self.steps, {name: self.agreement}, ax=ax, xlabel="training step τ", ylabel=name,
            marks={name: self.best_step},
        )  # fmt: skip


def check_curve(steps: Sequence[int], *curves: Sequence[float]) -> None:
    require(len(steps) > 0, "a curve needs at least one step")
    require(all(a < b for a, b in pairwise(steps)), f"steps must rise, not {tuple(steps)}")
    require(
        all(len(curve) == len(steps) for curve in curves), f"each curve needs a number for each of {len(steps)} steps"
    )
    require(all(isfinite(value) for curve in curves for value in curve), "a curve has a value that is not finite")
