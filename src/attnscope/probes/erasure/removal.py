"""What is decided when some words are gone?

A word goes in one of two ways: it is cut out of the text, which the model then reads anew, or the attention on it is
set to zero and the rest renormalised, and what the encoder made of it stays in its neighbours (Serrano & Smith 2019).
"""

# TODO(docstring) join:
#   In which order do words go? The highest score first, for any score of any method, and chance to compare with.
#   What is decided about texts without their first words, or with those alone, in the order of a score?
#   How are the answers about single texts gathered, by the name of the score that they are about?
#   How are scores compared with each other, and with chance, over a stream of texts?
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import AttnscopeError, choose, require
from attnscope.models.inference import device_of, evaluating
from attnscope.probes.counterfactual import Reweighing, class_probabilities
from attnscope.probes.scores import TokenScores, attention_scores
from attnscope.tasks.batch import PAD, SPECIALS, Batch
from attnscope.training.objectives.guidance import PARTS, POSITIONS, scattered

# Of some texts (by number), each with several choices of what is kept, the probability of every class.
Decide = Callable[[Int[Tensor, " texts"], Bool[Tensor, "texts choices source"]], Float[Tensor, "texts choices classes"]]

TOKENS_AT_ONCE = 1 << 17  # of shortened texts, padding included, that are read in one pass


def remove_tokens(reading: Reweighing, batch: Batch) -> Decide:
    """Words are cut out of the text, which closes over the gap, and is read anew."""

    def decide(texts: Tensor, kept: Tensor) -> Tensor:
        rows = texts.repeat_interleave(kept.shape[1])  # texts times choices
        size = max(1, TOKENS_AT_ONCE // kept.shape[2])
        pieces = zip(rows.split(size), kept.flatten(0, 1).split(size), strict=True)
        with evaluating(reading.model):
            logits: Tensor = torch.cat([reading.model(keep_tokens(batch, *piece)).logits for piece in pieces])
        classes: Tensor = class_probabilities(logits).unflatten(0, kept.shape[:2])
        return classes

    return decide


def mask_attention(reading: Reweighing, batch: Batch) -> Decide:
    """Words lose their attention to the others; the encoder has run once."""
    words = erasable_words(batch)

    def decide(texts: Tensor, kept: Tensor) -> Tensor:
        everything = words.new_ones(kept.shape[1], *words.shape)  # choices x batch x source
        everything[:, texts] = kept.transpose(0, 1)
        with torch.no_grad():
            return reading.probabilities(renormalise(reading.own, everything, words))[:, texts].transpose(0, 1)

    return decide


REMOVALS: dict[str, Callable[[Reweighing, Batch], Decide]] = {"attention": mask_attention, "text": remove_tokens}


def removal_named(name: str) -> Callable[[Reweighing, Batch], Decide]:
    return REMOVALS[choose("way to erase words", name, REMOVALS)]


def keep_tokens(batch: Batch, rows: Int[Tensor, " rows"], kept: Bool[Tensor, "rows source"]) -> Batch:
    """These texts with only the kept positions, moved together, and no wider than they need to be."""
    order = (~kept).long().argsort(dim=1, stable=True)[:, : int(kept.sum(1).max())]  # kept ones first, in their order
    mask = kept.gather(1, order)
    return replace(
        batch,
        source=batch.source[rows].gather(1, order).masked_fill(~mask, PAD),
        source_mask=mask,
        target=batch.target[rows],
        target_mask=batch.target_mask[rows],
        gold_attention=None,
        rationale=None,
    )


def renormalise(
    weights: Float[Tensor, "batch heads source"],
    kept: Bool[Tensor, "choices batch source"],
    words: Bool[Tensor, "batch source"],
) -> Float[Tensor, "choices batch heads source"]:
    """The attention of each head on what is kept; where it had none there, uniform over the words that are kept."""
    left = weights * kept[:, :, None]
    mass = left.sum(-1, keepdim=True)
    remaining = (kept & words)[:, :, None].to(weights)
    uniform = remaining / remaining.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(mass > 0, left / mass, uniform)


RANDOM = "random"  # the name of chance among the scores
Score = TokenScores | Float[Tensor, "batch source"]


def erasable_words(batch: Batch) -> Bool[Tensor, "batch source"]:
    """The words of the text, without special ones and padding."""
    return batch.source_mask & (batch.source >= len(SPECIALS))


def score_values(score: Score, batch: Batch) -> Float[Tensor, "batch source"]:
    """A score of the one decision that a classifier takes: a number for each source position."""
    values = score.values if isinstance(score, TokenScores) else score[:, None]
    if values.shape != (len(batch), 1, batch.source.shape[1]):
        given, expected = tuple(values.shape), (len(batch), 1, batch.source.shape[1])
        raise AttnscopeError(
            f"a score of shape batch x target x source = {given} was given; these texts and their one decision "
            f"each need {expected}"
        )
    return values[:, 0].detach().to(batch.source.device)


def random_score(batch: Batch, seed: int) -> Float[Tensor, "batch source"]:
    """A number from 0 to 1 for each position. It follows from text and seed, whatever else is in the batch."""
    places = torch.arange(batch.source.shape[1], device=batch.source.device)
    text = (scattered(batch.source * POSITIONS + places) * batch.source_mask).sum(1, keepdim=True)
    drawn = scattered(text + scattered(places + seed * POSITIONS))
    return (drawn & (PARTS - 1)).double() / PARTS


def named_scores(scores: Mapping[str, Score], batch: Batch, draws: int, seed: int) -> dict[str, list[Score]]:
    """Each score by its name, and as many random ones as there are draws."""
    require(RANDOM not in scores, f"the order {RANDOM!r} is made here; give your score another name")
    drawn: list[Score] = [random_score(batch, seed + 1 + i) for i in range(draws)]
    return {name: [score] for name, score in scores.items()} | {RANDOM: drawn}


def rank_by_score(
    values: Float[Tensor, "batch source"], words: Bool[Tensor, "batch source"], ties: Float[Tensor, "batch source"]
) -> Int[Tensor, "batch source"]:
    """The place of each word when the highest comes first, from 0; equal ones go by `ties`. What is no word comes last.

    >>> scores, everywhere = torch.tensor([[0.2, 0.7, 0.1]]), torch.ones(1, 3, dtype=torch.bool)
    >>> rank_by_score(scores, everywhere, ties=torch.zeros(1, 3))
    tensor([[1, 0, 2]])
    """
    if (values.isnan() & words).any():
        raise AttnscopeError("the score is NaN at a word of a text; give it a number there")
    lowered = values.masked_fill(~words, -torch.inf)
    shuffled = ties.masked_fill(~words, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    order = shuffled.gather(1, lowered.gather(1, shuffled).argsort(dim=-1, descending=True, stable=True))
    # -inf is a score as well, so what is no word is put behind once more.
    order = order.gather(1, (~words).gather(1, order).long().argsort(dim=-1, stable=True))
    return order.argsort(-1)


MIN_WORDS = 2  # words: something must go, and something stay


@dataclass(frozen=True)
class ErasedTexts:
    """The texts of a batch that have at least two words; special tokens always stay."""

    decide: Decide
    texts: Int[Tensor, " texts"]  # their numbers in the batch
    places: Int[Tensor, "texts source"]  # of each word in the order of the score, the highest at 0
    words: Bool[Tensor, "texts source"]
    present: Bool[Tensor, "texts source"]  # words and special tokens
    whole: Float[Tensor, "texts classes"]  # the probability of every class while nothing is gone

    @classmethod
    def of(
        cls, model: nn.Module, batch: Batch, score: Score, way: str, seed: int = 0, reading: Reweighing | None = None
    ) -> "ErasedTexts":
        """`reading` is what the model made of this batch, if it was asked already; equal scores are drawn by `seed`."""
        batch = batch.to(device_of(model))
        reading = reading or Reweighing.of(model, batch)
        words, texts = erasable_words(batch), has_two_words(batch).nonzero()[:, 0]
        places = rank_by_score(score_values(score, batch)[texts], words[texts], random_score(batch, seed)[texts])
        decide = removal_named(way)(reading, batch)
        return cls(decide, texts, places, words[texts], batch.source_mask[texts], reading.said[texts])

    @cached_property
    def lengths(self) -> Int[Tensor, " texts"]:
        return self.words.sum(1)

    @cached_property
    def decision(self) -> Int[Tensor, " texts"]:
        return self.whole.argmax(-1)

    def top(self, rows: Int[Tensor, " rows"], counts: Int[Tensor, "rows choices"]) -> Bool[Tensor, "rows choices _"]:
        """The first words of each text, as many as each choice says."""
        return self.words[rows, None] & (self.places[rows, None] < counts[..., None])

    def without(
        self, rows: Int[Tensor, " rows"], counts: Int[Tensor, "rows choices"]
    ) -> Float[Tensor, "rows choices classes"]:
        """The probabilities of some texts when their first words are gone."""
        return self.decide(self.texts[rows], self.present[rows, None] & ~self.top(rows, counts))

    def alone(
        self, rows: Int[Tensor, " rows"], counts: Int[Tensor, "rows choices"]
    ) -> Float[Tensor, "rows choices classes"]:
        """... and when all other words are gone."""
        special = (self.present & ~self.words)[rows, None]
        return self.decide(self.texts[rows], special | self.top(rows, counts))


def has_two_words(batch: Batch) -> Bool[Tensor, " batch"]:
    return erasable_words(batch).sum(1) >= MIN_WORDS


R = TypeVar("R", bound="TextRecords")


@dataclass(frozen=True)
class TextRecords:
    """Tensors whose first axis is that of the texts."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __add__(self: R, other: R) -> R:
        """These texts, then those."""
        return concatenate_records([self, other], 0)


def concatenate_records(records: Sequence[R], axis: int) -> R:
    """On the first axis, other texts; on the second, the same texts by other scores, which are draws."""
    kind = type(records[0])
    return kind(**{f.name: torch.cat([getattr(one, f.name) for one in records], axis) for f in fields(kind)})


def mean_over_draws(values: Tensor) -> Tensor:
    """The mean over the second axis, for each text."""
    return values.double().mean(1)


class RecordAccumulator(Generic[R]):
    """Records so far, by the name of the score, and how many texts had to be left out."""

    def __init__(self) -> None:
        self.records: dict[str, R] = {}
        self.left_out = 0

    def add(self, records: Mapping[str, R], left_out: int) -> None:
        if self.records and set(self.records) != set(records):
            raise AttnscopeError(
                f"every text needs the same scores: first {', '.join(self.records)}, then {', '.join(records)}"
            )
        self.records = {name: self.records[name] + new if self.records else new for name, new in records.items()}
        self.left_out += left_out

    def merge(self, other: "RecordAccumulator[R]") -> None:
        """Take in what another pass, over other texts, has gathered."""
        if other.records:
            self.add(other.records, other.left_out)

    def gathered(self) -> dict[str, R]:
        if not self.records:
            raise AttnscopeError("nothing has come by yet; give at least one batch before asking for a result")
        if not any(map(len, self.records.values())):
            raise AttnscopeError(f"all {self.left_out} texts had to be left out; nothing can be said about them")
        return self.records


class ScoreAccumulator(RecordAccumulator[R], Generic[R]):
    """Attention, the scores that are given, and as many random ones as `draws` says, each asked the same.

    `way` is "attention" (set to zero and renormalised) or "text" (words cut out, the rest read anew). Texts of fewer
    than two words are left out, for one word always stays. Every text draws its own random scores.
    """

    def __init__(self, way: str, draws: int, seed: int):
        super().__init__()
        require(draws > 0, f"draws={draws}: chance needs at least one random score")
        removal_named(way)
        self.way, self.draws, self.seed = way, draws, seed

    def update(self, model: nn.Module, batch: Batch, scores: Mapping[str, Score] | None = None) -> None:
        reading = Reweighing.of(model, batch)
        everything = {"attention": attention_scores(reading.trace)} | dict(scores or {})
        named = named_scores(everything, batch, self.draws, self.seed)
        found = {
            name: concatenate_records([self.ask(reading, batch, one) for one in drawn], 1)
            for name, drawn in named.items()
        }
        self.add(found, left_out=int((~has_two_words(batch)).sum()))

    @abstractmethod
    def ask(self, reading: Reweighing, batch: Batch, score: Score) -> R:
        """What this score says about these texts."""
