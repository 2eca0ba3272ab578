"""What do the weights of a network look like? Matrices, embeddings, polarity and strength (baan2019 §3, §4.1, §5.2)

Gates are matrices: Wiz takes the input to the update gate, and so on. Rows are the units of the next layer, columns
those of the previous one. z is torch's update gate, whose open state keeps what was there (`keep` in a Trace); the
paper reads it the other way round. r is the reset gate, n the new state; of an LSTM i writes, f keeps, g is new, o
exposes.

A unit's polarity in a matrix is its mean weight. The paper finds the polarities of update and reset gate inversely
related. This holds for torch's update gate z; for the gate that writes (1 − z), all weights have the opposite sign, and
polarities that are inverse here are alike there.

A unit's strength is the mean |weight| of each matrix that it has a part in, averaged over these matrices: its row where
the matrix leads to it, its column where the matrix leads from it. (The paper says "strongest absolute weight values".)

In the weight graph (fig. 2) an edge is a weight whose size is above a threshold. The threshold has to be the same for
all models: with one per model, such as its strongest one percent, all would have the same number of edges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, choose, require
from attnscope.models import EncoderDecoder
from attnscope.models.capabilities import MissingCapability
from attnscope.models.cells import GRU, LSTM, Cell, weights_of
from attnscope.models.inference import Model, module_of
from attnscope.models.inputs import Data
from attnscope.models.recurrent import Recurrent

Matrix = Float[np.ndarray, "_ _"]  # units of the next layer x units of the previous one
Matrices = dict[str, Matrix]

SIDES = ("encoder", "decoder")
GATE_ORDER: dict[type[Cell], str] = {GRU: "rzn", LSTM: "ifgo"}  # in which torch stacks them
LAYERS = ("next", "previous")
DIRECTIONS = ("both", "incoming", "outgoing")
STRONGLY_POLAR = 0.05  # of units
STRONGEST = 0.05  # of units, baan2019 §4.1: 26 of 512


# Matrices


def gate_matrices(model: EncoderDecoder) -> Matrices:
    """Return every gate's matrices of both sides: "encoder.Whz" etc.; with several cells, "encoder.2.back.Whz"."""
    return {f"{side}.{name}": matrix for side in SIDES for name, matrix in matrices_of_side(model, side).items()}


def matrices_of_side(model: EncoderDecoder, side: str) -> Matrices:
    """Return the matrices of the encoder or of the decoder, without the side in their names."""
    recurrent = recurrent_of(model, side)
    matrices = Matrices()
    for direction, cells in (("ahead", recurrent.ahead), ("back", recurrent.back)):
        for layer, cell in enumerate(cells):
            prefix = "" if len(recurrent.ahead) == 1 else f"{layer + 1}."
            prefix += f"{direction}." if recurrent.back else ""
            matrices |= {prefix + name: matrix for name, matrix in matrices_of_cell(cell).items()}
    return matrices


def recurrent_of(model: EncoderDecoder, side: str) -> Recurrent:
    """Return the recurrent layers of the encoder or of the decoder."""
    return model.encoder if choose("side", side, SIDES) == "encoder" else model.decoder


def matrices_of_cell(cell: nn.Module) -> Matrices:
    if not isinstance(cell, GRU | LSTM):
        raise BadSetting(f"the gates of {type(cell).__name__} have no names in the paper; choose a 'gru' or an 'lstm'")
    parts = GATE_ORDER[type(cell)]
    whole = dict(zip("ih", weights_of(cell.rnn)[:2], strict=True))
    return {
        f"W{source}{part}": to_numpy(chunk)
        for source, weight in whole.items()
        for part, chunk in zip(parts, weight.chunk(len(parts)), strict=True)
    }


def to_numpy(weight: Tensor) -> Matrix:
    return np.asarray(weight.detach().cpu().numpy().copy())


# Embeddings (fig. 1)


@dataclass(frozen=True)
class EmbeddingTable(Displayed):
    """One row per token, one column per dimension."""

    values: Matrix
    words: tuple[str, ...]
    name: str = ""

    @property
    def strong_dimensions(self) -> float:
        """The share of all |weight| in the strongest 5 % of dimensions: 0.05 where all are alike."""
        sizes = np.sort(np.abs(self.values).sum(0))[::-1]
        return float(sizes[: max(1, round(0.05 * len(sizes)))].sum() / sizes.sum()) if sizes.any() else float("nan")

    def table(self) -> pd.DataFrame:
        """One row per token."""
        return pd.DataFrame(self.values, index=list(self.words))

    def plot(self, ax: Axes | None = None) -> Axes:
        """A heat map."""
        from attnscope import plots

        return plots.heatmap(self.values, rows=self.words, ax=ax, title=self.name, diverging=True, xlabel="dimension")


def embedding_table(model: EncoderDecoder, side: str, words: Sequence[str]) -> EmbeddingTable:
    """Return the learned embeddings of encoder or decoder.

    Args:
        model: A model with inputs="learned".
        side: "encoder" or "decoder".
        words: The tokens of the task's vocabulary.
    """
    inputs = model.source_inputs if choose("side", side, SIDES) == "encoder" else model.target_inputs
    if not isinstance(inputs.table, nn.Parameter):
        raise BadSetting("one-hot tokens have no embedding; train a model with inputs='learned'")
    values = to_numpy(inputs.table)
    require(len(words) == len(values), f"there are {len(words)} words for the {len(values)} vectors of the {side}")
    return EmbeddingTable(values, tuple(words), f"{side} embedding")


# Polarity (§3)


@dataclass(frozen=True)
class Polarity(Displayed):
    """The mean weight of each unit in the update gate's matrix and in the reset gate's."""

    update: Float[np.ndarray, " units"]
    reset: Float[np.ndarray, " units"]

    @property
    def correlation(self) -> float:
        """Pearson's, over units: negative where they are inverse; NaN where one of them is the same for all."""
        if np.ptp(self.update) == 0 or np.ptp(self.reset) == 0:
            return float("nan")
        return float(np.corrcoef(self.update, self.reset)[0, 1])

    @property
    def strongly_polar(self) -> Int[np.ndarray, " strongest"]:
        """The 5 % of units with the largest |update| + |reset|."""
        size = np.abs(self.update) + np.abs(self.reset)
        return np.argsort(-size, kind="stable")[: max(1, round(STRONGLY_POLAR * len(size)))]

    @property
    def opposite(self) -> float:
        """The share of strongly polar units whose two polarities have opposite signs; by chance one half."""
        chosen = self.strongly_polar
        return float((self.update[chosen] * self.reset[chosen] < 0).mean())

    def table(self) -> pd.DataFrame:
        """One row."""
        row = {
            "correlation": self.correlation, "opposite": self.opposite,
            "update_positive": float((self.update > 0).mean()), "reset_positive": float((self.reset > 0).mean()),
            "units": len(self.update),
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        """One point per unit."""
        from attnscope import plots

        return plots.scatter(
            self.update, self.reset, ax=ax, xlabel="mean weight, update gate", ylabel="mean weight, reset gate"
        )


def polarity(update: Matrix, reset: Matrix, layer: str = "next") -> Polarity:
    """Return the polarity of the units of the next layer (rows), or of the previous one (columns)."""
    require(
        update.shape == reset.shape, f"matrices of {update.shape} and {reset.shape} are not two gates of one network"
    )
    axis = 1 if choose("layer", layer, LAYERS) == "next" else 0
    return Polarity(update.mean(axis), reset.mean(axis))


# Strength (§4.1 and §5.2)


def strengths(
    incoming: Mapping[str, Matrix] | None = None, outgoing: Mapping[str, Matrix] | None = None
) -> Float[np.ndarray, " units"]:
    """Return the strength of each unit; every matrix counts the same.

    Args:
        incoming: Matrices that have the units as rows.
        outgoing: Matrices that have the units as columns.

    >>> strengths({"Wiz": np.array([[1.0, -3.0], [0.0, 0.0]])}, {"Whz": np.array([[1.0, 2.0], [1.0, 2.0]])}).tolist()
    [1.5, 1.0]
    """
    means = [np.abs(matrix).mean(1) for matrix in (incoming or {}).values()]
    means += [np.abs(matrix).mean(0) for matrix in (outgoing or {}).values()]
    require(bool(means), "the strength of units needs at least one matrix")
    sizes = sorted({len(mean) for mean in means})
    require(len(sizes) == 1, f"these matrices have different numbers of units: {sizes}")
    return np.asarray(np.mean(means, 0))


def unit_strengths(model: EncoderDecoder, side: str, direction: str = "both") -> Float[np.ndarray, " units"]:
    """Return the strength of the encoder's or decoder's units.

    Args:
        model: A model with one layer in one direction.
        side: "encoder" or "decoder".
        direction: "incoming" (rows of all gates' matrices), "outgoing" (columns of the recurrent ones) or "both".
    """
    choose("direction", direction, DIRECTIONS)
    settings = model.settings
    if settings.layers > 1 or settings.bidirectional:
        raise BadSetting("strengths are those of the units of one layer in one direction; this model has more of them")
    matrices = matrices_of_side(model, side)
    recurrent = {name: matrix for name, matrix in matrices.items() if name.startswith("Wh")}
    return strengths(matrices if direction != "outgoing" else {}, recurrent if direction != "incoming" else {})


def strongest_units(strengths: Float[np.ndarray, " units"], share: float = STRONGEST) -> tuple[int, ...]:
    """Return the strongest units, the strongest first: this share of all, rounded, but at least one.

    >>> strongest_units(np.array([0.1, 0.9, 0.5]), share=0.6)
    (1, 2)
    """
    require(0 < share <= 1, f"share must be above 0 and at most 1, not {share}")
    order = np.argsort(-strengths, kind="stable")
    return tuple(order[: max(1, round(share * len(order)))].tolist())


# The weight graph (baan2019 §3, fig. 2) ------------------------------------------------------------------------------


THRESHOLDS = {"encoder": 0.2, "decoder": 0.17}  # baan2019 §3
STRONGEST_WEIGHTS = 0.01  # the share above these thresholds, on average over baseline and guided models


@dataclass(frozen=True)
class WeightGraph(Displayed):
    """The edges of one matrix: from a unit of the previous layer to one of the next. The two layers are separate,
    even where a recurrent matrix leads from units to the same units, as in fig. 2."""

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
        threshold: See `weight_graphs`.
        share: The share of the weights that counts as strong, where there is no threshold.
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
        share: The share of a side's weights, over all models, that are above its threshold.
    """
    names = common_names(models)
    thresholds = {name: threshold_of(name, models, threshold, share) for name in names}
    return WeightGraphs(
        {(model, name): weight_graph(models[model][name], thresholds[name]) for name in names for model in models}
    )


def threshold_of(
    name: str, models: Mapping[str, Matrices], threshold: float | Mapping[str, float] | None, share: float
) -> float:
    side = side_of(name)
    if isinstance(threshold, Mapping):
        choose("side with a threshold", side, threshold)
        return threshold[side]
    if threshold is not None:
        return threshold
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
    place = len(sizes) - round(share * len(sizes)) - 1
    return float(np.partition(sizes, place)[place])


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
