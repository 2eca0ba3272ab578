"""Does a score find the words that translate each other? Error rates against gold word alignments. (beyond the papers)

A link is a pair (source position, target position), counted from zero; the links of a sentence pair are a set.
"""

# TODO(docstring) join:
#   How much of the attention is where it should be? (baan2019 §2: what attentive guidance asks for)
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, require
from attnscope.models import EncoderDecoder
from attnscope.models.inference import traces
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.tasks.batch import Batch

# TODO(docstring) join:
#   Which words does a score link? By the highest score, by a threshold, or where two directions agree.
#   How many links are right, how many were found? (Och and Ney 2003: alignment error rate)
#   How are links written down? Pharaoh format: "0-0 1-2", a line a sentence pair, source first.


AlignmentPoint = tuple[int, int]  # source position, target position, from zero
Alignment = frozenset[AlignmentPoint]


def argmax_alignment(
    scores: Float[Tensor, "batch target source"],
    source_mask: Bool[Tensor, "batch source"],
    target_mask: Bool[Tensor, "batch target"],
    unlinked: Bool[Tensor, "batch source"] | None = None,
) -> list[Alignment]:
    """A link from each target word to its highest source word, the first where several are.

    Target words outside their mask get none. Source words outside theirs do not compete. `unlinked` ones (an end
    token, say) do, and a target word that they win stays without a link.
    """
    best = scores.masked_fill(~source_mask[:, None], -torch.inf).argmax(-1)  # batch x target
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best[..., None], True)
    linkable = source_mask if unlinked is None else source_mask & ~unlinked
    return alignments_from_mask(chosen & linkable[:, None] & target_mask[:, :, None])


def threshold_alignment(
    scores: Float[Tensor, "batch target source"],
    source_mask: Bool[Tensor, "batch source"],
    target_mask: Bool[Tensor, "batch target"],
    threshold: float,
) -> list[Alignment]:
    """A link wherever the score is at least the threshold."""
    return alignments_from_mask((scores >= threshold) & source_mask[:, None] & target_mask[:, :, None])


def alignments_from_mask(chosen: Bool[Tensor, "batch target source"]) -> list[Alignment]:
    found: list[set[AlignmentPoint]] = [set() for _ in range(len(chosen))]
    for sentence, target, source in chosen.nonzero().tolist():
        found[sentence].add((source, target))
    return [frozenset(links) for links in found]


def intersect_alignments(
    one: Sequence[Iterable[AlignmentPoint]], other: Sequence[Iterable[AlignmentPoint]]
) -> list[Alignment]:
    """The links that two directions agree on; transpose those of the opposite direction first."""
    require(len(one) == len(other), f"there are links of {len(one)} sentences, but of {len(other)} in the other list")
    return [frozenset(a) & frozenset(b) for a, b in zip(one, other, strict=True)]


def transpose_alignment(links: Iterable[AlignmentPoint]) -> Alignment:
    """The same links, source and target exchanged.

    >>> sorted(transpose_alignment({(0, 1), (2, 3)}))
    [(1, 0), (3, 2)]
    """
    return frozenset((target, source) for source, target in links)


def subword_to_word_alignment(
    links: Iterable[AlignmentPoint], source_words: Sequence[int], target_words: Sequence[int]
) -> Alignment:
    """Links between pieces of words as links between words: two words are linked where any of their pieces are.

    `source_words` and `target_words` give the number of the word that each piece belongs to.

    >>> sorted(subword_to_word_alignment({(0, 0), (1, 0), (2, 1)}, source_words=[0, 0, 1], target_words=[0, 1]))
    [(0, 0), (1, 1)]
    """
    return frozenset((source_words[source], target_words[target]) for source, target in links)


@dataclass(frozen=True)
class GoldAlignment:
    """What annotators say about one sentence pair. Every sure link is possible."""

    sure: Alignment
    possible: Alignment

    @classmethod
    def of(cls, sure: Iterable[Iterable[int]], possible: Iterable[Iterable[int]] = ()) -> "GoldAlignment":
        """From any pairs of source and target position; possible ones may or may not repeat the sure ones.

        >>> sorted(GoldAlignment.of(sure=[[0, 0]], possible=[[1, 0]]).possible)
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
        return fraction(self.hit_possible, self.links)

    @property
    def recall(self) -> float:
        return fraction(self.hit_sure, self.sure)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 0.0 if total == 0 else 2 * self.precision * self.recall / total

    @property
    def error_rate(self) -> float:
        """AER."""
        return 1 - fraction(self.hit_sure + self.hit_possible, self.links + self.sure)

    def table(self) -> pd.DataFrame:
        """One row."""
        rates = {"AER": self.error_rate, "precision": self.precision, "recall": self.recall, "F1": self.f1}
        return pd.DataFrame([rates | vars(self)])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.bars(self.table()[["AER", "precision", "recall", "F1"]].T, ax=ax)


@dataclass(frozen=True)
class AlignmentCounts(Sums):
    links: int
    sure: int
    hit_sure: int
    hit_possible: int
    sentences: int = 1


class AlignmentAccumulator(Accumulator[AlignmentCounts]):
    """Counts links against gold ones, sentence pair by sentence pair."""

    def update(self, links: Iterable[AlignmentPoint], gold: GoldAlignment) -> None:
        found = frozenset(links)
        self.add(AlignmentCounts(len(found), len(gold.sure), len(found & gold.sure), len(found & gold.possible)))

    def result(self) -> AlignmentQuality:
        return AlignmentQuality(**vars(self.total))


def fraction(part: int, whole: int) -> float:
    """NaN of nothing."""
    return part / whole if whole else nan


POINT = re.compile(r"(\d+)([-p])(\d+)")


def to_pharaoh(links: Iterable[AlignmentPoint], *, base: int) -> str:
    """One line.

    >>> to_pharaoh({(1, 2), (0, 0)}, base=1)
    '1-1 2-3'
    """
    check_base(base)
    return " ".join(f"{source + base}-{target + base}" for source, target in sorted(links))


def alignment_from_pharaoh(line: str, *, base: int) -> Alignment:
    """The links of one line, sure and possible alike.

    >>> sorted(alignment_from_pharaoh("1-1 2-3", base=1))
    [(0, 0), (1, 2)]
    """
    gold = gold_from_pharaoh(line, base=base)
    return gold.sure | gold.possible


def gold_from_pharaoh(line: str, *, base: int) -> GoldAlignment:
    """The sure and the possible links of one line."""
    check_base(base)
    found = [parse_point(text, base) for text in line.split()]
    return GoldAlignment.of(
        sure=[link for mark, link in found if mark == "-"], possible=[link for mark, link in found if mark == "p"]
    )


def read_pharaoh(path: Path, *, base: int) -> list[GoldAlignment]:
    """Every line of a file; an empty line is a sentence pair without links."""
    gold = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            gold.append(gold_from_pharaoh(line, base=base))
        except AttnscopeError as error:
            raise AttnscopeError(f"{path}, line {number}: {error}") from None
    return gold


def parse_point(text: str, base: int) -> tuple[str, AlignmentPoint]:
    match = POINT.fullmatch(text)
    if match is None:
        raise AttnscopeError(f"'{text}' is no link; expected source-target, such as 3-4, or 3p4 for a possible one")
    source, target = int(match[1]) - base, int(match[3]) - base
    if min(source, target) < 0:
        raise AttnscopeError(f"'{text}' counts from 0, but base=1 says that these links count from 1")
    return match[2], (source, target)


def check_base(base: int) -> None:
    require(base in (0, 1), f"links count from 0 or from 1: base is 0 or 1, not {base}")


def attention_on_gold(
    attention: Float[Tensor, "batch target source"],
    guide: Int[Tensor, "batch target"],
    target_mask: Bool[Tensor, "batch target"],
) -> Float[Tensor, " words"]:
    """For every output word, the attention to the position that the guide names; to the first where it names none.

    >>> attention, gold = torch.tensor([[[0.9, 0.1], [0.3, 0.7]]]), torch.tensor([[0, 1]])
    >>> attention_on_gold(attention, gold, torch.tensor([[True, True]]))
    tensor([0.9000, 0.7000])
    """
    return attention.gather(2, guide.clamp(min=0)[..., None])[..., 0][target_mask]


def mean_attention_on_gold(model: EncoderDecoder, batches: Iterable[Batch]) -> float:
    """The mean over all output words, while the decoder hears its own words."""
    found = []
    for batch, trace in traces(model, batches, teacher_forcing=0.0):
        if batch.gold_attention is None:
            raise AttnscopeError("these sentences come without a guide, so it is not known where attention should be")
        found.append(attention_on_gold(trace.attention.mean(1), batch.gold_attention, batch.target_mask))
    return torch.cat(found).mean().item()
