"""How much of a decision goes with its top words, and how much do they carry alone? (ERASER: DeYoung et al. 2020, §4.2)

Comprehensiveness is the probability of the decision less that without the top words: high where they were needed.
Sufficiency is the probability less that with the top words alone: low where they are enough. Both are averaged over the
top 1, 5, 10, 20 and 50 % of the words (the area over the perturbation curve, AOPC). Words are cut out of the text.
"""

# TODO(docstring) join:
#   How many words must go, those with the most attention first, until the decision flips? (Serrano & Smith 2019, §4)
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.probes.counterfactual import Reweighing
from attnscope.probes.erasure.removal import RANDOM, ErasedTexts, Score, ScoreAccumulator, TextRecords, mean_over_draws
from attnscope.tasks.batch import Batch

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)  # DeYoung et al. 2020, §4.2


@dataclass(frozen=True)
class ProbabilityDrops(TextRecords):
    """What the probability of the decision lost, for each text, random draw (one, unless at random) and share."""

    comprehensiveness: Float[Tensor, "texts draws shares"]
    sufficiency: Float[Tensor, "texts draws shares"]


@dataclass(frozen=True)
class Comprehensiveness(Displayed):
    """For each score, the means over texts; AOPC is the mean over shares."""

    way: str
    shares: tuple[float, ...]
    scores: Mapping[str, ProbabilityDrops]
    texts: int
    left_out: int  # texts of fewer than two words

    def table(self) -> pd.DataFrame:
        """A row a score: both measures, averaged over shares, with their standard deviation over texts."""
        return pd.DataFrame({name: summarise_drops(found) for name, found in self.scores.items()}).T.rename_axis(
            "score"
        )

    def curves(self, measure: str = "comprehensiveness") -> pd.DataFrame:
        """A row a share, a column a score."""
        columns = {name: mean_over_draws(getattr(found, measure)).mean(0) for name, found in self.scores.items()}
        index = pd.Index(self.shares, name="share of words")
        return pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()}, index)

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        table = self.table()
        errors = pd.DataFrame({name: table[f"{name}_sd"] / self.texts**0.5 for name in MEASURES})
        return plots.bars(table[MEASURES], ax=ax, errors=errors, ylabel="loss of probability (AOPC)")


MEASURES = [field.name for field in fields(ProbabilityDrops)]


def summarise_drops(found: ProbabilityDrops) -> dict[str, float]:
    texts = {name: mean_over_draws(getattr(found, name)).mean(-1) for name in MEASURES}
    means = {name: float(values.mean()) for name, values in texts.items()}
    return means | {f"{name}_sd": float(values.std(correction=0)) for name, values in texts.items()}


class ComprehensivenessAccumulator(ScoreAccumulator[ProbabilityDrops]):
    """Comprehensiveness and sufficiency over a stream of texts: of attention, of any score given, and of chance."""

    def __init__(self, way: str = "text", draws: int = 5, seed: int = 0, shares: Sequence[float] = SHARES):
        super().__init__(way, draws, seed)
        check_shares(shares)
        self.shares = tuple(shares)

    def ask(self, reading: Reweighing, batch: Batch, score: Score) -> ProbabilityDrops:
        return probability_drops(reading.model, batch, score, self.way, self.shares, self.seed, reading)

    def result(self) -> Comprehensiveness:
        found = self.gathered()
        return Comprehensiveness(self.way, self.shares, dict(found), len(found[RANDOM]), self.left_out)


def probability_drops(
    model: nn.Module,
    batch: Batch,
    score: Score,
    way: str = "text",
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    reading: Reweighing | None = None,
) -> ProbabilityDrops:
    """Each text of at least two words without its top words, and with these alone.

    Words with equal scores are drawn by the text and the seed. `reading` is what the model made of this batch, if it
    was asked already.
    """
    check_shares(shares)
    texts = ErasedTexts.of(model, batch, score, way, seed, reading)
    counts, rows = top_counts(texts.lengths, shares), torch.arange(len(texts.texts), device=texts.texts.device)
    if not len(rows):
        return ProbabilityDrops(*(texts.whole.new_zeros(0, 1, len(shares)) for _ in MEASURES))
    decision = texts.decision[:, None, None].expand(-1, len(shares), 1)
    before = texts.whole.gather(1, texts.decision[:, None])[:, None]  # texts x 1 x 1
    without, alone = (
        found.gather(2, decision)[:, None, :, 0] for found in (texts.without(rows, counts), texts.alone(rows, counts))
    )
    return ProbabilityDrops(before - without, before - alone)


def top_counts(lengths: Int[Tensor, " texts"], shares: Sequence[float]) -> Int[Tensor, "texts shares"]:
    """How many words each share is: rounded up, so at least one; and one stays.

    >>> top_counts(torch.tensor([2, 60]), SHARES)
    tensor([[ 1,  1,  1,  1,  1],
            [ 1,  3,  6, 12, 30]])
    """
    parts = lengths[:, None].double() * torch.tensor(shares, dtype=torch.float64, device=lengths.device)
    rounded = (parts - 1e-9).ceil().long()  # 0.2 times 60 is a little more than 12
    return rounded.minimum(lengths[:, None] - 1).clamp(min=1)


def check_shares(shares: Sequence[float]) -> None:
    require(len(shares) > 0 and all(0 < share < 1 for share in shares), f"shares lie between 0 and 1, not {shares}")


COUNTS_AT_ONCE = 8  # numbers of words that are tried at once, before texts whose decision has flipped are let go


@dataclass(frozen=True)
class RemovalGrid:
    """Every number of words up to `exact`, then `steps` more, evenly spaced up to all words but one.

    A text of up to exact + steps words is gone through word by word. In a longer one, the number at which the decision
    flips is found to within (words - exact) / steps words, and never underestimated.
    """

    exact: int = 50
    steps: int = 50

    def __post_init__(self) -> None:
        require(self.exact >= 0 and self.steps >= 0, "the numbers of exact and of further steps cannot be negative")
        require(self.exact + self.steps > 0, "a grid needs at least one step")

    def counts(self, words: Int[Tensor, " texts"]) -> Int[Tensor, "texts steps"]:
        """How many words are gone at each step; 0 where a text needs no more steps.

        >>> RemovalGrid(exact=2, steps=2).counts(torch.tensor([3, 5, 13]))
        tensor([[ 1,  2,  0,  0],
                [ 1,  2,  3,  4],
                [ 1,  2,  7, 12]])
        """
        most = words[:, None] - 1  # one word is always left
        rest = (most - self.exact).clamp(min=0)
        exact = torch.arange(1, self.exact + 1, device=words.device)
        further = torch.arange(1, self.steps + 1, device=words.device)
        # Rounded up; where fewer words are left than steps, one more at each.
        beyond = torch.where(rest > self.steps, -(-further * rest // max(self.steps, 1)), further)
        counts = torch.cat([exact.expand(len(words), -1), self.exact + beyond], 1)
        return counts.masked_fill(counts > most, 0)


@dataclass(frozen=True)
class Flips(TextRecords, Displayed):
    """What was gone when the decision flipped, for each text and each order that was drawn (one, unless at random)."""

    fraction: Float[Tensor, "texts draws"]  # of the words; 1 where the decision never flipped
    mass: Float[Tensor, "texts draws"]  # of the attention; 1 where the decision never flipped
    flipped: Bool[Tensor, "texts draws"]

    def table(self) -> pd.DataFrame:
        """A row a text, means over draws."""
        columns = {name: mean_over_draws(getattr(self, name)).cpu().numpy() for name in ("fraction", "mass", "flipped")}
        return pd.DataFrame(columns, pd.RangeIndex(len(self), name="text"))


@dataclass(frozen=True)
class Erasure(Displayed):
    """For each order, how much had to go; `earlier` says how often that was less than at random."""

    way: str  # attention set to zero, or words cut out of the text
    orders: Mapping[str, Flips]
    texts: int
    left_out: int  # texts of fewer than two words

    def table(self) -> pd.DataFrame:
        """A row an order: means over texts."""
        return pd.DataFrame({name: self._row(flips) for name, flips in self.orders.items()}).T.rename_axis("order")

    def _row(self, flips: Flips) -> dict[str, float]:
        fraction, by_chance = mean_over_draws(flips.fraction), self.orders[RANDOM].fraction[:, :, None]
        against = flips.fraction[:, None]  # texts x random draws x draws
        wins = (against < by_chance).double() + 0.5 * (against == by_chance).double()
        return {
            "fraction": float(fraction.mean()), "median": float(np.median(fraction.cpu())),
            "sd": float(fraction.std(correction=0)), "mass": float(mean_over_draws(flips.mass).mean()),
            "flipped": float(mean_over_draws(flips.flipped).mean()), "earlier": float(wins.mean()),
        }  # fmt: skip

    def curves(self, points: int = 101) -> pd.DataFrame:
        """The share of decisions that have flipped by the time that a share of the words is gone."""
        shares = torch.linspace(0, 1, points, dtype=torch.float64)
        columns = {}
        for name, flips in self.orders.items():
            gone = flips.fraction.cpu()[..., None] <= shares + 1e-12
            columns[name] = (gone & flips.flipped.cpu()[..., None]).double().mean((0, 1)).numpy()
        return pd.DataFrame(columns, pd.Index(shares.numpy(), name="share of words gone"))

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        curves = self.curves()
        named = {str(name): curves[name].to_numpy() for name in curves}
        return plots.profiles(
            curves.index.to_numpy(), named, ax=ax, xlabel=str(curves.index.name), ylabel="share of decisions flipped"
        )


class FlipAccumulator(ScoreAccumulator[Flips]):
    """Drops words until the decision flips, over a stream of texts: by attention, at random, by any score given."""

    def __init__(self, way: str = "attention", draws: int = 5, seed: int = 0, grid: RemovalGrid | None = None):
        super().__init__(way, draws, seed)
        self.grid = grid or RemovalGrid()

    def ask(self, reading: Reweighing, batch: Batch, score: Score) -> Flips:
        return erase_until_flip(reading.model, batch, score, self.way, self.grid, self.seed, reading)

    def result(self) -> Erasure:
        found = self.gathered()
        return Erasure(self.way, dict(found), len(found[RANDOM]), self.left_out)


def erase_until_flip(
    model: nn.Module,
    batch: Batch,
    score: Score,
    way: str = "attention",
    grid: RemovalGrid | None = None,
    seed: int = 0,
    reading: Reweighing | None = None,
) -> Flips:
    """Each text of at least two words loses its words, the highest score first, until its decision flips.

    Words with equal scores go in a random order, drawn by the text and the seed. `reading` is what the model made of
    this batch, if it was asked already.
    """
    reading = reading or Reweighing.of(model, batch)
    texts = ErasedTexts.of(model, batch, score, way, seed, reading)
    gone = first_flip(texts, (grid or RemovalGrid()).counts(texts.lengths))
    flipped = (gone > 0)[:, None]
    fraction = (gone.double() / texts.lengths)[:, None]
    top = texts.top(torch.arange(len(gone), device=gone.device), gone[:, None])  # texts x 1 x source
    mass = (reading.own[texts.texts].mean(1, keepdim=True).double() * top).sum(-1)
    return Flips(fraction.where(flipped, 1.0), mass.where(flipped, 1.0), flipped)


def first_flip(texts: ErasedTexts, counts: Int[Tensor, "texts steps"]) -> Int[Tensor, " texts"]:
    """The first of these numbers of words without which another decision is taken; 0 where there is none."""
    found = torch.zeros_like(texts.decision)
    for some in counts.split(COUNTS_AT_ONCE, 1):
        rows = ((found == 0) & (some > 0).any(1)).nonzero()[:, 0]  # those that have not flipped yet
        if len(rows):
            found[rows] = first_flip_among(texts, rows, some[rows])
    return found


def first_flip_among(
    texts: ErasedTexts, rows: Int[Tensor, " rows"], counts: Int[Tensor, "rows choices"]
) -> Int[Tensor, " rows"]:
    decided = texts.without(rows, counts).argmax(-1)
    flips = (decided != texts.decision[rows, None]) & (counts > 0)
    first = counts.gather(1, flips.long().argmax(1, keepdim=True))[:, 0]
    return first.where(flips.any(1), 0)
