"""How plausible is a score over a whole corpus, beside chance?

Texts without any marked word are left out and counted. A score says how many words it chooses by how many people marked
in this text, or takes the same share of every text. Words with equal scores are chosen at random, by text and seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.probes.drawing import Axes
from attnscope.probes.erasure.ordering import Score, by_score, erasable, random_score, values_of
from attnscope.probes.erasure.records import Gathered, Texts
from attnscope.probes.plausibility.ranking import area_under_curve, average_precision, chance_of_average_precision
from attnscope.probes.plausibility.rationales import chance_of_token_f1, iou_f1, token_f1
from attnscope.tasks.batch import Batch

MARKED = 0.5  # a word is marked if at least half of the people marked it
MEASURES = ("average_precision", "area", "token_f1", "iou_f1", "mass")


@dataclass(frozen=True)
class Agreeing(Texts, Displayed):
    """How far one score agrees with what people marked, for each text that has a marked word, beside chance.

    Chance is exact, but for `area` and `iou_f1`, where it is the mean over random scores. `mass` is NaN where a score
    has negative values, and is no share of anything.
    """

    average_precision: Float[Tensor, " texts"]
    average_precision_chance: Float[Tensor, " texts"]
    area: Float[Tensor, " texts"]  # under the curve of precision against recall
    area_chance: Float[Tensor, " texts"]
    token_f1: Float[Tensor, " texts"]
    token_f1_chance: Float[Tensor, " texts"]
    iou_f1: Float[Tensor, " texts"]
    iou_f1_chance: Float[Tensor, " texts"]
    mass: Float[Tensor, " texts"]  # of the score, on marked words
    mass_chance: Float[Tensor, " texts"]  # the share of words that are marked

    def table(self) -> pd.DataFrame:
        """A row a text."""
        columns = {name: value.cpu().numpy() for name, value in vars(self).items()}
        return pd.DataFrame(columns, pd.RangeIndex(len(self), name="text"))


@dataclass(frozen=True)
class Plausibility(Displayed):
    """For each score, means over texts."""

    scores: Mapping[str, Agreeing]
    texts: int
    left_out: int  # texts without a marked word

    def table(self) -> pd.DataFrame:
        """A row a score, a column a measure or its chance level."""
        rows = {name: found.table().mean() for name, found in self.scores.items()}
        return pd.DataFrame(rows).T.rename_axis("score")

    def plot(self, ax: Axes | None = None) -> Axes:
        """A group a measure, a bar a score, and chance."""
        from attnscope import plots

        table = self.table()
        chance = table[[f"{name}_chance" for name in MEASURES]].iloc[0].to_numpy()  # the same for every score
        bars = table[list(MEASURES)].T.assign(chance=chance).set_axis([name.replace("_", " ") for name in MEASURES])
        return plots.bars(bars, ax=ax, ylabel="mean over texts")


class Plausible(Gathered[Agreeing]):
    """Gathers how far scores agree with the rationales of a stream of texts.

    `share`: the share of each text that a score chooses, such as the mean share of marked words; None for as many words
    as people marked in it.
    """

    def __init__(self, share: float | None = None, draws: int = 20, seed: int = 0):
        super().__init__()
        require(share is None or 0 < share <= 1, f"share must be above 0 and at most 1, not {share}")
        require(draws > 0, f"draws={draws}: chance needs at least one random choice")
        self.share, self.draws, self.seed = share, draws, seed

    def update(self, batch: Batch, scores: Mapping[str, Score]) -> None:
        require(bool(scores), "no score was given; give one or more by name")
        found = {name: plausible(batch, score, self.share, self.draws, self.seed) for name, score in scores.items()}
        self.add(found, left_out=int((~marked_words(batch).any(1)).sum()))

    def result(self) -> Plausibility:
        found = self.gathered()
        return Plausibility(dict(found), len(next(iter(found.values()))), self.left_out)


def plausible(batch: Batch, score: Score, share: float | None = None, draws: int = 20, seed: int = 0) -> Agreeing:
    """How far a score agrees with the rationale of each text that has a marked word."""
    texts = marked_words(batch).any(1)
    marked, words, values = (of[texts] for of in (marked_words(batch), erasable(batch), values_of(score, batch)))
    ties = random_score(batch, seed)[texts]
    size = how_many(marked, words, share)
    drawn = [random_score(batch, seed + 1 + i)[texts] for i in range(draws)]
    chosen = first(values, words, ties, size)
    return Agreeing(
        average_precision=average_precision(values, marked, words),
        average_precision_chance=chance_of_average_precision(marked, words),
        area=area_under_curve(values, marked, words),
        area_chance=torch.stack([area_under_curve(one, marked, words) for one in drawn]).mean(0),
        token_f1=token_f1(chosen, marked),
        token_f1_chance=chance_of_token_f1(size, marked.sum(1), words.sum(1)),
        iou_f1=iou_f1(chosen, marked),
        iou_f1_chance=torch.stack([iou_f1(first(one, words, ties, size), marked) for one in drawn]).mean(0),
        mass=marked_mass(values, marked, words),
        mass_chance=marked.sum(1).double() / words.sum(1),
    )


def marked_words(batch: Batch) -> Bool[Tensor, "batch source"]:
    if batch.rationale is None:
        raise AttnscopeError(
            "these texts come without rationales; use a task that names one, such as eraser_movies or "
            "Classification(..., rationale='rationale')"
        )
    return (batch.rationale >= MARKED) & erasable(batch)


def how_many(
    marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"], share: float | None
) -> Int[Tensor, " texts"]:
    """How many words are chosen: as many as are marked, or a share of all, rounded up."""
    return marked.sum(1) if share is None else (words.sum(1).double() * share - 1e-9).ceil().long()


def first(
    values: Float[Tensor, "texts source"],
    words: Bool[Tensor, "texts source"],
    ties: Float[Tensor, "texts source"],
    size: Int[Tensor, " texts"],
) -> Bool[Tensor, "texts source"]:
    """The words with the highest scores, as many as `size` says."""
    return words & (by_score(values, words, ties) < size[:, None])


def marked_mass(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """The share of the score of all words that is on marked ones; NaN where the score is negative somewhere."""
    weights = values.double().masked_fill(~words, 0)
    share = (weights * marked).sum(1) / weights.sum(1)
    return share.masked_fill((weights < 0).any(1), torch.nan)
