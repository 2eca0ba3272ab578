"""How strongly is each unit connected? (baan2019 §4.1 and §5.2)

The paper says "strongest absolute weight values" and no more. Here a unit's strength is the mean |weight| of each
matrix that it has a part in, averaged over these matrices: its row where the matrix leads to it, its column where the
matrix leads from it.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from attnscope.errors import BadSetting, choose, require
from attnscope.models import EncoderDecoder
from attnscope.probes.weights.matrices import Matrix, matrices_of_side

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


def strongest(strengths: Float[np.ndarray, " units"], share: float = STRONGEST) -> tuple[int, ...]:
    """The strongest units, the first one first: this share of all, rounded, but at least one.

    >>> strongest(np.array([0.1, 0.9, 0.5]), share=0.6)
    (1, 2)
    """
    require(0 < share <= 1, f"share must be above 0 and at most 1, not {share}")
    order = np.argsort(-strengths, kind="stable")
    return tuple(order[: max(1, round(share * len(order)))].tolist())
