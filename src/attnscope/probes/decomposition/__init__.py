"""Which part of a state is time, which is word, which is neither, and which of them make the attention? (aitken2021)

`decompose(model, batches, held_out)` answers it in one call. Underneath are two passes over a stream of traces, `Fit`
and then `Measure`, each with update, merge and result, and pure functions for each of the paper's figures.
"""

from attnscope.probes.decomposition.between import BetweenMeasured
from attnscope.probes.decomposition.clouds import Cloud
from attnscope.probes.decomposition.components import PARTS, Components, Parts
from attnscope.probes.decomposition.fit import Fit, Fitted
from attnscope.probes.decomposition.geometry import Geometry, cosines, mean_angles
from attnscope.probes.decomposition.measure import Measure, Measured
from attnscope.probes.decomposition.offsets import ExpectedOffset, OffsetProfile, offset_profile
from attnscope.probes.decomposition.one_side import SideMeasured
from attnscope.probes.decomposition.passes import Decomposition, decompose
from attnscope.probes.decomposition.pictures import plot_cloud, plot_paths, temporal_paths
from attnscope.probes.decomposition.predictability import MeanAttention, Predictability
from attnscope.probes.decomposition.principal import Principal, principal_axes
from attnscope.probes.decomposition.readout import ReadoutAlignment, cut_per_head, readout_alignment
from attnscope.probes.decomposition.shares import Shares
from attnscope.probes.decomposition.terms import (
    TEMPORAL,
    TEMPORAL_QUERY,
    TERMS,
    Term,
    rebuilt_alignment,
    rebuilt_attention,
    terms,
)
from attnscope.probes.decomposition.variance import WordVariance

__all__ = [
    "PARTS", "TEMPORAL", "TEMPORAL_QUERY", "TERMS", "BetweenMeasured", "Cloud", "Components", "Decomposition",
    "ExpectedOffset", "Fit", "Fitted", "Geometry", "MeanAttention", "Measure", "Measured", "OffsetProfile", "Parts",
    "Predictability", "Principal", "ReadoutAlignment", "Shares", "SideMeasured", "Term", "WordVariance", "cosines",
    "cut_per_head", "decompose", "mean_angles", "offset_profile", "plot_cloud", "plot_paths", "principal_axes",
    "readout_alignment", "rebuilt_alignment", "rebuilt_attention", "temporal_paths", "terms",
]  # fmt: skip
