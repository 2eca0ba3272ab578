"""What do a model's embedding and state of a word look like, wherever it occurs? (tutek2020 §3.4)"""

# TODO(docstring) join:
#   Which words are looked at? The most frequent ones (MF), or a sample (RS). (tutek2020 §3.4, footnote 6)
#   Which vectors are alike? Mini-batch k-means, as scikit-learn has it. (tutek2020 §3.4; Voita et al. 2019)
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from attnscope.errors import require
from attnscope.models.inference import evaluating, on_device_of
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Model, Stream, begun
from attnscope.tasks.batch import SPECIALS, Batch

MAX_TOKENS = 1_000_000  # tutek2020 §3.4


@dataclass(frozen=True)
class Occurrences:
    """Each token's word, embedding e and state h; out of how many tokens of these words they were drawn."""

    words: Int[np.ndarray, " tokens"]
    embedded: Float32[np.ndarray, "tokens input"]
    states: Float32[np.ndarray, "tokens state"]
    total: int

    def __len__(self) -> int:
        return len(self.words)


def gather_occurrences(
    model: Model,
    batches: Stream[Batch],
    words: Int[np.ndarray, " words"],
    most: int = MAX_TOKENS,
    seed: int = 0,
    **forward: Any,
) -> Occurrences:
    """The occurrences of these words; of more than `most`, so many of them drawn at random.

    The batches are gone through twice. The first time, without the model, tokens are counted; then it is drawn which of
    them are kept: each is as likely, wherever it stands (batches of text come shortest first), and only the order of
    the sentences and the seed decide, not how they are cut into batches. So no more than `most` are ever in memory.
    What else is given goes to the model's forward pass. The model is left as it was.
    """
    require(most > 0, f"most={most}: at least one occurrence must be kept")
    require(len(words) > 0, "no words were chosen; give at least one")
    chosen = membership(words)
    kept = sample_mask(sum(int(positions_of(batch, chosen).sum()) for batch in begun(batches)), most, seed)
    with evaluating(model):
        parts = vectors_by_batch(model, on_device_of(model, begun(batches)), chosen, kept, forward)
        found, embedded, states = concatenate_parts(parts, int(kept.sum()))
    return Occurrences(found, embedded, states, len(kept))


def vectors_by_batch(
    model: Model, batches: Iterable[Batch], chosen: Tensor, kept: Bool[np.ndarray, " total"], forward: dict[str, Any]
) -> Iterator[tuple[np.ndarray, ...]]:
    """Word, e and h of what is kept of each batch; the model is not asked about a batch of which nothing is."""
    seen = 0
    for batch in batches:
        where = positions_of(batch, chosen)
        here = kept[seen : seen + int(where.sum())]
        seen += len(here)
        if here.any():
            yield select_vectors(model(batch, **forward), where, torch.from_numpy(here))


def concatenate_parts(parts: Iterator[tuple[np.ndarray, ...]], tokens: int) -> list[np.ndarray]:
    """Part after part into its place: to hold them all and then join them would take twice the memory."""
    whole: list[np.ndarray] = []
    start = 0
    for part in parts:
        whole = whole or [np.empty((tokens, *column.shape[1:]), column.dtype) for column in part]
        for column, values in zip(whole, part, strict=True):
            column[start : start + len(values)] = values
        start += len(part[0])
    return whole


def membership(words: Int[np.ndarray, " words"]) -> Bool[Tensor, " vocabulary"]:
    table = torch.zeros(int(words.max()) + 2, dtype=torch.bool)  # the last place is for all words of a higher number
    table[torch.from_numpy(words)] = True
    return table


def positions_of(batch: Batch, chosen: Bool[Tensor, " vocabulary"]) -> Bool[Tensor, "batch source"]:
    """Where one of the chosen words stands."""
    numbers = batch.source.clamp(max=len(chosen) - 1)
    return batch.source_mask & chosen.to(numbers.device)[numbers]


def sample_mask(total: int, most: int, seed: int) -> Bool[np.ndarray, " total"]:
    """Which of the tokens are kept."""
    require(total > 0, "none of the chosen words occurs in these batches")
    kept = np.zeros(total, dtype=bool)
    kept[np.random.default_rng(seed).permutation(total)[:most]] = True
    return kept


def select_vectors(
    trace: Trace, where: Bool[Tensor, "batch source"], here: Bool[Tensor, " found"]
) -> tuple[np.ndarray, ...]:
    """Word, e and h of those of the found places that are kept."""
    rows, steps = (place[here.to(place.device)] for place in where.nonzero(as_tuple=True))
    vectors = (side[rows, steps].float().cpu().numpy() for side in (trace.embedded, trace.encoder))
    return (trace.source[rows, steps].cpu().numpy(), *vectors)


NUM_WORDS = 1000  # tutek2020 §3.4
POWER = 0.75  # of the unigram distribution, tutek2020 footnote 6

Counts = Int[np.ndarray, " vocabulary"]
Numbers = Int[np.ndarray, " words"]


def word_counts(batches: Iterable[Batch], without: Collection[int] = ()) -> Counts:
    """How often each source word occurs, by its number; never a special one, nor what is to be left out.

    In text, `without=(UNKNOWN,)` leaves out the word that stands for all unknown ones.
    """
    counts = np.zeros(len(SPECIALS), dtype=np.int64)
    for batch in batches:
        more = np.bincount(batch.source[batch.source_mask].cpu().numpy(), minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
    counts[: len(SPECIALS)] = 0
    counts[[number for number in without if number < len(counts)]] = 0
    return counts


def most_frequent_words(counts: Counts, number: int = NUM_WORDS) -> Numbers:
    """MF: of equally frequent words, those of the lowest number. All that occur, if there are no more.

    >>> most_frequent_words(np.array([0, 0, 0, 5, 1, 5, 9]), 2)
    array([3, 6])
    """
    check_counts(counts, number)
    order = np.argsort(-counts, kind="stable")[:number]
    return np.sort(order[counts[order] > 0])


def sample_words(counts: Counts, number: int = NUM_WORDS, seed: int = 0, power: float = POWER) -> Numbers:
    """RS: words drawn without replacement, in proportion to a power of their counts."""
    check_counts(counts, number)
    known = np.flatnonzero(counts)
    share = counts[known] ** power
    random = np.random.default_rng(seed)
    return np.sort(random.choice(known, min(number, len(known)), replace=False, p=share / share.sum()))


def check_counts(counts: Counts, number: int) -> None:
    require(number > 0, f"at least one word must be looked at, not {number}")
    require(bool(counts.any()), "no word occurs in these batches, apart from special ones and those left out")


NUM_CLUSTERS, BATCH_SIZE, NUM_STARTS = 1000, 100, 3  # k and batch size: tutek2020 §3.4; scikit-learn's starts in 2020
BLOCK = 1 << 14


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
    starts: int = NUM_STARTS,
    seed: int = 0,
    kinds: Int[np.ndarray, " tokens"] | None = None,
) -> Clusters:
    """The cluster of every vector.

    `kinds` may say which vectors could be the same: if all of a kind are, one of each is looked up in place of all.
    They are clustered with all their occurrences in any case.
    """
    check_vectors(vectors, k, batch_size, starts)
    found = fit_kmeans(vectors, k, batch_size, starts, seed)
    if kinds is None:
        return Clusters(found.predict(vectors), k)
    _, firsts, places = np.unique(kinds, return_index=True, return_inverse=True)
    if not all_equal(vectors, firsts[places]):
        return Clusters(found.predict(vectors), k)
    return Clusters(found.predict(vectors[firsts])[places], k)


def all_equal(vectors: Float[np.ndarray, "tokens size"], others: Int[np.ndarray, " tokens"]) -> bool:
    """Whether each vector equals another one; in blocks, for a copy of all would take as much memory again."""
    blocks = (slice(start, start + BLOCK) for start in range(0, len(vectors), BLOCK))
    return all(np.array_equal(vectors[block], vectors[others[block]]) for block in blocks)


def fit_kmeans(vectors: np.ndarray, k: int, batch_size: int, starts: int, seed: int) -> Any:
    from sklearn.cluster import MiniBatchKMeans  # takes a second to load
    from threadpoolctl import threadpool_limits

    method = MiniBatchKMeans(
        k, batch_size=batch_size, n_init=starts, random_state=UniformChoice(seed), compute_labels=False
    )
    with threadpool_limits(1):
        return method.fit(vectors)


class UniformChoice(np.random.RandomState):
    """Draws with replacement are even, whatever weights are given: here all vectors weigh the same.

    Recent versions of scikit-learn draw each batch by weight, for which they add up the weights of all vectors anew. At
    a million vectors that takes longer than everything else.
    """

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        return self.randint(0, a, size) if replace else super().choice(a, size, replace, p)


def check_vectors(vectors: np.ndarray, k: int, batch_size: int, starts: int) -> None:
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
