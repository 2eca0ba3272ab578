"""How often is each gate closed, open, or undecided? (baan2019 §4.2, fig. 4)

Gates are named by what they do when open: `keep` the old state, `write` the new one, `reset` (open: the old state is
used), `expose` the cell. The figure shows the GRU's update gate z as torch computes it, h' = (1 − z) n + z h: that is
`keep`. The paper reads it the other way round: where it finds z mostly closed, it says that new information is rarely
taken in, but then the old state is overwritten. Its sentences are about `write` = 1 − z, whose closed is z's open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, require
from attnscope.models.capabilities import Decoding, GivesTrace, needs
from attnscope.models.inference import Model, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Trace
from attnscope.probes.accumulator import Accumulator, Sums

LOW, HIGH = 0.1, 0.9  # Karpathy et al. 2015, baan2019 §4.2


@dataclass(frozen=True)
class Saturation(Displayed):
    """For each unit, the fraction of steps at which its gate was closed and at which it was open."""

    closed: Float[Tensor, " units"]
    open: Float[Tensor, " units"]
    steps: int

    @property
    def from_axes(self) -> float:
        """The distance to the nearer axis, min(closed, open), averaged over units: 0 where every gate saturates to one
        side only, or not at all; 1/2 at most."""
        return float(torch.minimum(self.closed, self.open).mean())

    @property
    def from_diagonal(self) -> float:
        """The fraction of steps that are undecided, 1 − closed − open, averaged over units: 0 where every gate is
        always saturated. (The distance on the page is this over √2.)"""
        return float((1 - self.closed - self.open).mean())

    @property
    def one_sided(self) -> float:
        """How far saturation is to one side only: Σ|closed − open| / Σ(closed + open) over units.

        1 where all units lie on the axes, 0 where each is as often open as closed. Unlike the distance to the axes it
        does not count gates that never saturate as one-sided; NaN if none ever does.
        """
        return float((self.closed - self.open).abs().sum() / (self.closed + self.open).sum())

    def summary(self) -> dict[str, float]:
        return {
            "closed": float(self.closed.mean()), "open": float(self.open.mean()), "one_sided": self.one_sided,
            "from_axes": self.from_axes, "from_diagonal": self.from_diagonal,
            "units": len(self.closed), "steps": self.steps,
        }  # fmt: skip

    def table(self) -> pd.DataFrame:
        """One row per unit."""
        return pd.DataFrame({"closed": self.closed.tolist(), "open": self.open.tolist()}).rename_axis("unit")

    def plot(self, ax: Axes | None = None) -> Axes:
        return plot_saturations({"": self}, ax)


def saturation(
    gate: Float[Tensor, "batch steps units"], mask: Bool[Tensor, "batch steps"], low: float = LOW, high: float = HIGH
) -> Saturation:
    """Return how often each unit's gate is below `low` (closed) and above `high` (open) on unmasked steps."""
    return SaturationSums.of(gate, mask, low, high).result()


def plot_saturations(saturations: Mapping[str, Saturation], ax: Axes | None = None) -> Axes:
    """Draw the fraction closed against the fraction open, one point per unit, one colour per name."""
    from attnscope.plots.points import fractions

    points = {name: (gate.closed.tolist(), gate.open.tolist()) for name, gate in saturations.items()}
    return fractions(points, ax=ax, xlabel="fraction closed", ylabel="fraction open")


@dataclass(frozen=True)
class Saturations(Displayed):
    """The saturation of all gates of a model: "encoder.keep", "decoder.reset" and so on."""

    gates: dict[str, Saturation]

    def table(self) -> pd.DataFrame:
        """One row per gate."""
        return pd.DataFrame([{"gate": name, **gate.summary()} for name, gate in self.gates.items()])

    def side(self, side: str) -> dict[str, Saturation]:
        """Return the gates of the encoder, or of the decoder, by name. A GRU's `write` mirrors its `keep`."""
        return {name.partition(".")[2]: gate for name, gate in self.gates.items() if name.startswith(f"{side}.")}

    def plot(self, ax: Axes | None = None) -> Axes:
        return plot_saturations(self.gates, ax)


@dataclass(frozen=True)
class SaturationSums(Sums):
    closed: Int[Tensor, " units"]
    open: Int[Tensor, " units"]
    steps: Int[Tensor, ""]

    @classmethod
    def of(cls, gate: Tensor, mask: Tensor, low: float, high: float) -> "SaturationSums":
        steps = gate.detach()[mask]  # (steps of all sequences) x units
        return cls((steps < low).sum(0), (steps > high).sum(0), mask.sum())

    def result(self) -> Saturation:
        require(bool(self.steps > 0), "the mask leaves no step to measure a gate at")
        return Saturation(self.closed.double() / self.steps, self.open.double() / self.steps, int(self.steps))


class SaturationAccumulator:
    """The saturation of every gate over Traces recorded with gates=True."""

    def __init__(self, low: float = LOW, high: float = HIGH):
        require(0 <= low < high <= 1, f"a gate is closed below low and open above high: not low={low}, high={high}")
        self.low, self.high = low, high
        self.gates: dict[str, Accumulator[SaturationSums]] = {}

    @torch.no_grad()
    def update(self, trace: Trace) -> None:
        if not trace.gates:
            raise BadSetting(
                "this model records no gates: it needs a recurrent cell with gates, recorded under gates=True"
            )
        for name, gate in trace.gates.items():
            mask = trace.target_mask if name.startswith("decoder.") else trace.source_mask
            sums = SaturationSums.of(gate, mask, self.low, self.high)
            self.gates.setdefault(name, Accumulator()).add(sums)

    def merge(self, other: "SaturationAccumulator") -> None:
        require((self.low, self.high) == (other.low, other.high), "these two have different thresholds of saturation")
        for name, gate in other.gates.items():
            self.gates.setdefault(name, Accumulator()).merge(gate)

    def result(self) -> Saturations:
        require(bool(self.gates), "there are no traces yet; update with at least one before taking a result")
        return Saturations({name: gate.total.result() for name, gate in self.gates.items()})


def gates(
    model: Model, data: Data = None, low: float = LOW, high: float = HIGH, decoding: Decoding | None = None
) -> Saturations:
    """Return how often each gate of a recurrent model is closed and open.

    Args:
        model: A model with gated recurrent cells.
        data: See `as_batches`.
        low: A gate below it is closed.
        high: A gate above it is open.
        decoding: See `traces`.
    """
    needs(model, GivesTrace, by="the gate probe")
    accumulator = SaturationAccumulator(low, high)
    for _, trace in traces(model, data, decoding=decoding, gates=True):
        accumulator.update(trace)
    return accumulator.result()


# How much of its range a unit uses, and how concentrated its values are (baan2019 §4.1, fig. 3) ----------------------


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
    order = np.random.default_rng(seed).permutation(total)
    units = np.arange(total) if num_sampled is None else np.sort(order[:num_sampled])
    values = states.detach()[mask].double().cpu().numpy()  # (steps of all sequences) x units
    return Activations(values[:, units], tuple(units.tolist()), range)


def concatenate_activations(parts: Sequence[Activations]) -> Activations:
    """Return the activations of several batches as one."""
    require(bool(parts), "there are no activations to join; give at least one batch")
    first = parts[0]
    alike = all((part.units, part.range) == (first.units, first.range) for part in parts)
    require(alike, "these batches have different units or ranges; sample the same units, with one seed, in each")
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
