"""In which order do words go? The highest score first, for any score of any method, and chance to compare with.

Start and end tokens are no words: they have no place in the order.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import AttnscopeError, require
from attnscope.probes.agreement.scores import Scores
from attnscope.tasks.batch import SPECIALS, Batch
from attnscope.training.objectives.guidance import PARTS, POSITIONS, scattered

RANDOM = "random"  # the name of chance among the scores
Score = Scores | Float[Tensor, "batch source"]


def erasable(batch: Batch) -> Bool[Tensor, "batch source"]:
    """The words of the text, without special ones and padding."""
    return batch.source_mask & (batch.source >= len(SPECIALS))


def values_of(score: Score, batch: Batch) -> Float[Tensor, "batch source"]:
    """A score of the one decision that a classifier takes: a number for each source position."""
    values = score.values if isinstance(score, Scores) else score[:, None]
    if values.shape != (len(batch), 1, batch.source.shape[1]):
        given, expected = tuple(values.shape), (len(batch), 1, batch.source.shape[1])
        raise AttnscopeError(
            f"a score of shape batch x target x source = {given} was given; these texts and their one decision "
            f"each need {expected}"
        )
    return values[:, 0].detach().to(batch.source.device)


def random_score(batch: Batch, seed: int) -> Float[Tensor, "batch source"]:
    """A number from 0 to 1 for each position. It follows from text and seed, whatever else is in the batch."""
    places = torch.arange(batch.source.shape[1], device=batch.source.device)
    text = (scattered(batch.source * POSITIONS + places) * batch.source_mask).sum(1, keepdim=True)
    drawn = scattered(text + scattered(places + seed * POSITIONS))
    return (drawn & (PARTS - 1)).double() / PARTS


def orders(scores: Mapping[str, Score], batch: Batch, draws: int, seed: int) -> dict[str, list[Score]]:
    """Each score by its name, and as many random ones as there are draws."""
    require(RANDOM not in scores, f"the order {RANDOM!r} is made here; give your score another name")
    drawn: list[Score] = [random_score(batch, seed + 1 + i) for i in range(draws)]
    return {name: [score] for name, score in scores.items()} | {RANDOM: drawn}


def by_score(
    values: Float[Tensor, "batch source"], words: Bool[Tensor, "batch source"], ties: Float[Tensor, "batch source"]
) -> Int[Tensor, "batch source"]:
    """The place of each word when the highest comes first, from 0; equal ones go by `ties`. What is no word comes last.

    >>> scores, everywhere = torch.tensor([[0.2, 0.7, 0.1]]), torch.ones(1, 3, dtype=torch.bool)
    >>> by_score(scores, everywhere, ties=torch.zeros(1, 3))
    tensor([[1, 0, 2]])
    """
    if (values.isnan() & words).any():
        raise AttnscopeError("the score is NaN at a word of a text; give it a number there")
    lowered = values.masked_fill(~words, -torch.inf)
    shuffled = ties.masked_fill(~words, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    order = shuffled.gather(1, lowered.gather(1, shuffled).argsort(dim=-1, descending=True, stable=True))
    # -inf is a score as well, so what is no word is put behind once more.
    order = order.gather(1, (~words).gather(1, order).long().argsort(dim=-1, stable=True))
    return order.argsort(-1)
