"""Is attention learned when every sentence holds the same words? Copying, from several distributions (snell2021 §3.3).

Where each input is a permutation of the same words, which word translates into which cannot be counted out, and
attention is slow to come; where the words vary from sentence to sentence, it always comes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from attnscope.errors import choose, require
from attnscope.tasks.batch import END, SPECIALS, Batch, Vocabulary
from attnscope.tasks.task import SyntheticTask

Draw = Callable[[np.random.Generator, int, int, int], np.ndarray]  # size, length, words -> size x length


def sampled(random: np.random.Generator, size: int, length: int, words: int) -> np.ndarray:
    """Some of the words in any order, none twice."""
    return random.permuted(np.tile(np.arange(words), (size, 1)), axis=1)[:, :length]


def permutations(random: np.random.Generator, size: int, length: int, words: int) -> np.ndarray:
    """The same words in every sentence, as many as it is long: the first ones of the vocabulary."""
    return sampled(random, size, length, length)


def mixture(random: np.random.Generator, size: int, length: int, words: int) -> np.ndarray:
    """A permutation of the first words, or of as many that follow them: two vocabularies without a common word."""
    second = random.integers(0, 2, (size, 1))
    return permutations(random, size, length, words) + length * second


def repeated(random: np.random.Generator, size: int, length: int, words: int) -> np.ndarray:
    """Each word drawn on its own, so that some come twice."""
    return random.integers(0, words, (size, length))


DISTRIBUTIONS: dict[str, Draw] = {
    "permutations": permutations,
    "sampled": sampled,
    "mixture": mixture,
    "repeated": repeated,
}


@dataclass(frozen=True)
class Copying(SyntheticTask):
    """The target is the source; with a `reordering`, its words in another order, the same for every sentence."""

    distribution: str = "permutations"
    num_words: int = 40  # snell2021 §3.3: 40, 60 for the control; A.3: 80 for the mixture
    length: int = 40
    evaluation_distribution: str | None = None  # the distribution that is measured on; None: the one of training
    permutation_seed: int | None = (
        None  # the seed of the fixed permutation π of positions (snell2021 §6.2); None: in order
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length >= 1, f"a sentence needs at least one word: length is {self.length}")
        require(
            self.permutation_seed is None or self.permutation_seed >= 0,
            f"permutation_seed must be a seed, not {self.permutation_seed}",
        )
        for distribution in (self.distribution, self.measured_on):
            self._check(choose("distribution", distribution, DISTRIBUTIONS))

    def _check(self, distribution: str) -> None:
        least = {"mixture": 2 * self.length, "repeated": 1}.get(distribution, self.length)
        require(
            self.num_words >= least,
            f"sentences of length {self.length} from the distribution {distribution!r} need at least {least} words; "
            f"num_words is {self.num_words}",
        )

    @property
    def measured_on(self) -> str:
        return self.distribution if self.evaluation_distribution is None else self.evaluation_distribution

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([str(i + 1) for i in range(self.num_words)])

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.source_vocabulary

    @cached_property
    def order(self) -> np.ndarray:
        """π: the source position that each target word comes from."""
        if self.permutation_seed is None:
            return np.arange(self.length)
        return np.random.default_rng(self.permutation_seed).permutation(self.length)

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        drawn = DISTRIBUTIONS[self.distribution](random, size, self.length, self.num_words) + len(SPECIALS)
        source = np.pad(drawn, ((0, 0), (0, 1)), constant_values=END)  # size x (length + 1)
        order = np.append(self.order, self.length)  # the end answers the end
        mask = torch.ones(source.shape, dtype=torch.bool)
        guide = torch.from_numpy(np.tile(order, (size, 1)))
        return Batch(torch.from_numpy(source), mask, torch.from_numpy(source[:, order]), mask.clone(), guide)

    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        return SyntheticTask.batches(replace(self, distribution=self.measured_on), split, size)
