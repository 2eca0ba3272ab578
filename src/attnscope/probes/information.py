"""How much of a token is left in its hidden state? Mutual information, in nats (tutek2020 §3.4, table 2)

`information` counts words, chooses some, gathers their occurrences, clusters embeddings and states, and compares the
labels. The paper leaves out models whose states hold the embedding beside them (concat), as vectors of a different
size. Only labels are compared here, so they can be measured like any other.

The estimate of mutual information puts counts in the place of probabilities. It is biased upwards, by about
(K − 1)(L − 1) / 2n nats for K and L labels of n independent pairs: with 1000 labels on either side and few tokens that
is much more than the quantity itself. `shuffled_information` is the estimate for the same labels, shuffled.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.models.capabilities import Decoding
from attnscope.models.inference import Model
from attnscope.models.inputs import Data, as_batches
from attnscope.probes.accumulator import check_reiterable
from attnscope.probes.occurrences import (
    BATCH_SIZE,
    MAX_TOKENS,
    NUM_CLUSTERS,
    NUM_STARTS,
    NUM_WORDS,
    Occurrences,
    cluster_vectors,
    gather_occurrences,
    most_frequent_words,
    sample_words,
    word_counts,
)

TOKENS_PER_CLUSTER = 10  # by default, where there are few tokens

Labels = Int[np.ndarray, " _"]


def mutual_information(one: Labels, other: Labels) -> float:
    """Return I = Σ p(a, b) log p(a, b) / p(a) p(b), over the non-empty cells of the contingency table.

    >>> round(mutual_information(np.array([0, 0, 1, 1]), np.array([7, 7, 5, 5])), 4)  # log 2
    0.6931
    >>> mutual_information(np.array([0, 0, 1, 1]), np.array([7, 5, 7, 5]))
    0.0
    """
    check_labels(one, other)
    (a, a_counts), (b, b_counts) = contingency(one), contingency(other)
    cells, joint = np.unique(a * len(b_counts) + b, return_counts=True)  # only pairs of labels that occur
    independent = np.log(a_counts[cells // len(b_counts)]) + np.log(b_counts[cells % len(b_counts)]) - np.log(len(a))
    return max(0.0, float(joint @ (np.log(joint) - independent) / len(a)))  # rounding may leave −1e-16


def label_entropy(labels: Labels) -> float:
    """Return the entropy of labels in nats, an upper bound of their mutual information with any others.

    >>> round(label_entropy(np.array([3, 1, 4, 5])), 4)  # log 4
    1.3863
    """
    require(len(labels) > 0, "there are no labels to take the entropy of")
    shares = contingency(labels)[1] / len(labels)
    return max(0.0, float(-shares @ np.log(shares)))


def shuffled_information(one: Labels, other: Labels, shuffles: int = 5, seed: int = 0) -> float:
    """Return the bias of the estimate: its mean over random shuffles of the pairs."""
    require(shuffles > 0, f"shuffles={shuffles}: the pairs must be shuffled at least once")
    random = np.random.default_rng(seed)
    return float(np.mean([mutual_information(random.permutation(one), other) for _ in range(shuffles)]))


def contingency(labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels as indices from zero, and the count of each."""
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return places.astype(np.int64), counts


def check_labels(one: Labels, other: Labels) -> None:
    require(len(one) == len(other), f"labels are compared in pairs, not {len(one)} of one with {len(other)} of another")
    require(len(one) > 0, "there are no labels to compare")


@dataclass(frozen=True)
class SharedInformation:
    """The mutual information of two lists of labels, that of shuffled labels, and the lower of their entropies."""

    nats: float
    by_chance: float
    at_most: float


@dataclass(frozen=True)
class Information(Displayed):
    """Mutual information in nats.

    As long as a word has one embedding, `embedding` is at most `word`: clusters of embeddings are clusters of words.
    With few tokens per cluster both come close to `at_most` for any model: then compare with chance.
    """

    embedding: SharedInformation  # clustered embeddings against clustered states: table 2
    word: SharedInformation  # words against clustered states
    tokens: int
    total: int  # tokens of the chosen words, from which these were sampled
    words: int
    k: int
    embedding_clusters: int  # of the k, how many are in use
    state_clusters: int

    @property
    def tokens_per_cluster(self) -> float:
        return self.tokens / self.k

    def table(self) -> pd.DataFrame:
        """One row for embeddings and one for words; the columns that follow the first three describe the sample."""
        rows = {"embedding": vars(self.embedding), "word": vars(self.word)}
        sample = {name: value for name, value in vars(self).items() if name not in rows}
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("of")
        return table.assign(**sample, tokens_per_cluster=self.tokens_per_cluster)

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        shown = {"nats": "with the state", "by_chance": "shuffled", "at_most": "at most"}
        table = self.table()[list(shown)].rename(columns=shown)
        return plots.bars(table, ax=ax, ylabel="mutual information (nats)")


def information(
    model: Model,
    data: Data = None,
    choice: str = "frequent",
    num_words: int = NUM_WORDS,
    max_tokens: int = MAX_TOKENS,
    k: int | None = None,
    batch_size: int = BATCH_SIZE,
    num_starts: int = NUM_STARTS,
    seed: int = 0,
    without: Collection[int] = (),
    decoding: Decoding | None = None,
) -> Information:
    """Return the mutual information between tokens and their hidden states.

    Args:
        model: A model that gives Traces.
        data: See `as_batches`; not an iterator, since it is read several times.
        choice: "frequent": the most frequent words (MF); "sampled": a random sample (RS).
        num_words: Number of words, special tokens excluded.
        max_tokens: The largest number of their occurrences.
        k: Number of clusters; None: 1000, or fewer where there are fewer than ten tokens for each.
        batch_size: Batch size of mini-batch k-means.
        num_starts: Number of initialisations of mini-batch k-means.
        seed: Random seed.
        without: Token ids that are never chosen.
        decoding: See `traces`.
    """
    choose("choice of words", choice, ("frequent", "sampled"))
    check_reiterable(data)
    counts = word_counts(as_batches(model, data), without)
    words = most_frequent_words(counts, num_words) if choice == "frequent" else sample_words(counts, num_words, seed)
    occurrences = gather_occurrences(model, data, words, max_tokens, seed, decoding)
    return compute_information(occurrences, k, batch_size, num_starts, seed)


def compute_information(
    occurrences: Occurrences,
    k: int | None = None,
    batch_size: int = BATCH_SIZE,
    num_starts: int = NUM_STARTS,
    seed: int = 0,
) -> Information:
    """Return the mutual information of gathered vectors; see `information` for the other arguments."""
    words = occurrences.words
    k = min(NUM_CLUSTERS, max(1, len(words) // TOKENS_PER_CLUSTER)) if k is None else k
    embedded = cluster_vectors(occurrences.embedded, k, batch_size, num_starts, seed, kinds=words)
    states = cluster_vectors(occurrences.states, k, batch_size, num_starts, seed)
    return Information(
        embedding=shared_information(embedded.labels, states.labels, seed),
        word=shared_information(words, states.labels, seed),
        tokens=len(words), total=occurrences.total, words=len(set(words.tolist())), k=k,
        embedding_clusters=embedded.occupied, state_clusters=states.occupied,
    )  # fmt: skip


def shared_information(one: Labels, other: Labels, seed: int) -> SharedInformation:
    return SharedInformation(
        mutual_information(one, other),
        shuffled_information(one, other, seed=seed),
        min(label_entropy(one), label_entropy(other)),
    )
