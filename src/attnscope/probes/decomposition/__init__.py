"""Which part of a state is time, which is word, which is neither, and which of them make the attention? (aitken2021)

`decompose(model, batches, held_out)` answers it in one call. Underneath are two passes over a stream of traces, `Fit`
and then `Measure`, each with update, merge and result, and pure functions for each of the paper's figures.
"""

from attnscope.probes.decomposition.components import PARTS, Components, Parts
from attnscope.probes.decomposition.passes import (
    BetweenMeasured,
    Decomposition,
    Fit,
    Fitted,
    Measure,
    Measured,
    decompose,
)
from attnscope.probes.decomposition.states import Geometry, SideMeasured, WordVariance, cosines, mean_angles
from attnscope.probes.decomposition.terms import (
    TEMPORAL,
    TEMPORAL_QUERY,
    TERMS,
    MeanAttention,
    Predictability,
    Shares,
    Term,
    rebuilt_alignment,
    rebuilt_attention,
    terms,
)
from attnscope.probes.decomposition.trajectories import (
    Cloud,
    ExpectedOffset,
    OffsetProfile,
    Principal,
    offset_profile,
    plot_cloud,
    plot_paths,
    principal_axes,
    temporal_paths,
)
from attnscope.probes.decomposition.words import ReadoutAlignment, cut_per_head, readout_alignment

__all__ = [
    "PARTS", "TEMPORAL", "TEMPORAL_QUERY", "TERMS", "BetweenMeasured", "Cloud", "Components", "Decomposition",
    "ExpectedOffset", "Fit", "Fitted", "Geometry", "MeanAttention", "Measure", "Measured", "OffsetProfile", "Parts",
    "Predictability", "Principal", "ReadoutAlignment", "Shares", "SideMeasured", "Term", "WordVariance", "cosines",
    "cut_per_head", "decompose", "mean_angles", "offset_profile", "plot_cloud", "plot_paths", "principal_axes",
    "readout_alignment", "rebuilt_alignment", "rebuilt_attention", "temporal_paths", "terms",
]  # fmt: skip
