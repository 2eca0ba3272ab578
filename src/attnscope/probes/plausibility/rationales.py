"""Are the top words of a score those that people marked, by words and by runs of words? (ERASER, §4.1)"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

OVERLAP = 0.5  # of two passages that count as the same, over their union: DeYoung et al. 2020, §4.1


def token_f1(chosen: Bool[Tensor, "texts source"], marked: Bool[Tensor, "texts source"]) -> Float[Tensor, " texts"]:
    """2 · both / (chosen + marked), of each text; NaN where nothing is marked."""
    count = marked.sum(-1)
    f1 = 2 * (chosen & marked).sum(-1).double() / (chosen.sum(-1) + count)
    return f1.masked_fill(count == 0, torch.nan)


def chance_of_token_f1(
    chosen: Int[Tensor, " texts"], marked: Int[Tensor, " texts"], words: Int[Tensor, " texts"]
) -> Float[Tensor, " texts"]:
    """What so many words chosen at random get on average: chosen · marked / words of them are both.

    >>> chance_of_token_f1(torch.tensor([3]), torch.tensor([3]), torch.tensor([10]))
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
    one, other = runs(chosen), runs(marked)
    matches = matched(one, other, overlap)
    wanted = other.amax(-1)
    f1 = 2 * matches.double() / (one.amax(-1) + wanted)
    return f1.masked_fill(wanted == 0, torch.nan)


def runs(chosen: Bool[Tensor, "texts source"]) -> Int[Tensor, "texts source"]:
    """The number of the run that each word is in, from 1; 0 outside.

    >>> runs(torch.tensor([[True, True, False, True]]))
    tensor([[1, 1, 0, 2]])
    """
    before = chosen.roll(1, -1)
    before[:, 0] = False
    return (chosen & ~before).cumsum(-1) * chosen


def matched(
    one: Int[Tensor, "texts source"], other: Int[Tensor, "texts source"], overlap: float
) -> Int[Tensor, " texts"]:
    """How many runs of the one overlap with a run of the other."""
    text, place = ((one > 0) & (other > 0)).nonzero().T
    met = torch.stack([text, one[text, place], other[text, place]], 1)
    pairs, shared = met.unique(dim=0, return_counts=True)
    text, a, b = pairs.unbind(1)
    union = sizes(one)[text, a] + sizes(other)[text, b] - shared
    return torch.bincount(text[shared >= overlap * union], minlength=len(one))


def sizes(numbered: Int[Tensor, "texts source"]) -> Int[Tensor, "texts runs"]:
    """How many words bear each number."""
    counts = numbered.new_zeros(len(numbered), numbered.shape[1] + 1)
    return counts.scatter_add_(1, numbered, torch.ones_like(numbered))
