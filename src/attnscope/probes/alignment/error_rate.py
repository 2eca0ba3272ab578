"""How many links are right, how many were found? (Och and Ney 2003: alignment error rate)

With links A, sure links S and possible links P, of which the sure ones are part: precision = |A ∩ P| / |A|, recall =
|A ∩ S| / |S|, AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|). Counts are summed over the corpus first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan

import pandas as pd

from attnscope.display import Displayed
from attnscope.errors import require
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.alignment.links import Link, Links
from attnscope.probes.drawing import Axes


@dataclass(frozen=True)
class GoldLinks:
    """What annotators say about one sentence pair. Every sure link is possible."""

    sure: Links
    possible: Links

    @classmethod
    def of(cls, sure: Iterable[Iterable[int]], possible: Iterable[Iterable[int]] = ()) -> "GoldLinks":
        """From any pairs of source and target position; possible ones may or may not repeat the sure ones.

        >>> sorted(GoldLinks.of(sure=[[0, 0]], possible=[[1, 0]]).possible)
        [(0, 0), (1, 0)]
        """
        certain = frozenset((source, target) for source, target in sure)
        return cls(certain, certain | frozenset((source, target) for source, target in possible))

    def __post_init__(self) -> None:
        require(self.sure <= self.possible, "a sure link is missing among the possible ones; make gold links by .of")


@dataclass(frozen=True)
class AlignmentQuality(Displayed):
    """Counts over a corpus, and the usual four numbers."""

    links: int  # |A|
    sure: int  # |S|
    hit_sure: int  # |A ∩ S|
    hit_possible: int  # |A ∩ P|
    sentences: int

    @property
    def precision(self) -> float:
        return share(self.hit_possible, self.links)

    @property
    def recall(self) -> float:
        return share(self.hit_sure, self.sure)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 0.0 if total == 0 else 2 * self.precision * self.recall / total

    @property
    def error_rate(self) -> float:
        """AER."""
        return 1 - share(self.hit_sure + self.hit_possible, self.links + self.sure)

    def table(self) -> pd.DataFrame:
        """One row."""
        rates = {"AER": self.error_rate, "precision": self.precision, "recall": self.recall, "F1": self.f1}
        return pd.DataFrame([rates | vars(self)])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.bars(self.table()[["AER", "precision", "recall", "F1"]].T, ax=ax)


@dataclass(frozen=True)
class LinkCounts(Sums):
    links: int
    sure: int
    hit_sure: int
    hit_possible: int
    sentences: int = 1


class Align(Accumulator[LinkCounts]):
    """Counts links against gold ones, sentence pair by sentence pair."""

    def update(self, links: Iterable[Link], gold: GoldLinks) -> None:
        found = frozenset(links)
        self.add(LinkCounts(len(found), len(gold.sure), len(found & gold.sure), len(found & gold.possible)))

    def result(self) -> AlignmentQuality:
        return AlignmentQuality(**vars(self.total))


def share(part: int, whole: int) -> float:
    """NaN of nothing."""
    return part / whole if whole else nan
