"""How long does the mutual information of table 2 of tutek2020 take, and where does the time go?

    python benchmarks/information.py              100,000 vectors of 300, k = 1000
    python benchmarks/information.py 1000000      as many as the paper allows; 3 GiB of memory

There is no peer and no goal: the time is reported. Vectors are made up: 1000 words, the frequency of a word falling
with its rank, embeddings from a normal distribution, states that add as much noise to them. Seconds on the clock and of
the processor; clusters are fitted on one thread, labels given on as many as there are.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from attnscope.probes.information import compute_information, mutual_information, shuffled_information
from attnscope.probes.occurrences import Occurrences, cluster_vectors

TOKENS, SIZE, WORDS, CLUSTERS = 100_000, 300, 1000, 1000


def made_up(tokens: int, words: int = WORDS, size: int = SIZE) -> Occurrences:
    random = np.random.default_rng(0)
    share = 1 / np.arange(1, words + 1)
    kinds = random.choice(words, tokens, p=share / share.sum())
    embedded = random.standard_normal((words, size), dtype=np.float32)[kinds]
    return Occurrences(kinds, embedded, embedded + random.standard_normal((tokens, size), dtype=np.float32), tokens)


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    clock, processor = time.perf_counter(), time.process_time()
    result = call()
    return result, {"clock_s": time.perf_counter() - clock, "processor_s": time.process_time() - processor}


def main(tokens: int = TOKENS) -> dict[str, Any]:
    made = made_up(tokens)
    found, whole = timed(lambda: compute_information(made, CLUSTERS))
    embedded, of_embedded = timed(lambda: cluster_vectors(made.embedded, CLUSTERS, kinds=made.words))
    states, of_states = timed(lambda: cluster_vectors(made.states, CLUSTERS))
    _, of_labels = timed(lambda: mutual_information(embedded.labels, states.labels))
    _, of_chance = timed(lambda: shuffled_information(embedded.labels, states.labels))
    return {
        "vectors": tokens, "size": SIZE, "k": CLUSTERS, "nats": found.embedding.nats, "whole": whole,
        "clusters of embeddings": of_embedded, "clusters of states": of_states, "mutual information": of_labels,
        "by chance": of_chance,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:])), indent=2))
