"""Are marked words ranked above others? Precision over all thresholds of a score (ERASER, §4.1: AUPRC)

Tied words pass a threshold together, as in scikit-learn. All of it is NaN for a text without a marked word.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def average_precision(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """The mean over marked words of the precision at their threshold: the share that is marked of all as high.

    >>> everywhere, marked = torch.tensor([[True, True, True]]), torch.tensor([[True, False, True]])
    >>> average_precision(torch.tensor([[0.5, 0.3, 0.2]]), marked, everywhere)  # (1 + 2/3) / 2
    tensor([0.8333], dtype=torch.float64)
    """
    hits, passed, last = thresholds(values, marked & words, words)
    return (hits / passed * added(hits, last)).sum(-1) / (marked & words).sum(-1)


def area_under_curve(
    values: Float[Tensor, "texts source"], marked: Bool[Tensor, "texts source"], words: Bool[Tensor, "texts source"]
) -> Float[Tensor, " texts"]:
    """AUPRC as ERASER's code has it: straight lines between thresholds, from precision 1 at recall 0."""
    hits, passed, last = thresholds(values, marked & words, words)
    precision = hits / passed
    number = torch.arange(values.shape[1], device=values.device).where(last, -1)
    before = number.cummax(-1).values.roll(1, -1)  # the threshold before this one
    before[:, :1] = -1
    previous = torch.where(before < 0, 1.0, precision.gather(1, before.clamp(min=0)))
    return ((precision + previous) / 2 * added(hits, last)).sum(-1) / (marked & words).sum(-1)


def chance_of_average_precision(
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


def added(hits: Float[Tensor, "texts source"], last: Bool[Tensor, "texts source"]) -> Float[Tensor, "texts source"]:
    """How many marked words each threshold adds to the one before; 0 where there is no threshold."""
    reached = hits.where(last, 0).cummax(-1).values
    return reached.diff(dim=-1, prepend=torch.zeros_like(reached[:, :1]))
