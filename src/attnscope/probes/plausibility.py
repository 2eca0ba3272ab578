"""Does attention fall on what people marked? (ERASER: DeYoung et al. 2020, §4.1)

Average precision and the area under the precision-recall curve take a score as a ranking of tokens; token F1 and IOU F1
take its top tokens as a predicted rationale. Each stands beside the value of a random score.

Texts without any marked token are left out and counted. A predicted rationale has as many tokens as the human one, or
the same share of every text. Ties are broken at random, by text and seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.models.capabilities import EmbedsSource
from attnscope.models.inference import Model, module_of, traces
from attnscope.models.inputs import Data
from attnscope.probes.counterfactual import check_classifier
from attnscope.probes.removal import (
    RecordAccumulator,
    Score,
    TextRecords,
    random_score,
    rank_by_score,
    score_values,
)
from attnscope.probes.saliency import influence
from attnscope.probes.scores import attention_scores
from attnscope.tasks.batch import Batch

MIN_VOTES = 0.5  # a token belongs to the rationale if at least half of the annotators marked it
OVERLAP = 0.5  # intersection over union of two spans that count as the same: DeYoung et al. 2020, §4.1
MEASURES = ("average_precision", "area", "token_f1", "iou_f1", "mass")


@dataclass(frozen=True)
class TextPlausibility(TextRecords, Displayed):
    """The agreement of one score with the rationale of each text that has one, and its value at chance.

    Chance is exact, except for `area` and `iou_f1`, where it is the mean over random scores. `mass` is NaN where a
    score has negative values, so that it is not a share.
    """

    average_precision: Float[Tensor, " texts"]
    average_precision_chance: Float[Tensor, " texts"]
    area: Float[Tensor, " texts"]  # under the precision-recall curve
    area_chance: Float[Tensor, " texts"]
    token_f1: Float[Tensor, " texts"]
    token_f1_chance: Float[Tensor, " texts"]
    iou_f1: Float[Tensor, " texts"]
    iou_f1_chance: Float[Tensor, " texts"]
    mass: Float[Tensor, " texts"]  # of the score, on the rationale
    mass_chance: Float[Tensor, " texts"]  # the share of tokens in the rationale

    def table(self) -> pd.DataFrame:
        """One row per text."""
        columns = {name: value.cpu().numpy() for name, value in vars(self).items()}
        return pd.DataFrame(columns, pd.RangeIndex(len(self), name="text"))


@dataclass(frozen=True)
class Plausibility(Displayed):
    """Agreement with rationales, for each score the means over texts."""

    scores: Mapping[str, TextPlausibility]
    texts: int
    left_out: int  # texts without a rationale

    def table(self) -> pd.DataFrame:
        """One row per score, one column per measure and per chance level."""
        rows = {name: texts.table().mean() for name, texts in self.scores.items()}
        return pd.DataFrame(rows).T.rename_axis("score")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Bars of every score, and of chance, grouped by measure."""
        from attnscope import plots

        table = self.table()
        chance = table[[f"{name}_chance" for name in MEASURES]].iloc[0].to_numpy()  # the same for every score
        bars = table[list(MEASURES)].T.assign(chance=chance).set_axis([name.replace("_", " ") for name in MEASURES])
        return plots.bars(bars, ax=ax, ylabel="mean over texts")


class PlausibilityAccumulator(RecordAccumulator[TextPlausibility]):
    """Agreement of scores with rationales over batches.

    Args:
        share: The share of each text that a predicted rationale has, such as the mean share of the human ones; None
            for as many tokens as annotators marked.
        draws: Random scores for the chance level.
        seed: Random seed, of ties too.
    """

    def __init__(self, share: float | None = None, draws: int = 20, seed: int = 0):
        super().__init__()
        require(share is None or 0 < share <= 1, f"share must be above 0 and at most 1, not {share}")
        require(draws > 0, f"draws={draws}: chance needs at least one random score")
        self.share, self.draws, self.seed = share, draws, seed

    def update(self, batch: Batch, scores: Mapping[str, Score]) -> None:
        require(bool(scores), "there are no scores; give one or more by name")
        records = {
            name: text_plausibility(batch, score, self.share, self.draws, self.seed) for name, score in scores.items()
        }
        self.add(records, left_out=int((~rationale_mask(batch).any(1)).sum()))

    def result(self) -> Plausibility:
        records = self.gathered()
        return Plausibility(dict(records), len(next(iter(records.values()))), self.left_out)


def plausibility(
    model: Model, data: Data = None, share: float | None = None, draws: int = 20, seed: int = 0
) -> Plausibility:
    """Return the agreement of attention, and of gradients where the model declares EmbedsSource, with human rationales.

    Args:
        model: A classifier.
        data: See `as_batches`; with rationales.
        share: See `PlausibilityAccumulator`.
        draws: Random scores per text, for comparison.
        seed: Random seed.
    """
    accumulator, module = PlausibilityAccumulator(share, draws, seed), module_of(model)
    for batch, trace in traces(model, data):
        rationale_mask(batch)
        check_classifier(trace)
        scores: dict[str, Score] = {"attention": attention_scores(trace)}
        if isinstance(module, EmbedsSource):
            gradient = influence(module, batch)
            scores["gradient"] = replace(gradient, values=gradient.values.abs())
        accumulator.update(batch, scores)
    return accumulator.result()


def text_plausibility(
    batch: Batch, score: Score, share: float | None = None, draws: int = 20, seed: int = 0
) -> TextPlausibility:
    """Return the agreement of a score with the rationale of each text that has one.

    The arguments are those of `PlausibilityAccumulator`.
    """
    marked = rationale_mask(batch)
    texts = marked.any(1)
    marked, words, values = (of[texts] for of in (marked, batch.word_mask, score_values(score, batch)))
    ties, *random = (random_score(batch, seed + i)[texts] for i in range(draws + 1))
    size = marked.sum(1) if share is None else (words.sum(1).double() * share - 1e-9).ceil().long()

    def predicted(score: Float[Tensor, "texts source"]) -> Bool[Tensor, "texts source"]:
        return words & (rank_by_score(score, words, ties) < size[:, None])

    return TextPlausibility(
        average_precision=average_precision(values, marked, words),
        average_precision_chance=expected_average_precision(marked, words),
        area=precision_recall_auc(values, marked, words),
        area_chance=torch.stack([precision_recall_auc(score, marked, words) for score in random]).mean(0),
        token_f1=token_f1(predicted(values), marked),
        token_f1_chance=expected_token_f1(size, marked.sum(1), words.sum(1)),
        iou_f1=iou_f1(predicted(values), marked),
        iou_f1_chance=torch.stack([iou_f1(predicted(score), marked) for score in random]).mean(0),
        mass=rationale_mass(values, marked, words),
        mass_chance=marked.sum(1).double() / words.sum(1),
    )


def rationale_mask(batch: Batch) -> Bool[Tensor, "batch source"]:
    """Return which tokens at least half of the annotators marked."""
    if batch.rationale is None:
        raise AttnscopeError(
            "these texts have no rationales; add a field `rationale` (one number from 0 to 1 per word), or "
            "use a task that names one, such as eraser_movies or Classification(..., rationale='rationale')"
        )
    return (batch.rationale >= MIN_VOTES) & batch.word_mask


def rationale_mass(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """Return the share of a score that lies on the rationale; NaN where the score is negative somewhere."""
    weights = values.double().masked_fill(~words, 0)
    share = (weights * marked).sum(1) / weights.sum(1)
    return share.masked_fill((weights < 0).any(1), torch.nan)


# Scores as rankings. Tied tokens pass a threshold together, as in scikit-learn; NaN for a text without a rationale.


def average_precision(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """Return the mean precision at the thresholds of rationale tokens.

    >>> everywhere, marked = torch.tensor([[True, True, True]]), torch.tensor([[True, False, True]])
    >>> average_precision(torch.tensor([[0.5, 0.3, 0.2]]), marked, everywhere)  # (1 + 2/3) / 2
    tensor([0.8333], dtype=torch.float64)
    """
    hits, passed, last = thresholds(values, marked & words, words)
    return (hits / passed * recall_steps(hits, last)).sum(-1) / (marked & words).sum(-1)


def precision_recall_auc(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """Return AUPRC as ERASER's code computes it: linear between thresholds, from precision 1 at recall 0."""
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
    """Return the expected average precision of a random order (Bestgen 2015).

    The i-th token, if marked, has (i − 1)(M − 1) / (n − 1) marked ones above it; the sum is
    (H + (M − 1)(n − H) / (n − 1)) / n,
    with H = 1 + 1/2 + … + 1/n.
    """
    count, size = (marked & words).sum(-1).double(), words.sum(-1).double()
    harmonic = torch.digamma(size + 1) - torch.digamma(torch.ones_like(size))
    others = (count - 1) / (size - 1).clamp(min=1)
    return ((harmonic + others * (size - harmonic)) / size).masked_fill(count == 0, torch.nan)


def thresholds(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> tuple[Float[Tensor, "texts source"], Float[Tensor, "texts source"], Bool[Tensor, "texts source"]]:
    """Return, by falling score, rationale tokens so far, tokens so far, and where the last of tied tokens stands."""
    ordered, order = values.double().masked_fill(~words, -torch.inf).sort(dim=-1, descending=True)
    real = words.gather(1, order)
    following = ordered.roll(-1, -1)
    last = real & ((ordered != following) | ~real.roll(-1, -1))
    last[:, -1] = real[:, -1]
    return marked.gather(1, order).double().cumsum(-1), real.double().cumsum(-1).clamp(min=1), last


def recall_steps(
    hits: Float[Tensor, "texts source"], last: Bool[Tensor, "texts source"]
) -> Float[Tensor, "texts source"]:
    """Return how many rationale tokens each threshold adds to the one before; 0 where there is no threshold."""
    reached = hits.where(last, 0).cummax(-1).values
    return reached.diff(dim=-1, prepend=torch.zeros_like(reached[:, :1]))


# Top tokens as rationales


def token_f1(chosen: Bool[Tensor, "texts source"], marked: Bool[Tensor, "texts source"]) -> Float[Tensor, " texts"]:
    """Return 2 · both / (chosen + marked) of each text; NaN where nothing is marked."""
    count = marked.sum(-1)
    f1 = 2 * (chosen & marked).sum(-1).double() / (chosen.sum(-1) + count)
    return f1.masked_fill(count == 0, torch.nan)


def expected_token_f1(
    chosen: Int[Tensor, " texts"], marked: Int[Tensor, " texts"], words: Int[Tensor, " texts"]
) -> Float[Tensor, " texts"]:
    """Return the expected token F1 of tokens chosen at random, of which chosen · marked / words are marked.

    >>> expected_token_f1(torch.tensor([3]), torch.tensor([3]), torch.tensor([10]))
    tensor([0.3000], dtype=torch.float64)
    """
    f1 = 2 * chosen.double() * marked / (words * (chosen + marked))
    return f1.masked_fill(marked == 0, torch.nan)


def iou_f1(
    chosen: Bool[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], overlap: float = OVERLAP
) -> Float[Tensor, " texts"]:
    """Return F1 over spans of each text: a chosen span is right if it overlaps with a marked one.

    A span is a run of tokens without a gap. Two overlap if their intersection is at least half of their union, so none
    can overlap with two others. NaN where nothing is marked.
    """
    chosen_runs, marked_runs = number_runs(chosen), number_runs(marked)
    matches, num_marked = matching_runs(chosen_runs, marked_runs, overlap), marked_runs.amax(-1)
    f1 = 2 * matches.double() / (chosen_runs.amax(-1) + num_marked)
    return f1.masked_fill(num_marked == 0, torch.nan)


def number_runs(chosen: Bool[Tensor, "texts source"]) -> Int[Tensor, "texts source"]:
    """Return the number of the run that each token is in, from 1; 0 outside.

    >>> number_runs(torch.tensor([[True, True, False, True]]))
    tensor([[1, 1, 0, 2]])
    """
    before = chosen.roll(1, -1)
    before[:, 0] = False
    return (chosen & ~before).cumsum(-1) * chosen


def matching_runs(
    one: Int[Tensor, "texts source"], other: Int[Tensor, "texts source"], overlap: float
) -> Int[Tensor, " texts"]:
    """Return how many runs of the one overlap with a run of the other."""
    text, place = ((one > 0) & (other > 0)).nonzero().T
    shared_tokens = torch.stack([text, one[text, place], other[text, place]], 1)
    pairs, shared = shared_tokens.unique(dim=0, return_counts=True)
    text, a, b = pairs.unbind(1)
    union = run_sizes(one)[text, a] + run_sizes(other)[text, b] - shared
    return torch.bincount(text[shared >= overlap * union], minlength=len(one))


def run_sizes(numbered: Int[Tensor, "texts source"]) -> Int[Tensor, "texts runs"]:
    """Return the number of tokens of each run."""
    counts = numbered.new_zeros(len(numbered), numbered.shape[1] + 1)
    return counts.scatter_add_(1, numbered, torch.ones_like(numbered))
