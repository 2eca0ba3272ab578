"""Which sentences go into one batch? Those of similar length, so that little of it is padding.

An epoch is the sentences sorted by their length with some noise, cut into batches, and the batches in any order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

NOISE = 0.1  # a sentence may be taken for one that is this share longer or shorter
REMEMBERED = 32  # epochs: as many seeds may be trained side by side

Epoch = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Buckets:
    """The batches of every epoch of training, for sentences of these lengths."""

    lengths: np.ndarray

    def batch(self, seed: int, step: int, size: int) -> np.ndarray:
        """The numbers of the sentences in the batch of one step; every epoch has each sentence once."""
        epoch, number = divmod(step, self.steps(size))
        return self._remembered(seed, epoch, size)[number]

    def steps(self, size: int) -> int:
        """Batches in an epoch; the last sentences make a smaller one."""
        return -(-len(self.lengths) // size)

    @cached_property
    def _remembered(self) -> Callable[[int, int, int], Epoch]:
        return lru_cache(maxsize=REMEMBERED)(self.epoch)

    def epoch(self, seed: int, number: int, size: int) -> Epoch:
        random = np.random.default_rng((seed, number))
        noisy = self.lengths * random.uniform(1 - NOISE, 1 + NOISE, len(self.lengths))
        batches = np.array_split(np.argsort(noisy), np.arange(size, len(noisy), size))
        return tuple(batches[i] for i in random.permutation(len(batches)))


def by_length(lengths: np.ndarray) -> np.ndarray:
    """The shortest sentence first; those of the same length stay in their order."""
    return np.argsort(lengths, kind="stable")
