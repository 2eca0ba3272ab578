"""Where should a model look? Attentive guidance tells it. (baan2019 §2.2)"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import BadSetting, require
from attnscope.models import Trace
from attnscope.tasks import NOWHERE, Batch
from attnscope.training.objectives.base import Objective

POSITIONS = 1 << 20  # more than a sentence has
PARTS = 1 << 24  # a lot is one of so many, which single precision tells apart
LEAST = 1e-20  # attention below it is priced as if it were this (baan2019, author's code)


@dataclass(frozen=True)
class Guidance(Objective):
    """Attentive guidance: the cross entropy between attention and the place where it should be (baan2019).

    Per target word it is −log of the weight at the guide, the mean over heads; where the guide is NOWHERE, nothing.
    The mean over target words, guided or not, or, as `total`, the sum: just as CrossEntropy, so that the price of a
    word and that of its attention stay in the same proportion. baan2019, whose batches are single sentences, adds
    CrossEntropy(total=True) and Guidance(1.0, total=True).

    With a `share` below 1 only so many words are guided, as if for the others nobody had said where to look: always
    the same ones of a sentence, and those of a smaller share are among those of a larger one. `seed` chooses others.
    """

    weight: float = 1.0
    total: bool = False
    share: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.weight >= 0, f"the weight of guidance must not be negative, but is {self.weight}")
        require(0 <= self.share <= 1, f"the share of guided words is from 0 to 1, not {self.share}")

    def __call__(self, model: nn.Module, batch: Batch, trace: Trace) -> Tensor:
        if batch.gold_attention is None:
            raise BadSetting("guidance needs a task that says where to look, such as lookup_tables; this one does not")
        if not trace.layers:
            raise BadSetting("guidance needs a model with attention; this one has none (attention='none')")
        place = batch.gold_attention.clamp(min=0)[:, None, :, None].expand(-1, trace.attention.shape[1], -1, -1)
        looked = trace.attention.gather(-1, place)[..., 0]  # batch x heads x target
        price = -looked.clamp(min=LEAST).log().mean(1) * self.guided(batch)
        return self.weight * price.sum() / (1 if self.total else batch.target_mask.sum())

    def guided(self, batch: Batch) -> Bool[Tensor, "batch target"]:
        """Which target words are."""
        assert batch.gold_attention is not None
        known = (batch.gold_attention != NOWHERE) & batch.target_mask
        if self.share == 1:
            return known
        return known & (lots(batch, self.seed) < self.share)


def lots(batch: Batch, seed: int) -> Float[Tensor, "batch target"]:
    """A number from 0 to 1 for each target position, drawn by its source sentence, however much padding follows.

    It follows from the sentence and not from a generator, so that it is the same in every epoch and on every device.
    """
    places, steps = (torch.arange(side.shape[1], device=side.device) for side in (batch.source, batch.target))
    sentence = (scattered(batch.source * POSITIONS + places) * batch.source_mask).sum(1, keepdim=True)
    drawn = scattered(sentence + scattered(steps + seed * POSITIONS))
    return (drawn & (PARTS - 1)) / PARTS


def scattered(numbers: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
    """Numbers far apart for numbers close by, as splitmix64 makes them (Steele et al. 2014); they wrap around."""
    mixed = numbers * -0x61C8864680B583EB  # constants beyond 2**63, as signed numbers
    mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
    mixed = (mixed ^ (mixed >> 27)) * -0x6B2FB644ECCEEE15
    return mixed ^ (mixed >> 31)
