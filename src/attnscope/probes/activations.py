"""How much of its range does a unit use, and how concentrated are its values? (baan2019 §4.1, fig. 3)"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require

NUM_SAMPLED = 50  # units, baan2019 fig. 3
WINDOW = 0.1  # of the possible range
RANGE = (-1.0, 1.0)  # of the states of a GRU and an LSTM; that of a gate is (0, 1)


@dataclass(frozen=True)
class Activations(Displayed):
    """The values of some units over all steps of a set of sequences."""

    values: Float[np.ndarray, "steps units"]
    units: tuple[int, ...]
    range: tuple[float, float] = RANGE

    @property
    def concentration(self) -> Float[np.ndarray, " units"]:
        """For each unit, the largest share of its values within a tenth of the possible range."""
        return concentration(self.values, WINDOW * (self.range[1] - self.range[0]))

    @property
    def covered(self) -> Float[np.ndarray, " units"]:
        """For each unit, the share of the possible range between its lowest and highest value."""
        return np.asarray(np.ptp(self.values, axis=0) / (self.range[1] - self.range[0]))

    def table(self) -> pd.DataFrame:
        """Return one row per unit."""
        low, median, high = np.quantile(self.values, [0.0, 0.5, 1.0], axis=0)
        columns = {"lowest": low, "median": median, "highest": high, "covered": self.covered}
        return pd.DataFrame({"unit": self.units, **columns, "concentration": self.concentration})

    def plot(self, ax: Axes | None = None, colour: str | None = None) -> Axes:
        """Draw one violin per unit, in the order of their medians; the line is the full range."""
        from attnscope.plots.bars import violins

        order = np.argsort(np.median(self.values, axis=0), kind="stable")
        names = [self.units[place] for place in order]
        return violins(
            self.values[:, order], names, ax=ax, limits=self.range, colour=colour, xlabel="unit", ylabel="activation"
        )


def activations(
    states: Float[Tensor, "batch steps units"],
    mask: Bool[Tensor, "batch steps"],
    num_sampled: int | None = NUM_SAMPLED,
    seed: int = 0,
    range: tuple[float, float] = RANGE,
) -> Activations:
    """Return the values of sampled units at all steps.

    Args:
        states: The states of a layer.
        mask: Steps that count.
        num_sampled: How many units to sample, the same ones for every model of a size; None: all.
        seed: Random seed of the sample.
        range: The smallest and largest possible value.
    """
    total = states.shape[-1]
    require(bool(mask.any()), "the mask leaves no step")
    in_range = num_sampled is None or 0 < num_sampled <= total
    require(in_range, f"num_sampled must be from 1 to the {total} units, not {num_sampled}")
    require(range[0] < range[1], f"the range {range} is empty: its first number must be below its second")
    every = np.random.default_rng(seed).permutation(total)
    units = np.arange(total) if num_sampled is None else np.sort(every[:num_sampled])
    values = states.detach()[mask].double().cpu().numpy()  # (steps of all sequences) x units
    return Activations(values[:, units], tuple(units.tolist()), range)


def concatenate_activations(parts: Sequence[Activations]) -> Activations:
    """Return the activations of several batches as one."""
    require(bool(parts), "there are no activations to join; give at least one batch")
    first = parts[0]
    alike = all((part.units, part.range) == (first.units, first.range) for part in parts)
    require(alike, "these batches are of different units or ranges; sample the same units, by one seed, in each")
    return Activations(np.concatenate([part.values for part in parts]), first.units, first.range)


def concentration(values: Float[np.ndarray, "steps units"], width: float) -> Float[np.ndarray, " units"]:
    """Return the largest share of each column's values that fits in a window of this width.

    >>> concentration(np.array([[0.0], [0.1], [0.9], [0.95], [1.0]]), 0.2).tolist()
    [0.6]
    """
    ordered = np.sort(values, axis=0)
    reach = width + 1e-9  # a window holds both of its ends, also after rounding
    inside = [np.searchsorted(column, column + reach, "right") - np.arange(len(column)) for column in ordered.T]
    return np.array([counts.max() / len(counts) for counts in inside])
