"""Is a unit whose update gate is pushed open one whose reset gate is pushed shut? (baan2019 §3)

A unit's polarity in a matrix is its mean weight. The paper finds the polarities of update and reset gate inversely
related. This holds for torch's update gate z, which keeps the old state where it is open; for the gate that writes
(1 − z), all weights have the opposite sign, and polarities that are inverse here are alike there.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from attnscope.display import Displayed
from attnscope.errors import choose, require
from attnscope.probes.drawing import Axes
from attnscope.probes.weights.matrices import Matrix

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
