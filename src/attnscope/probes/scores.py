"""A score for every output token and every source token: attention, the lexical probe, saliency."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.trace import Trace, as_array


@dataclass(frozen=True)
class TokenScores(Displayed):
    """Scores of one batch: the higher, the more this source token matters to this output token. NaN on padding."""

    values: Float[Tensor, "batch target source"]
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]
    name: str

    def table(
        self, sentence: int = 0, source: Sequence[str] | None = None, target: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Return one sentence, one row per output token, one column per source token.

        Args:
            sentence: Its position in the batch.
            source: The names of its source tokens.
            target: The names of its target tokens.
        """
        rows, columns = (mask[sentence].cpu().nonzero().flatten() for mask in (self.target_mask, self.source_mask))
        values = as_array(self.values[sentence].detach().cpu()[rows][:, columns])
        return pd.DataFrame(values, token_index(rows, target, "target"), token_index(columns, source, "source"))

    def plot(
        self,
        ax: Axes | None = None,
        sentence: int = 0,
        source: Sequence[str] | None = None,
        target: Sequence[str] | None = None,
    ) -> Axes:
        """Draw one sentence as a heat map."""
        from attnscope import plots

        table = self.table(sentence, source, target)
        return plots.heatmap(
            table.to_numpy(), rows=map(str, table.index), columns=map(str, table.columns), ax=ax, title=self.name,
            diverging=bool((table.to_numpy() < 0).any()), xlabel="source", ylabel="target",
        )  # fmt: skip


def token_index(positions: Tensor, tokens: Sequence[str] | None, side: str) -> pd.Index:
    places: list[int] = positions.tolist()
    return pd.Index([tokens[i] if tokens else i for i in places], name=side)


@dataclass(frozen=True)
class TokenScoreTable(Displayed):
    """The scores of all tokens of several texts."""

    scores: pd.DataFrame  # one row per text, output token and source token
    name: str

    @classmethod
    def of(cls, parts: Iterable[tuple[TokenScores, Trace]], name: str) -> "TokenScoreTable":
        """Return the scores of several batches; of classifiers, without the columns of the target."""
        tables, texts = list[pd.DataFrame](), 0
        for scores, trace in parts:
            table = token_table(scores.values, trace)
            tables.append(table.assign(text=table["text"] + texts))
            texts += len(trace.source)
        require(bool(tables), "there is no text: the data are empty")
        table = pd.concat(tables, ignore_index=True)
        single = not table["target_position"].any()
        return cls(table.drop(columns=["target_position", "target"]) if single else table, name)

    def table(self) -> pd.DataFrame:
        """Return one row per source token: text, position, token, score; of a translator, for each output token."""
        return self.scores

    def plot(self, ax: Axes | None = None, text: int = 0) -> Axes:
        """Draw one text, one row per output token, one column per source token."""
        from attnscope import plots

        rows = self.scores[self.scores["text"] == text]
        require(len(rows) > 0, f"there is no text {text}; they are 0 to {self.scores['text'].max()}")
        steps = rows["target_position"] if "target_position" in rows else pd.Series(0, rows.index)
        # Target x source; in a language model, NaN where a target is predicted from earlier tokens.
        values = rows.assign(step=steps).pivot_table("score", "step", "position", dropna=False).to_numpy()
        targets = rows["target"][~steps.duplicated()] if "target" in rows else pd.Series([""])
        tokens = rows["token"][~rows["position"].duplicated()]
        return plots.heatmap(
            values, rows=targets.map(str), columns=tokens.map(str), ax=ax, title=self.name,
            diverging=bool((values < 0).any()), xlabel="source", ylabel="target",
        )  # fmt: skip


def token_table(values: Float[Tensor, "batch target source"], trace: Trace) -> pd.DataFrame:
    """Return one row per text, output token and source token that is not padding; with names of tokens if any."""
    text, step, position = trace.pairs.nonzero().cpu().unbind(1)
    source, target = trace.source_tokens, trace.target_tokens
    places = list(zip(text.tolist(), step.tolist(), position.tolist(), strict=True))
    columns = {
        "text": text.numpy(),
        "target_position": step.numpy(),
        "target": [int(trace.target[b, t]) if target is None else target[b][t] for b, t, _ in places],
        "position": position.numpy(),
        "token": [int(trace.source[b, s]) if source is None else source[b][s] for b, _, s in places],
        "score": as_array(values.detach().cpu()[text, step, position]),
    }
    return pd.DataFrame(columns)


def over_words(
    values: Float[Tensor, "batch target source"],
    source_mask: Bool[Tensor, "batch source"],
    target_mask: Bool[Tensor, "batch target"],
) -> Float[Tensor, "batch target source"]:
    """Return the values, NaN on padding."""
    return values.masked_fill(~(target_mask[:, :, None] & source_mask[:, None]), torch.nan)


def attention_scores(trace: Trace, head: int | None = None) -> TokenScores:
    """Return α of one head of the last layer; without a head, the mean over heads.

    Args:
        trace: A forward pass.
        head: Index of the head; None: the mean over heads.
    """
    weights = trace.attention.mean(1) if head is None else trace.attention[:, head]
    values = weights.detach().masked_fill(~trace.pairs, torch.nan)
    return TokenScores(values, trace.source_mask, trace.target_mask, "attention α")
