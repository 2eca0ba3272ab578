"""Do the vectors of words look different in guided networks? (baan2019 §3, figure 1)"""

from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.probes.weights import EmbeddingTable, embedding_table
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, both
from attnscope.studies.baan2019.recorded import network_of
from attnscope.studies.claims import ClaimVerdict, more_than
from attnscope.studies.finding import Finding, Measurement, Measurements
from attnscope.tasks import END, PAD, START

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNHEARD = {"encoder": (PAD, START), "decoder": (PAD, END)}  # words that a side never hears, and never learns
QUANTITIES = {
    "decoder_strong": "decoder embedding: share of all |weight| in the strongest 5 % of dimensions",
    "decoder_largest": "decoder embedding: largest |weight|",
    "decoder_mean": "decoder embedding: mean |weight|",
    "encoder_strong": "encoder embedding: share of all |weight| in the strongest 5 % of dimensions",
    "encoder_largest": "encoder embedding: largest |weight|",
    "encoder_mean": "encoder embedding: mean |weight|",
}


def measure(run: Run) -> Measurement:
    model = network_of(run)
    vocabularies = {"encoder": run.task.source_vocabulary, "decoder": run.task.target_vocabulary}
    tables = {side: heard(embedding_table(model, side, words.tokens), side) for side, words in vocabularies.items()}
    shown = tables["decoder"]
    return {
        **{f"{side}_{name}": value for side, table in tables.items() for name, value in numbers(table).items()},
        "picture": {"values": shown.values, "words": list(shown.words)},
    }


def heard(table: EmbeddingTable, side: str) -> EmbeddingTable:
    """Without the words that are never heard, whose vectors stay as they started."""
    kept = [number for number in range(len(table.words)) if number not in UNHEARD[side]]
    return EmbeddingTable(table.values[kept], tuple(table.words[number] for number in kept), table.name)


def numbers(table: EmbeddingTable) -> dict[str, float]:
    sizes = np.abs(table.values)
    return {"strong": table.strong_dimensions, "largest": float(sizes.max()), "mean": float(sizes.mean())}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    def compared(text: str, name: str) -> ClaimVerdict:
        return more_than(text, measured.values(GUIDED, name), measured.values(BASELINE, name))

    return [
        compared("decoder embedding: more of the weight lies in a few dimensions in guided networks", "decoder_strong"),
        compared("decoder embedding: the largest weight is larger in guided networks", "decoder_largest"),
    ]


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(len(data), 1, size=(9.0, 2.4))
    for (model, content), ax in zip(data.items(), axes, strict=True):
        plots.heatmap(
            np.array(content["values"]),
            content["words"],
            ax=ax,
            title=f"decoder embedding: {model}",
            diverging=True,
            xlabel="dimension",
        )
    reach = max(float(np.abs(np.array(content["values"])).max()) for content in data.values())
    for ax in axes:
        ax.collections[0].set_clim(-reach, reach)
    return picture


FIG1 = Finding(
    name="fig1",
    title="Whether the vectors of words look different in guided networks",
    section="§3, figure 1",
    experiments=both, measure=measure, table=lambda measured: measured.table(QUANTITIES), claims=claims, draw=draw,
    notes=(
        "Both heatmaps, of the first seed, have one scale of colours. Words that the decoder never hears (padding and "
        "the end token) are left out.",
        "The paper compares by eye, and says elsewhere (§3, §5.1) that guided networks have fewer, but more strongly "
        "connected units and that the heatmaps of the decoder differ; the claims put numbers in place of that.",
        *NOTES,
    ),
)  # fmt: skip
