"""How good could attention be, and where would it look? (snell2021 A.1: A(α^opt, β))"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.display import Displayed
from attnscope.models.trace import Trace
from attnscope.probes.agreement.scores import Scores, over_words
from attnscope.probes.drawing import Axes
from attnscope.probes.lexical import ReadsOut
from attnscope.probes.optimal.interior_point import CELLS, LIMIT, TOLERANCE, minimise
from attnscope.probes.optimal.problem import as_problem


@dataclass(frozen=True)
class OptimalAttention(Displayed):
    """α^opt of every output word, its loss beside that of the model's own attention, and how exact it is.

    Where several attentions are equally good, as with a word that occurs twice, the weight is shared.
    """

    weights: Float[Tensor, "batch heads target source"]
    loss: Float[Tensor, "batch target"]  # in nats; NaN on padding, as the next two
    own_loss: Float[Tensor, "batch target"]
    gap: Float[Tensor, "batch target"]  # the loss is proven to be at most this far above the least one
    source_mask: Bool[Tensor, "batch source"]
    target_mask: Bool[Tensor, "batch target"]

    def scores(self, head: int = 0) -> Scores:
        """The weights of one head, to be compared with other scores."""
        values = over_words(self.weights[:, head], self.source_mask, self.target_mask)
        return Scores(values, self.source_mask, self.target_mask, "optimal attention")

    def table(self) -> pd.DataFrame:
        """A row an output word."""
        sentence, target = self.target_mask.cpu().nonzero().unbind(1)
        index = pd.MultiIndex.from_arrays([sentence.numpy(), target.numpy()], names=["sentence", "target"])
        columns = {"loss": self.loss, "own loss": self.own_loss, "gap": self.gap}
        return pd.DataFrame({name: values.cpu()[sentence, target].numpy() for name, values in columns.items()}, index)

    def plot(self, ax: Axes | None = None, sentence: int = 0, head: int = 0) -> Axes:
        return self.scores(head).plot(ax, sentence)


@torch.no_grad()
def optimal(
    model: ReadsOut, trace: Trace, tolerance: float = TOLERANCE, cells: int = CELLS, limit: int = LIMIT
) -> OptimalAttention:
    """The best attention for a pass that the model made in evaluation mode. Its readout must be linear in the context.

    What it asks of a model is what the lexical probe asks. `cells` bounds the numbers that second derivatives
    hold at a time.
    """
    problem = as_problem(model, trace)
    weights, gap = minimise(problem, trace.target_mask, tolerance, cells, limit)
    own = trace.attention.transpose(1, 2).flatten(2).to(weights)  # batch x target x places
    padding = ~trace.target_mask
    return OptimalAttention(
        weights=weights.unflatten(-1, (trace.attention.shape[1], -1)).transpose(1, 2),
        loss=problem.loss(weights).masked_fill(padding, torch.nan),
        own_loss=problem.loss(own).masked_fill(padding, torch.nan),
        gap=gap.masked_fill(padding, torch.nan),
        source_mask=trace.source_mask,
        target_mask=trace.target_mask,
    )
