"""Where does a classifier keep what it knows of one word? Is the keyword in the sentence? (snell2021 §6.1)"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from attnscope.errors import require
from attnscope.tasks.batch import END, NOWHERE, SPECIALS, Batch, Vocabulary
from attnscope.tasks.task import SyntheticTask

KEYWORD = 0  # the first of the words, "1"


@dataclass(frozen=True)
class Keyword(SyntheticTask):
    """A classification: the target is one word, `absent` or `present`, and has no end token.

    The keyword "1" stands exactly once in a positive sentence, anywhere, and never in a negative one; all other words
    are drawn uniformly. Half of the sentences are positive. The guide points at the keyword where there is one.
    """

    num_words: int = 40
    length: int = 40
    end: bool = True  # does an end token follow the words? Without it, the last position is a word, as in the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length >= 1, f"a sentence needs at least one word: length is {self.length}")
        require(self.num_words >= 2, f"num_words must be at least 2, the keyword and another, not {self.num_words}")

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([str(i + 1) for i in range(self.num_words)])

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(["absent", "present"])

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        present = balanced(random, size)
        place = random.integers(0, self.length, size)
        # Uniform words given their count of keywords: what the paper gets by rejecting draws.
        words = random.integers(KEYWORD + 1, self.num_words, (size, self.length))
        words[present, place[present]] = KEYWORD
        source = torch.from_numpy(words + len(SPECIALS))
        if self.end:
            source = torch.nn.functional.pad(source, (0, 1), value=END)
        target = torch.from_numpy(present[:, None] + len(SPECIALS))
        guide = torch.from_numpy(np.where(present, place, NOWHERE)[:, None])
        return Batch(source, torch.ones_like(source, dtype=torch.bool), target, torch.ones_like(target) > 0, guide)


def balanced(random: np.random.Generator, size: int) -> np.ndarray:
    """True and false equally often, in any order; where the size is odd, a coin decides which one is more frequent."""
    return random.permuted((np.arange(size) + random.integers(2)) % 2 == 1)
