"""First pass: what do each time step and each word add, and where does attention lie on average? (aitken2021 §2.1)"""

# TODO(docstring) join:
#   What do the components make of the alignment between the two sides? (aitken2021 §4.1)
#   Second pass: what do the components make of every state and every alignment? (aitken2021 §3 and §4.1)
#   How does this model form its attention? Both passes over a stream of sentences, in one call. (aitken2021)
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.models.inference import traces
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Model, Stream, Sums, begun
from attnscope.probes.decomposition.components import (
    OF,
    Between,
    Components,
    ComponentSums,
    Reading,
    component_sums,
    pairs,
    read,
)
from attnscope.probes.decomposition.states import (
    CrossingSums,
    Opened,
    SideSums,
    StateMeasures,
    crossing_sums,
    opened,
    side_sums,
)
from attnscope.probes.decomposition.terms import (
    FEW,
    TOP,
    AttentionSums,
    ClosenessSums,
    MeanAttention,
    Predictability,
    Shares,
    ShareSums,
    attention_sums,
    closeness_sums,
    head_index,
    share_sums,
    terms,
)
from attnscope.probes.decomposition.trajectories import LIMIT, ExpectedOffset, OffsetProfile, offset_profile, plot_paths
from attnscope.probes.decomposition.words import ReadoutAlignment, readout_alignment
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class FittedComponents:
    """The components of both sides, and the mean attention."""

    of: str
    encoder: Components
    decoder: Components | None  # None for the states of a classifier
    attention: MeanAttention | None  # None for states


@dataclass(frozen=True)
class FitSums(Sums):
    encoder: ComponentSums
    decoder: ComponentSums | None
    attention: AttentionSums | None


class ComponentAccumulator(Accumulator[FitSums]):
    """Sums per time step and per word, so that one pass gives both temporal and input components."""

    def __init__(self, of: str = "attention"):
        super().__init__()
        self.of = choose("way to take a trace apart", of, OF)

    @torch.no_grad()
    def update(self, trace: Trace) -> None:
        self.add(fit_sums(read(trace, self.of)))

    def result(self) -> FittedComponents:
        encoder, decoder, attention = self.total.encoder, self.total.decoder, self.total.attention
        return FittedComponents(
            of=self.of,
            encoder=encoder.components(),
            decoder=None if decoder is None else decoder.components(),
            attention=None if attention is None else attention.mean(),
        )


def fit_sums(reading: Reading) -> FitSums:
    """The totals of one batch."""
    decoder, between = reading.decoder, reading.between
    return FitSums(
        encoder=component_sums(reading.encoder),
        decoder=None if decoder is None else component_sums(decoder),
        attention=None if between is None else attention_sums(between.attention, between.target_mask),
    )


@dataclass(frozen=True)
class AttentionMeasures:
    """The shares of the nine terms, and how well the mean attention predicts a sample's.

    `shares` counts every pair of words, as in the paper. `common` counts those of which both were seen often in the
    fit, `rare` the others: a word seen once has no delta by construction, one never seen is all delta.
    """

    shares: Shares
    common: Shares
    rare: Shares
    predictability: Predictability
    cosine: Float[Tensor, " heads"]  # mean |cosine| of the decoder's temporal components, the encoder's input-delta


@dataclass(frozen=True)
class BetweenSums(Sums):
    """The totals behind it."""

    shares: ShareSums
    closeness: ClosenessSums
    crossing: CrossingSums

    def measured(self) -> AttentionMeasures:
        return AttentionMeasures(
            shares=self.shares.shares("all"),
            common=self.shares.shares("common"),
            rare=self.shares.shares("rare"),
            predictability=self.closeness.predictability(),
            cosine=self.crossing.cosine(),
        )


def between_sums(
    between: Between, queries: Opened, keys: Opened, mean: MeanAttention, top: int, few: int
) -> BetweenSums:
    """The totals of one batch."""
    nine = terms(queries.parts, keys.parts)
    common = pairs(queries.seen >= few, keys.seen >= few)
    return BetweenSums(
        shares=share_sums(nine, between.alignment, between.counted, ~common, top),
        closeness=closeness_sums(between.attention, between.target_mask, mean),
        crossing=crossing_sums(nine, queries.products, keys.products),
    )


@dataclass(frozen=True)
class DecompositionMeasures(Displayed):
    """The answers for one stream of traces."""

    encoder: StateMeasures
    decoder: StateMeasures | None  # None for the states of a classifier
    between: AttentionMeasures | None  # None for states

    def table(self) -> pd.DataFrame:
        """A row a head, the main numbers as columns."""
        columns = {"word variance left": self.encoder.variance.mean}
        columns |= {"encoder delta / temporal": self.encoder.delta_over_temporal}
        if self.decoder is not None:
            columns |= {"decoder delta / temporal": self.decoder.delta_over_temporal}
        if self.between is not None:
            columns |= {"temporal share": self.between.shares.temporal}
            columns |= {"temporal query share": self.between.shares.temporal_query}
            columns |= {"predictability": self.between.predictability.overall}
        table = pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})
        return table.set_index(head_index(len(table)))


@dataclass(frozen=True)
class MeasureSums(Sums):
    encoder: SideSums
    decoder: SideSums | None
    between: BetweenSums | None


class MeasureAccumulator(Accumulator[MeasureSums]):
    """Terms, shares, variances and angles of a stream, the same one that was fitted or one held out.

    `top`: how many of the largest alignments of each decoder step count; `few`: words seen less often are rare;
    `limit`: how many vectors to keep for a picture.
    """

    def __init__(self, fitted: FittedComponents, top: int = TOP, few: int = FEW, limit: int = LIMIT):
        super().__init__()
        require(top > 0, f"top={top}: at least one position of each decoder step must count")
        self.fitted, self.top, self.few, self.limit = fitted, top, few, limit

    @torch.no_grad()
    def update(self, trace: Trace) -> None:
        reading = read(trace, self.fitted.of)
        encoder = opened(reading.encoder, self.fitted.encoder)
        decoder = None
        if reading.decoder is not None and self.fitted.decoder is not None:
            decoder = opened(reading.decoder, self.fitted.decoder)
        self.add(
            MeasureSums(
                encoder=side_sums(encoder, self.room("encoder")),
                decoder=None if decoder is None else side_sums(decoder, self.room("decoder")),
                between=self.between(reading, decoder, encoder),
            )
        )

    def between(self, reading: Reading, queries: Opened | None, keys: Opened) -> BetweenSums | None:
        if reading.between is None or queries is None or self.fitted.attention is None:
            return None
        return between_sums(reading.between, queries, keys, self.fitted.attention, self.top, self.few)

    def room(self, side: str) -> int:
        """How many vectors of that side are still wanted for a picture."""
        so_far: SideSums | None = getattr(self.sums, side, None)
        return self.limit if so_far is None else so_far.cloud.room

    def result(self) -> DecompositionMeasures:
        total, fitted = self.total, self.fitted
        decoder = None
        if total.decoder is not None and fitted.decoder is not None:
            decoder = total.decoder.measured(fitted.decoder, self.few)
        return DecompositionMeasures(
            encoder=total.encoder.measured(fitted.encoder, self.few),
            decoder=decoder,
            between=None if total.between is None else total.between.measured(),
        )


@dataclass(frozen=True)
class Decomposition(Displayed):
    """The components of a model's states, and what they make of the sentences they come from and of others."""

    fitted: FittedComponents
    in_sample: DecompositionMeasures  # as in the paper: measured on the sentences that the components come from
    held_out: DecompositionMeasures | None
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
    def measured(self) -> dict[str, DecompositionMeasures]:
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
    fit, expected = ComponentAccumulator(of), ExpectedOffset()
    for batch, trace in traces(model, begun(batches), **forward):
        expected.update(batch)
        fit.update(trace)
    fitted = fit.result()

    def measured(stream: Stream[Batch]) -> DecompositionMeasures:
        measure = MeasureAccumulator(fitted, top, few)
        for _, trace in traces(model, begun(stream), **forward):
            measure.update(trace)
        return measure.result()

    return Decomposition(
        fitted=fitted,
        in_sample=measured(batches),
        held_out=None if held_out is None else measured(held_out),
        offsets=profile(fitted, expected),
    )


def profile(fitted: FittedComponents, expected: ExpectedOffset) -> OffsetProfile | None:
    if fitted.of == "states" or fitted.decoder is None:
        return None
    return offset_profile(fitted.decoder, fitted.encoder, expected=expected.result())
