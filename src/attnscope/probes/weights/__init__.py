"""What do the weights of a network look like: few strong connections or many weak ones? (baan2019 §3, figs. 1, 2)"""

from attnscope.probes.weights.embeddings import Embedding, embedding
from attnscope.probes.weights.graph import (
    THRESHOLDS,
    WeightGraph,
    WeightGraphs,
    pooled_threshold,
    weight_graph,
    weight_graphs,
)
from attnscope.probes.weights.matrices import Matrices, Matrix, gate_matrices, matrices_of_side
from attnscope.probes.weights.polarity import Polarity, polarity
from attnscope.probes.weights.strength import STRONGEST, strengths, strongest, unit_strengths

__all__ = [
    "STRONGEST", "THRESHOLDS", "Embedding", "Matrices", "Matrix", "Polarity", "WeightGraph",
    "WeightGraphs", "embedding", "gate_matrices", "matrices_of_side", "polarity", "pooled_threshold", "strengths",
    "strongest", "unit_strengths", "weight_graph", "weight_graphs",
]  # fmt: skip
