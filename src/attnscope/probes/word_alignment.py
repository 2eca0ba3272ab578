"""Do scores align the words that translate each other? Word alignments and error rates (beyond the papers)

An alignment of a sentence pair is a set of points (source position, target position), counted from zero. With a
predicted alignment A, sure points S and possible points P, of which the sure ones are part (Och and Ney 2003):
precision = |A ∩ P| / |A|, recall = |A ∩ S| / |S|, AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|). Counts are summed over
the corpus first.

Alignments are written in Pharaoh format: "0-0 1-2", one line per sentence pair, source first. A gold line may mark a
point that is only possible with a p in place of the hyphen: "0-0 1p2". Some files count from 0 and others from 1,
which a line does not show, so `base` is required.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
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
from attnscope.models.capabilities import Decoding
from attnscope.models.inference import Model, traces
from attnscope.models.inputs import Data, Inputs, as_batches
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.tasks import Task
from attnscope.tasks.batch import NOWHERE, Batch

AlignmentPoint = tuple[int, int]  # source position, target position, from zero
Alignment = frozenset[AlignmentPoint]


@dataclass(frozen=True)
class GoldAlignment:
    """The annotated alignment of one sentence pair. Every sure point is possible."""

    sure: Alignment
    possible: Alignment

    @classmethod
    def of(cls, sure: Iterable[Iterable[int]], possible: Iterable[Iterable[int]] = ()) -> "GoldAlignment":
        """Return the gold alignment of these points; possible ones may or may not repeat the sure ones.

        >>> sorted(GoldAlignment.of(sure=[[0, 0]], possible=[[1, 0]]).possible)
        [(0, 0), (1, 0)]
        """
        certain = frozenset((source, target) for source, target in sure)
        return cls(certain, certain | frozenset((source, target) for source, target in possible))

    def __post_init__(self) -> None:
        require(self.sure <= self.possible, "a sure point is missing among the possible ones; use GoldAlignment.of")


# Alignments from scores


def argmax_alignment(
    scores: Float[Tensor, "batch target source"],
    source_mask: Bool[Tensor, "batch source"],
    target_mask: Bool[Tensor, "batch target"],
    unlinked: Bool[Tensor, "batch source"] | None = None,
) -> list[Alignment]:
    """Return an alignment of each target token to its highest source token, the first where several tie.

    Args:
        scores: Higher means that source and target token belong together.
        source_mask: Source tokens that compete for the highest score.
        target_mask: Target tokens that are aligned.
        unlinked: Source tokens, such as end tokens, that leave a target token unaligned where they score highest.
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
    """Return the points whose score is at least the threshold."""
    return alignments_from_mask((scores >= threshold) & source_mask[:, None] & target_mask[:, :, None])


def alignments_from_mask(chosen: Bool[Tensor, "batch target source"]) -> list[Alignment]:
    """Return the alignment of each sentence whose points are the true entries."""
    points: list[set[AlignmentPoint]] = [set() for _ in range(len(chosen))]
    for sentence, target, source in chosen.nonzero().tolist():
        points[sentence].add((source, target))
    return list(map(frozenset, points))


def intersect_alignments(
    one: Sequence[Iterable[AlignmentPoint]], other: Sequence[Iterable[AlignmentPoint]]
) -> list[Alignment]:
    """Return the points of both directions; transpose those of the opposite direction first."""
    require(
        len(one) == len(other), f"there are alignments of {len(one)} sentences, but of {len(other)} in the other list"
    )
    return [frozenset(a) & frozenset(b) for a, b in zip(one, other, strict=True)]


def transpose_alignment(alignment: Iterable[AlignmentPoint]) -> Alignment:
    """Return the same points with source and target exchanged.

    >>> sorted(transpose_alignment({(0, 1), (2, 3)}))
    [(1, 0), (3, 2)]
    """
    return frozenset((target, source) for source, target in alignment)


def subword_to_word_alignment(
    alignment: Iterable[AlignmentPoint], source_words: Sequence[int], target_words: Sequence[int]
) -> Alignment:
    """Return the alignment of words: two words are aligned where any of their subwords are.

    Args:
        alignment: Points between subwords.
        source_words: The index of the word that each source subword belongs to.
        target_words: The same for target subwords.

    >>> sorted(subword_to_word_alignment({(0, 0), (1, 0), (2, 1)}, source_words=[0, 0, 1], target_words=[0, 1]))
    [(0, 0), (1, 1)]
    """
    return frozenset((source_words[source], target_words[target]) for source, target in alignment)


# Error rates


@dataclass(frozen=True)
class AlignmentQuality(Displayed):
    """Precision, recall, F1 and alignment error rate over a corpus, with the counts behind them."""

    predicted: int  # |A|
    sure: int  # |S|
    hit_sure: int  # |A ∩ S|
    hit_possible: int  # |A ∩ P|
    sentences: int

    @property
    def precision(self) -> float:
        return ratio(self.hit_possible, self.predicted)

    @property
    def recall(self) -> float:
        return ratio(self.hit_sure, self.sure)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 0.0 if total == 0 else 2 * self.precision * self.recall / total

    @property
    def error_rate(self) -> float:
        """AER."""
        return 1 - ratio(self.hit_sure + self.hit_possible, self.predicted + self.sure)

    def table(self) -> pd.DataFrame:
        """One row."""
        rates = {"AER": self.error_rate, "precision": self.precision, "recall": self.recall, "F1": self.f1}
        return pd.DataFrame([rates | vars(self)])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.bars(self.table()[["AER", "precision", "recall", "F1"]].T, ax=ax)


def ratio(part: int, whole: int) -> float:
    return part / whole if whole else nan


@dataclass(frozen=True)
class AlignmentCounts(Sums):
    predicted: int
    sure: int
    hit_sure: int
    hit_possible: int
    sentences: int = 1


class AlignmentAccumulator(Accumulator[AlignmentCounts]):
    """Counts predicted points against gold ones over sentence pairs."""

    def update(self, alignment: Iterable[AlignmentPoint], gold: GoldAlignment) -> None:
        points = frozenset(alignment)
        self.add(AlignmentCounts(len(points), len(gold.sure), len(points & gold.sure), len(points & gold.possible)))

    def result(self) -> AlignmentQuality:
        return AlignmentQuality(**vars(self.total))


# The probe


@dataclass(frozen=True)
class WordAlignmentQuality(Displayed):
    """The quality of alignments by attention, and by IBM Model 1, against gold word alignments."""

    each: Mapping[str, AlignmentQuality]

    def table(self) -> pd.DataFrame:
        """One row per aligner."""
        return pd.concat({name: quality.table().iloc[0] for name, quality in self.each.items()}, axis=1).T.rename_axis(
            "aligner"
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Bars of the four rates."""
        from attnscope import plots

        return plots.bars(self.table()[["AER", "precision", "recall", "F1"]].astype(float).T, ax=ax)


def word_alignment(model: Model, data: Data = None, decoding: Decoding | None = None) -> WordAlignmentQuality:
    """Return how well attention, and IBM Model 1 fitted to the same sentences, find gold word alignments.

    Each target word is aligned with its most attended source word, the mean over the heads of the last layer.

    Args:
        model: A translator.
        data: Sentence pairs with gold alignments: texts with `alignment`, or Batches with `gold_attention`.
        decoding: See `traces`.
    """
    from attnscope.probes.heads.ranking import head_alignments, model_1_reference  # both import this module
    from attnscope.probes.heads.sentences import SpecialTokens, read_sentences

    inputs = as_sentences(model, data)
    sentences = list(read_sentences(model, inputs))
    gold = gold_alignments(inputs, [part.batch for part in sentences])
    reference = model_1_reference(model, sentences)
    counts = {"attention": AlignmentAccumulator(), "IBM Model 1": AlignmentAccumulator()}
    for part in sentences:
        (_, trace), *_ = traces(model, [part.batch], decoding=decoding)
        weights, special = trace.attention.mean(1, keepdim=True)[None], SpecialTokens.of(model, part.batch)
        alignments = head_alignments(weights, part, special)[0][0]
        likeliest = [alignment.sure for alignment in reference(part)]
        for name, predicted in (("attention", alignments), ("IBM Model 1", likeliest)):
            for alignment, expected in zip(predicted, gold[: len(part)], strict=True):
                counts[name].update(alignment, expected)
        gold = gold[len(part) :]
    return WordAlignmentQuality({name: count.result() for name, count in counts.items()})


def as_sentences(model: Model, data: Data) -> Inputs | list[Batch]:
    """Return texts as Inputs, which may have alignments, and other data as Batches."""
    batches = isinstance(data, Batch | Task) or data is None or callable(data)
    listed = isinstance(data, list | tuple) and all(isinstance(batch, Batch) for batch in data)
    return list(as_batches(model, data)) if batches or listed else Inputs.of(model, data)


def gold_alignments(inputs: Inputs | list[Batch], batches: Sequence[Batch]) -> list[GoldAlignment]:
    """Return the gold alignment of every sentence pair."""
    if isinstance(inputs, Inputs) and inputs.alignments is not None:
        return [GoldAlignment.of(sure, possible) for sure, possible in inputs.alignments]
    gold = []
    for batch in batches:
        if batch.gold_attention is None or batch.target.shape[1] == 1:
            raise AttnscopeError(
                "these sentences have no gold word alignments; give texts with 'alignment', such as '0-0 1-2'"
            )
        for row, mask in zip(batch.gold_attention.tolist(), batch.target_mask.tolist(), strict=True):
            points = [(source, i) for i, (source, real) in enumerate(zip(row, mask, strict=True)) if real]
            gold.append(GoldAlignment.of(point for point in points if point[0] != NOWHERE))
    return gold


# Pharaoh format


POINT = re.compile(r"(\d+)([-p])(\d+)")


def to_pharaoh(alignment: Iterable[AlignmentPoint], *, base: int) -> str:
    """Return one line, counting positions from `base`.

    >>> to_pharaoh({(1, 2), (0, 0)}, base=1)
    '1-1 2-3'
    """
    check_base(base)
    return " ".join(f"{source + base}-{target + base}" for source, target in sorted(alignment))


def alignment_from_pharaoh(line: str, *, base: int) -> Alignment:
    """Return the points of one line, sure and possible alike.

    >>> sorted(alignment_from_pharaoh("1-1 2-3", base=1))
    [(0, 0), (1, 2)]
    """
    gold = gold_from_pharaoh(line, base=base)
    return gold.sure | gold.possible


def gold_from_pharaoh(line: str, *, base: int) -> GoldAlignment:
    """Return the sure and the possible points of one line."""
    check_base(base)
    points = [parse_point(text, base) for text in line.split()]
    sure, possible = ([point for mark, point in points if mark == kind] for kind in "-p")
    return GoldAlignment.of(sure, possible)


def read_pharaoh(path: Path, *, base: int) -> list[GoldAlignment]:
    """Return the gold alignment of every line of a file; an empty line is a sentence pair without points."""
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
        raise AttnscopeError(
            f"'{text}' is not an alignment point; expected source-target, such as 3-4, or 3p4 for a possible one"
        )
    source, target = int(match[1]) - base, int(match[3]) - base
    if min(source, target) < 0:
        raise AttnscopeError(f"'{text}' counts from 0, but base=1 says that these positions count from 1")
    return match[2], (source, target)


def check_base(base: int) -> None:
    require(base in (0, 1), f"positions count from 0 or from 1: base is 0 or 1, not {base}")


# Attention on gold positions (baan2019 §2)


def attention_on_gold(
    attention: Float[Tensor, "batch target source"],
    gold: Int[Tensor, "batch target"],
    target_mask: Bool[Tensor, "batch target"],
) -> Float[Tensor, " tokens"]:
    """Return the attention of every target token on its gold source position; on the first where there is none.

    >>> attention, gold = torch.tensor([[[0.9, 0.1], [0.3, 0.7]]]), torch.tensor([[0, 1]])
    >>> attention_on_gold(attention, gold, torch.tensor([[True, True]]))
    tensor([0.9000, 0.7000])
    """
    return attention.gather(2, gold.clamp(min=0)[..., None])[..., 0][target_mask]


def mean_attention_on_gold(model: EncoderDecoder, batches: Iterable[Batch]) -> float:
    """Return the mean attention on gold positions over all target tokens, with greedy decoding."""
    weights = []
    for batch, trace in traces(model, batches, teacher_forcing=0.0):
        if batch.gold_attention is None:
            raise AttnscopeError("these sentences have no gold attention")
        weights.append(attention_on_gold(trace.attention.mean(1), batch.gold_attention, batch.target_mask))
    return torch.cat(weights).mean().item()
