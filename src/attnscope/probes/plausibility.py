"""Does attention fall on what people marked? (ERASER: DeYoung et al. 2020, §4.1)

Average precision and the area under the curve read a score as a ranking; token F1 and IOU F1 read its top words as a
rationale of its own. Each stands beside what a random score would get.
"""

# TODO(docstring) join:
#   Are marked words ranked above others? Precision over all thresholds of a score (ERASER, §4.1: AUPRC)
#   Are the top words of a score those that people marked, by words and by runs of words? (ERASER, §4.1)
#   How plausible is a score over a whole corpus, beside chance?
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.probes.erasure.removal import (
    RecordAccumulator,
    Score,
    TextRecords,
    erasable_words,
    random_score,
    rank_by_score,
    score_values,
)
from attnscope.tasks.batch import Batch


def average_precision(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """The mean over marked words of the precision at their threshold: the share that is marked of all as high.

    >>> everywhere, marked = torch.tensor([[True, True, True]]), torch.tensor([[True, False, True]])
    >>> average_precision(torch.tensor([[0.5, 0.3, 0.2]]), marked, everywhere)  # (1 + 2/3) / 2
    tensor([0.8333], dtype=torch.float64)
    """
    hits, passed, last = thresholds(values, marked & words, words)
    return (hits / passed * recall_steps(hits, last)).sum(-1) / (marked & words).sum(-1)


def precision_recall_auc(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """AUPRC as ERASER's code has it: straight lines between thresholds, from precision 1 at recall 0."""
    hits, passed, last = thresholds(values, marked & words, words)
    precision = hits / passed
    number = torch.arange(values.shape[1], device=values.device).where(last, -1)
    before = number.cummax(-1).values.roll(1, -1)  # the threshold before this one
    before[:, :1] = -1
    previous = torch.where(before < 0, 1.0, precision.gather(1, before.clamp(min=0)))
    return ((precision + previous) / 2 * recall_steps(hits, last)).sum(-1) / (marked & words).sum(-1)


def expected_average_precision(
    marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """What a random order gets on average: a marked word at place i has (i − 1)(M − 1) / (n − 1) marked ones above it.

    Summed over places: (H + (M − 1)(n − H) / (n − 1)) / n, with H = 1 + 1/2 + … + 1/n. (Bestgen 2015)
    """
    count, size = (marked & words).sum(-1).double(), words.sum(-1).double()
    harmonic = torch.digamma(size + 1) - torch.digamma(torch.ones_like(size))
    others = (count - 1) / (size - 1).clamp(min=1)
    return ((harmonic + others * (size - harmonic)) / size).masked_fill(count == 0, torch.nan)


def thresholds(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> tuple[Float[Tensor, "texts source"], Float[Tensor, "texts source"], Bool[Tensor, "texts source"]]:
    """In falling order: marked words so far, words so far, and where the last of equal words stands."""
    ordered, order = values.double().masked_fill(~words, -torch.inf).sort(dim=-1, descending=True)
    real = words.gather(1, order)
    following = ordered.roll(-1, -1)
    last = real & ((ordered != following) | ~real.roll(-1, -1))
    last[:, -1] = real[:, -1]
    return marked.gather(1, order).double().cumsum(-1), real.double().cumsum(-1).clamp(min=1), last


def recall_steps(
    hits: Float[Tensor, "texts source"], last: Bool[Tensor, "texts source"]
) -> Float[Tensor, "texts source"]:
    """How many marked words each threshold adds to the one before; 0 where there is no threshold."""
    reached = hits.where(last, 0).cummax(-1).values
    return reached.diff(dim=-1, prepend=torch.zeros_like(reached[:, :1]))


OVERLAP = 0.5  # of two passages that count as the same, over their union: DeYoung et al. 2020, §4.1


def token_f1(chosen: Bool[Tensor, "texts source"], marked: Bool[Tensor, "texts source"]) -> Float[Tensor, " texts"]:
    """2 · both / (chosen + marked), of each text; NaN where nothing is marked."""
    count = marked.sum(-1)
    f1 = 2 * (chosen & marked).sum(-1).double() / (chosen.sum(-1) + count)
    return f1.masked_fill(count == 0, torch.nan)


def expected_token_f1(
    chosen: Int[Tensor, " texts"], marked: Int[Tensor, " texts"], words: Int[Tensor, " texts"]
) -> Float[Tensor, " texts"]:
    """What so many words chosen at random get on average: chosen · marked / words of them are both.

    >>> expected_token_f1(torch.tensor([3]), torch.tensor([3]), torch.tensor([10]))
    tensor([0.3000], dtype=torch.float64)
    """
    f1 = 2 * chosen.double() * marked / (words * (chosen + marked))
    return f1.masked_fill(marked == 0, torch.nan)


def iou_f1(
    chosen: Bool[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], overlap: float = OVERLAP
) -> Float[Tensor, " texts"]:
    """F1 over passages, of each text: one that is chosen is right if it overlaps with a marked one.

    A passage is a run of words without a gap. Two runs overlap if what they share is at least half of their union, so
    none can overlap with two others. NaN where nothing is marked.
    """
    one, other = number_runs(chosen), number_runs(marked)
    matches = matching_runs(one, other, overlap)
    wanted = other.amax(-1)
    f1 = 2 * matches.double() / (one.amax(-1) + wanted)
    return f1.masked_fill(wanted == 0, torch.nan)


def number_runs(chosen: Bool[Tensor, "texts source"]) -> Int[Tensor, "texts source"]:
    """The number of the run that each word is in, from 1; 0 outside.

    >>> number_runs(torch.tensor([[True, True, False, True]]))
    tensor([[1, 1, 0, 2]])
    """
    before = chosen.roll(1, -1)
    before[:, 0] = False
    return (chosen & ~before).cumsum(-1) * chosen


def matching_runs(
    one: Int[Tensor, "texts source"], other: Int[Tensor, "texts source"], overlap: float
) -> Int[Tensor, " texts"]:
    """How many runs of the one overlap with a run of the other."""
    text, place = ((one > 0) & (other > 0)).nonzero().T
    met = torch.stack([text, one[text, place], other[text, place]], 1)
    pairs, shared = met.unique(dim=0, return_counts=True)
    text, a, b = pairs.unbind(1)
    union = run_sizes(one)[text, a] + run_sizes(other)[text, b] - shared
    return torch.bincount(text[shared >= overlap * union], minlength=len(one))


def run_sizes(numbered: Int[Tensor, "texts source"]) -> Int[Tensor, "texts runs"]:
    """How many words bear each number."""
    counts = numbered.new_zeros(len(numbered), numbered.shape[1] + 1)
    return counts.scatter_add_(1, numbered, torch.ones_like(numbered))


MIN_VOTES = 0.5  # a word is marked if at least half of the people marked it
MEASURES = ("average_precision", "area", "token_f1", "iou_f1", "mass")


@dataclass(frozen=True)
class TextPlausibility(TextRecords, Displayed):
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

    scores: Mapping[str, TextPlausibility]
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


class PlausibilityAccumulator(RecordAccumulator[TextPlausibility]):
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
        found = {
            name: text_plausibility(batch, score, self.share, self.draws, self.seed) for name, score in scores.items()
        }
        self.add(found, left_out=int((~rationale_mask(batch).any(1)).sum()))

    def result(self) -> Plausibility:
        found = self.gathered()
        return Plausibility(dict(found), len(next(iter(found.values()))), self.left_out)


def text_plausibility(
    batch: Batch, score: Score, share: float | None = None, draws: int = 20, seed: int = 0
) -> TextPlausibility:
    """How far a score agrees with the rationale of each text that has a marked word."""
    texts = rationale_mask(batch).any(1)
    marked, words, values = (
        of[texts] for of in (rationale_mask(batch), erasable_words(batch), score_values(score, batch))
    )
    ties = random_score(batch, seed)[texts]
    size = rationale_size(marked, words, share)
    drawn = [random_score(batch, seed + 1 + i)[texts] for i in range(draws)]
    chosen = top_tokens(values, words, ties, size)
    return TextPlausibility(
        average_precision=average_precision(values, marked, words),
        average_precision_chance=expected_average_precision(marked, words),
        area=precision_recall_auc(values, marked, words),
        area_chance=torch.stack([precision_recall_auc(one, marked, words) for one in drawn]).mean(0),
        token_f1=token_f1(chosen, marked),
        token_f1_chance=expected_token_f1(size, marked.sum(1), words.sum(1)),
        iou_f1=iou_f1(chosen, marked),
        iou_f1_chance=torch.stack([iou_f1(top_tokens(one, words, ties, size), marked) for one in drawn]).mean(0),
        mass=rationale_mass(values, marked, words),
        mass_chance=marked.sum(1).double() / words.sum(1),
    )


def rationale_mask(batch: Batch) -> Bool[Tensor, "batch source"]:
    if batch.rationale is None:
        raise AttnscopeError(
            "these texts come without rationales; use a task that names one, such as eraser_movies or "
            "Classification(..., rationale='rationale')"
        )
    return (batch.rationale >= MIN_VOTES) & erasable_words(batch)


def rationale_size(
    marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"], share: float | None
) -> Int[Tensor, " texts"]:
    """How many words are chosen: as many as are marked, or a share of all, rounded up."""
    return marked.sum(1) if share is None else (words.sum(1).double() * share - 1e-9).ceil().long()


def top_tokens(
    values: Float[Tensor, "texts source"],
    words: Bool[Tensor, "texts source"],
    ties: Float[Tensor, "texts source"],
    size: Int[Tensor, " texts"],
) -> Bool[Tensor, "texts source"]:
    """The words with the highest scores, as many as `size` says."""
    return words & (rank_by_score(values, words, ties) < size[:, None])


def rationale_mass(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """The share of the score of all words that is on marked ones; NaN where the score is negative somewhere."""
    weights = values.double().masked_fill(~words, 0)
    share = (weights * marked).sum(1) / weights.sum(1)
    return share.masked_fill((weights < 0).any(1), torch.nan)
