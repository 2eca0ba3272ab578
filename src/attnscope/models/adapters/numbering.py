"""How do a tokenizer's ids become our numbers of words, and back?

In a Batch, 0 is padding, 1 the end and 2 the start of a sentence, and every probe counts on it. A tokenizer has its own
places for these. So they trade places: the numbers of all tokens are their ids, but for padding, end and start and the
tokens that lay at 0, 1 and 2. Where a tokenizer has no such token (T5 and Marian start no sentence), that number stands
for nothing: it never occurs, its logit is -inf, and the token that lay there has the first number after the last id.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from attnscope.tasks.batch import SPECIALS

NONE = -1  # in a table of ids: no token has this number


class Numbering(nn.Module):
    """Both tables, as buffers, so that they lie where the model does.

    >>> bert = Numbering(6, padding=0, end=4, start=3)
    >>> bert.ids_of(torch.arange(6))
    tensor([0, 4, 3, 2, 1, 5])
    """

    ids: Tensor
    numbers: Tensor

    def __init__(self, size: int, padding: int | None, end: int | None, start: int | None):
        super().__init__()
        ids = table(size, (padding, end, start))
        self.size = size  # ids that the model knows
        self.register_buffer("ids", ids, persistent=False)
        self.register_buffer("numbers", inverse(ids, size), persistent=False)
        moved = (ids[:size] != torch.arange(size)).nonzero().flatten()
        self.register_buffer("moved", torch.cat([moved, torch.arange(size, len(ids))]), persistent=False)
        self.moved: Tensor

    def __len__(self) -> int:
        """How many numbers there are."""
        return len(self.ids)

    def ids_of(self, numbers: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """The model's ids; those of numbers without a token do not matter, since they never occur."""
        return self.ids[numbers].clamp(min=0)

    def numbers_of(self, ids: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        return self.numbers[ids.to(self.numbers.device)]

    def renumbered(self, logits: Float[Tensor, "*any ids"]) -> Float[Tensor, "*any words"]:
        """Logits by number. All but a few stay where they are."""
        wanted = self.ids[self.moved]
        columns = logits[..., wanted.clamp(min=0)].masked_fill(wanted == NONE, -math.inf)
        return pad(logits, (0, len(self) - self.size)).index_copy_(-1, self.moved, columns)  # pad has made a copy


def table(size: int, specials: tuple[int | None, ...]) -> Int[Tensor, " numbers"]:
    """The id of each number."""
    ids, placed = list(range(size)), set[int]()
    for number, special in zip(range(len(SPECIALS)), specials, strict=True):
        if special is None or special in placed:  # one token that is two things is the first of them
            ids.append(ids[number])
            ids[number] = NONE
        else:
            other = ids.index(special)
            ids[number], ids[other] = ids[other], ids[number]
            placed.add(special)
    return torch.tensor(ids)


def inverse(ids: Int[Tensor, " numbers"], size: int) -> Int[Tensor, " ids"]:
    taken = (ids != NONE).nonzero().flatten()
    return torch.empty(size, dtype=torch.long).index_copy(0, ids[taken], taken)
