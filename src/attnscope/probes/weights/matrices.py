"""Which matrices does a gated network consist of? (baan2019 §3: Wiz takes the input to the update gate, and so on)

Rows are the units of the next layer, columns those of the previous one. z is torch's update gate, whose open state
keeps what was there (`keep` in a Trace); the paper reads it the other way round. r is the reset gate, n the new state;
of an LSTM i writes, f keeps, g is new, o exposes.
"""

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attnscope.errors import BadSetting, choose
from attnscope.models import EncoderDecoder
from attnscope.models.cells import GRU, LSTM, Cell, weights_of
from attnscope.models.recurrent import Recurrent

Matrix = Float[np.ndarray, "_ _"]  # units of the next layer x units of the previous one
Matrices = dict[str, Matrix]

SIDES = ("encoder", "decoder")
PARTS: dict[type[Cell], str] = {GRU: "rzn", LSTM: "ifgo"}  # in the order in which torch stacks them


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
    parts = PARTS.get(type(cell))
    if parts is None or not isinstance(cell, GRU | LSTM):
        raise BadSetting(f"the gates of {type(cell).__name__} have no names in the paper; choose a 'gru' or an 'lstm'")
    whole = dict(zip("ih", weights_of(cell.rnn)[:2], strict=True))
    return {
        f"W{source}{part}": as_array(chunk)
        for source, weight in whole.items()
        for part, chunk in zip(parts, weight.chunk(len(parts)), strict=True)
    }


def as_array(weight: Tensor) -> Matrix:
    return np.asarray(weight.detach().cpu().numpy().copy())
