"""Which parts of attention follow from time, which from tokens, and which from neither? (aitken2021)

`decompose(model, data, held_out)` answers it in one call. It makes two passes over the traces of a data set: a
`ComponentAccumulator`, then a `MeasureAccumulator`. Pure functions compute each of the paper's figures.
"""

from attnscope.probes.decomposition.components import PARTS, Components, Parts
from attnscope.probes.decomposition.passes import (
    AttentionMeasures,
    ComponentAccumulator,
    Decomposition,
    DecompositionMeasures,
    FittedComponents,
    MeasureAccumulator,
    decompose,
)
from attnscope.probes.decomposition.states import Geometry, StateMeasures, WordVariance, cosines
from attnscope.probes.decomposition.terms import (
    TEMPORAL,
    TEMPORAL_QUERY,
    TERMS,
    MeanAttention,
    Predictability,
    Shares,
    Term,
    attention_from_terms,
    scores_from_terms,
    terms,
)
from attnscope.probes.decomposition.trajectories import (
    Cloud,
    ExpectedOffset,
    OffsetProfile,
    Principal,
    offset_profile,
    plot_paths,
    principal_axes,
    temporal_paths,
)
from attnscope.probes.decomposition.words import ReadoutAlignment, readout_alignment, readout_per_head

__all__ = [
    "PARTS",
    "TEMPORAL",
    "TEMPORAL_QUERY",
    "TERMS",
    "AttentionMeasures",
    "Cloud",
    "ComponentAccumulator",
    "Components",
    "Decomposition",
    "DecompositionMeasures",
    "ExpectedOffset",
    "FittedComponents",
    "Geometry",
    "MeanAttention",
    "MeasureAccumulator",
    "OffsetProfile",
    "Parts",
    "Predictability",
    "Principal",
    "ReadoutAlignment",
    "Shares",
    "StateMeasures",
    "Term",
    "WordVariance",
    "attention_from_terms",
    "cosines",
    "decompose",
    "offset_profile",
    "plot_paths",
    "principal_axes",
    "readout_alignment",
    "readout_per_head",
    "scores_from_terms",
    "temporal_paths",
    "terms",
]  # fmt: skip
