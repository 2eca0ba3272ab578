"""How many words must go, those with the most attention first, until the decision flips? (Serrano & Smith 2019, §4)

More words gone may bring the first decision back, so no search by halves is valid: one goes through a fixed grid of
numbers of words, from few to many, and stops at the first that flips the decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.display import Displayed
from attnscope.errors import require
from attnscope.probes.drawing import Axes
from attnscope.probes.erasure.erased import Erased
from attnscope.probes.erasure.ordering import RANDOM, Score
from attnscope.probes.erasure.records import Texts, over_draws
from attnscope.probes.erasure.stream import OverScores
from attnscope.probes.reweighing import Reweighing
from attnscope.tasks.batch import Batch

TOGETHER = 8  # numbers of words that are tried at once, before texts whose decision has flipped are let go


@dataclass(frozen=True)
class Grid:
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

        >>> Grid(exact=2, steps=2).counts(torch.tensor([3, 5, 13]))
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
class Flips(Texts, Displayed):
    """What was gone when the decision flipped, for each text and each order that was drawn (one, unless at random)."""

    fraction: Float[Tensor, "texts draws"]  # of the words; 1 where the decision never flipped
    mass: Float[Tensor, "texts draws"]  # of the attention; 1 where the decision never flipped
    flipped: Bool[Tensor, "texts draws"]

    def table(self) -> pd.DataFrame:
        """A row a text, means over draws."""
        columns = {name: over_draws(getattr(self, name)).cpu().numpy() for name in ("fraction", "mass", "flipped")}
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
        fraction, by_chance = over_draws(flips.fraction), self.orders[RANDOM].fraction[:, :, None]
        against = flips.fraction[:, None]  # texts x random draws x draws
        wins = (against < by_chance).double() + 0.5 * (against == by_chance).double()
        return {
            "fraction": float(fraction.mean()), "median": float(np.median(fraction.cpu())),
            "sd": float(fraction.std(correction=0)), "mass": float(over_draws(flips.mass).mean()),
            "flipped": float(over_draws(flips.flipped).mean()), "earlier": float(wins.mean()),
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


class Erase(OverScores[Flips]):
    """Drops words until the decision flips, over a stream of texts: by attention, at random, by any score given."""

    def __init__(self, way: str = "attention", draws: int = 5, seed: int = 0, grid: Grid | None = None):
        super().__init__(way, draws, seed)
        self.grid = grid or Grid()

    def ask(self, reading: Reweighing, batch: Batch, score: Score) -> Flips:
        return until_flip(reading.model, batch, score, self.way, self.grid, self.seed, reading)

    def result(self) -> Erasure:
        found = self.gathered()
        return Erasure(self.way, dict(found), len(found[RANDOM]), self.left_out)


def until_flip(
    model: nn.Module,
    batch: Batch,
    score: Score,
    way: str = "attention",
    grid: Grid | None = None,
    seed: int = 0,
    reading: Reweighing | None = None,
) -> Flips:
    """Each text of at least two words loses its words, the highest score first, until its decision flips.

    Words with equal scores go in a random order, drawn by the text and the seed. `reading` is what the model made of
    this batch, if it was asked already.
    """
    reading = reading or Reweighing.of(model, batch)
    texts = Erased.of(model, batch, score, way, seed, reading)
    gone = first_flip(texts, (grid or Grid()).counts(texts.lengths))
    flipped = (gone > 0)[:, None]
    fraction = (gone.double() / texts.lengths)[:, None]
    top = texts.top(torch.arange(len(gone), device=gone.device), gone[:, None])  # texts x 1 x source
    mass = (reading.own[texts.texts].mean(1, keepdim=True).double() * top).sum(-1)
    return Flips(fraction.where(flipped, 1.0), mass.where(flipped, 1.0), flipped)


def first_flip(texts: Erased, counts: Int[Tensor, "texts steps"]) -> Int[Tensor, " texts"]:
    """The first of these numbers of words without which another decision is taken; 0 where there is none."""
    found = torch.zeros_like(texts.decision)
    for some in counts.split(TOGETHER, 1):
        rows = ((found == 0) & (some > 0).any(1)).nonzero()[:, 0]  # those that have not flipped yet
        if len(rows):
            found[rows] = first_of(texts, rows, some[rows])
    return found


def first_of(texts: Erased, rows: Int[Tensor, " rows"], counts: Int[Tensor, "rows choices"]) -> Int[Tensor, " rows"]:
    decided = texts.without(rows, counts).argmax(-1)
    flips = (decided != texts.decision[rows, None]) & (counts > 0)
    first = counts.gather(1, flips.long().argmax(1, keepdim=True))[:, 0]
    return first.where(flips.any(1), 0)
