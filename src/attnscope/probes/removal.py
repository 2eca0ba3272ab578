"""Predictions of a classifier without some tokens, in the order of a score (for erasure and plausibility).

A token is removed in one of two ways: it is deleted from the text, which the model then reads again, or its attention
is set to zero and the rest renormalised, while its neighbours' states still know of it (Serrano & Smith 2019). Start
and end tokens are never removed.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Generic, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import AttnscopeError, choose, require
from attnscope.models.inference import Model, device_of, evaluating
from attnscope.probes.counterfactual import CounterfactualAttention, class_probabilities
from attnscope.probes.scores import TokenScores, attention_scores
from attnscope.tasks.batch import PAD, Batch
from attnscope.training.objectives import HASH_LEVELS, POSITIONS, splitmix64

RANDOM = "random"  # the name of random scores
TOKENS_AT_ONCE = 1 << 17  # of shortened texts, padding included, in one forward pass
MIN_WORDS = 2  # one is removed, one stays

Removal = Literal["attention", "text"]
Score = TokenScores | Float[Tensor, "batch source"]
# For some texts (rows of the batch), each with several masks of kept positions, the probabilities of the classes.
Predict = Callable[
    [Int[Tensor, " texts"], Bool[Tensor, "texts choices source"]], Float[Tensor, "texts choices classes"]
]


# TokenScores and their order


def has_two_words(batch: Batch) -> Bool[Tensor, " batch"]:
    return batch.word_mask.sum(1) >= MIN_WORDS


def score_values(score: Score, batch: Batch) -> Float[Tensor, "batch source"]:
    """Return the score of each source token for the one prediction of a classifier."""
    values = score.values if isinstance(score, TokenScores) else score[:, None]
    given, expected = tuple(values.shape), (len(batch), 1, batch.source.shape[1])
    if given != expected:
        raise AttnscopeError(
            f"a score of shape batch x target x source = {given} was given; these texts and their one decision "
            f"each need {expected}"
        )
    return values[:, 0].detach().to(batch.source.device)


def random_score(batch: Batch, seed: int) -> Float[Tensor, "batch source"]:
    """Return a random score between 0 and 1 that depends on text and seed, not on the rest of the batch."""
    positions = torch.arange(batch.source.shape[1], device=batch.source.device)
    text = (splitmix64(batch.source * POSITIONS + positions) * batch.source_mask).sum(1, keepdim=True)
    keys = splitmix64(text + splitmix64(positions + seed * POSITIONS))
    return (keys & (HASH_LEVELS - 1)).double() / HASH_LEVELS


def rank_by_score(
    values: Float[Tensor, "batch source"], words: Bool[Tensor, "batch source"], ties: Float[Tensor, "batch source"]
) -> Int[Tensor, "batch source"]:
    """Return the rank of each word from 0, the highest score first; ties by `ties`. What is no word comes last.

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


# Removal


def remove_tokens(reading: CounterfactualAttention, batch: Batch) -> Predict:
    """Return predictions for texts without some tokens, read again by the model."""

    def predict(texts: Tensor, kept: Tensor) -> Tensor:
        rows = texts.repeat_interleave(kept.shape[1])  # texts times choices
        size = max(1, TOKENS_AT_ONCE // kept.shape[2])
        pieces = zip(rows.split(size), kept.flatten(0, 1).split(size), strict=True)
        with evaluating(reading.model):
            logits: Tensor = torch.cat([reading.model(keep_tokens(batch, *piece)).logits for piece in pieces])
        classes: Tensor = class_probabilities(logits).unflatten(0, kept.shape[:2])
        return classes

    return predict


def mask_attention(reading: CounterfactualAttention, batch: Batch) -> Predict:
    """Return predictions with zero attention on some tokens; the encoder runs once."""
    words = batch.word_mask

    def predict(texts: Tensor, kept: Tensor) -> Tensor:
        everything = words.new_ones(kept.shape[1], *words.shape)  # choices x batch x source
        everything[:, texts] = kept.transpose(0, 1)
        with torch.no_grad():
            return reading.probabilities(renormalise(reading.own, everything, words))[:, texts].transpose(0, 1)

    return predict


REMOVALS: dict[str, Callable[[CounterfactualAttention, Batch], Predict]] = {
    "attention": mask_attention,
    "text": remove_tokens,
}


def keep_tokens(batch: Batch, rows: Int[Tensor, " rows"], kept: Bool[Tensor, "rows source"]) -> Batch:
    """Return these texts with only the kept positions, and no more padding than they need."""
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
        source_special=None if batch.source_special is None else batch.source_special[rows].gather(1, order),
    )


def renormalise(
    weights: Float[Tensor, "batch heads source"],
    kept: Bool[Tensor, "choices batch source"],
    words: Bool[Tensor, "batch source"],
) -> Float[Tensor, "choices batch heads source"]:
    """Return each head's attention on what is kept; where it had none there, uniform over the words that are kept."""
    left = weights * kept[:, :, None]
    mass = left.sum(-1, keepdim=True)
    remaining = (kept & words)[:, :, None].to(weights)
    uniform = remaining / remaining.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(mass > 0, left / mass, uniform)


@dataclass(frozen=True)
class ErasedTexts:
    """The texts of a batch that have at least two words, with their words ranked by a score."""

    predict: Predict
    texts: Int[Tensor, " texts"]  # their rows in the batch
    ranks: Int[Tensor, "texts source"]  # of each word, the highest score at 0
    words: Bool[Tensor, "texts source"]
    present: Bool[Tensor, "texts source"]  # words and special tokens
    whole: Float[Tensor, "texts classes"]  # class probabilities while nothing is removed

    @classmethod
    def of(
        cls,
        model: Model,
        batch: Batch,
        score: Score,
        removal: str,
        seed: int = 0,
        reading: CounterfactualAttention | None = None,
    ) -> "ErasedTexts":
        """Rank the words of each text.

        Args:
            model: A classifier.
            batch: Texts.
            score: Higher means that a token is removed earlier.
            removal: "attention" or "text".
            seed: Random seed of ties.
            reading: The model's pass over this batch, if there was one.
        """
        batch = batch.to(device_of(model))
        reading = reading or CounterfactualAttention.of_classifier(model, batch)
        words, texts = batch.word_mask, has_two_words(batch).nonzero()[:, 0]
        ranks = rank_by_score(score_values(score, batch)[texts], words[texts], random_score(batch, seed)[texts])
        predict = REMOVALS[choose("way to remove tokens", removal, REMOVALS)](reading, batch)
        return cls(predict, texts, ranks, words[texts], batch.source_mask[texts], reading.own_probabilities[texts])

    @cached_property
    def lengths(self) -> Int[Tensor, " texts"]:
        return self.words.sum(1)

    @cached_property
    def decision(self) -> Int[Tensor, " texts"]:
        return self.whole.argmax(-1)

    def top(self, rows: Int[Tensor, " rows"], counts: Int[Tensor, "rows choices"]) -> Bool[Tensor, "rows choices _"]:
        """The first words of each text, as many as each choice says."""
        return self.words[rows, None] & (self.ranks[rows, None] < counts[..., None])

    def without(
        self, rows: Int[Tensor, " rows"], counts: Int[Tensor, "rows choices"]
    ) -> Float[Tensor, "rows choices classes"]:
        """The class probabilities of some texts without their top words."""
        return self.predict(self.texts[rows], self.present[rows, None] & ~self.top(rows, counts))

    def alone(
        self, rows: Int[Tensor, " rows"], counts: Int[Tensor, "rows choices"]
    ) -> Float[Tensor, "rows choices classes"]:
        """The class probabilities of some texts with only their top words."""
        special = (self.present & ~self.words)[rows, None]
        return self.predict(self.texts[rows], special | self.top(rows, counts))


# Records of texts, by the name of a score


@dataclass(frozen=True)
class TextRecords:
    """Tensors whose first axis is that of the texts; the second, where there is one, that of random draws."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))


R = TypeVar("R", bound=TextRecords)


def concatenate_records(records: Sequence[R], axis: int) -> R:
    """Join records of different texts (axis 0), or of the same texts by several random scores (axis 1)."""
    kind = type(records[0])
    return kind(**{f.name: torch.cat([getattr(one, f.name) for one in records], axis) for f in fields(kind)})


def mean_over_draws(values: Tensor) -> Tensor:
    """Return the mean over the second axis, for each text."""
    return values.double().mean(1)


class RecordAccumulator(Generic[R]):
    """Records so far, by the name of the score, and the number of texts that were left out."""

    def __init__(self) -> None:
        self.records: dict[str, R] = {}
        self.left_out = 0

    def add(self, records: Mapping[str, R], left_out: int) -> None:
        if self.records and set(self.records) != set(records):
            raise AttnscopeError(
                f"every text needs the same scores: first {', '.join(self.records)}, then {', '.join(records)}"
            )
        self.records = {
            name: concatenate_records([self.records[name], new], 0) if self.records else new
            for name, new in records.items()
        }
        self.left_out += left_out

    def merge(self, other: "RecordAccumulator[R]") -> None:
        """Add the records of another pass, over other texts."""
        if other.records:
            self.add(other.records, other.left_out)

    def gathered(self) -> dict[str, R]:
        if not self.records:
            raise AttnscopeError("nothing has come by yet; give at least one batch before asking for a result")
        if not any(map(len, self.records.values())):
            raise AttnscopeError(f"all {self.left_out} texts had to be left out, so there is no result")
        return self.records


class ScoreAccumulator(RecordAccumulator[R], Generic[R]):
    """Compares attention, given scores and random ones over batches.

    Texts of fewer than two words are left out.

    Args:
        removal: "attention" (set to zero and renormalised) or "text" (tokens deleted, the rest read again).
        draws: Random scores per text.
        seed: Random seed.
    """

    def __init__(self, removal: str, draws: int, seed: int):
        super().__init__()
        require(draws > 0, f"draws={draws}: chance needs at least one random score")
        self.removal, self.draws, self.seed = choose("way to remove tokens", removal, REMOVALS), draws, seed

    def update(self, model: Model, batch: Batch, scores: Mapping[str, Score] | None = None) -> None:
        reading = CounterfactualAttention.of_classifier(model, batch)
        given: dict[str, Score] = {"attention": attention_scores(reading.trace), **(scores or {})}
        require(RANDOM not in given, f"random scores are added here; give your score another name than {RANDOM!r}")
        records = {name: self.measure(reading, batch, score) for name, score in given.items()}
        random = [self.measure(reading, batch, random_score(batch, self.seed + 1 + i)) for i in range(self.draws)]
        self.add(records | {RANDOM: concatenate_records(random, 1)}, left_out=int((~has_two_words(batch)).sum()))

    @abstractmethod
    def measure(self, reading: CounterfactualAttention, batch: Batch, score: Score) -> R:
        """Return the records of these texts by one score."""
