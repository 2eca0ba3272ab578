"""How many strong connections are there, and what do they connect? The weight graph (baan2019 §3, fig. 2)

An edge is a weight whose size is above a threshold. The threshold has to be the same for all models: with one per
model, such as its strongest one percent, all would have the same number of edges.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.models import EncoderDecoder
from attnscope.models.capabilities import MissingCapability
from attnscope.models.inference import Model, module_of
from attnscope.models.inputs import Data
from attnscope.probes.weights import Matrices, Matrix, gate_matrices

THRESHOLDS = {"encoder": 0.2, "decoder": 0.17}  # baan2019 §3
STRONGEST_WEIGHTS = 0.01  # the share above these thresholds, on average over baseline and guided models


@dataclass(frozen=True)
class WeightGraph(Displayed):
    """The edges of one matrix: from a unit of the previous layer to one of the next. The two layers are kept apart,
    also where a recurrent matrix leads from units to the same units, as fig. 2 draws them."""

    next: Int[np.ndarray, " edges"]  # rows
    previous: Int[np.ndarray, " edges"]  # columns
    weights: Float[np.ndarray, " edges"]
    shape: tuple[int, int]  # units of the next layer, of the previous layer
    threshold: float

    @property
    def edges(self) -> int:
        return len(self.weights)

    @property
    def positive(self) -> int:
        return int((self.weights > 0).sum())

    @property
    def negative(self) -> int:
        return int((self.weights < 0).sum())

    def degrees(self, layer: str = "next") -> Int[np.ndarray, " units"]:
        """Return how many edges each unit of a layer has."""
        choose("layer", layer, ("next", "previous"))
        ends, size = (self.next, self.shape[0]) if layer == "next" else (self.previous, self.shape[1])
        return np.bincount(ends, minlength=size)

    def connected(self, layer: str = "next") -> int:
        """Return how many units of a layer have at least one edge."""
        return int((self.degrees(layer) > 0).sum())

    @property
    def largest_component(self) -> int:
        """The number of units, of both layers, in the largest connected component; 0 where there is no edge."""
        if not self.edges:
            return 0
        total = sum(self.shape)
        adjacency = coo_array((np.ones(self.edges), (self.next, self.previous + self.shape[0])), shape=(total, total))
        _, part = connected_components(adjacency, directed=False)
        return int(np.bincount(part).max())

    def summary(self) -> dict[str, float]:
        degrees = {layer: self.degrees(layer) for layer in ("next", "previous")}
        return {
            "threshold": self.threshold, "edges": self.edges, "positive": self.positive, "negative": self.negative,
            "connected_next": self.connected("next"), "connected_previous": self.connected("previous"),
            "highest_degree_next": int(degrees["next"].max()),
            "highest_degree_previous": int(degrees["previous"].max()),
            "edges_of_strongest_next": share_of_top(degrees["next"]),
            "edges_of_strongest_previous": share_of_top(degrees["previous"]),
            "largest_component": self.largest_component,
        }  # fmt: skip

    def table(self) -> pd.DataFrame:
        """One row."""
        return pd.DataFrame([self.summary()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Lines from the previous layer below to the next one above: red is positive, blue negative."""
        from attnscope.plots.lines import edges

        return edges(self.previous, self.next, self.weights, (self.shape[1], self.shape[0]), ax=ax)


@dataclass(frozen=True)
class WeightGraphs(Displayed):
    """The graphs of several models, one for each of the matrices that they have in common."""

    graphs: dict[tuple[str, str], WeightGraph]  # (model, matrix)

    def table(self) -> pd.DataFrame:
        """One row per model and matrix."""
        return pd.DataFrame(
            [{"model": model, "matrix": name, **graph.summary()} for (model, name), graph in self.graphs.items()]
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Bars of the edges of each matrix, one per model; for the lines of a single graph, plot that one."""
        from attnscope import plots

        edges = self.table().pivot_table(index="matrix", columns="model", values="edges", sort=False)
        return plots.bars(edges, ax=ax, ylabel="connections above the threshold")


def weights(
    model: Model,
    data: Data = None,
    threshold: float | Mapping[str, float] | None = None,
    share: float = STRONGEST_WEIGHTS,
) -> WeightGraphs:
    """Return the strong connections within each gate of a recurrent encoder-decoder.

    Args:
        model: An EncoderDecoder of gru or lstm cells.
        data: Unused: weights do not depend on texts.
        threshold: As of `weight_graphs`; so is the rest.
    """
    module = module_of(model)
    if not isinstance(module, EncoderDecoder):
        raise MissingCapability(
            f"the weights probe needs a recurrent EncoderDecoder, whose gates have names, not a {type(module).__name__}"
        )
    return weight_graphs({"model": gate_matrices(module)}, threshold, share)


def weight_graph(matrix: Matrix, threshold: float) -> WeightGraph:
    """Return the graph of the weights whose size is above a threshold."""
    require(threshold >= 0, f"a threshold is a size, so it must not be negative, but is {threshold}")
    rows, columns = np.nonzero(np.abs(matrix) > threshold)
    return WeightGraph(rows, columns, matrix[rows, columns], (matrix.shape[0], matrix.shape[1]), float(threshold))


def weight_graphs(
    models: Mapping[str, Matrices],
    threshold: float | Mapping[str, float] | None = None,
    share: float = STRONGEST_WEIGHTS,
) -> WeightGraphs:
    """Return the graphs of the matrices of several models.

    Args:
        models: The matrices of each model, by its name.
        threshold: One for all matrices, or one per side ("encoder", "decoder"); None: by `share`.
        share: Of the weights of a side, of all models together, that are above its threshold.
    """
    names = common_names(models)
    thresholds = {name: threshold_of(name, models, threshold, share) for name in names}
    return WeightGraphs(
        {(model, name): weight_graph(models[model][name], thresholds[name]) for name in names for model in models}
    )


def threshold_of(
    name: str, models: Mapping[str, Matrices], given: float | Mapping[str, float] | None, share: float
) -> float:
    side = side_of(name)
    if isinstance(given, Mapping):
        choose("side with a threshold", side, given)
        return given[side]
    if given is not None:
        return given
    pooled = [matrix for matrices in models.values() for other, matrix in matrices.items() if side_of(other) == side]
    return pooled_threshold(pooled, share)


def side_of(name: str) -> str:
    """
    >>> side_of("encoder.Whz")
    'encoder'
    """
    return name.partition(".")[0]


def pooled_threshold(matrices: list[Matrix], share: float = STRONGEST_WEIGHTS) -> float:
    """Return the size above which this share of all weights lies.

    >>> pooled_threshold([np.array([[1.0, -2.0]]), np.array([[3.0, -4.0]])], share=0.25)
    3.0
    """
    require(0 < share < 1, f"share must be between 0 and 1, not {share}")
    sizes = np.concatenate([np.abs(matrix).ravel() for matrix in matrices])
    kept = round(share * len(sizes))
    return float(np.partition(sizes, len(sizes) - kept - 1)[len(sizes) - kept - 1])


def common_names(models: Mapping[str, Matrices]) -> list[str]:
    require(bool(models), "there is no model to draw; give at least one")
    first, *others = models
    for other in others:
        apart = sorted(set(models[first]) ^ set(models[other]))
        require(not apart, f"models {first!r} and {other!r} do not have the same matrices: only one has {apart}")
    return list(models[first])


def share_of_top(degrees: Int[np.ndarray, " units"], share: float = 0.05) -> float:
    """Return the share of edges that end in the 5 % of units with most edges; NaN without edges."""
    top = np.sort(degrees)[::-1][: max(1, round(share * len(degrees)))]
    return float(top.sum() / degrees.sum()) if degrees.sum() else float("nan")
