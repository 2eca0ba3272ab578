"""Do units of guided networks have narrow activations, and distinct gates? (baan2019 §4.1 and §4.2, figures 3 and 4)

z is the update gate as torch computes it, h' = (1 − z) n + z h: where it is closed the state is overwritten.
"""

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.plots.bars import violins
from attnscope.plots.points import fractions
from attnscope.probes.gates import (
    NUM_SAMPLED,
    RANGE,
    Activations,
    Saturation,
    SaturationAccumulator,
    activations,
    concatenate_activations,
)
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, both, network_traces
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements

# Figure 4: gates -----------------------------------------------------------------------------------------------------

SIDES = ("encoder", "decoder")
GATES = {"z": "keep", "r": "reset"}  # in the paper's words, and by what an open gate does
# Authors' code: all that is held out, of two tables and of four.
SPLITS = tuple(
    f"{kind}{length}" for length in ("", "4") for kind in ("heldout_tables", "heldout_compositions", "new_compositions")
)
OFTEN = 0.5  # of the steps

GATE_QUANTITIES = {
    f"{side}_{gate}_{what}": f"{side}, {gate}: {text}"
    for side in SIDES
    for gate in GATES
    for what, text in (
        ("one_sided", "of what is saturated, how much lies on one side"),
        ("from_axes", "mean distance to the nearer axis"),
        ("closed", "fraction of steps closed, mean of units"),
        ("open", "fraction of steps open, mean of units"),
        ("often_open", "units that are open at more than half of the steps, share"),
    )
}


def measure_gates(run: Run) -> Measurement:
    accumulator = SaturationAccumulator()
    for _, trace in network_traces(run, SPLITS):
        accumulator.update(trace)
    saturation = accumulator.result().gates
    gates = {f"{side}_{gate}": saturation[f"{side}.{name}"] for side in SIDES for gate, name in GATES.items()}
    return {
        **{f"{where}_{what}": value for where, gate in gates.items() for what, value in gate_statistics(gate).items()},
        "picture": {where: {"closed": gate.closed, "open": gate.open} for where, gate in gates.items()},
    }


def gate_statistics(gate: Saturation) -> dict[str, float]:
    return {
        "one_sided": gate.one_sided,
        "from_axes": gate.from_axes,
        "closed": float(gate.closed.mean()),
        "open": float(gate.open.mean()),
        "often_open": float((gate.open > OFTEN).double().mean()),
    }


def claims_about_gates(measured: Measurements) -> list[ClaimVerdict]:
    closer = "guided gates are closer to the axes (more of their saturation is on one side)"
    closed = "baseline: update gates are mostly left-saturated, z more often closed than open"
    often = "decoder, guided: some update gates are often right-saturated"
    return [
        *(
            measured.more_than(f"{side}, {gate}: {closer}", GUIDED, BASELINE, f"{side}_{gate}_one_sided")
            for side in SIDES
            for gate in GATES
        ),
        *(measured.greater(f"{side}, {closed}", BASELINE, f"{side}_z_closed", f"{side}_z_open") for side in SIDES),
        measured.proportion(often, GUIDED, "decoder_z_often_open", lambda share: share > 0),
    ]


def draw_gates(data: FigureData) -> Figure:
    """Draw one panel per model and side, one point per unit."""
    picture, axes = plots.panels(len(data), len(SIDES), size=(4.4, 3.6))
    places = [(model, side) for model in data for side in SIDES]
    for (model, side), ax in zip(places, axes, strict=True):
        gates = {gate: data[model][f"{side}_{gate}"] for gate in GATES}
        points = {f"{gate} ({GATES[gate]})": (content["closed"], content["open"]) for gate, content in gates.items()}
        fractions(points, ax=ax, xlabel="fraction left-saturated (closed)", ylabel="fraction right-saturated (open)")
        ax.set_title(f"{side}: {model}")
    return picture


FIG4 = Finding(
    name="fig4",
    title="Whether guided networks use their gates more distinctly",
    section="§4.2, figure 4",
    experiments=both, measure=measure_gates, table=GATE_QUANTITIES, claims=claims_about_gates, draw=draw_gates,
    notes=(
        "A gate is closed (left-saturated) below 0.1 and open above 0.9, over all steps of held-out tables, held-out "
        "and new compositions, of two tables and of four. Points are those of the first seed.",
        "z is torch's update gate: open, it keeps the old state. The paper says that where z is closed new information "
        "is rarely taken in; by this convention, which its code had, a closed z takes in the new state and forgets the "
        "old one. The claims here are about z as it was drawn, not about what that means.",
        "What this does not show: gates that hardly ever saturate lie at the origin, close to both axes. The claims "
        "count what is saturated; the distance to the axes is in the table.",
        *NOTES,
    ),
)  # fmt: skip


# Figure 3: activations -----------------------------------------------------------------------------------------------

NARROW = 0.5  # a unit is narrow if it covers at most this share of the possible range
WIDE = 0.8  # and wide if it covers at least this share
QUANTILES = np.linspace(0, 1, 41)  # of each unit's activations, which stand for them in the figure
COLOURS = {BASELINE: "#0072B2", GUIDED: "#D55E00"}  # blue and orange, as in the paper

ACTIVATION_QUANTITIES = {
    f"{side}_{name}": f"{side}: {text}"
    for side in SIDES
    for name, text in (
        ("narrow", "share of units that cover at most half of the possible range"),
        ("wide", "share of units that cover 80 % of the possible range"),
        ("covered", "share of the possible range that a unit covers, mean of units"),
        ("concentration", "share of a unit's values in its fullest tenth of the range, mean of units"),
    )
}


def measure_activations(run: Run) -> Measurement:
    by_side = activations_by_side(run)
    return {
        **{
            f"{side}_{name}": value
            for side, units in by_side.items()
            for name, value in activation_statistics(units).items()
        },
        "picture": {side: sample_units(units) for side, units in by_side.items()},
    }


def activations_by_side(run: Run) -> dict[str, Activations]:
    """Return the activations of all units on all held-out sentences."""
    parts: dict[str, list[Activations]] = {side: [] for side in SIDES}
    for _, trace in network_traces(run, SPLITS):
        assert trace.decoder is not None
        parts["encoder"].append(activations(trace.encoder, trace.source_mask, num_sampled=None))
        parts["decoder"].append(activations(trace.decoder, trace.target_mask, num_sampled=None))
    return {side: concatenate_activations(each) for side, each in parts.items()}


def activation_statistics(units: Activations) -> dict[str, float]:
    return {
        "narrow": float((units.covered <= NARROW).mean()),
        "wide": float((units.covered >= WIDE).mean()),
        "covered": float(units.covered.mean()),
        "concentration": float(units.concentration.mean()),
    }


def sample_units(units: Activations) -> dict[str, FigureData]:
    """Return the quantiles of 50 random units, minimum and maximum included, in the order of their medians."""
    total = len(units.units)
    sampled = np.sort(np.random.default_rng(0).permutation(total)[: min(NUM_SAMPLED, total)])
    values = np.quantile(units.values[:, sampled], QUANTILES, axis=0)  # quantiles x units
    order = np.argsort(np.median(values, axis=0), kind="stable")
    return {"units": sampled[order], "quantiles": values[:, order]}


def claims_about_activations(measured: Measurements) -> list[ClaimVerdict]:
    some = "some units have a narrow range of activations"
    more = "more units have one in guided networks than in the baseline"
    most = "decoder, guided: most units cover the whole range of activations"
    return [
        *(measured.proportion(f"{side}, guided: {some}", GUIDED, f"{side}_narrow", lambda s: s > 0) for side in SIDES),
        *(measured.more_than(f"{side}: {more}", GUIDED, BASELINE, f"{side}_narrow") for side in SIDES),
        measured.at_least(most, GUIDED, "decoder_wide", 0.5),
    ]


def draw_activations(data: FigureData) -> Figure:
    picture, axes = plots.panels(len(SIDES), len(data), size=(6.2, 3.0))
    places = [(side, model) for side in SIDES for model in data]
    for (side, model), ax in zip(places, axes, strict=True):
        content, colour = data[model][side], COLOURS.get(model)
        quantiles = np.array(content["quantiles"])
        violins(quantiles, content["units"], ax=ax, limits=RANGE, colour=colour, xlabel="unit", ylabel="activation")
        ax.set_title(f"{side}: {model}")
    return picture


FIG3 = Finding(
    name="fig3",
    title="Whether some units of guided networks have a narrow range of activations",
    section="§4.1, figure 3",
    experiments=both, measure=measure_activations, table=ACTIVATION_QUANTITIES, claims=claims_about_activations,
    draw=draw_activations,
    notes=(
        "Numbers are of all units, over all steps of held-out tables, held-out and new compositions, of two tables and "
        "of four; the figure shows 50 units of the first seed. Violins are drawn from 41 quantiles, their lines reach "
        "from the lowest to the highest value.",
        "The paper compares by eye; the claims put numbers in place of its words. An idle unit is narrow, too: "
        "specialised units are not distinguished from idle ones here.",
        *NOTES,
    ),
)  # fmt: skip
