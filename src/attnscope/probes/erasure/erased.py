"""What is decided about texts without their first words, or with those alone, in the order of a score?"""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.models.asking import device_of
from attnscope.probes.erasure.ordering import Score, by_score, erasable, random_score, values_of
from attnscope.probes.erasure.removal import Decide, way_named
from attnscope.probes.reweighing import Reweighing
from attnscope.tasks.batch import Batch

FEWEST = 2  # words: something must go, and something stay


@dataclass(frozen=True)
class Erased:
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
    ) -> "Erased":
        """`reading` is what the model made of this batch, if it was asked already; equal scores are drawn by `seed`."""
        batch = batch.to(device_of(model))
        reading = reading or Reweighing.of(model, batch)
        words, texts = erasable(batch), long_enough(batch).nonzero()[:, 0]
        places = by_score(values_of(score, batch)[texts], words[texts], random_score(batch, seed)[texts])
        decide = way_named(way)(reading, batch)
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


def long_enough(batch: Batch) -> Bool[Tensor, " batch"]:
    return erasable(batch).sum(1) >= FEWEST
