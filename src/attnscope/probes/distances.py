"""How much of a head's attention follows from the distance, how much from the token attended to? (aitken2021 §3)

The scores (attention logits) of texts as they are, under learned positions, rotary positions and position biases alike:

    score = mean of the row + effect of the distance + effect of the token at the key + rest.

Rows are cut to a window of the last keys, so that each has the same distances; the first token, a sink, is in none.
Shares are of the variance within rows. An effect is the mean product of the scores of two different texts, at the same
distance or at the same token, so that noise averages to zero. The effect of a token on some queries only, such as equal
ones, is in the rest. `positions` permutes texts instead, for one query each: there, the share of words includes the
effect of a word on this query.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.capabilities import PredictsNextToken, needs
from attnscope.models.inference import Model, module_of
from attnscope.models.inputs import Data
from attnscope.models.trace import AttentionRows
from attnscope.probes.language import whole_texts
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class DistanceShares(Displayed):
    """The shares of distance and token in the scores of every head, and its mean score at each distance.

    Attributes:
        distance: The share of the variance within rows that follows from the distance.
        token: The share that follows from the token attended to.
        scores: The mean score at each distance, from 0, less the mean of its row.
        layers: The numbers of the blocks that attend.
    """

    distance: Float[np.ndarray, "layers heads"]
    token: Float[np.ndarray, "layers heads"]
    scores: Float[np.ndarray, "layers heads window"]
    layers: tuple[int, ...]

    def table(self) -> pd.DataFrame:
        """Return one row per layer and head: both shares, the rest, and the distance of the highest mean score."""
        index = pd.MultiIndex.from_product([self.layers, range(self.distance.shape[1])], names=["layer", "head"])
        columns = {
            "distance": self.distance, "token": self.token, "rest": 1 - self.distance - self.token,
            "highest at": self.scores.argmax(-1),
        }  # fmt: skip
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean score at each distance, one row per head."""
        from attnscope import plots

        rows = [f"{layer}.{head}" for layer in self.layers for head in range(self.distance.shape[1])]
        return plots.heatmap(
            self.scores.reshape(len(rows), -1), rows, range(self.scores.shape[-1]), ax=ax, xlabel="distance",
            ylabel="layer.head", diverging=True,
        )  # fmt: skip


def distance_shares(model: Model, data: Data, window: int = 32, max_tokens: int = 512) -> DistanceShares:
    """Return how much of each head's scores follows from the distance, and how much from the token attended to.

    Args:
        model: A language model.
        data: At least two texts that are longer than the window, a path, a table or Batches of whole texts.
        window: How many last keys of each row are compared, the query's own position included.
        max_tokens: Longer texts are truncated to their first tokens, this many.
    """
    needs(model, PredictsNextToken, by="distance_shares")
    require(window >= 2, f"window={window}: at least two distances are compared")
    module = cast(PredictsNextToken, module_of(model))
    texts = [ids[:max_tokens] for batch in whole_texts(model, data) for ids in batch.source]
    texts = [ids for ids in texts if len(ids) > window]
    require(len(texts) > 1, f"distance_shares compares texts: give at least two of more than window={window} tokens")
    vocabulary, numbers = torch.cat(texts).unique(return_inverse=True)
    text_sums = []
    for ids, tokens in zip(texts, numbers.split([len(ids) for ids in texts]), strict=True):
        sums = TextSums(tokens, window, len(vocabulary))
        mask = torch.ones_like(ids[None], dtype=torch.bool)
        module.observe(Batch(ids[None], mask, ids[None], mask), sums.add)
        text_sums.append(sums)
    squares = torch.stack([sums.stacked("squares") for sums in text_sums]).sum(0)
    total = (squares / sum(sums.rows * window for sums in text_sums)).clamp_min(1e-20)
    count = torch.tensor([sums.rows for sums in text_sums])[:, None].expand(-1, window)
    by_distance = torch.stack([sums.stacked("distance") for sums in text_sums])
    by_token = torch.stack([sums.stacked("token") for sums in text_sums])
    return DistanceShares(
        (effect(by_distance, count) / total).numpy(),
        (effect(by_token, torch.stack([sums.token_counts for sums in text_sums])) / total).numpy(),
        (by_distance.sum(0) / count.sum(0)).numpy(),
        module.attending_blocks,
    )


class TextSums:
    """Sums over the rows of one text, by layer: of scores by distance and by token, and of their squares."""

    def __init__(self, tokens: Int[Tensor, " source"], window: int, num_tokens: int):
        self.tokens, self.window, self.num_tokens = tokens, window, num_tokens
        self.rows = len(tokens) - window
        keys = torch.arange(window, len(tokens), device=tokens.device)[:, None] - self.distances  # rows x window
        self.token_counts = tokens[keys].flatten().bincount(minlength=num_tokens).cpu()
        self.sums: dict[tuple[str, int], Tensor] = {}

    @property
    def distances(self) -> Int[Tensor, " window"]:
        return torch.arange(self.window, device=self.tokens.device)

    def add(self, rows: AttentionRows) -> None:
        """Add a block of rows; those with fewer keys than the window do not count."""
        places = torch.arange(rows.start, rows.start + rows.scores.shape[2], device=self.tokens.device)
        full = places >= self.window
        keys = places[full][:, None] - self.distances
        index = keys.expand(rows.scores.shape[1], -1, -1)  # heads x rows x window
        weights, scores = (values[0][:, full].gather(-1, index) for values in (rows.weights, rows.scores.double()))
        require(
            not len(keys) or bool((weights.amax((0, 1)) > 0).all()),
            f"layer {rows.layer} attends to fewer than {self.window} last tokens (a sliding window); give window=",
        )
        centred = scores - scores.mean(-1, keepdim=True)
        by_token = centred.new_zeros(len(centred), self.num_tokens)
        by_token.index_add_(1, self.tokens[keys].flatten(), centred.flatten(1))
        parts = {"distance": centred.sum(1), "token": by_token, "squares": centred.square().sum((1, 2))}
        for name, part in parts.items():
            where = (name, rows.layer)
            self.sums[where] = self.sums.get(where, 0) + part.cpu()

    def stacked(self, name: str) -> Float[Tensor, "layers heads *groups"]:
        return torch.stack([self.sums[key] for key in sorted(self.sums) if key[0] == name])


def effect(
    sums: Float[Tensor, "texts layers heads groups"], counts: Int[Tensor, "texts groups"]
) -> Float[Tensor, "layers heads"]:
    """Return the variance of the groups' means: the mean product of two texts, over groups that occur in two texts."""
    total = counts.sum(0)
    pairs = total.square() - counts.square().sum(0)
    shared = pairs > 0
    products = (sums.sum(0).square() - sums.square().sum(0))[..., shared] / pairs[shared]
    return (products * total[shared]).sum(-1) / total[shared].sum()
