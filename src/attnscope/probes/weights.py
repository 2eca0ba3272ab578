"""What do the weights of a network look like: few strong connections or many weak ones? (baan2019 §3, figs. 1, 2)"""

# TODO(docstring) join:
#   Which matrices does a gated network consist of? (baan2019 §3: Wiz takes the input to the update gate, and so on)
#   What do the words' vectors look like? Heatmaps of embeddings (baan2019 §3, fig. 1)
#   Is a unit whose update gate is pushed open one whose reset gate is pushed shut? (baan2019 §3)
#   How strongly is each unit connected? (baan2019 §4.1 and §5.2)
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, choose, require
from attnscope.models import EncoderDecoder
from attnscope.models.cells import GRU, LSTM, Cell, weights_of
from attnscope.models.recurrent import Recurrent

Matrix = Float[np.ndarray, "_ _"]  # units of the next layer x units of the previous one
Matrices = dict[str, Matrix]

SIDES = ("encoder", "decoder")
GATE_ORDER: dict[type[Cell], str] = {GRU: "rzn", LSTM: "ifgo"}  # in the order in which torch stacks them


def gate_matrices(model: EncoderDecoder) -> Matrices:
    """Every gate's matrices of both sides: "encoder.Whz" and so on; with several cells, "encoder.2.back.Whz"."""
    return {f"{side}.{name}": matrix for side in SIDES for name, matrix in matrices_of_side(model, side).items()}


def matrices_of_side(model: EncoderDecoder, side: str) -> Matrices:
    """Those of the encoder or of the decoder, without its name."""
    recurrent: Recurrent = getattr(model, choose("side", side, SIDES))
    found = Matrices()
    for direction in ("ahead", "back"):
        for layer, cell in enumerate(getattr(recurrent, direction)):
            prefix = "" if len(recurrent.ahead) == 1 else f"{layer + 1}."
            prefix += f"{direction}." if recurrent.back else ""
            found |= {prefix + name: matrix for name, matrix in matrices_of_cell(cell).items()}
    return found


def matrices_of_cell(cell: Cell) -> Matrices:
    parts = GATE_ORDER.get(type(cell))
    if parts is None or not isinstance(cell, GRU | LSTM):
        raise BadSetting(f"the gates of {type(cell).__name__} have no names in the paper; choose a 'gru' or an 'lstm'")
    whole = dict(zip("ih", weights_of(cell.rnn)[:2], strict=True))
    return {
        f"W{source}{part}": to_numpy(chunk)
        for source, weight in whole.items()
        for part, chunk in zip(parts, weight.chunk(len(parts)), strict=True)
    }


def to_numpy(weight: Tensor) -> Matrix:
    return np.asarray(weight.detach().cpu().numpy().copy())


@dataclass(frozen=True)
class EmbeddingTable(Displayed):
    """A row a word, a column a dimension."""

    values: Matrix
    words: tuple[str, ...]
    name: str = ""

    @property
    def strong_dimensions(self) -> float:
        """The share of all |weight| that lies in the strongest 5 % of dimensions: 0.05 where all are alike."""
        sizes = np.sort(np.abs(self.values).sum(0))[::-1]
        return float(sizes[: max(1, round(0.05 * len(sizes)))].sum() / sizes.sum()) if sizes.any() else float("nan")

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.values, index=list(self.words))

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.heatmap(self.values, rows=self.words, ax=ax, title=self.name, diverging=True, xlabel="dimension")


def embedding_table(model: EncoderDecoder, side: str, words: Sequence[str]) -> EmbeddingTable:
    """The table of vectors that encoder or decoder looks words up in; `words` are those of the task's vocabulary."""
    inputs = model.source_inputs if choose("side", side, SIDES) == "encoder" else model.target_inputs
    if not isinstance(inputs.table, nn.Parameter):
        raise BadSetting("one-hot words have no embedding to look at; train a model with inputs='learned'")
    values = to_numpy(inputs.table)
    require(len(words) == len(values), f"there are {len(words)} words for the {len(values)} vectors of the {side}")
    return EmbeddingTable(values, tuple(words), f"{side} embedding")


LAYERS = ("next", "previous")
STRONGLY_POLAR = 0.05  # of units


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
        """Of the strongly polar units, the share whose two polarities have opposite signs; by chance one half."""
        chosen = self.strongly_polar
        return float((self.update[chosen] * self.reset[chosen] < 0).mean())

    def table(self) -> pd.DataFrame:
        row = {
            "correlation": self.correlation, "opposite": self.opposite,
            "update_positive": float((self.update > 0).mean()), "reset_positive": float((self.reset > 0).mean()),
            "units": len(self.update),
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        return plots.scatter(
            self.update, self.reset, ax=ax, xlabel="mean weight, update gate", ylabel="mean weight, reset gate"
        )


def polarity(update: Matrix, reset: Matrix, layer: str = "next") -> Polarity:
    """Of the units of the next layer (rows), or of the previous one (columns)."""
    require(
        update.shape == reset.shape, f"matrices of {update.shape} and {reset.shape} are not two gates of one network"
    )
    axis = 1 if choose("layer", layer, LAYERS) == "next" else 0
    return Polarity(update.mean(axis), reset.mean(axis))


DIRECTIONS = ("both", "incoming", "outgoing")
STRONGEST = 0.05  # of units, baan2019 §4.1: 26 of 512


def strengths(
    incoming: Mapping[str, Matrix] | None = None, outgoing: Mapping[str, Matrix] | None = None
) -> Float[np.ndarray, " units"]:
    """`incoming` matrices have the units as rows, `outgoing` ones as columns; every matrix counts the same.

    >>> strengths({"Wiz": np.array([[1.0, -3.0], [0.0, 0.0]])}, {"Whz": np.array([[1.0, 2.0], [1.0, 2.0]])}).tolist()
    [1.5, 1.0]
    """
    means = [np.abs(matrix).mean(1) for matrix in (incoming or {}).values()]
    means += [np.abs(matrix).mean(0) for matrix in (outgoing or {}).values()]
    require(bool(means), "no matrix was given: units are as strong as their weights in at least one")
    sizes = sorted({len(mean) for mean in means})
    require(len(sizes) == 1, f"these matrices are of different numbers of units: {sizes}")
    return np.asarray(np.mean(means, 0))


def unit_strengths(model: EncoderDecoder, side: str, direction: str = "both") -> Float[np.ndarray, " units"]:
    """Of the encoder's or decoder's units: rows of all its gates' matrices, and columns of the recurrent ones; or, by
    `direction`, only what is "incoming" or only what is "outgoing"."""
    choose("direction", direction, DIRECTIONS)
    settings = model.settings
    if settings.layers > 1 or settings.bidirectional:
        raise BadSetting("strengths are those of the units of one layer in one direction; this model has more of them")
    matrices = matrices_of_side(model, side)
    recurrent = {name: matrix for name, matrix in matrices.items() if name.startswith("Wh")}
    return strengths(matrices if direction != "outgoing" else {}, recurrent if direction != "incoming" else {})


def strongest_units(strengths: Float[np.ndarray, " units"], share: float = STRONGEST) -> tuple[int, ...]:
    """The strongest units, the first one first: this share of all, rounded, but at least one.

    >>> strongest_units(np.array([0.1, 0.9, 0.5]), share=0.6)
    (1, 2)
    """
    require(0 < share <= 1, f"share must be above 0 and at most 1, not {share}")
    order = np.argsort(-strengths, kind="stable")
    return tuple(order[: max(1, round(share * len(order)))].tolist())
