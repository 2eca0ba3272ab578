"""Do the most attended tokens decide? (Serrano & Smith 2019; ERASER: DeYoung et al. 2020, §4.2)

Decision flips: the share of tokens that has to be removed, the highest score first, until the prediction changes. It
may change back and forth, so a fixed grid of counts is tried from few to many, without bisection.

Comprehensiveness: the probability of the predicted class, less that without the top tokens; high where they were
needed. Sufficiency: the probability less that with the top tokens alone; low where they are enough. Both are averaged
over several shares of the tokens (the area over the perturbation curve, AOPC), and published numbers differ by which:

- "eraser" (DeYoung et al. 2020, §4.2): the top 1, 5, 10, 20 and 50 %, rounded up; one token is always left.
- "ferret" (ferret-xai 0.4.1): 10 to 100 % in tens, rounded down, only tokens with a positive score; a share that adds
  no token is not averaged. What is left is decoded and tokenised again. Without any share, the values are 0 and 1.

Both compare attention with any other score and with random scores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.models.inference import Model, device_of
from attnscope.models.inputs import Data, as_batches
from attnscope.probes.agreement import kendall
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.removal import (
    RANDOM,
    ErasedTexts,
    Score,
    ScoreAccumulator,
    TextRecords,
    mean_over_draws,
    score_values,
)
from attnscope.tasks.batch import Batch

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)  # DeYoung et al. 2020, §4.2
COUNTS_AT_ONCE = 8  # tried before texts whose prediction has flipped are dropped


@dataclass(frozen=True)
class ProbabilityDrops(TextRecords):
    """The loss of probability of the predicted class, for each text, random draw (one, unless random) and share.

    NaN at a share that is not averaged.
    """

    comprehensiveness: Float[Tensor, "texts draws shares"]
    sufficiency: Float[Tensor, "texts draws shares"]


MEASURES = [field.name for field in fields(ProbabilityDrops)]


@dataclass(frozen=True)
class Comprehensiveness(Displayed):
    """Comprehensiveness and sufficiency of each score; AOPC is the mean over shares."""

    preset: str  # whose definition: a name in PRESETS
    removal: str
    shares: tuple[float, ...]
    scores: Mapping[str, ProbabilityDrops]
    texts: int
    left_out: int  # texts of fewer than two words

    def table(self) -> pd.DataFrame:
        """One row per score: both measures, averaged over shares, with their standard deviation over texts."""
        rows = {name: self._row(drops) for name, drops in self.scores.items()}
        return pd.DataFrame(rows).T.rename_axis(f"score ({self.preset})")

    def _row(self, drops: ProbabilityDrops) -> dict[str, float]:
        texts = {name: mean_over_draws(getattr(drops, name).nanmean(-1)) for name in MEASURES}
        means = {name: float(values.mean()) for name, values in texts.items()}
        return means | {f"{name}_sd": float(values.std(correction=0)) for name, values in texts.items()}

    def curves(self, measure: str = "comprehensiveness") -> pd.DataFrame:
        """One row per share, one column per score."""
        columns = {name: getattr(drops, measure).double().nanmean((0, 1)) for name, drops in self.scores.items()}
        index = pd.Index(self.shares, name="share of words")
        return pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()}, index)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Bars with standard errors over texts."""
        from attnscope import plots

        table = self.table()
        errors = pd.DataFrame({name: table[f"{name}_sd"] / self.texts**0.5 for name in MEASURES})
        return plots.bars(table[MEASURES], ax=ax, errors=errors, ylabel=f"loss of probability (AOPC, {self.preset})")


class ComprehensivenessAccumulator(ScoreAccumulator[ProbabilityDrops]):
    """Comprehensiveness and sufficiency over batches, by a preset; `removal` and `shares` default to the preset's."""

    def __init__(
        self,
        removal: str | None = None,
        draws: int = 5,
        seed: int = 0,
        shares: Sequence[float] | None = None,
        preset: str = "eraser",
    ):
        chosen = PRESETS[choose("preset", preset, PRESETS)]
        super().__init__(removal or chosen.removal, draws, seed)
        self.name, self.preset = preset, chosen if shares is None else replace(chosen, shares=tuple(shares))

    def measure(self, reading: CounterfactualAttention, batch: Batch, score: Score) -> ProbabilityDrops:
        return probability_drops(reading.model, batch, score, self.removal, self.preset, self.seed, reading)

    def result(self) -> Comprehensiveness:
        records, shares = self.gathered(), self.preset.shares
        return Comprehensiveness(self.name, self.removal, shares, dict(records), len(records[RANDOM]), self.left_out)


def top_counts(lengths: Int[Tensor, " texts"], shares: Sequence[float]) -> Int[Tensor, "texts shares"]:
    """Return the number of words of each share: rounded up, so at least one; and one stays.

    >>> top_counts(torch.tensor([2, 60]), SHARES)
    tensor([[ 1,  1,  1,  1,  1],
            [ 1,  3,  6, 12, 30]])
    """
    parts = lengths[:, None].double() * torch.tensor(shares, dtype=torch.float64, device=lengths.device)
    rounded = (parts - 1e-9).ceil().long()  # 0.2 times 60 is a little more than 12
    return rounded.minimum(lengths[:, None] - 1).clamp(min=1)


def new_positive_counts(texts: ErasedTexts, shares: Sequence[float]) -> Int[Tensor, "texts shares"]:
    """Return the number of words of each share: rounded down, of positive score only; 0 where a share adds none."""
    parts = texts.lengths[:, None].double() * torch.tensor(shares, dtype=torch.float64, device=texts.lengths.device)
    counts = (parts + 1e-9).floor().long().minimum(texts.positive[:, None])
    counts = counts.minimum(texts.present.sum(1, keepdim=True) - 1)  # where there are no special tokens, a word stays
    return counts.masked_fill(counts.diff(dim=1, prepend=torch.zeros_like(counts[:, :1])) == 0, 0)


@dataclass(frozen=True)
class Preset:
    """A published definition of comprehensiveness and sufficiency."""

    shares: tuple[float, ...]
    removal: str
    counts: Callable[[ErasedTexts, Sequence[float]], Int[Tensor, "texts shares"]]  # 0: a share is not averaged

    def __post_init__(self) -> None:
        inside = len(self.shares) > 0 and all(0 < share <= 1 for share in self.shares)
        require(inside, f"shares lie between 0 and 1, not {self.shares}")


PRESETS = {
    "eraser": Preset(SHARES, "text", lambda texts, shares: top_counts(texts.lengths, shares)),
    "ferret": Preset(tuple(i / 10 for i in range(1, 11)), "retokenised text", new_positive_counts),
}
NOTHING_REMOVED = {"comprehensiveness": 0.0, "sufficiency": 1.0}  # ferret's values of a text without a positive score


def probability_drops(
    model: Model,
    batch: Batch,
    score: Score,
    removal: str = "text",
    preset: Preset = PRESETS["eraser"],
    seed: int = 0,
    reading: CounterfactualAttention | None = None,
) -> ProbabilityDrops:
    """Return the probability lost without the top tokens, and with these alone, of each text of at least two words.

    Args:
        model: A classifier.
        batch: Texts.
        score: Ranks tokens.
        removal: A name in REMOVALS.
        preset: How many tokens are removed, or left alone.
        seed: Random seed of ties.
        reading: The model's pass over this batch, if it has already run.
    """
    texts = ErasedTexts.of(model, batch, score, removal, seed, reading)
    counts = preset.counts(texts, preset.shares)
    if not len(counts):
        return ProbabilityDrops(*(texts.whole.new_zeros(0, 1, len(preset.shares)) for _ in MEASURES))
    decision = texts.decision[:, None, None].expand(-1, len(preset.shares), 1)
    before = texts.whole.gather(1, texts.decision[:, None])  # texts x 1
    drops = {
        name: (before - after.gather(2, decision)[..., 0]).masked_fill(counts == 0, torch.nan)  # texts x shares
        for name, after in zip(MEASURES, texts.without_and_alone(counts), strict=True)
    }
    for name, values in drops.items():
        values[(counts == 0).all(1), 0] = NOTHING_REMOVED[name]
    return ProbabilityDrops(**{name: values[:, None] for name, values in drops.items()})


def leave_one_out_tau(
    model: Model,
    batch: Batch,
    scores: Mapping[str, Score],
    removal: str = "retokenised text",
    reading: CounterfactualAttention | None = None,
) -> dict[str, Float[Tensor, " texts"]]:
    """Return Kendall's τ-b of each score with the probability lost without each token, over the tokens of a text.

    Args:
        model: A classifier.
        batch: Texts; those of fewer than two words are left out.
        scores: Scores of the tokens, by name.
        removal: A name in REMOVALS; "retokenised text" gives ferret's measure.
        reading: The model's pass over this batch, if it has already run.
    """
    batch = batch.to(device_of(model))
    texts = ErasedTexts.of(model, batch, torch.zeros_like(batch.source).double(), removal, reading=reading)
    removed = torch.eye(batch.source.shape[1], dtype=torch.bool, device=batch.source.device) & texts.words[:, None]
    decision = texts.decision[:, None, None].expand(-1, removed.shape[1], 1)
    after = texts.predict(texts.texts, texts.present[:, None] & ~removed).gather(2, decision)[..., 0]  # texts x source
    lost = texts.whole.gather(1, texts.decision[:, None]) - after
    values = {name: score_values(score, batch)[texts.texts].double() for name, score in scores.items()}
    return {name: kendall(lost, score, texts.words) for name, score in values.items()}


@dataclass(frozen=True)
class RemovalGrid:
    """Numbers of removed words: every one up to `exact`, then `steps` more, evenly spaced up to all words but one.

    A text of up to exact + steps words is tried word by word. In a longer one, the number at which the prediction
    flips is known to within (words - exact) / steps words, and never underestimated.
    """

    exact: int = 50
    steps: int = 50

    def __post_init__(self) -> None:
        require(self.exact >= 0 and self.steps >= 0, "the numbers of exact and of further steps cannot be negative")
        require(self.exact + self.steps > 0, "a grid needs at least one step")

    def counts(self, words: Int[Tensor, " texts"]) -> Int[Tensor, "texts steps"]:
        """Return how many words are removed at each step; 0 where a text needs no more steps.

        >>> RemovalGrid(exact=2, steps=2).counts(torch.tensor([3, 5, 13]))
        tensor([[ 1,  2,  0,  0],
                [ 1,  2,  3,  4],
                [ 1,  2,  7, 12]])
        """
        max_count = words[:, None] - 1  # one word is always left
        rest = (max_count - self.exact).clamp(min=0)
        exact = torch.arange(1, self.exact + 1, device=words.device)
        further = torch.arange(1, self.steps + 1, device=words.device)
        # Rounded up; where fewer words are left than steps, one more at each.
        beyond = torch.where(rest > self.steps, -(-further * rest // max(self.steps, 1)), further)
        counts = torch.cat([exact.expand(len(words), -1), self.exact + beyond], 1)
        return counts.masked_fill(counts > max_count, 0)


@dataclass(frozen=True)
class Flips(TextRecords, Displayed):
    """What was removed when the prediction flipped, for each text and random draw (one, unless random)."""

    fraction: Float[Tensor, "texts draws"]  # of the words; 1 where the prediction never flipped
    mass: Float[Tensor, "texts draws"]  # of the attention; 1 where the prediction never flipped
    flipped: Bool[Tensor, "texts draws"]

    def table(self) -> pd.DataFrame:
        """One row per text, means over draws."""
        columns = {name: mean_over_draws(getattr(self, name)).cpu().numpy() for name in ("fraction", "mass", "flipped")}
        return pd.DataFrame(columns, pd.RangeIndex(len(self), name="text"))


@dataclass(frozen=True)
class DecisionFlips(Displayed):
    """For each score, the share of words removed until predictions flip; `earlier`: how often sooner than at random."""

    removal: str
    scores: Mapping[str, Flips]
    texts: int
    left_out: int  # texts of fewer than two words

    def table(self) -> pd.DataFrame:
        """One row per score: means over texts."""
        return pd.DataFrame({name: self._row(flips) for name, flips in self.scores.items()}).T.rename_axis("score")

    def _row(self, flips: Flips) -> dict[str, float]:
        fraction, by_chance = mean_over_draws(flips.fraction), self.scores[RANDOM].fraction[:, :, None]
        against = flips.fraction[:, None]  # texts x random draws x draws
        wins = (against < by_chance).double() + 0.5 * (against == by_chance).double()
        return {
            "fraction": float(fraction.mean()), "median": float(np.median(fraction.cpu())),
            "sd": float(fraction.std(correction=0)), "mass": float(mean_over_draws(flips.mass).mean()),
            "flipped": float(mean_over_draws(flips.flipped).mean()), "earlier": float(wins.mean()),
        }  # fmt: skip

    def curves(self, points: int = 101) -> pd.DataFrame:
        """The share of predictions that have flipped once a share of the words is removed."""
        shares = torch.linspace(0, 1, points, dtype=torch.float64)
        columns = {}
        for name, flips in self.scores.items():
            removed = flips.fraction.cpu()[..., None] <= shares + 1e-12
            columns[name] = (removed & flips.flipped.cpu()[..., None]).double().mean((0, 1)).numpy()
        return pd.DataFrame(columns, pd.Index(shares.numpy(), name="share of words removed"))

    def plot(self, ax: Axes | None = None) -> Axes:
        """The curves."""
        from attnscope import plots

        curves = self.curves()
        named = {str(name): curves[name].to_numpy() for name in curves}
        return plots.profiles(
            curves.index.to_numpy(), named, ax=ax, xlabel=str(curves.index.name), ylabel="share of predictions flipped"
        )


class FlipAccumulator(ScoreAccumulator[Flips]):
    """Decision flips over batches."""

    def __init__(self, removal: str = "attention", draws: int = 5, seed: int = 0, grid: RemovalGrid | None = None):
        super().__init__(removal, draws, seed)
        self.grid = grid or RemovalGrid()

    def measure(self, reading: CounterfactualAttention, batch: Batch, score: Score) -> Flips:
        return erase_until_flip(reading.model, batch, score, self.removal, self.grid, self.seed, reading)

    def result(self) -> DecisionFlips:
        records = self.gathered()
        return DecisionFlips(self.removal, dict(records), len(records[RANDOM]), self.left_out)


def erase_until_flip(
    model: Model,
    batch: Batch,
    score: Score,
    removal: str = "attention",
    grid: RemovalGrid | None = None,
    seed: int = 0,
    reading: CounterfactualAttention | None = None,
) -> Flips:
    """Return what is removed of each text of at least two words, the highest score first, until its prediction flips.

    Args:
        model: A classifier.
        batch: Texts.
        score: Ranks tokens.
        removal: "attention" or "text".
        grid: How many tokens are removed, in turn.
        seed: Random seed of ties.
        reading: The model's pass over this batch, if it has already run.
    """
    reading = reading or CounterfactualAttention.of_classifier(model, batch)
    texts = ErasedTexts.of(model, batch, score, removal, seed, reading)
    removed = first_flip(texts, (grid or RemovalGrid()).counts(texts.lengths))
    flipped = (removed > 0)[:, None]
    fraction = (removed.double() / texts.lengths)[:, None]
    top = texts.top(torch.arange(len(removed), device=removed.device), removed[:, None])  # texts x 1 x source
    mass = (reading.own[texts.texts].mean(1, keepdim=True).double() * top).sum(-1)
    return Flips(fraction.where(flipped, 1.0), mass.where(flipped, 1.0), flipped)


def first_flip(texts: ErasedTexts, counts: Int[Tensor, "texts steps"]) -> Int[Tensor, " texts"]:
    """Return the first of these numbers of removed words that flips the prediction; 0 where none does."""
    first = torch.zeros_like(texts.decision)
    for block in counts.split(COUNTS_AT_ONCE, 1):
        rows = ((first == 0) & (block > 0).any(1)).nonzero()[:, 0]  # those that have not flipped yet
        if len(rows):
            flips = texts.without(rows, block[rows]).argmax(-1) != texts.decision[rows, None]
            flips &= block[rows] > 0
            count = block[rows].gather(1, flips.long().argmax(1, keepdim=True))[:, 0]
            first[rows] = count.where(flips.any(1), 0)
    return first


@dataclass(frozen=True)
class Erasure(Displayed):
    """Comprehensiveness and sufficiency, and decision flips, of attention and of random scores."""

    comprehensiveness: Comprehensiveness
    flips: DecisionFlips

    def table(self) -> pd.DataFrame:
        """One row per score: means over texts of all measures."""
        flips = self.flips.table().add_prefix("flip_")
        return self.comprehensiveness.table()[MEASURES].join(flips)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of predictions flipped against the share of words removed."""
        return self.flips.plot(ax)


def erasure(
    model: Model,
    data: Data = None,
    removal: str | None = None,
    draws: int = 5,
    seed: int = 0,
    preset: str = "eraser",
) -> Erasure:
    """Return whether the most attended tokens decide: comprehensiveness, sufficiency and decision flips.

    Args:
        model: A classifier.
        data: See `as_batches`.
        removal: "text": tokens are deleted and the rest is read again; "retokenised text": the rest is decoded and
            tokenised again; "attention": their attention is set to zero. None: the preset's.
        draws: Random scores per text, for comparison.
        seed: Random seed.
        preset: The definition of comprehensiveness and sufficiency: "eraser" or "ferret".
    """
    drops = ComprehensivenessAccumulator(removal, draws, seed, preset=preset)
    flips = FlipAccumulator(drops.removal, draws, seed)
    for batch in as_batches(model, data):
        drops.update(model, batch)
        flips.update(model, batch)
    return Erasure(drops.result(), flips.result())
