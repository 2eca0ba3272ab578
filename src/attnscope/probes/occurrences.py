"""Embeddings and hidden states of tokens wherever they occur, and their clusters (tutek2020 §3.4; Voita et al. 2019).

Words are the most frequent ones (MF), or a sample (RS, footnote 6). Vectors are clustered by scikit-learn's mini-batch
k-means. What to know about it:

- All occurrences of a word have one embedding, so that 1000 words are 1000 distinct points. Exact k-means with as many
  clusters would give each word its own, and I(e; h) would be I(word; h). Mini-batch k-means does not come near it. It
  starts from 3 k random occurrences, among which rare words are missing: so many of its centres are the same (about
  600 of 1000 are distinct, where the frequency of a word falls with its rank). And it moves every centre that is used
  less than a hundredth as often as the most used one onto a random vector of the batch, mostly a frequent word: the
  longer it runs, the fewer clusters stay in use (573 after 12 batches, 447 after 1000). I(e; h) is then bounded by the
  entropy of what is left, 4.4 to 4.6 nats where that of the words is 5.2. `Clusters.occupied` counts them.
- It stops once the smoothed error has not fallen for ten batches: embeddings after a dozen batches to some hundred,
  states after about two rounds over the vectors.
- Three starts were scikit-learn's default when the paper was written; the best on a sample is used. Today it is one.
- A batch of 100 is too small to be shared out: with two threads fitting took several times as long as with one. So it
  is fitted on one, which also gives the same clusters whatever the number of cores; labels are then assigned on all
  threads.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from attnscope.errors import require
from attnscope.models.capabilities import Decoding
from attnscope.models.inference import Model, evaluating, module_of, on_device_of
from attnscope.models.inputs import Data, as_batches
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import check_reiterable
from attnscope.probes.counterfactual import forcing
from attnscope.tasks.batch import SPECIALS, Batch

if TYPE_CHECKING:
    from sklearn.cluster import MiniBatchKMeans

MAX_TOKENS = 1_000_000  # tutek2020 §3.4
NUM_WORDS = 1000  # tutek2020 §3.4
POWER = 0.75  # of the unigram distribution, tutek2020 footnote 6
NUM_CLUSTERS, BATCH_SIZE, NUM_STARTS = 1000, 100, 3  # tutek2020 §3.4; scikit-learn's starts in 2020
BLOCK = 1 << 14  # vectors that are compared at a time

Counts = Int[np.ndarray, " vocabulary"]
TokenIds = Int[np.ndarray, " words"]
Columns = tuple[np.ndarray, ...]  # token ids, embeddings and states


# Words


def word_counts(batches: Iterable[Batch], without: Collection[int] = ()) -> Counts:
    """Return how often each source word occurs, by its token id; 0 for special tokens.

    Args:
        batches: Sentences.
        without: Token ids that are not counted, such as (UNKNOWN,) in text.
    """
    counts = np.zeros(len(SPECIALS), dtype=np.int64)
    for batch in batches:
        total = np.bincount(batch.source[batch.word_mask].cpu().numpy(), minlength=len(counts))
        total[: len(counts)] += counts
        counts = total
    counts[[token_id for token_id in without if token_id < len(counts)]] = 0
    return counts


def most_frequent_words(counts: Counts, num_words: int = NUM_WORDS) -> TokenIds:
    """Return the most frequent words (MF); of equally frequent ones, those of the lowest token id.

    >>> most_frequent_words(np.array([0, 0, 0, 5, 1, 5, 9]), 2)
    array([3, 6])
    """
    check_counts(counts, num_words)
    order = np.argsort(-counts, kind="stable")[:num_words]
    return np.sort(order[counts[order] > 0])


def sample_words(counts: Counts, num_words: int = NUM_WORDS, seed: int = 0, power: float = POWER) -> TokenIds:
    """Return words sampled without replacement, in proportion to a power of their counts (RS)."""
    check_counts(counts, num_words)
    occurring = np.flatnonzero(counts)
    share = counts[occurring] ** power
    random = np.random.default_rng(seed)
    return np.sort(random.choice(occurring, min(num_words, len(occurring)), replace=False, p=share / share.sum()))


def check_counts(counts: Counts, num_words: int) -> None:
    require(num_words > 0, f"at least one word must be chosen, not {num_words}")
    require(bool(counts.any()), "no word occurs in these batches, apart from special tokens and those left out")


# Occurrences


@dataclass(frozen=True)
class Occurrences:
    """Each token's id, embedding e and state h, sampled from `total` tokens of these words."""

    words: Int[np.ndarray, " tokens"]
    embedded: Float32[np.ndarray, "tokens input"]
    states: Float32[np.ndarray, "tokens state"]
    total: int

    def __len__(self) -> int:
        return len(self.words)


def gather_occurrences(
    model: Model,
    data: Data,
    words: TokenIds,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    decoding: Decoding | None = None,
) -> Occurrences:
    """Return the occurrences of some words; of more than `max_tokens`, a random sample.

    The data are read twice: first to count tokens, without the model, then to sample them uniformly, whatever their
    position (batches of text come shortest first). The sample depends on the order of the sentences and the seed, not
    on the batch size. No more than `max_tokens` are ever in memory.

    Args:
        model: A model that gives Traces.
        data: See `as_batches`; not an iterator, since it is read twice.
        words: Their token ids.
        max_tokens: The largest number of occurrences returned.
        seed: Random seed.
        decoding: See `traces`.
    """
    require(max_tokens > 0, f"max_tokens={max_tokens}: it must be at least 1")
    require(len(words) > 0, "no words were chosen; give at least one")
    check_reiterable(data)
    module, chosen = module_of(model), membership(words)
    sampled = sample_mask(sum(int(positions_of(b, chosen).sum()) for b in as_batches(model, data)), max_tokens, seed)
    with evaluating(module):
        batches = on_device_of(module, as_batches(model, data))
        parts = vectors_by_batch(lambda batch: module(batch, **forcing(decoding)), batches, chosen, sampled)
        token_ids, embedded, states = concatenate_parts(parts, int(sampled.sum()))
    return Occurrences(token_ids, embedded, states, len(sampled))


def vectors_by_batch(
    trace_of: Callable[[Batch], Trace],
    batches: Iterable[Batch],
    chosen: Bool[Tensor, " vocabulary"],
    sampled: Bool[np.ndarray, " total"],
) -> Iterator[Columns]:
    """Yield token ids, e and h of the sampled tokens of each batch; batches without any are skipped."""
    start = 0
    for batch in batches:
        where = positions_of(batch, chosen)
        here = sampled[start : start + int(where.sum())]
        start += len(here)
        if here.any():
            trace, keep = trace_of(batch), torch.from_numpy(here)
            rows, steps = (index[keep.to(index.device)] for index in where.nonzero(as_tuple=True))
            vectors = (side[rows, steps].float().cpu().numpy() for side in (trace.embedded, trace.encoder))
            yield trace.source[rows, steps].cpu().numpy(), *vectors


def concatenate_parts(parts: Iterator[Columns], tokens: int) -> list[np.ndarray]:
    """Return the columns as whole arrays; to hold all parts and then join them would take twice the memory."""
    whole: list[np.ndarray] = []
    start = 0
    for part in parts:
        whole = whole or [np.empty((tokens, *column.shape[1:]), column.dtype) for column in part]
        for column, values in zip(whole, part, strict=True):
            column[start : start + len(values)] = values
        start += len(part[0])
    return whole


def membership(words: TokenIds) -> Bool[Tensor, " vocabulary"]:
    table = torch.zeros(int(words.max()) + 2, dtype=torch.bool)  # the last entry is for all higher token ids
    table[torch.from_numpy(words)] = True
    return table


def positions_of(batch: Batch, chosen: Bool[Tensor, " vocabulary"]) -> Bool[Tensor, "batch source"]:
    """Return the mask of positions that hold one of the chosen words."""
    token_ids = batch.source.clamp(max=len(chosen) - 1)
    return batch.source_mask & chosen.to(token_ids.device)[token_ids]


def sample_mask(total: int, max_tokens: int, seed: int) -> Bool[np.ndarray, " total"]:
    """Return which of the tokens are sampled."""
    require(total > 0, "none of the chosen words occurs in these batches")
    mask = np.zeros(total, dtype=bool)
    mask[np.random.default_rng(seed).permutation(total)[:max_tokens]] = True
    return mask


# Clusters


@dataclass(frozen=True)
class Clusters:
    """The cluster of each vector, out of k."""

    labels: Int[np.ndarray, " tokens"]
    k: int

    @property
    def occupied(self) -> int:
        return len(np.unique(self.labels))


def cluster_vectors(
    vectors: Float[np.ndarray, "tokens size"],
    k: int = NUM_CLUSTERS,
    batch_size: int = BATCH_SIZE,
    num_starts: int = NUM_STARTS,
    seed: int = 0,
    kinds: Int[np.ndarray, " tokens"] | None = None,
) -> Clusters:
    """Return the cluster of every vector.

    Args:
        vectors: At least k of them.
        k: Number of clusters.
        batch_size: Batch size of mini-batch k-means.
        num_starts: Number of initialisations, of which the best is used.
        seed: Random seed.
        kinds: Vectors of one kind may be the same: if all are, one of each is assigned in place of all. They are
            clustered with all their occurrences in any case.
    """
    for name, number in {"k": k, "batch_size": batch_size, "num_starts": num_starts}.items():
        require(number > 0, f"{name} must be positive, not {number}")
    require(
        len(vectors) >= k,
        f"{len(vectors)} vectors do not make k={k} clusters; give more text, or ask for fewer clusters",
    )
    finite = bool(np.isfinite([vectors.min(), vectors.max()]).all())
    require(finite, "a vector holds a value that is not finite")
    fitted = fit_kmeans(vectors, k, batch_size, num_starts, seed)
    if kinds is not None:
        _, firsts, indices = np.unique(kinds, return_index=True, return_inverse=True)
        if all_equal(vectors, firsts[indices]):
            return Clusters(fitted.predict(vectors[firsts])[indices], k)
    return Clusters(fitted.predict(vectors), k)


def all_equal(vectors: Float[np.ndarray, "tokens size"], others: Int[np.ndarray, " tokens"]) -> bool:
    """Return whether each vector equals another one; in blocks, for a copy of all would take as much memory again."""
    blocks = (slice(start, start + BLOCK) for start in range(0, len(vectors), BLOCK))
    return all(np.array_equal(vectors[block], vectors[others[block]]) for block in blocks)


def fit_kmeans(vectors: np.ndarray, k: int, batch_size: int, num_starts: int, seed: int) -> "MiniBatchKMeans":
    from sklearn.cluster import MiniBatchKMeans  # takes a second to load
    from threadpoolctl import threadpool_limits

    random = UniformChoice(seed)
    kmeans = MiniBatchKMeans(k, batch_size=batch_size, n_init=num_starts, random_state=random, compute_labels=False)
    with threadpool_limits(1):
        return kmeans.fit(vectors)


class UniformChoice(np.random.RandomState):
    """Samples with replacement uniformly and ignores weights: here all vectors weigh the same.

    Recent versions of scikit-learn sample each batch by weight, for which they add up the weights of all vectors every
    time. At a million vectors that takes longer than everything else.
    """

    def choice(  # type: ignore[override]
        self,
        a: int | np.integer,
        size: int | np.integer | tuple[int, ...] | None = None,
        replace: bool = True,
        p: np.ndarray | None = None,
    ) -> int | np.ndarray:
        return self.randint(0, a, size) if replace else super().choice(a, size, replace, p)
