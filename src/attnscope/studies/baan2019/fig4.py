"""Do guided networks use their gates more distinctly? (baan2019 §4.2, figure 4)

z is the update gate as torch computes it, h' = (1 − z) n + z h: where it is closed the state is overwritten.
"""

from typing import TYPE_CHECKING, Any

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.plots.points import fractions
from attnscope.probes.gates import Saturation, SaturationAccumulator
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, both
from attnscope.studies.baan2019.recorded import answers
from attnscope.studies.claims import ClaimVerdict, always, more_than
from attnscope.studies.finding import Finding, Measurement, Measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    seen = SaturationAccumulator()
    for _, trace in answers(run, SPLITS):
        seen.update(trace)
    gates = seen.result().gates
    found = {f"{side}_{gate}": gates[f"{side}.{name}"] for side in SIDES for gate, name in GATES.items()}
    return {
        **{f"{where}_{what}": value for where, gate in found.items() for what, value in numbers(gate).items()},
        "picture": {where: {"closed": gate.closed, "open": gate.open} for where, gate in found.items()},
    }


def numbers(gate: Saturation) -> dict[str, float]:
    return {
        "one_sided": gate.one_sided,
        "from_axes": gate.from_axes,
        "closed": float(gate.closed.mean()),
        "open": float(gate.open.mean()),
        "often_open": float((gate.open > OFTEN).double().mean()),
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    hugged = [
        more_than(
            f"{side}, {gate}: guided gates keep closer to the axes (more of their saturation is on one side)",
            measured.values(GUIDED, f"{side}_{gate}_one_sided"),
            measured.values(BASELINE, f"{side}_{gate}_one_sided"),
        )
        for side in SIDES
        for gate in GATES
    ]
    closed = [
        more_than(
            f"{side}, baseline: update gates are mostly left-saturated, z more often closed than open",
            measured.values(BASELINE, f"{side}_z_closed"),
            measured.values(BASELINE, f"{side}_z_open"),
        )
        for side in SIDES
    ]
    often = measured.values(GUIDED, "decoder_z_often_open")
    return [
        *hugged,
        *closed,
        always("decoder, guided: some update gates are often right-saturated", [share > 0 for share in often]),
    ]


def draw(data: Any) -> "Figure":
    """A panel a model and side, a point a unit."""
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
    experiments=both, measure=measure, table=lambda measured: measured.table(QUANTITIES), claims=claims, draw=draw,
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
