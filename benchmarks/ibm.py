"""What does a round of EM for IBM Model 1 cost, beside NLTK's and beside a round of the compiled eflomal's sampling?

    ATTNSCOPE_DATA=... python benchmarks/ibm.py      Multi30k, English to German, 29,000 pairs
    python benchmarks/ibm.py                         without the corpus: made-up sentences, as many and as long

All three have a NULL word and the same lower-cased words, on one thread, in processor seconds of this process and those
that it starts. A round of eflomal is the difference between long and short runs, so that reading and writing cost
nothing. NLTK's table is compared with ours first, on pairs without a repeated target word: with one, NLTK weighs by the
word and not by its places. Peers that are not installed are left out, and that is said.
"""

import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from attnscope.models.ibm import Bags, ExpectationMaximisation, IBMModel1, translation

Sentences = list[tuple[list[str], list[str]]]

CORPUS = Path("multi30k/en-de.jsonl.gz")
PAIRS, SOURCE_WORDS, TARGET_WORDS, LENGTH = 29_000, 10_000, 18_000, 12.5  # of Multi30k
ROUNDS = 20
SHORT, LONG = 5, 55  # rounds of eflomal
COMPARED, COMPARED_ROUNDS = 500, 3  # pairs and rounds on which NLTK must agree
GOALS = {"NLTK": 100.0, "eflomal": 1.0}  # at least this many times faster


def multi30k() -> Sentences | None:
    folder = os.environ.get("ATTNSCOPE_DATA")
    if not folder or not (Path(folder) / CORPUS).exists():
        return None
    with gzip.open(Path(folder) / CORPUS, "rt", encoding="utf-8") as file:
        rows = (json.loads(line) for line in file)
        return [(words(row["source"]), words(row["target"])) for row in rows if row["split"] == "train"]


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", sentence.lower())


def made_up() -> Sentences:
    """Words as frequent as by Zipf's law, in sentences as long as those of Multi30k."""
    random = np.random.default_rng(0)
    sides = (side(random, SOURCE_WORDS), side(random, TARGET_WORDS))
    return list(zip(*sides, strict=True))


def side(random: np.random.Generator, number: int) -> list[list[str]]:
    chance = 1 / np.arange(1, number + 1)
    lengths = 1 + random.poisson(LENGTH - 1, PAIRS)
    drawn = random.choice(number, lengths.sum(), p=chance / chance.sum()).astype(str).tolist()
    ends = [0, *np.cumsum(lengths).tolist()]
    return [drawn[start:end] for start, end in pairwise(ends)]


def numbered(pairs: Sentences) -> tuple[Bags, dict[str, int], dict[str, int]]:
    source: dict[str, int] = {}
    target: dict[str, int] = {}
    rows = [([source.setdefault(w, len(source)) for w in x], [target.setdefault(w, len(target)) for w in y])
            for x, y in pairs]  # fmt: skip
    return Bags.of(rows, len(source), len(target), null=True), source, target


def spent() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def seconds(call: Callable[[], object]) -> float:
    start = spent()
    call()
    return spent() - start


def ours(pairs: Sentences) -> Iterator[float]:
    bags, *_ = numbered(pairs)
    table = translation(bags.cooccurrences())
    em = ExpectationMaximisation(bags, table)
    while True:
        yield seconds(lambda: [em.update(table.data) for _ in range(ROUNDS)]) / ROUNDS


def nltk_corpus(pairs: Sentences) -> list[Any]:
    from nltk.translate import AlignedSent

    return [AlignedSent(y, x) for x, y in pairs]


def nltk(pairs: Sentences) -> Iterator[float]:
    from nltk.translate import ibm1

    corpus = nltk_corpus(pairs)
    model = ibm1.IBMModel1(corpus, 1)  # the first round also fills its dictionaries
    while True:
        yield seconds(lambda: model.train(corpus))


def eflomal(pairs: Sentences) -> Iterator[float]:
    from eflomal import Aligner

    source, target = ([" ".join(pair[i]) + "\n" for pair in pairs] for i in (0, 1))

    def run(rounds: int) -> None:
        with TemporaryDirectory() as folder:
            aligner = Aligner(model=1, n_iterations=(rounds, 0, 0), n_samplers=1)
            aligner.align(source, target, links_filename_fwd=str(Path(folder) / "links"))

    while True:
        yield (seconds(lambda: run(LONG)) - seconds(lambda: run(SHORT))) / (LONG - SHORT)


def difference_from_nltk(pairs: Sentences) -> float:
    """The largest, over all entries of the two tables."""
    from nltk.translate import ibm1

    chosen = [pair for pair in pairs if len(set(pair[1])) == len(pair[1])][:COMPARED]
    bags, source, target = numbered(chosen)
    table = IBMModel1.fitted(bags, rounds=COMPARED_ROUNDS - 1, tolerance=0).table.toarray()
    theirs = ibm1.IBMModel1(nltk_corpus(chosen), COMPARED_ROUNDS).translation_table
    rows = {**source, None: len(source)}
    return max(abs(table[rows[x], target[y]] - value) for y, entries in theirs.items() for x, value in entries.items())


PEERS = {"NLTK": nltk, "eflomal": eflomal}


def main(turns: int = 3) -> dict[str, Any]:
    real = multi30k()
    pairs = real or made_up()
    result: dict[str, Any] = {
        "corpus": "Multi30k" if real else "made up: ATTNSCOPE_DATA has no Multi30k",
        "pairs": len(pairs),
    }
    present = [name for name in PEERS if find_spec(name.lower())]
    if "NLTK" in present:
        result["largest difference from NLTK"] = gap = difference_from_nltk(pairs)
        assert gap < 1e-9, f"NLTK and we do not compute the same: {gap}"
    clocks = {name: timer(pairs) for name, timer in {"ours": ours, **PEERS}.items() if name in ("ours", *present)}
    times = {name: [] for name in clocks}
    for _ in range(turns):  # in turns, so that a busy machine slows all
        for name, clock in clocks.items():
            times[name].append(next(clock))
    result["ms a round"] = {name: 1e3 * median(values) for name, values in times.items()}
    for name, goal in GOALS.items():
        ratio = median(times[name]) / median(times["ours"]) if name in times else None
        result[name] = {"times faster": ratio, "goal": goal} if ratio else f"not installed: pip install {name.lower()}"
    return result


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
