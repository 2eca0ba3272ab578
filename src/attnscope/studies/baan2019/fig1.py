"""Do embeddings differ in guided networks? (baan2019 §3, figure 1)"""

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.probes.weights import EmbeddingTable, embedding_table
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, both, network_of
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements
from attnscope.tasks import END, PAD, START

UNUSED = {"encoder": (PAD, START), "decoder": (PAD, END)}  # tokens that are never an input of this side
QUANTITIES = {
    f"{side}_{name}": f"{side} embedding: {text}"
    for side in ("decoder", "encoder")
    for name, text in (
        ("strong", "share of all |weight| in the strongest 5 % of dimensions"),
        ("largest", "largest |weight|"),
        ("mean", "mean |weight|"),
    )
}


def measure(run: Run) -> Measurement:
    model = network_of(run)
    vocabularies = {"encoder": run.task.source_vocabulary, "decoder": run.task.target_vocabulary}
    tables = {
        side: without_unused(embedding_table(model, side, vocabulary.tokens), side)
        for side, vocabulary in vocabularies.items()
    }
    shown = tables["decoder"]
    return {
        **{f"{side}_{name}": value for side, table in tables.items() for name, value in statistics(table).items()},
        "picture": {"values": shown.values, "words": list(shown.words)},
    }


def without_unused(table: EmbeddingTable, side: str) -> EmbeddingTable:
    """Return the table without tokens that are never an input: their vectors keep their initial values."""
    tokens = [token for token in range(len(table.words)) if token not in UNUSED[side]]
    return EmbeddingTable(table.values[tokens], tuple(table.words[token] for token in tokens), table.name)


def statistics(table: EmbeddingTable) -> dict[str, float]:
    sizes = np.abs(table.values)
    return {"strong": table.strong_dimensions, "largest": float(sizes.max()), "mean": float(sizes.mean())}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    texts = {
        "decoder_strong": "decoder embedding: more of the weight lies in a few dimensions in guided networks",
        "decoder_largest": "decoder embedding: the largest weight is larger in guided networks",
    }
    return [measured.more_than(text, GUIDED, BASELINE, name) for name, text in texts.items()]


def draw(data: FigureData) -> Figure:
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
    experiments=both, measure=measure, table=QUANTITIES, claims=claims, draw=draw,
    notes=(
        "Both heatmaps, of the first seed, have one colour scale. Tokens that are never an input of the decoder "
        "(padding and the end token) are left out.",
        "The paper compares by eye, and says elsewhere (§3, §5.1) that guided networks have fewer, but more strongly "
        "connected units and that the heatmaps of the decoder differ; the claims put numbers in place of that.",
        *NOTES,
    ),
)  # fmt: skip
