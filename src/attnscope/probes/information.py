"""How much of a word is left in its hidden state? Mutual information, in nats. (tutek2020 §3.4, table 2)

`information` counts words, chooses some, gathers their occurrences, clusters embeddings and states, and compares the
labels; each of these steps is a function of its own. `mutual_information` of two lists of labels is the pure part.
"""

# TODO(docstring) join:
#   How much does one label tell about another? Mutual information of two lists of labels, in nats. (tutek2020 §3.4)
#   How much does a state tell about its word? Three numbers, and what chance would give. (tutek2020 §3.4, table 2)
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.probes.accumulator import Model, Stream, begun
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
from attnscope.tasks.batch import Batch

Labels = Int[np.ndarray, " _"]


def mutual_information(one: Labels, other: Labels) -> float:
    """I = Σ p(a, b) log p(a, b) / p(a) p(b), over the cells of the contingency table that are not empty.

    >>> round(mutual_information(np.array([0, 0, 1, 1]), np.array([7, 7, 5, 5])), 4)  # log 2
    0.6931
    >>> mutual_information(np.array([0, 0, 1, 1]), np.array([7, 5, 7, 5]))
    0.0
    """
    check_labels(one, other)
    (a, of_a), (b, of_b) = contingency(one), contingency(other)
    cells, joint = np.unique(a * len(of_b) + b, return_counts=True)  # a label of each kind; only pairs that occur
    independent = np.log(of_a[cells // len(of_b)]) + np.log(of_b[cells % len(of_b)]) - np.log(len(a))
    return max(0.0, float(joint @ (np.log(joint) - independent) / len(a)))  # rounding may leave −1e-16


def entropy(labels: Labels) -> float:
    """What a label tells about itself: no other can tell more about it.

    >>> round(entropy(np.array([3, 1, 4, 5])), 4)  # log 4
    1.3863
    """
    require(len(labels) > 0, "there are no labels to take the entropy of")
    shares = contingency(labels)[1] / len(labels)
    return max(0.0, float(-shares @ np.log(shares)))


def shuffled_information(one: Labels, other: Labels, shuffles: int = 5, seed: int = 0) -> float:
    """The bias of the estimate: what it gives, in the mean over draws, once the pairs are shuffled."""
    require(shuffles > 0, f"shuffles={shuffles}: the pairs must be shuffled at least once")
    random = np.random.default_rng(seed)
    return float(np.mean([mutual_information(random.permutation(one), other) for _ in range(shuffles)]))


def contingency(labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """The labels numbered from zero, and how many there are of each."""
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return places.astype(np.int64), counts


def check_labels(one: Labels, other: Labels) -> None:
    require(len(one) == len(other), f"labels are compared in pairs, not {len(one)} of one with {len(other)} of another")
    require(len(one) > 0, "there are no labels to compare")


@dataclass(frozen=True)
class SharedInformation:
    """What two lists of labels share, what they would share if shuffled, and at most: the lower of their entropies."""

    nats: float
    by_chance: float
    at_most: float


@dataclass(frozen=True)
class Information(Displayed):
    """Mutual information in nats.

    As long as a word has one embedding, `embedding` is at most `word`: clusters of embeddings are clusters of words.
    With few tokens per cluster both come close to `at_most` for any model: then look at what chance gives.
    """

    embedding: SharedInformation  # clustered embeddings against clustered states: table 2
    word: SharedInformation  # words against clustered states
    tokens: int
    total: int  # tokens of the chosen words, from which these were drawn
    words: int
    k: int
    embedding_clusters: int  # of the k, how many are in use
    state_clusters: int

    @property
    def tokens_per_cluster(self) -> float:
        return self.tokens / self.k

    def table(self) -> pd.DataFrame:
        """A row for embeddings and one for words; the columns that follow the first three describe the sample."""
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
    batches: Stream[Batch],
    choice: str = "frequent",
    number: int = NUM_WORDS,
    most: int = MAX_TOKENS,
    k: int = NUM_CLUSTERS,
    batch_size: int = BATCH_SIZE,
    starts: int = NUM_STARTS,
    seed: int = 0,
    without: Collection[int] = (),
    **forward: Any,
) -> Information:
    """Of the `number` most frequent words (MF), or with choice="sampled" of a sample (RS).

    `batches` is gone through several times: a list, or a function that begins anew. What else is given goes to the
    model's forward pass. Words without an occurrence here, special words and those in `without` are never chosen.
    """
    choose("choice of words", choice, ("frequent", "sampled"))
    counts = word_counts(begun(batches), without)
    words = most_frequent_words(counts, number) if choice == "frequent" else sample_words(counts, number, seed)
    return compute_information(
        gather_occurrences(model, batches, words, most, seed, **forward), k, batch_size, starts, seed
    )


def compute_information(
    occurrences: Occurrences,
    k: int = NUM_CLUSTERS,
    batch_size: int = BATCH_SIZE,
    starts: int = NUM_STARTS,
    seed: int = 0,
) -> Information:
    """Of vectors that have been gathered; there must be at least k of them."""
    words = occurrences.words
    embedded = cluster_vectors(occurrences.embedded, k, batch_size, starts, seed, kinds=words)
    states = cluster_vectors(occurrences.states, k, batch_size, starts, seed)
    return Information(
        embedding=shared_information(embedded.labels, states.labels, seed),
        word=shared_information(words, states.labels, seed),
        tokens=len(words), total=occurrences.total, words=len(set(words.tolist())), k=k,
        embedding_clusters=embedded.occupied, state_clusters=states.occupied,
    )  # fmt: skip


def shared_information(one: Any, other: Any, seed: int) -> SharedInformation:
    return SharedInformation(
        mutual_information(one, other), shuffled_information(one, other, seed=seed), min(entropy(one), entropy(other))
    )
