"""The decomposition of a model's attention, in two passes over the data. (aitken2021)

The first pass computes the components of each time step and token (§2.1), the second how much of every vector and every
score they explain (§3 and §4.1).
"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.models.capabilities import Decoding, PredictsNextToken
from attnscope.models.inference import Model, module_of, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums, check_reiterable
from attnscope.probes.decomposition.components import (
    DECOMPOSABLE,
    Components,
    ComponentSums,
    CrossAttention,
    component_sums,
    has_inner_products,
    pair_mask,
    vectors_of,
)
from attnscope.probes.decomposition.states import (
    CrossingSums,
    SideSums,
    SplitSide,
    StateMeasures,
    crossing_sums,
    side_sums,
    split_side,
)
from attnscope.probes.decomposition.terms import (
    MIN_COUNT,
    TOP_K,
    AttentionSums,
    MeanAttention,
    Predictability,
    PredictabilitySums,
    Shares,
    ShareSums,
    attention_sums,
    head_index,
    predictability_sums,
    share_sums,
    terms,
)
from attnscope.probes.decomposition.trajectories import (
    MAX_POINTS,
    ExpectedOffset,
    OffsetProfile,
    offset_profile,
    plot_paths,
)
from attnscope.probes.decomposition.words import ReadoutAlignment, readout_alignment


@dataclass(frozen=True)
class FittedComponents:
    """The components of both sides, and the mean attention."""

    of: str  # "attention" or "states"
    encoder: Components
    decoder: Components | None  # None for the states of a classifier
    attention: MeanAttention | None  # None for states


@dataclass(frozen=True)
class ComponentFitSums(Sums):
    encoder: ComponentSums
    decoder: ComponentSums | None
    attention: AttentionSums | None


class ComponentAccumulator(Accumulator[ComponentFitSums]):
    """First pass: sums per time step and per token, which give both temporal and input components."""

    def __init__(self, of: str = "attention"):
        super().__init__()
        self.of = choose("part of a trace to decompose", of, DECOMPOSABLE)

    @torch.no_grad()
    def update(self, trace: Trace) -> None:
        vectors = vectors_of(trace, self.of)
        decoder, attention = vectors.decoder, vectors.attention
        sums = ComponentFitSums(
            encoder=component_sums(vectors.encoder),
            decoder=None if decoder is None else component_sums(decoder),
            attention=None if attention is None else attention_sums(attention.weights, attention.target_mask),
        )
        self.add(sums)

    def result(self) -> FittedComponents:
        encoder, decoder, attention = self.total.encoder, self.total.decoder, self.total.attention
        return FittedComponents(
            of=self.of,
            encoder=encoder.components(),
            decoder=None if decoder is None else decoder.components(),
            attention=None if attention is None else attention.mean(),
        )


@dataclass(frozen=True)
class AttentionMeasures:
    """The shares of the nine terms, and how well the mean attention predicts that of a sentence.

    `shares` counts all pairs of tokens, as in the paper. `common` counts pairs of tokens that are both frequent in the
    fit, `rare` the others: a token that occurs once has no delta by construction, one that never occurs is all delta.
    """

    shares: Shares
    common: Shares
    rare: Shares
    predictability: Predictability
    cosine: Float[Tensor, " heads"]  # mean |cosine| of the decoder's temporal components, the encoder's input-delta


@dataclass(frozen=True)
class AttentionMeasureSums(Sums):
    """The totals behind AttentionMeasures."""

    shares: ShareSums
    predictability: PredictabilitySums
    cosine: CrossingSums

    def measures(self) -> AttentionMeasures:
        return AttentionMeasures(
            shares=self.shares.shares("all"),
            common=self.shares.shares("common"),
            rare=self.shares.shares("rare"),
            predictability=self.predictability.predictability(),
            cosine=self.cosine.cosine(),
        )


def attention_measure_sums(
    attention: CrossAttention, queries: SplitSide, keys: SplitSide, mean: MeanAttention, top_k: int, min_count: int
) -> AttentionMeasureSums:
    """Return the totals of one batch."""
    nine = terms(queries.parts, keys.parts)
    common = pair_mask(queries.fit_counts >= min_count, keys.fit_counts >= min_count)
    return AttentionMeasureSums(
        shares=share_sums(nine, attention.scores, attention.pairs, ~common, top_k),
        predictability=predictability_sums(attention.weights, attention.target_mask, mean),
        cosine=crossing_sums(nine, queries.products, keys.products),
    )


@dataclass(frozen=True)
class DecompositionMeasures(Displayed):
    """How much the components explain of the vectors and the attention of one data set."""

    encoder: StateMeasures
    decoder: StateMeasures | None  # None for the states of a classifier
    attention: AttentionMeasures | None  # None for states

    def table(self) -> pd.DataFrame:
        """Return one row per head, the main measures as columns."""
        columns = {"word variance left": self.encoder.variance.mean}
        columns |= {"encoder delta / temporal": self.encoder.delta_over_temporal}
        if self.decoder is not None:
            columns |= {"decoder delta / temporal": self.decoder.delta_over_temporal}
        if self.attention is not None:
            columns |= {"temporal share": self.attention.shares.temporal}
            columns |= {"temporal query share": self.attention.shares.temporal_query}
            columns |= {"predictability": self.attention.predictability.overall}
        table = pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})
        return table.set_index(head_index(len(table)))


@dataclass(frozen=True)
class MeasureSums(Sums):
    encoder: SideSums
    decoder: SideSums | None
    attention: AttentionMeasureSums | None


class MeasureAccumulator(Accumulator[MeasureSums]):
    """Second pass: terms, shares, variances and angles, of the data that were fitted or of held-out data.

    Args:
        fitted: The components.
        top_k: How many of the largest scores of each decoder step count.
        min_count: Tokens that occur less often in the fit are rare.
        max_points: The largest number of vectors of a figure.
    """

    def __init__(
        self,
        fitted: FittedComponents,
        top_k: int = TOP_K,
        min_count: int = MIN_COUNT,
        max_points: int = MAX_POINTS,
    ):
        super().__init__()
        require(top_k > 0, f"top_k={top_k}: at least one position of each decoder step must count")
        require(min_count >= 0, f"min_count must not be negative, but is {min_count}")
        self.fitted, self.top_k, self.min_count, self.max_points = fitted, top_k, min_count, max_points

    @torch.no_grad()
    def update(self, trace: Trace) -> None:
        vectors, fitted, former = vectors_of(trace, self.fitted.of), self.fitted, self.sums
        keys = split_side(vectors.encoder, fitted.encoder)
        encoder = side_sums(keys, self.room(None if former is None else former.encoder))
        decoder, attention = None, None
        if vectors.decoder is not None and fitted.decoder is not None:
            queries = split_side(vectors.decoder, fitted.decoder)
            decoder = side_sums(queries, self.room(None if former is None else former.decoder))
            if vectors.attention is not None and fitted.attention is not None:
                attention = attention_measure_sums(
                    vectors.attention, queries, keys, fitted.attention, self.top_k, self.min_count
                )
        self.add(MeasureSums(encoder, decoder, attention))

    def room(self, former: SideSums | None) -> int:
        """Return how many more vectors of a side a figure takes."""
        return self.max_points if former is None else former.cloud.room

    def result(self) -> DecompositionMeasures:
        total, fitted = self.total, self.fitted
        decoder = None
        if total.decoder is not None and fitted.decoder is not None:
            decoder = total.decoder.measures(fitted.decoder, self.min_count)
        return DecompositionMeasures(
            encoder=total.encoder.measures(fitted.encoder, self.min_count),
            decoder=decoder,
            attention=None if total.attention is None else total.attention.measures(),
        )


@dataclass(frozen=True)
class Decomposition(Displayed):
    """The components of a model's vectors, and how much they explain of the data they come from, and of others."""

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
    def measures(self) -> dict[str, DecompositionMeasures]:
        samples = {"in-sample": self.in_sample, "held out": self.held_out}
        return {name: sample for name, sample in samples.items() if sample is not None}

    def readout(self, readout: Float[Tensor, "outputs key"], head: int = 0) -> ReadoutAlignment:
        return readout_alignment(readout, self.encoder, head)

    def table(self) -> pd.DataFrame:
        """Return one row per sample and head, the main measures as columns."""
        return pd.concat({name: sample.table() for name, sample in self.measures.items()}, names=["sample", "head"])

    def bars(self) -> pd.DataFrame:
        """Return one row per sample and head, the three stacked bars of figure 5a as columns."""
        attention = {name: sample.attention for name, sample in self.measures.items()}
        tables = [
            measures.shares.bars().rename(index=f"{name}, {{}}".format)
            for name, measures in attention.items() if measures is not None
        ]  # fmt: skip
        return pd.concat(tables) if tables else pd.DataFrame()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the nine terms' shares (figure 5a); for states, the paths of the temporal components (figure 2e)."""
        from attnscope import plots

        if self.fitted.of == "states":
            return plot_paths(self.encoder, self.decoder, ax=ax)
        return plots.stacked_shares(self.bars(), ax=ax)


def decompose(
    model: Model,
    data: Data,
    held_out: Data = None,
    decoding: Decoding | None = None,
    of: str | None = None,
    top_k: int = TOP_K,
    min_count: int = MIN_COUNT,
) -> Decomposition:
    """Return the components of a model's attention, and the share of each in its scores. (aitken2021)

    Args:
        model: A LoadedModel, or any model that gives Traces.
        data: What the components are fitted to and measured on: texts, a path, a table, a Task or Batches. It is read
            twice, so not an iterator.
        held_out: Other data to measure them on.
        decoding: "teacher_forced" or "greedy"; None: the model's default.
        of: "attention" (queries and keys) or "states"; None: attention where its scores are inner products.
        top_k: How many of the largest scores of each decoder step count.
        min_count: Tokens that occur less often in the fit are rare.
    """
    check_reiterable(data)
    check_reiterable(held_out)
    require(
        of == "states" or not isinstance(module_of(model), PredictsNextToken),
        "keys of a language model may be rotated by their positions, so that means over positions are meaningless; "
        "the probe 'position_shares' splits its scores instead",
    )
    components, expected = None if of is None else ComponentAccumulator(of), ExpectedOffset()
    for batch, trace in traces(model, data, decoding=decoding):
        expected.update(batch)
        components = components or ComponentAccumulator("attention" if has_inner_products(trace) else "states")
        components.update(trace)
    fitted = (components or ComponentAccumulator()).result()

    def measure(sample: Data) -> DecompositionMeasures:
        measures = MeasureAccumulator(fitted, top_k, min_count)
        for _, trace in traces(model, sample, decoding=decoding):
            measures.update(trace)
        return measures.result()

    return Decomposition(
        fitted=fitted,
        in_sample=measure(data),
        held_out=None if held_out is None else measure(held_out),
        offsets=None
        if fitted.of == "states" or fitted.decoder is None
        else offset_profile(fitted.decoder, fitted.encoder, expected=expected.result()),
    )
