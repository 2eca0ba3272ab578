"""Which heads are to be believed, and do the ways to tell agree? (beyond the papers)

Four rankings: by alignment error against gold links or IBM Model 1, by what is lost without the head, by what is lost
when it looks at all positions alike, by agreement with the influence of words. Rank 1 is to be believed most.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from attnscope.display import Displayed, Figure
from attnscope.errors import choose, require
from attnscope.models.asking import as_it_was
from attnscope.models.ibm import IBMModel1
from attnscope.probes.accumulator import Accumulator
from attnscope.probes.agreement.scores import Scores
from attnscope.probes.drawing import Axes
from attnscope.probes.heads.again import Again
from attnscope.probes.heads.each import Heads
from attnscope.probes.heads.effects import Effect, EffectSums, effect_sums
from attnscope.probes.heads.links import AlignHeads, Reference, Special, gold_reference, model_1_reference
from attnscope.probes.heads.pictures import by_head, grid, grids
from attnscope.probes.heads.pointing import PointHeads, Pointing
from attnscope.probes.heads.replay import replayed
from attnscope.probes.heads.stream import Item, Sentences, taken, weights_of
from attnscope.probes.saliency import EmbedsSource, influence
from attnscope.probes.stream import Model, Stream
from attnscope.probes.word_alignment import GoldAlignment
from attnscope.tasks.batch import Batch

Method = Callable[[EmbedsSource, Batch], Scores]
OF = ("gold", "own")
CORRELATIONS = ("kendall", "spearman")
# Each way to rank: its column, and whether less is better.
RANKINGS = {
    "alignment": ("alignment error", True),
    "ablation": ("loss if ablated", False),
    "uniform": ("loss if uniform", False),
    "saliency": ("τ with saliency", False),
}


@dataclass(frozen=True)
class Ranked(Displayed):
    """What each criterion says of each layer and head."""

    ablated: Effect
    uniform: Effect
    alignment_error: Heads | None  # None for a classifier
    reference: str | None  # what the links were held against
    pointing: Pointing | None  # None where a saliency was not asked for, or the embeddings cannot be reached
    of: str  # whose output: "gold" or the model's "own"
    sentences: int
    words: int

    def columns(self) -> dict[str, Heads]:
        found = {} if self.alignment_error is None else {"alignment error": self.alignment_error}
        for name, effect in {"ablated": self.ablated, "uniform": self.uniform}.items():
            found |= {f"loss if {name}": effect.loss, f"± if {name}": effect.error}
            found |= {f"changed if {name}": effect.changed}
        if self.pointing is not None:
            found |= {"τ with saliency": self.pointing.kendall, "top 5 % of saliency": self.pointing.top}
        return found

    def ranks(self) -> pd.DataFrame:
        """A row a layer and head, a column a ranking; equals share the better rank, and NaN has none."""
        table = by_head(self.columns())
        known = {name: how for name, how in RANKINGS.items() if how[0] in table}
        return pd.DataFrame(
            {name: table[column].rank(method="min", ascending=less) for name, (column, less) in known.items()}
        )

    def table(self) -> pd.DataFrame:
        """A row a layer and head: what was measured, then the rank by each criterion."""
        return by_head(self.columns()).join(self.ranks().add_prefix("rank by "))

    def agreement_between(self, correlation: str = "kendall") -> pd.DataFrame:
        """The rank correlation of every two rankings, Kendall's τ-b or Spearman's ρ; NaN where one ties all heads."""
        choose("rank correlation", correlation, CORRELATIONS)
        return self.ranks().corr(method="kendall" if correlation == "kendall" else "spearman", min_periods=2)

    def plot(self, column: str = "loss if ablated", ax: Axes | None = None) -> Axes:
        """One column of the table, a layer a row, a head a column."""
        return grid(self.table(), column, ax)

    def pictures(self) -> Figure:
        """Small multiples of what the rankings go by."""
        return grids(self.table(), [RANKINGS[str(name)][0] for name in self.ranks()])

    def plot_between(self, correlation: str = "kendall", ax: Axes | None = None) -> Axes:
        """How far the rankings agree."""
        from attnscope import plots

        table = self.agreement_between(correlation)
        return plots.heatmap(
            table.to_numpy(), rows=table.index, columns=table.columns, ax=ax, diverging=True, annotate=True,
            title=f"agreement of rankings ({correlation})",
        )  # fmt: skip


class Rank:
    """Everything behind the rankings of one model's heads, over a stream of sentences."""

    def __init__(
        self,
        model: Model,
        reference: Reference | None = None,
        saliency: Method | None = influence,
        of: str = "gold",
        named: str | None = None,
        **forward: Any,
    ):
        self.model, self.of, self.named, self.forward = model, of, named, forward
        self.saliency = saliency if hasattr(model, "source_inputs") else None
        self.effects = Accumulator[EffectSums]()
        self.align = None if reference is None else AlignHeads(reference)
        self.point = None if self.saliency is None else PointHeads()

    def update(self, sentences: Sentences) -> None:
        batch, special = sentences.batch, Special.of(self.model, sentences.batch)
        with as_it_was(self.model):
            again = Again(self.model, batch, self.forward)
            self.effects.add(effect_sums(again))
        weights = weights_of(again.trace)
        if self.align is not None:
            self.align.update(weights, sentences, special)
        if self.point is not None and self.saliency is not None:
            found = self.saliency(cast(EmbedsSource, self.model), batch, **self.forward)
            self.point.update(weights, found, batch, special.source)

    def merge(self, other: "Rank") -> None:
        """Take in what was gathered of another part of the stream, in the same way."""
        self.effects.merge(other.effects)
        if self.align is not None and other.align is not None:
            self.align.merge(other.align)
        if self.point is not None and other.point is not None:
            self.point.merge(other.point)

    def result(self) -> Ranked:
        total = self.effects.total
        effects = total.effects()
        return Ranked(
            ablated=effects["ablated"], uniform=effects["uniform"],
            alignment_error=None if self.align is None else self.align.result(), reference=self.named,
            pointing=None if self.point is None else self.point.result(),
            of=self.of, sentences=total.sentences, words=int(total.words),
        )  # fmt: skip


def ranked(
    model: Model,
    batches: Stream[Item],
    gold: Sequence[GoldAlignment] | None = None,
    most: int | None = None,
    of: str = "gold",
    aligner: IBMModel1 | None = None,
    saliency: Method | None = influence,
    **forward: Any,
) -> Ranked:
    """Rank all heads by the first `most` sentences; for each batch, two passes of the model for each layer and head.

    `gold` are links in the order of the sentences: between words where the stream gives texts, between positions where
    it gives batches. Without them a translation is held against IBM Model 1: `aligner`, or one fitted to these very
    sentences. of="own" asks about what the model itself says. saliency=None leaves that ranking out: it takes a pass
    back for each output word. What else is given goes to the forward pass. The model is left as it was.
    """
    choose("output", of, OF)
    require(gold is None or of == "gold", "gold links are between gold sentences; with of='own' there are none to give")
    stream = taken(batches, model, most)
    if of == "own":
        stream = (replayed(model, sentences) for sentences in stream)
    reference, named = None, None
    if gold is not None:
        reference, named = gold_reference(gold), "gold links"
    else:
        held = list(stream)  # numbers of words only
        stream = iter(held)
        if any(sentences.batch.target.shape[1] > 1 for sentences in held):  # a classifier says one word
            reference, named = model_1_reference(model, held, aligner), "IBM Model 1"
    rank = Rank(model, reference, saliency, of, named, **forward)
    for sentences in stream:
        rank.update(sentences)
    return rank.result()
