"""Do guided networks use their gates more distinctly? (baan2019 §4.2, figure 4)

z is the update gate as torch computes it, h' = (1 − z) n + z h: where it is closed the state is overwritten.
"""

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.plots.points import fractions
from attnscope.probes.gates import Saturation, SaturationAccumulator
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, both, network_traces
from attnscope.studies.claims import ClaimVerdict, more_than
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements

SIDES = ("encoder", "decoder")
GATES = {"z": "keep", "r": "reset"}  # in the paper's words, and by what an open gate does
# Authors' code: all that is held out, of two tables and of four.
SPLITS = tuple(
    f"{kind}{length}" for length in ("", "4") for kind in ("heldout_tables", "heldout_compositions", "new_compositions")
)
OFTEN = 0.5  # of the steps

QUANTITIES = {
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


def measure(run: Run) -> Measurement:
    accumulator = SaturationAccumulator()
    for _, trace in network_traces(run, SPLITS):
        accumulator.update(trace)
    saturation = accumulator.result().gates
    gates = {f"{side}_{gate}": saturation[f"{side}.{name}"] for side in SIDES for gate, name in GATES.items()}
    return {
        **{f"{where}_{what}": value for where, gate in gates.items() for what, value in statistics(gate).items()},
        "picture": {where: {"closed": gate.closed, "open": gate.open} for where, gate in gates.items()},
    }


def statistics(gate: Saturation) -> dict[str, float]:
    return {
        "one_sided": gate.one_sided,
        "from_axes": gate.from_axes,
        "closed": float(gate.closed.mean()),
        "open": float(gate.open.mean()),
        "often_open": float((gate.open > OFTEN).double().mean()),
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    closer = "guided gates are closer to the axes (more of their saturation is on one side)"
    closed = "baseline: update gates are mostly left-saturated, z more often closed than open"
    often = "decoder, guided: some update gates are often right-saturated"
    return [
        *(
            measured.more_than(f"{side}, {gate}: {closer}", GUIDED, BASELINE, f"{side}_{gate}_one_sided")
            for side in SIDES
            for gate in GATES
        ),
        *(
            more_than(
                f"{side}, {closed}",
                measured.values(BASELINE, f"{side}_z_closed"),
                measured.values(BASELINE, f"{side}_z_open"),
            )
            for side in SIDES
        ),
        measured.proportion(often, GUIDED, "decoder_z_often_open", lambda share: share > 0),
    ]


def draw(data: FigureData) -> Figure:
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
    experiments=both, measure=measure, table=QUANTITIES, claims=claims, draw=draw,
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
