"""How does this model form its attention? Both passes over a stream of sentences, in one call. (aitken2021)"""

from dataclasses import dataclass
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnscope.display import Displayed
from attnscope.models.asking import traced
from attnscope.probes.decomposition.components import Components
from attnscope.probes.decomposition.fit import Fit, Fitted
from attnscope.probes.decomposition.measure import Measure, Measured
from attnscope.probes.decomposition.offsets import ExpectedOffset, OffsetProfile, offset_profile
from attnscope.probes.decomposition.pictures import plot_paths
from attnscope.probes.decomposition.predictability import MeanAttention
from attnscope.probes.decomposition.readout import ReadoutAlignment, readout_alignment
from attnscope.probes.decomposition.shares import FEW, TOP
from attnscope.probes.drawing import Axes
from attnscope.probes.stream import Model, Stream, begun
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class Decomposition(Displayed):
    """The components of a model's states, and what they make of the sentences they come from and of others."""

    fitted: Fitted
    in_sample: Measured  # as in the paper: measured on the sentences that the components come from
    held_out: Measured | None
    offsets: OffsetProfile | None  # None for states

    @property
    def encoder(self) -> Components:
        return self.fitted.encoder

    @property
    def decoder(self) -> Components | None:
        return self.fitted.decoder

    @property
    def mean_attention(self) -> MeanAttention | None:
        return self.fitted.attention

    @property
    def measured(self) -> dict[str, Measured]:
        samples = {"in-sample": self.in_sample, "held out": self.held_out}
        return {name: sample for name, sample in samples.items() if sample is not None}

    def readout(self, readout: Float[Tensor, "outputs key"], head: int = 0) -> ReadoutAlignment:
        return readout_alignment(readout, self.encoder, head)

    def table(self) -> pd.DataFrame:
        """A row a sample and head, the main numbers as columns."""
        return pd.concat({name: sample.table() for name, sample in self.measured.items()}, names=["sample", "head"])

    def bars(self) -> pd.DataFrame:
        """A row a sample and head, the three stacked bars of figure 5a as columns."""
        shares = {name: sample.between.shares for name, sample in self.measured.items() if sample.between is not None}
        tables = [share.bars().rename(index=f"{name}, {{}}".format) for name, share in shares.items()]
        return pd.concat(tables) if tables else pd.DataFrame()

    def plot(self, ax: Axes | None = None) -> Axes:
        """The nine terms' shares (figure 5a); for states, the paths of the temporal components (figure 2e)."""
        from attnscope import plots

        if self.fitted.of == "states":
            return plot_paths(self.encoder, self.decoder, ax=ax)
        return plots.stacked_shares(self.bars(), ax=ax)


def decompose(
    model: Model,
    batches: Stream[Batch],
    held_out: Stream[Batch] | None = None,
    of: str = "attention",
    top: int = TOP,
    few: int = FEW,
    **forward: Any,
) -> Decomposition:
    """Fit components on a stream, then measure them on it and, where given, on one held out.

    `batches` is gone through twice: a list, or a function that begins anew. What else is given goes to the model's
    forward pass. The model is asked in evaluation mode and without gradients, and left as it was.
    """
    fit, expected = Fit(of), ExpectedOffset()
    for batch, trace in traced(model, begun(batches), **forward):
        expected.update(batch)
        fit.update(trace)
    fitted = fit.result()

    def measured(stream: Stream[Batch]) -> Measured:
        measure = Measure(fitted, top, few)
        for _, trace in traced(model, begun(stream), **forward):
            measure.update(trace)
        return measure.result()

    return Decomposition(
        fitted=fitted,
        in_sample=measured(batches),
        held_out=None if held_out is None else measured(held_out),
        offsets=profile(fitted, expected),
    )


def profile(fitted: Fitted, expected: ExpectedOffset) -> OffsetProfile | None:
    if fitted.of == "states" or fitted.decoder is None:
        return None
    return offset_profile(fitted.decoder, fitted.encoder, expected=expected.result())
