"""Which words are looked at? The most frequent ones (MF), or a sample (RS). (tutek2020 §3.4, footnote 6)"""

from collections.abc import Collection, Iterable

import numpy as np
from jaxtyping import Int

from attnscope.errors import require
from attnscope.tasks.batch import SPECIALS, Batch

WORDS = 1000  # tutek2020 §3.4
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


def most_frequent(counts: Counts, number: int = WORDS) -> Numbers:
    """MF: of equally frequent words, those of the lowest number. All that occur, if there are no more.

    >>> most_frequent(np.array([0, 0, 0, 5, 1, 5, 9]), 2)
    array([3, 6])
    """
    check(counts, number)
    order = np.argsort(-counts, kind="stable")[:number]
    return np.sort(order[counts[order] > 0])


def sampled(counts: Counts, number: int = WORDS, seed: int = 0, power: float = POWER) -> Numbers:
    """RS: words drawn without replacement, in proportion to a power of their counts."""
    check(counts, number)
    known = np.flatnonzero(counts)
    share = counts[known] ** power
    random = np.random.default_rng(seed)
    return np.sort(random.choice(known, min(number, len(known)), replace=False, p=share / share.sum()))


def check(counts: Counts, number: int) -> None:
    require(number > 0, f"at least one word must be looked at, not {number}")
    require(bool(counts.any()), "no word occurs in these batches, apart from special ones and those left out")
