"""Do embeddings of guided networks differ, and are connections fewer, but stronger? (baan2019 §3, figures 1 and 2)"""

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.plots.lines import edges
from attnscope.probes.weights import (
    THRESHOLDS,
    EmbeddingTable,
    Matrices,
    WeightGraph,
    embedding_table,
    gate_matrices,
    polarity,
    weight_graphs,
)
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, both, network_of
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, TrainedCase
from attnscope.studies.result import Row, row
from attnscope.tasks import END, PAD, START

# Figure 1: embeddings ------------------------------------------------------------------------------------------------

UNUSED = {"encoder": (PAD, START), "decoder": (PAD, END)}  # tokens that are never an input of this side
EMBEDDING_QUANTITIES = {
    f"{side}_{name}": f"{side} embedding: {text}"
    for side in ("decoder", "encoder")
    for name, text in (
        ("strong", "share of all |weight| in the strongest 5 % of dimensions"),
        ("largest", "largest |weight|"),
        ("mean", "mean |weight|"),
    )
}


def measure_embeddings(run: Run) -> Measurement:
    model = network_of(run)
    vocabularies = {"encoder": run.task.source_vocabulary, "decoder": run.task.target_vocabulary}
    tables = {
        side: without_unused(embedding_table(model, side, vocabulary.tokens), side)
        for side, vocabulary in vocabularies.items()
    }
    decoder = tables["decoder"]
    return {
        **{
            f"{side}_{name}": value
            for side, table in tables.items()
            for name, value in embedding_statistics(table).items()
        },
        "picture": {"values": decoder.values, "words": list(decoder.words)},
    }


def without_unused(table: EmbeddingTable, side: str) -> EmbeddingTable:
    """Return the table without tokens that are never an input: their vectors keep their initial values."""
    tokens = [token for token in range(len(table.words)) if token not in UNUSED[side]]
    return EmbeddingTable(table.values[tokens], tuple(table.words[token] for token in tokens), table.name)


def embedding_statistics(table: EmbeddingTable) -> dict[str, float]:
    sizes = np.abs(table.values)
    return {"strong": table.strong_dimensions, "largest": float(sizes.max()), "mean": float(sizes.mean())}


def claims_about_embeddings(measured: Measurements) -> list[ClaimVerdict]:
    texts = {
        "decoder_strong": "decoder embedding: more of the weight lies in a few dimensions in guided networks",
        "decoder_largest": "decoder embedding: the largest weight is larger in guided networks",
    }
    return [measured.more_than(text, GUIDED, BASELINE, name) for name, text in texts.items()]


def draw_embeddings(data: FigureData) -> Figure:
    picture, axes = plots.panels(len(data), 1, size=(9.0, 2.4))
    reach = max(float(np.abs(np.array(content["values"])).max()) for content in data.values())
    for (model, content), ax in zip(data.items(), axes, strict=True):
        title = f"decoder embedding: {model}"
        values = np.array(content["values"])
        plots.heatmap(values, content["words"], ax=ax, title=title, diverging=True, xlabel="dimension")
        ax.collections[0].set_clim(-reach, reach)
    return picture


FIG1 = Finding(
    name="fig1",
    title="Whether embeddings differ in guided networks",
    section="§3, figure 1",
    experiments=both, measure=measure_embeddings, table=EMBEDDING_QUANTITIES, claims=claims_about_embeddings,
    draw=draw_embeddings,
    notes=(
        "Both heatmaps, of the first seed, have one colour scale. Tokens that are never an input of the decoder "
        "(padding and the end token) are left out.",
        "The paper compares by eye, and says elsewhere (§3, §5.1) that guided networks have fewer, but more strongly "
        "connected units and that the heatmaps of the decoder differ; the claims put numbers in place of that.",
        *NOTES,
    ),
)  # fmt: skip


# Figure 2: connections -----------------------------------------------------------------------------------------------

BOTH = "both"
MODELS = (BASELINE, GUIDED)
# Where the paper finds strongly connected units: matrix to the layer that they are in.
MATRICES = {"encoder.Whz": "next", "encoder.Whr": "next", "decoder.Wiz": "previous", "decoder.Wir": "previous"}
SHOWN_MATRICES = ("encoder.Whz", "decoder.Wiz")
GATES_OF = {"encoder": ("encoder.Whz", "encoder.Whr"), "decoder": ("decoder.Wiz", "decoder.Wir")}

CONNECTION_QUANTITIES = {
    "edges": "connections (of the pooled strongest 1 %)",
    "strength": "mean |weight| of these connections",
    "gathered": "share of these connections at the 5 % of units with most of them",
    "highest": "connections of the unit with most of them",
    "published_edges": "connections above the paper's threshold (0.2 encoder, 0.17 decoder)",
}


def measure_connections(case: TrainedCase) -> Measurement:
    models = {role: gate_matrices(network_of(run)) for role, run in case.runs.items()}
    pooled, above = weight_graphs(models).graphs, weight_graphs(models, THRESHOLDS).graphs
    numbers: dict[str, float] = {}
    for model in MODELS:
        for matrix, layer in MATRICES.items():
            each = connection_statistics(pooled[model, matrix], layer) | {"published_edges": above[model, matrix].edges}
            numbers |= {f"{model}_{matrix}_{name}": value for name, value in each.items()}
        numbers |= {f"{model}_{side}_polarity": gate_polarity(models[model], side) for side in GATES_OF}
    picture = {f"{model} {matrix}": edge_lists(pooled[model, matrix]) for matrix in SHOWN_MATRICES for model in MODELS}
    return {**numbers, "picture": picture}


def connection_statistics(graph: WeightGraph, layer: str) -> dict[str, float]:
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


def connection_table(measured: Measurements) -> list[Row]:
    polarity_text = "correlation of units' mean weights in update and reset gate"
    quantities = [
        *(
            (matrix, model, name, text)
            for matrix in MATRICES
            for model in MODELS
            for name, text in CONNECTION_QUANTITIES.items()
        ),
        *((side, model, "polarity", polarity_text) for side in GATES_OF for model in MODELS),
    ]
    return [
        row(model=model, quantity=f"{where}: {text}", values=measured.values(BOTH, f"{model}_{where}_{name}"))
        for where, model, name, text in quantities
    ]


def claims_about_connections(measured: Measurements) -> list[ClaimVerdict]:
    def compare(text: str, matrix: str, name: str, more: str = GUIDED, less: str = BASELINE) -> ClaimVerdict:
        return measured.greater(f"{matrix}: {text}", BOTH, f"{more}_{matrix}_{name}", f"{less}_{matrix}_{name}")

    inverse = "{}, {}: polarities of update and reset gate are inverse"
    return [
        *(
            compare("the guided network has fewer strong connections", m, "edges", BASELINE, GUIDED)
            for m in SHOWN_MATRICES
        ),
        *(compare("the guided network's connections are stronger", matrix, "strength") for matrix in SHOWN_MATRICES),
        *(
            compare(f"the guided network's lie more at a few units of the {layer} layer", matrix, "gathered")
            for matrix, layer in MATRICES.items()
        ),
        *(
            measured.at_most(inverse.format(side, model), BOTH, f"{model}_{side}_polarity", 0.0)
            for side in GATES_OF
            for model in MODELS
        ),
    ]


def draw_connections(data: FigureData) -> Figure:
    """Draw one row per matrix with one colour scale, and one panel per model."""
    picture, axes = plots.panels(len(SHOWN_MATRICES), len(MODELS), size=(6.0, 2.6))
    for i, matrix in enumerate(SHOWN_MATRICES):
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
    experiments=lambda sizes: {BOTH: Case(both(sizes))}, measure=measure_connections, table=connection_table,
    claims=claims_about_connections, figure=lambda measured: measured.first(BOTH)["picture"], draw=draw_connections,
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
