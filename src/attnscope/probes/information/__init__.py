"""How much of a word is left in its hidden state? Mutual information, in nats. (tutek2020 §3.4, table 2)

`information` counts words, chooses some, gathers their occurrences, clusters embeddings and states, and compares the
labels; each of these steps is a function of its own. `mutual_information` of two lists of labels is the pure part.
"""

from attnscope.probes.information.clusters import Clusters, clustered
from attnscope.probes.information.labels import by_chance, entropy, mutual_information
from attnscope.probes.information.measure import Information, information, measured
from attnscope.probes.information.occurrences import Occurrences, gathered
from attnscope.probes.information.words import most_frequent, sampled, word_counts

__all__ = [
    "Clusters", "Information", "Occurrences", "by_chance", "clustered", "entropy", "gathered", "information",
    "measured", "most_frequent", "mutual_information", "sampled", "word_counts",
]  # fmt: skip
