"""How far is attention from uniform? (tutek2020 appendix C)"""

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


def entropy(model: Model, data: Data, decoding: Decoding | None = None) -> AttentionEntropy:
    """Return the entropy of attention in the last layer, relative to that of uniform attention.

    Args:
        model: A LoadedModel, or any model that gives Traces.
        data: Texts, a path, a table, a Task or Batches.
        decoding: "teacher_forced" or "greedy"; None: as the model says.
    """
    values = []
    for batch in as_batches(model, data):
        trace, attended = trace_and_mask(model, batch, decoding)
        by_head = relative_entropy(trace.attention, attended[:, None, None])  # batch x heads x target
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
