"""How often is each gate closed, open, or undecided? (baan2019 §4.2, fig. 4)

Gates are named by what they do when open: `keep` the old state, `write` the new one, `reset` (open: the old state is
seen), `expose` the cell. The figure shows the GRU's update gate z as torch computes it, h' = (1 − z) n + z h: that is
`keep`. The paper reads it the other way round: where it finds z mostly closed, it says that new information is rarely
taken in, but then the old state is overwritten. Its sentences are about `write` = 1 − z, whose closed is z's open.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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

    points = {name: (one.closed.tolist(), one.open.tolist()) for name, one in saturations.items()}
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
        require(bool(self.steps > 0), "the mask leaves no step at which a gate could be seen")
        return Saturation(self.closed.double() / self.steps, self.open.double() / self.steps, int(self.steps))


class SaturationAccumulator:
    """The saturation of every gate over Traces that were made with gates=True."""

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
        require(bool(self.gates), "nothing has come by yet; give at least one trace before asking for a result")
        return Saturations({name: gate.total.result() for name, gate in self.gates.items()})


def gates(
    model: Model, data: Data = None, low: float = LOW, high: float = HIGH, decoding: Decoding | None = None
) -> Saturations:
    """Return how often each gate of a recurrent model is closed and open.

    Args:
        model: A model with gated recurrent cells.
        data: As of `as_batches`.
        low: A gate below it is closed.
        high: A gate above it is open.
        decoding: As of `traces`.
    """
    needs(model, GivesTrace, by="the gate probe")
    accumulator = SaturationAccumulator(low, high)
    for _, trace in traces(model, data, decoding=decoding, gates=True):
        accumulator.update(trace)
    return accumulator.result()
