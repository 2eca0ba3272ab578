"""Divergences between attention distributions and between outputs (tutek2020 eq. 7 and 8), and entropy (appendix C).

Attention is exactly zero on padding. No logarithm of zero is taken: every value and gradient is finite.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.capabilities import Decoding
from attnscope.models.inference import Model
from attnscope.models.inputs import Data, as_batches
from attnscope.probes.counterfactual import trace_and_mask

MAX_JSD = math.log(2)  # of two distributions that share no position


def jsd(
    p: Float[Tensor, "*rows source"],
    q: Float[Tensor, "*others source"],
    mask: Bool[Tensor, "*some source"] | None = None,
) -> Float[Tensor, "*rows"]:
    """Return the Jensen-Shannon divergence in nats, from 0 to ln 2; positions outside of the mask are ignored.

    >>> jsd(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    p, q = apply_mask(p, mask), apply_mask(q, mask)
    mean = safe_log((p + q) / 2)
    parts = p * (safe_log(p) - mean) + q * (safe_log(q) - mean)
    return (parts.sum(-1) / 2).clamp(0, MAX_JSD)


def kl(
    p: Float[Tensor, "*rows source"],
    q: Float[Tensor, "*others source"],
    mask: Bool[Tensor, "*some source"] | None = None,
) -> Float[Tensor, "*rows"]:
    """Return the Kullback-Leibler divergence KL(p‖q) in nats; where q is zero but p is not, large, yet finite."""
    p, q = apply_mask(p, mask), apply_mask(q, mask)
    return (p * (safe_log(p) - safe_log(q))).sum(-1)


def tvd(p: Float[Tensor, "*rows classes"], q: Float[Tensor, "*others classes"]) -> Float[Tensor, "*rows"]:
    """Return the total variation distance, ½ Σ|p − q| over classes.

    For two classes it is |Δp| of either. (The code of Wiegreffe and Pinter 2019 halves that once more.)

    >>> tvd(torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5]))
    tensor(0.4000)
    """
    return (p - q).abs().sum(-1) / 2


DIVERGENCES: dict[str, Callable[..., Tensor]] = {"jsd": jsd, "kl": kl}


def apply_mask(weights: Tensor, mask: Bool[Tensor, "*some source"] | None) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def safe_log(weights: Tensor) -> Tensor:
    """Return the logarithm, bounded below by that of the smallest normal number, where it has no slope."""
    return weights.clamp(min=torch.finfo(weights.dtype).tiny).log()


# How far is attention from uniform? (tutek2020 appendix C) -----------------------------------------------------------


@dataclass(frozen=True)
class AttentionEntropy(Displayed):
    """The relative entropy of attention at every output token: 0 for one position, 1 for uniform attention."""

    values: Float[np.ndarray, "tokens heads"]  # of the last layer; NaN where there is one position to attend to

    def table(self) -> pd.DataFrame:
        """Return one row per head: mean and deviation over output tokens, and how many have more than one position."""
        values = pd.DataFrame(self.values).rename_axis(columns="head")
        return pd.DataFrame({"mean": values.mean(), "sd": values.std(), "tokens": values.count()})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean of each head, with its deviation."""
        from attnscope import plots

        table = self.table()
        return plots.bars(
            table[["mean"]], ax=ax, errors=table[["sd"]].rename(columns={"sd": "mean"}), ylabel="relative entropy"
        )


def entropy(model: Model, data: Data, decoding: Decoding | None = None, sink: bool = True) -> AttentionEntropy:
    """Return the entropy of attention in the last layer, relative to that of uniform attention.

    Args:
        model: A LoadedModel, or any model that gives Traces.
        data: Texts, a path, a table, a Task or Batches.
        decoding: "teacher_forced" or "greedy"; None: the model's default.
        sink: Whether the first position counts, the attention sink of language models; without it, the other weights
            are scaled to sum to one.
    """
    values = []
    for batch in as_batches(model, data):
        trace, attended = trace_and_mask(model, batch, decoding)
        rows = (attended[:, None] if trace.rows is None else trace.pairs)[:, None]  # batch x 1 x target x source
        weights = trace.attention
        if not sink:
            rows = rows & trace.without_sink().source_mask[:, None, None]
            weights = weights * rows / (weights * rows).sum(-1, keepdim=True).clamp_min(1e-12)
        by_head = relative_entropy(weights, rows)  # batch x heads x target
        values.append(by_head.transpose(1, 2)[trace.target_mask].cpu().numpy())
    require(bool(values), "there is no text to measure attention on")
    return AttentionEntropy(np.concatenate(values))


def relative_entropy(
    weights: Float[Tensor, "*any source"], attended: Bool[Tensor, "*some source"]
) -> Float[Tensor, "*any"]:
    """Return the entropy over that of uniform attention; NaN where there is one position, and so no choice.

    >>> mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    >>> relative_entropy(torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]), mask)
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    entropy = torch.special.entr(weights.double()).sum(-1)
    uniform = attended.sum(-1).double().log()
    return torch.where(uniform > 0, entropy / uniform, torch.nan)
