"""How much does a state tell about its word? Three numbers, and what chance would give. (tutek2020 §3.4, table 2)

The paper leaves out models whose states hold the embedding beside them (concat), as vectors of a different size. Only
labels are compared here, so they can be measured like any other.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnscope.display import Displayed
from attnscope.errors import choose
from attnscope.probes.drawing import Axes
from attnscope.probes.information.clusters import BATCH, CLUSTERS, STARTS, clustered
from attnscope.probes.information.labels import by_chance, entropy, mutual_information
from attnscope.probes.information.occurrences import MOST, Occurrences, gathered
from attnscope.probes.information.words import WORDS, most_frequent, sampled, word_counts
from attnscope.probes.stream import Model, Stream, begun
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class Shared:
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

    embedding: Shared  # clustered embeddings against clustered states: table 2
    word: Shared  # words against clustered states
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
    number: int = WORDS,
    most: int = MOST,
    k: int = CLUSTERS,
    batch_size: int = BATCH,
    starts: int = STARTS,
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
    words = most_frequent(counts, number) if choice == "frequent" else sampled(counts, number, seed)
    return measured(gathered(model, batches, words, most, seed, **forward), k, batch_size, starts, seed)


def measured(
    occurrences: Occurrences, k: int = CLUSTERS, batch_size: int = BATCH, starts: int = STARTS, seed: int = 0
) -> Information:
    """Of vectors that have been gathered; there must be at least k of them."""
    words = occurrences.words
    embedded = clustered(occurrences.embedded, k, batch_size, starts, seed, kinds=words)
    states = clustered(occurrences.states, k, batch_size, starts, seed)
    return Information(
        embedding=shared(embedded.labels, states.labels, seed),
        word=shared(words, states.labels, seed),
        tokens=len(words), total=occurrences.total, words=len(set(words.tolist())), k=k,
        embedding_clusters=embedded.occupied, state_clusters=states.occupied,
    )  # fmt: skip


def shared(one: Any, other: Any, seed: int) -> Shared:
    return Shared(mutual_information(one, other), by_chance(one, other, seed=seed), min(entropy(one), entropy(other)))
