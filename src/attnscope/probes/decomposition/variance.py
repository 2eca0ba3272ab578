"""How much of the variance of a word's states is left when the time step is taken out? (aitken2021 §4.1, figure 5c)"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.probes.accumulator import Sums
from attnscope.probes.decomposition.components import (
    Components,
    Parts,
    check_same_vectors,
    looked_up,
    mean_times,
    totals_by,
    word_time_counts,
)
from attnscope.probes.decomposition.geometry import InnerProducts
from attnscope.probes.decomposition.shares import FEW
from attnscope.probes.decomposition.sides import Side
from attnscope.probes.drawing import Axes
from attnscope.tasks.batch import SPECIALS


@dataclass(frozen=True)
class WordVariance(Displayed):
    """The trace of the covariance of each word's states, before and after their temporal components are subtracted.

    The mean ratio is one over words proper: padding is never counted, and the end and start tokens are in the table
    but not in the mean (the author leaves out the pad, which doubles as end token). Words that the fit saw fewer than
    ten times have a mean of their own.
    """

    before: Float[Tensor, "heads words"]
    after: Float[Tensor, "heads words"]
    counts: Int[Tensor, " words"]  # occurrences behind these variances
    seen: Int[Tensor, " words"]  # occurrences in the fit
    few: int = FEW

    @property
    def ratio(self) -> Float[Tensor, "heads words"]:
        """After over before; NaN for a word whose states do not vary."""
        varies = (self.counts > 1) & (self.before > 0)
        return (self.after / self.before).masked_fill(~varies, torch.nan)

    @property
    def rare(self) -> Bool[Tensor, " words"]:
        return self.seen < self.few

    @property
    def mean(self) -> Float[Tensor, " heads"]:
        """The mean ratio of common words."""
        return self.mean_over(~self.rare)

    @property
    def mean_rare(self) -> Float[Tensor, " heads"]:
        return self.mean_over(self.rare)

    def mean_over(self, words: Bool[Tensor, " words"]) -> Float[Tensor, " heads"]:
        proper = torch.arange(len(words), device=words.device) >= len(SPECIALS)
        return self.ratio[:, words & proper].nanmean(-1)

    def table(self, words: Sequence[str] | None = None, head: int = 0) -> pd.DataFrame:
        """A row a word that came by."""
        columns = {"before": self.before[head], "after": self.after[head], "ratio": self.ratio[head]}
        columns |= {"count": self.counts, "rare": self.rare}
        table = pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})
        table.index = pd.Index(words[: len(table)] if words else table.index, name="word")
        return table[table["count"] > 0]

    def plot(self, ax: Axes | None = None, words: Sequence[str] | None = None, head: int = 0) -> Axes:
        """For each word, what is left and what the time step took."""
        from attnscope import plots

        ratio = self.table(words, head)["ratio"].dropna()
        return plots.stacked_shares(pd.DataFrame({"left": ratio, "temporal": 1 - ratio}), ax=ax)


@dataclass(frozen=True)
class VarianceSums(Sums):
    """By word: χ + Δ, |μ + Δ|² and |Δ|² of its states, and the time steps that they fell on.

    χ is the same for all states of a word. So it adds nothing to their variance, and leaving it out saves digits.
    """

    input_delta: Float[Tensor, "words heads key"]
    before: Float[Tensor, "words heads"]
    after: Float[Tensor, "words heads"]
    counts: Int[Tensor, "words time"]

    def __add__(self, other: "VarianceSums") -> "VarianceSums":
        check_same_vectors(self.input_delta, other.input_delta)
        return super().__add__(other)

    def word_variance(self, components: Components, few: int = FEW) -> WordVariance:
        words, times = (torch.arange(size, device=self.counts.device) for size in self.counts.shape)
        occurrences = self.counts.sum(1)
        input_ = looked_up(components.input.transpose(0, 1), words)  # words x heads x key
        delta = self.input_delta / occurrences.clamp_min(1)[:, None, None] - input_
        temporal = mean_times(self.counts, looked_up(components.temporal.transpose(0, 1), times))
        return WordVariance(
            before=variance(self.before, temporal + delta, occurrences).T,
            after=variance(self.after, delta, occurrences).T,
            counts=occurrences,
            seen=looked_up(components.word_counts, words),
            few=few,
        )


def variance(
    squares: Float[Tensor, "words heads"], mean: Float[Tensor, "words heads key"], counts: Int[Tensor, " words"]
) -> Float[Tensor, "words heads"]:
    """The mean squared length less the squared length of the mean."""
    return (squares / counts.clamp_min(1)[:, None] - mean.square().sum(-1)).clamp_min(0)


def variance_sums(side: Side, parts: Parts, products: InnerProducts) -> VarianceSums:
    """The totals of one batch."""
    after = products.square("delta").double()
    before = products.square("temporal") + 2 * products.dot("temporal", "delta") + after
    squares = torch.stack([before, after], -1).transpose(1, 2)  # batch x time x heads x 2
    of_words = totals_by(side.by_word, squares, side.vocabulary)
    input_delta = totals_by(side.by_word, parts.input_delta.transpose(1, 2), side.vocabulary)
    return VarianceSums(input_delta, of_words[..., 0], of_words[..., 1], word_time_counts(side))
