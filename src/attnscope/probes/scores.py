"""What is a score? A number for every output word and every source word: attention, the lexical probe, saliency."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.models.trace import Trace


@dataclass(frozen=True)
class TokenScores(Displayed):
    """Higher means: this source word matters more to this output word. NaN on padding."""

    values: Float[Tensor, "batch target source"]
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]
    name: str

    def table(
        self, sentence: int = 0, source: Sequence[str] | None = None, target: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """One sentence: one row per output word, one column per source word; by name where its words are given."""
        rows, columns = (mask[sentence].cpu().nonzero().flatten() for mask in (self.target_mask, self.source_mask))
        values = self.values[sentence].detach().cpu()[rows][:, columns].numpy()
        return pd.DataFrame(values, named(rows, target, "target"), named(columns, source, "source"))

    def plot(
        self,
        ax: Axes | None = None,
        sentence: int = 0,
        source: Sequence[str] | None = None,
        target: Sequence[str] | None = None,
    ) -> Axes:
        from attnscope import plots

        table = self.table(sentence, source, target)
        return plots.heatmap(
            table.to_numpy(), rows=map(str, table.index), columns=map(str, table.columns), ax=ax, title=self.name,
            diverging=bool((table.to_numpy() < 0).any()), xlabel="source", ylabel="target",
        )  # fmt: skip


def named(places: Tensor, words: Sequence[str] | None, side: str) -> pd.Index:
    numbers: list[int] = places.tolist()
    return pd.Index([words[i] if words else i for i in numbers], name=side)


def over_words(
    values: Float[Tensor, "batch target source"],
    source_mask: Bool[Tensor, "batch source"],
    target_mask: Bool[Tensor, "batch target"],
) -> Float[Tensor, "batch target source"]:
    """The same values, NaN on padding."""
    return values.masked_fill(~(target_mask[:, :, None] & source_mask[:, None]), torch.nan)


def attention_scores(trace: Trace, head: int | None = None) -> TokenScores:
    """α of one head; without a number, the mean over heads."""
    weights = trace.attention.mean(1) if head is None else trace.attention[:, head]
    values = over_words(weights.detach(), trace.source_mask, trace.target_mask)
    return TokenScores(values, trace.source_mask, trace.target_mask, "attention α")
