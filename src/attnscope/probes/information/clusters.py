"""Which vectors are alike? Mini-batch k-means, as scikit-learn has it. (tutek2020 §3.4; Voita et al. 2019)

What to know about it:

- All occurrences of a word have one embedding, so that 1000 words are 1000 distinct points. Exact k-means with as many
  clusters would give each word its own, and I(e; h) would be I(word; h). Mini-batch k-means does not come near it. It
  starts from 3 k occurrences drawn at random, among which rare words are missing: so many of its centres are the same
  (about 600 of 1000 are distinct, where the frequency of a word falls with its rank). And it moves every centre that is
  used less than a hundredth as often as the most used one onto a random vector of the batch, mostly a frequent word:
  the longer it runs, the fewer clusters stay in use (573 after 12 batches, 447 after 1000). I(e; h) is then bounded by
  the entropy of what is left, 4.4 to 4.6 nats where that of the words is 5.2. `Clusters.occupied` counts them.
- It stops once the smoothed error has not fallen for ten batches: embeddings after a dozen batches to some hundred,
  states after about two rounds over the vectors.
- Three starts were scikit-learn's default when the paper was written; the best on a sample is kept. Today it is one.
- A batch of 100 is too small to be shared out: with two threads fitting took several times as long as with one. So it
  is fitted on one, which also gives the same clusters whatever the number of cores; labels are then given on as many
  threads as there are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from attnscope.errors import require

CLUSTERS, BATCH, STARTS = 1000, 100, 3  # k and batch size: tutek2020 §3.4; scikit-learn's starts in 2020
BLOCK = 1 << 14


@dataclass(frozen=True)
class Clusters:
    """The cluster of each vector, out of k."""

    labels: Int[np.ndarray, " tokens"]
    k: int

    @property
    def occupied(self) -> int:
        return len(np.unique(self.labels))


def clustered(
    vectors: Float[np.ndarray, "tokens size"],
    k: int = CLUSTERS,
    batch_size: int = BATCH,
    starts: int = STARTS,
    seed: int = 0,
    kinds: Int[np.ndarray, " tokens"] | None = None,
) -> Clusters:
    """The cluster of every vector.

    `kinds` may say which vectors could be the same: if all of a kind are, one of each is looked up in place of all.
    They are clustered with all their occurrences in any case.
    """
    check(vectors, k, batch_size, starts)
    found = fitted(vectors, k, batch_size, starts, seed)
    if kinds is None:
        return Clusters(found.predict(vectors), k)
    _, firsts, places = np.unique(kinds, return_index=True, return_inverse=True)
    if not same(vectors, firsts[places]):
        return Clusters(found.predict(vectors), k)
    return Clusters(found.predict(vectors[firsts])[places], k)


def same(vectors: Float[np.ndarray, "tokens size"], others: Int[np.ndarray, " tokens"]) -> bool:
    """Whether each vector equals another one; in blocks, for a copy of all would take as much memory again."""
    blocks = (slice(start, start + BLOCK) for start in range(0, len(vectors), BLOCK))
    return all(np.array_equal(vectors[block], vectors[others[block]]) for block in blocks)


def fitted(vectors: np.ndarray, k: int, batch_size: int, starts: int, seed: int) -> Any:
    from sklearn.cluster import MiniBatchKMeans  # takes a second to load
    from threadpoolctl import threadpool_limits

    method = MiniBatchKMeans(k, batch_size=batch_size, n_init=starts, random_state=Evenly(seed), compute_labels=False)
    with threadpool_limits(1):
        return method.fit(vectors)


class Evenly(np.random.RandomState):
    """Draws with replacement are even, whatever weights are given: here all vectors weigh the same.

    Recent versions of scikit-learn draw each batch by weight, for which they add up the weights of all vectors anew. At
    a million vectors that takes longer than everything else.
    """

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        return self.randint(0, a, size) if replace else super().choice(a, size, replace, p)


def check(vectors: np.ndarray, k: int, batch_size: int, starts: int) -> None:
    for name, number in {"k": k, "batch_size": batch_size, "starts": starts}.items():
        require(number > 0, f"{name} must be positive, not {number}")
    require(
        len(vectors) >= k,
        f"{len(vectors)} vectors do not make k={k} clusters; give more text, or ask for fewer clusters",
    )
    require(
        bool(np.isfinite([vectors.min(), vectors.max()]).all()),
        "a vector holds a value that is no number; give finite vectors",
    )
