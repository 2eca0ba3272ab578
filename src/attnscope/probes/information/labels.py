"""How much does one label tell about another? Mutual information of two lists of labels, in nats. (tutek2020 §3.4)

The estimate puts counts in the place of probabilities. It is biased upwards, by about (K − 1)(L − 1) / 2n nats for K
and L labels of n independent pairs: with 1000 labels on either side and few tokens that is much more than what is to be
measured. `by_chance` says how much there would be if the same labels had nothing to do with each other.
"""

import numpy as np
from jaxtyping import Int

from attnscope.errors import require

Labels = Int[np.ndarray, " _"]


def mutual_information(one: Labels, other: Labels) -> float:
    """I = Σ p(a, b) log p(a, b) / p(a) p(b), over the cells of the contingency table that are not empty.

    >>> round(mutual_information(np.array([0, 0, 1, 1]), np.array([7, 7, 5, 5])), 4)  # log 2
    0.6931
    >>> mutual_information(np.array([0, 0, 1, 1]), np.array([7, 5, 7, 5]))
    0.0
    """
    check(one, other)
    (a, of_a), (b, of_b) = numbered(one), numbered(other)
    cells, joint = np.unique(a * len(of_b) + b, return_counts=True)  # a label of each kind; only pairs that occur
    independent = np.log(of_a[cells // len(of_b)]) + np.log(of_b[cells % len(of_b)]) - np.log(len(a))
    return max(0.0, float(joint @ (np.log(joint) - independent) / len(a)))  # rounding may leave −1e-16


def entropy(labels: Labels) -> float:
    """What a label tells about itself: no other can tell more about it.

    >>> round(entropy(np.array([3, 1, 4, 5])), 4)  # log 4
    1.3863
    """
    require(len(labels) > 0, "there are no labels to take the entropy of")
    shares = numbered(labels)[1] / len(labels)
    return max(0.0, float(-shares @ np.log(shares)))


def by_chance(one: Labels, other: Labels, shuffles: int = 5, seed: int = 0) -> float:
    """The bias of the estimate: what it gives, in the mean over draws, once the pairs are shuffled."""
    require(shuffles > 0, f"shuffles={shuffles}: the pairs must be shuffled at least once")
    random = np.random.default_rng(seed)
    return float(np.mean([mutual_information(random.permutation(one), other) for _ in range(shuffles)]))


def numbered(labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """The labels numbered from zero, and how many there are of each."""
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return places.astype(np.int64), counts


def check(one: Labels, other: Labels) -> None:
    require(len(one) == len(other), f"labels are compared in pairs, not {len(one)} of one with {len(other)} of another")
    require(len(one) > 0, "there are no labels to compare")
