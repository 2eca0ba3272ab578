"""Are the units of a functional group among the strongest-connected ones? (baan2019 §4.1)"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnscope.display import Displayed
from attnscope.errors import require
from attnscope.probes.drawing import Axes
from attnscope.probes.weights.strength import STRONGEST, strongest


@dataclass(frozen=True)
class Overlap(Displayed):
    """How many of the group's units are among the strongest; any unit is by chance with `chance`."""

    group: tuple[int, ...]
    strongest: tuple[int, ...]
    of_units: int

    @property
    def share(self) -> float:
        return len(set(self.group) & set(self.strongest)) / len(self.group)

    @property
    def chance(self) -> float:
        return len(self.strongest) / self.of_units

    def table(self) -> pd.DataFrame:
        row = {"share": self.share, "chance": self.chance, "group": len(self.group), "strongest": len(self.strongest)}
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        rows = pd.DataFrame({"share": [self.share, self.chance]}, ["functional group", "any unit"])
        return plots.bars(rows, ax=ax, ylabel="share among the strongest-connected units")


def overlap(group: Sequence[int], strengths: Float[np.ndarray, " units"], share: float = STRONGEST) -> Overlap:
    """`strengths` of all units are those of attnscope.probes.weights.strengths."""
    require(bool(group), "an empty group overlaps with nothing; give at least one unit")
    beyond = [unit for unit in group if not 0 <= unit < len(strengths)]
    require(not beyond, f"units {beyond} have no strength: there are strengths of {len(strengths)} units")
    return Overlap(tuple(group), strongest(strengths, share), len(strengths))
