"""Do guided networks have fewer, but stronger connections? (baan2019 §3, figure 2)"""

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.plots.lines import edges
from attnscope.probes.weights import THRESHOLDS, Matrices, WeightGraph, gate_matrices, polarity, weight_graphs
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, network_of, side_by_side
from attnscope.studies.claims import ClaimVerdict, SeedValues, at_most, more_than
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements, TrainedCase
from attnscope.studies.result import Row, row

BOTH = "both"
MODELS = (BASELINE, GUIDED)
# Where the paper finds strongly connected units: matrix to the layer that they are in.
MATRICES = {"encoder.Whz": "next", "encoder.Whr": "next", "decoder.Wiz": "previous", "decoder.Wir": "previous"}
DRAWN = ("encoder.Whz", "decoder.Wiz")
GATES_OF = {"encoder": ("encoder.Whz", "encoder.Whr"), "decoder": ("decoder.Wiz", "decoder.Wir")}

QUANTITIES = {
    "edges": "connections (of the pooled strongest 1 %)",
    "strength": "mean |weight| of these connections",
    "gathered": "share of these connections at the 5 % of units with most of them",
    "highest": "connections of the unit with most of them",
    "published_edges": "connections above the paper's threshold (0.2 encoder, 0.17 decoder)",
}


def measure(case: TrainedCase) -> Measurement:
    models = {role: gate_matrices(network_of(run)) for role, run in case.runs.items()}
    pooled, above = weight_graphs(models).graphs, weight_graphs(models, THRESHOLDS).graphs
    numbers: dict[str, float] = {}
    for model in MODELS:
        for matrix, layer in MATRICES.items():
            each = statistics(pooled[model, matrix], layer) | {"published_edges": above[model, matrix].edges}
            numbers |= {f"{model}_{matrix}_{name}": value for name, value in each.items()}
        numbers |= {f"{model}_{side}_polarity": gate_polarity(models[model], side) for side in GATES_OF}
    picture = {f"{model} {matrix}": edge_lists(pooled[model, matrix]) for matrix in DRAWN for model in MODELS}
    return {**numbers, "picture": picture}


def statistics(graph: WeightGraph, layer: str) -> dict[str, float]:
    summary = graph.summary()
    return {
        "edges": graph.edges,
        "strength": float(np.abs(graph.weights).mean()) if graph.edges else float("nan"),
        "gathered": summary[f"edges_of_strongest_{layer}"],
        "highest": summary[f"highest_degree_{layer}"],
    }


def gate_polarity(matrices: Matrices, side: str) -> float:
    """Return the correlation of the units' mean weights in update and reset gate."""
    update, reset = GATES_OF[side]
    return polarity(matrices[update], matrices[reset], MATRICES[update]).correlation


def edge_lists(graph: WeightGraph) -> dict[str, FigureData]:
    return {"bottom": graph.previous, "top": graph.next, "weights": graph.weights, "sizes": graph.shape[::-1]}


def values(measured: Measurements, model: str, where: str, name: str) -> SeedValues:
    return measured.values(BOTH, f"{model}_{where}_{name}")


def table(measured: Measurements) -> list[Row]:
    polarity_text = "correlation of units' mean weights in update and reset gate"
    quantities = [
        *((matrix, model, name, text) for matrix in MATRICES for model in MODELS for name, text in QUANTITIES.items()),
        *((side, model, "polarity", polarity_text) for side in GATES_OF for model in MODELS),
    ]
    return [
        row(model=model, quantity=f"{where}: {text}", values=values(measured, model, where, name))
        for where, model, name, text in quantities
    ]


def claims(measured: Measurements) -> list[ClaimVerdict]:
    def compare(text: str, matrix: str, name: str, more: str = GUIDED, less: str = BASELINE) -> ClaimVerdict:
        return more_than(
            f"{matrix}: {text}", values(measured, more, matrix, name), values(measured, less, matrix, name)
        )

    return [
        *(compare("the guided network has fewer strong connections", m, "edges", BASELINE, GUIDED) for m in DRAWN),
        *(compare("the guided network's connections are stronger", matrix, "strength") for matrix in DRAWN),
        *(
            compare(f"the guided network's lie more at a few units of the {layer} layer", matrix, "gathered")
            for matrix, layer in MATRICES.items()
        ),
        *(
            at_most(
                f"{side}, {model}: polarities of update and reset gate are inverse",
                values(measured, model, side, "polarity"),
                0.0,
            )
            for side in GATES_OF
            for model in MODELS
        ),
    ]


def draw(data: FigureData) -> Figure:
    """Draw one row per matrix with one colour scale, and one panel per model."""
    picture, axes = plots.panels(len(DRAWN), len(MODELS), size=(6.0, 2.6))
    for i, matrix in enumerate(DRAWN):
        graphs = {model: data[f"{model} {matrix}"] for model in MODELS}
        strongest = max((abs(weight) for graph in graphs.values() for weight in graph["weights"]), default=1.0)
        for j, (model, graph) in enumerate(graphs.items()):
            title = f"{matrix}: {model}, {len(graph['weights'])} connections"
            ends = graph["bottom"], graph["top"], graph["weights"], tuple(graph["sizes"])
            edges(*ends, ax=axes[i * len(MODELS) + j], title=title, strongest=strongest)
    return picture


FIG2 = Finding(
    name="fig2",
    title="Whether guided networks have fewer, but stronger connections",
    section="§3, figure 2",
    experiments=side_by_side, measure=measure, table=table, claims=claims,
    figure=lambda measured: measured.first(BOTH)["picture"], draw=draw,
    notes=(
        "Red connections are positive, blue ones negative. Both networks of a seed have one threshold for each side, "
        "above which 1 % of all gate weights of that side lie, both networks taken together; so does the paper's "
        "threshold on average. The figure is of the first seed.",
        "The paper compares by eye; the claims put numbers in place of its words. Strong connections at a few units "
        "are looked for in the layer where the paper sees them: the next one of the encoder's recurrent weights, the "
        "previous one of the decoder's input weights.",
        "z is torch's update gate, which keeps the old state where it is open; for a gate that writes, polarities that "
        "are inverse here would be alike.",
        *NOTES,
    ),
)  # fmt: skip
