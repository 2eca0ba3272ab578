"""Where to look when every letter comes from one letter? Translate it, translate and reverse, sort (aitken2021 §3)."""

from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase

import numpy as np
import torch
from torch import Tensor

from attnscope.errors import require
from attnscope.tasks.batch import END, NOWHERE, PAD, SPECIALS, Batch, Vocabulary
from attnscope.tasks.task import SyntheticTask, check_lengths, lengths_between


@dataclass(frozen=True)
class OneToOne(SyntheticTask):
    """Each letter becomes its number in the alphabet: B A C A becomes 2 1 3 1."""

    num_words: int = 3
    min_length: int = 15
    max_length: int = 20  # "variable length ranging from 15 to 20"; the author's code stops at 19

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = len(ascii_uppercase)
        require(1 <= self.num_words <= limit, f"num_words must be from 1 to {limit}, not {self.num_words}")
        check_lengths(self.min_length, self.max_length)

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(ascii_uppercase[: self.num_words])

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([str(i + 1) for i in range(self.num_words)])

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        lengths = lengths_between(self.min_length, self.max_length, random, size)
        letters = torch.from_numpy(random.integers(0, self.num_words, (size, int(lengths.max()))))
        order = self.order(letters, lengths)  # size x longest: which source position each target word comes from
        return assemble(letters, order, lengths)

    def order(self, letters: Tensor, lengths: Tensor) -> Tensor:
        return torch.arange(letters.shape[1]).expand_as(letters)


@dataclass(frozen=True)
class ReversedOneToOne(OneToOne):
    """The same, last letter first: B A C A becomes 1 3 1 2."""

    def order(self, letters: Tensor, lengths: Tensor) -> Tensor:
        return (lengths[:, None] - 1 - torch.arange(letters.shape[1])).clamp(min=0)


@dataclass(frozen=True)
class Sorting(OneToOne):
    """The letters in alphabetical order: B C A D becomes A B C D."""

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return self.source_vocabulary

    def order(self, letters: Tensor, lengths: Tensor) -> Tensor:
        beyond = torch.arange(letters.shape[1]) >= lengths[:, None]
        return torch.argsort(letters.masked_fill(beyond, self.num_words), dim=1, stable=True)


def assemble(letters: Tensor, order: Tensor, lengths: Tensor) -> Batch:
    """Letters and where each target word comes from, as a batch in which the end token answers the end token."""
    size, width = letters.shape
    steps = torch.arange(width + 1)
    mask = steps < lengths[:, None] + 1  # the end token counts
    ends = steps == lengths[:, None]

    def finish(numbers: Tensor) -> Tensor:
        row = torch.cat([numbers + len(SPECIALS), torch.zeros(size, 1, dtype=numbers.dtype)], 1)
        return row.masked_fill(~mask, PAD).masked_fill(ends, END)

    guide = torch.cat([order, torch.zeros(size, 1, dtype=order.dtype)], 1)
    guide = torch.where(ends, lengths[:, None], guide).masked_fill(~mask, NOWHERE)
    return Batch(finish(letters), mask, finish(letters.gather(1, order)), mask.clone(), guide)
