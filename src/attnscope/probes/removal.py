"""Predictions of a classifier without some tokens, in the order of a score (for erasure and plausibility).

A token is removed in one of three ways: it is deleted from the text, which the model then reads again; the same, but
what is left is decoded and tokenised again, as ferret does; or its attention is set to zero and the rest renormalised,
while its neighbours' states still depend on it (Serrano & Smith 2019). Start and end tokens are never removed.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import AttnscopeError, choose, require
from attnscope.models.adapters.readers import TokenizerReader
from attnscope.models.capabilities import ReadsTexts
from attnscope.models.inference import Model, by_length, device_of, evaluating, logits_of
from attnscope.probes.counterfactual import CounterfactualAttention, class_probabilities
from attnscope.probes.scores import TokenScores, attention_scores
from attnscope.tasks.batch import Batch
from attnscope.training.objectives import HASH_LEVELS, POSITIONS, splitmix64

RANDOM = "random"  # the name of random scores
MIN_WORDS = 2  # one is removed, one stays

Score = TokenScores | Float[Tensor, "batch source"]
# For some texts (rows of the batch), each with several masks of the positions to keep, the class probabilities.
Predict = Callable[
    [Int[Tensor, " texts"], Bool[Tensor, "texts choices source"]], Float[Tensor, "texts choices classes"]
]


# TokenScores and their order


def has_two_words(batch: Batch) -> Bool[Tensor, " batch"]:
    return batch.word_mask.sum(1) >= MIN_WORDS


def score_values(score: Score, batch: Batch) -> Float[Tensor, "batch source"]:
    """Return the score of each source token for the one prediction of a classifier."""
    values = score.values if isinstance(score, TokenScores) else score[:, None]
    shape, expected = tuple(values.shape), (len(batch), 1, batch.source.shape[1])
    if shape != expected:
        raise AttnscopeError(
            f"a score of shape batch x target x source = {shape} does not fit; these texts, with one decision each, "
            f"need {expected}"
        )
    return values[:, 0].detach().to(batch.source.device)


def random_score(batch: Batch, seed: int) -> Float[Tensor, "batch source"]:
    """Return a random score between 0 and 1 that depends on text and seed, not on the rest of the batch."""
    positions = torch.arange(batch.source.shape[1], device=batch.source.device)
    keys = splitmix64(text_keys(batch)[:, None] + splitmix64(positions + seed * POSITIONS))
    return (keys & (HASH_LEVELS - 1)).double() / HASH_LEVELS


def text_keys(batch: Batch) -> Int[Tensor, " batch"]:
    """Return random integers that follow from the tokens of each text."""
    positions = torch.arange(batch.source.shape[1], device=batch.source.device)
    return (splitmix64(batch.source * POSITIONS + positions) * batch.source_mask).sum(1)


def rank_by_score(
    values: Float[Tensor, "batch source"], words: Bool[Tensor, "batch source"], ties: Float[Tensor, "batch source"]
) -> Int[Tensor, "batch source"]:
    """Return the rank of each word from 0, the highest score first; ties by `ties`; other tokens last.

    >>> scores, everywhere = torch.tensor([[0.2, 0.7, 0.1]]), torch.ones(1, 3, dtype=torch.bool)
    >>> rank_by_score(scores, everywhere, ties=torch.zeros(1, 3))
    tensor([[1, 0, 2]])
    """
    if (values.isnan() & words).any():
        raise AttnscopeError("the score is NaN at a word of a text; give it a number there")
    lowered = values.masked_fill(~words, -torch.inf)
    shuffled = ties.masked_fill(~words, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    order = shuffled.gather(1, lowered.gather(1, shuffled).argsort(dim=-1, descending=True, stable=True))
    # A word may have the score -inf too, so other tokens are moved behind the words explicitly.
    order = order.gather(1, (~words).gather(1, order).long().argsort(dim=-1, stable=True))
    return order.argsort(-1)


# Removal


def remove_tokens(reading: CounterfactualAttention, batch: Batch) -> Predict:
    """Return predictions for texts without some tokens, read again by the model."""
    return read_again(reading, batch, batch.keep)


def retokenise(reading: CounterfactualAttention, batch: Batch) -> Predict:
    """Return the same, but what is left of a text is decoded and tokenised again, as ferret does (Attanasio 2023).

    A text of a model that has no tokenizer of its own is the list of its tokens, so nothing changes there.
    """
    reader = reading.model.reader if isinstance(reading.model, ReadsTexts) else None
    if not isinstance(reader, TokenizerReader):
        return remove_tokens(reading, batch)

    def reread(rows: Tensor, keep: Tensor) -> Batch:
        words = zip(batch.source[rows], keep & batch.word_mask[rows], strict=True)
        source, mask = reader.retokenise([ids[there].tolist() for ids, there in words])
        return Batch(source.to(rows.device), mask.to(rows.device), batch.target[rows], batch.target_mask[rows])

    return read_again(reading, batch, reread)


def read_again(reading: CounterfactualAttention, batch: Batch, rest: Callable[[Tensor, Tensor], Batch]) -> Predict:
    """Return predictions for what is left of texts, those of similar length together.

    Equal texts, such as a text without the one or the other of two equal words in a row, are read once: so their
    probabilities are the same to the last bit, and effects that are tied stay tied.
    """

    def predict(texts: Tensor, keep: Tensor) -> Tensor:
        if not len(texts):  # a batch of one-word texts
            return reading.own_probabilities.new_empty(*keep.shape[:2], reading.own_probabilities.shape[-1])
        changed = rest(texts.repeat_interleave(keep.shape[1]), keep.flatten(0, 1))
        rows, same = first_of_each(text_keys(changed))
        groups = [rows[group] for group in by_length(reading.model, changed.source_mask[rows].sum(1))]
        with evaluating(reading.model):
            parts = [logits_of(reading.model, changed.keep(group, changed.source_mask[group])) for group in groups]
        logits = torch.cat(parts)
        whole = logits.new_empty(len(changed), *logits.shape[1:]).index_copy_(0, torch.cat(groups), logits)
        classes: Tensor = class_probabilities(whole[rows[same]]).unflatten(0, keep.shape[:2])
        return classes

    return predict


def first_of_each(keys: Int[Tensor, " rows"]) -> tuple[Int[Tensor, " different"], Int[Tensor, " rows"]]:
    """Return the first row of each different key, and for each row the place of its key among them.

    >>> first_of_each(torch.tensor([7, 5, 7]))
    (tensor([1, 0]), tensor([1, 0, 1]))
    """
    different, place = keys.unique(return_inverse=True)
    rows = torch.arange(len(keys), device=keys.device)
    return torch.full_like(different, len(keys)).scatter_reduce(0, place, rows, "amin"), place


def mask_attention(reading: CounterfactualAttention, batch: Batch) -> Predict:
    """Return predictions with zero attention on some tokens; the encoder runs once."""
    words = batch.word_mask

    def predict(texts: Tensor, keep: Tensor) -> Tensor:
        everything = words.new_ones(keep.shape[1], *words.shape)  # choices x batch x source
        everything[:, texts] = keep.transpose(0, 1)
        with torch.no_grad():
            return reading.probabilities(renormalise(reading.own, everything, words))[:, texts].transpose(0, 1)

    return predict


REMOVALS: dict[str, Callable[[CounterfactualAttention, Batch], Predict]] = {
    "attention": mask_attention,
    "text": remove_tokens,
    "retokenised text": retokenise,
}


def renormalise(
    weights: Float[Tensor, "batch heads source"],
    keep: Bool[Tensor, "choices batch source"],
    words: Bool[Tensor, "batch source"],
) -> Float[Tensor, "choices batch heads source"]:
    """Return each head's attention restricted to `keep`; where it has none there, uniform over the words in `keep`."""
    left = weights * keep[:, :, None]
    mass = left.sum(-1, keepdim=True)
    remaining = (keep & words)[:, :, None].to(weights)
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
    positive: Int[Tensor, " texts"]  # how many words have a score above zero
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
            removal: A name in REMOVALS.
            seed: Random seed of ties.
            reading: The model's pass over this batch, if it has already run.
        """
        batch = batch.to(device_of(model))
        reading = reading or CounterfactualAttention.of_classifier(model, batch)
        words, texts = batch.word_mask, has_two_words(batch).nonzero()[:, 0]
        values, there = score_values(score, batch)[texts], words[texts]
        ranks, positive = rank_by_score(values, there, random_score(batch, seed)[texts]), (values > 0) & there
        predict = REMOVALS[choose("way to remove tokens", removal, REMOVALS)](reading, batch)
        whole = reading.own_probabilities[texts]
        return cls(predict, texts, ranks, there, batch.source_mask[texts], positive.sum(1), whole)

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

    def without_and_alone(
        self, counts: Int[Tensor, "texts choices"]
    ) -> tuple[Float[Tensor, "texts choices classes"], Float[Tensor, "texts choices classes"]]:
        """The class probabilities of all texts without their top words, and with these alone."""
        top = self.top(torch.arange(len(self.texts), device=self.texts.device), counts)
        special = (self.present & ~self.words)[:, None]
        keep = torch.cat([self.present[:, None] & ~top, special | top], 1)
        without, alone = self.predict(self.texts, keep).chunk(2, 1)
        return without, alone


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
    return kind(**{f.name: torch.cat([getattr(record, f.name) for record in records], axis) for f in fields(kind)})


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
            raise AttnscopeError("there is no data yet; update with at least one batch before taking a result")
        if not any(map(len, self.records.values())):
            raise AttnscopeError(f"all {self.left_out} texts were left out, so there is no result")
        return self.records


class ScoreAccumulator(RecordAccumulator[R], Generic[R]):
    """Compares attention, other scores and random ones over batches.

    Texts of fewer than two words are left out.

    Args:
        removal: "attention" (set to zero and renormalised), "text" (tokens deleted, the rest read again) or
            "retokenised text" (what is left is decoded and tokenised again).
        draws: Random scores per text.
        seed: Random seed.
    """

    def __init__(self, removal: str, draws: int, seed: int):
        super().__init__()
        require(draws > 0, f"draws={draws}: chance needs at least one random score")
        self.removal, self.draws, self.seed = choose("way to remove tokens", removal, REMOVALS), draws, seed

    def update(self, model: Model, batch: Batch, scores: Mapping[str, Score] | None = None) -> None:
        reading = CounterfactualAttention.of_classifier(model, batch)
        all_scores: dict[str, Score] = {"attention": attention_scores(reading.trace), **(scores or {})}
        require(RANDOM not in all_scores, f"{RANDOM!r} is the name of random scores; give yours another one")
        records = {name: self.measure(reading, batch, score) for name, score in all_scores.items()}
        random = [self.measure(reading, batch, random_score(batch, self.seed + 1 + i)) for i in range(self.draws)]
        self.add(records | {RANDOM: concatenate_records(random, 1)}, left_out=int((~has_two_words(batch)).sum()))

    @abstractmethod
    def measure(self, reading: CounterfactualAttention, batch: Batch, score: Score) -> R:
        """Return the records of these texts by one score."""
