"""Which words do people link? The Hansards gold alignments (Mihalcea and Pedersen 2003), as a task would cut them.

The 447 sentence pairs come as words. A task may cut these further; links are found between the pieces, and two words
are linked where any of their pieces are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attnscope.probes.alignment import Align, AlignmentQuality, GoldLinks, Links, word_links
from attnscope.tasks import Batch, Preparation, Translation, pad
from attnscope.tasks.text.origins import fingerprint, read
from attnscope.tasks.text.rows import Row, described

FILE = "word_alignments/en-fr_hansards.jsonl.gz"
EXPECTED = (
    f"{described(FILE)}, with the fields source and target (lists of words), alignment (sure links) and possible "
    "(other links), which are lists of pairs [source, target] counted from 0"
)


@dataclass(frozen=True)
class Side:
    """One sentence in pieces, and the number of the word that each piece belongs to."""

    pieces: list[str]
    words: list[int]

    @classmethod
    def of(cls, words: Sequence[str], preparation: Preparation) -> "Side":
        cut = [preparation.words(word) or [word] for word in words]
        return cls([piece for pieces in cut for piece in pieces], [i for i, pieces in enumerate(cut) for _ in pieces])


@dataclass(frozen=True)
class LinkedPair:
    """A sentence pair and what annotators say about it."""

    source: Side
    target: Side
    gold: GoldLinks

    def score(self, links: Links, counts: Align) -> None:
        """Links between pieces, judged as links between words."""
        counts.update(word_links(links, self.source.words, self.target.words), self.gold)


def checksum() -> str:
    """Of the gold alignments: what changes when they change."""
    return fingerprint(FILE, EXPECTED)


def linked_pairs(preparation: Preparation, count: int) -> list[LinkedPair]:
    """So many of the sentence pairs, always the same, the shortest first."""
    rows = read(FILE, (), EXPECTED)
    chosen = np.random.default_rng(0).permutation(len(rows))[:count]
    return sorted((linked_pair(rows[i], preparation) for i in chosen), key=lambda pair: len(pair.source.pieces))


def linked_pair(row: Row, preparation: Preparation) -> LinkedPair:
    source, target = row.text("source"), row.text("target")
    if isinstance(source, str) or isinstance(target, str):
        raise row.wrong("gold links need sentences as lists of words, not as strings")
    gold = GoldLinks.of(row.field("alignment"), row.field("possible"))
    return LinkedPair(Side.of(source, preparation), Side.of(target, preparation), gold)


def in_batches(
    task: Translation, pairs: Sequence[LinkedPair], size: int
) -> Iterator[tuple[Batch, Sequence[LinkedPair]]]:
    """The sentence pairs in the task's numbers, with end tokens as in training."""
    for start in range(0, len(pairs), size):
        group = pairs[start : start + size]
        source = task.corpus.source.encode([pair.source.pieces for pair in group])
        target = task.corpus.target.encode([pair.target.pieces for pair in group])
        yield Batch(*pad(task.marks[0].around(source)), *pad(task.marks[1].around(target))), group


def by_chance(pairs: Sequence[LinkedPair], seed: int) -> AlignmentQuality:
    """Every target piece linked to a source piece at random."""
    random, counts = np.random.default_rng(seed), Align()
    for pair in pairs:
        origins: list[int] = random.integers(0, len(pair.source.pieces), len(pair.target.pieces)).tolist()
        pair.score(frozenset(zip(origins, range(len(origins)), strict=True)), counts)
    return counts.result()
