"""How do AED and AO solve extended SCAN? (aitken2021 §4, figure 3)

As in one-to-one translation, attention is where the temporal components of both sides meet. AED collects the content of
a sub-phrase at its end, so that its deltas matter; AO cannot, and attends to single words.
"""

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.analysis import (
    analyse,
    cloud,
    draw_cloud,
    draw_matrix,
    draw_paths,
    draw_temporal_attention,
    matrix,
    paths,
)
from attnscope.studies.aitken2021.experiments import escan_networks
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements, published_by

published = published_by("aitken2021")

QUANTITIES = {
    "word_accuracy": "word accuracy",
    "sentence_accuracy": "sentences without an error",
    "encoder_delta": "encoder delta / input component",
}


def measure(run: Run) -> Measurement:
    analysis = analyse(run)
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "sentence_accuracy": run.summary["sentence_accuracy"],
        "encoder_delta": analysis.delta_ratio,
        "picture": {"example": matrix(analysis, analysis.example), **paths(analysis), **cloud(analysis)},
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    accurate = "word accuracy at least 98 %"
    larger = "deltas are larger in AED, whose states carry sub-phrases, than in AO (relative to the input component)"
    return [
        *(measured.at_least(f"{model}: {accurate}", model, "word_accuracy", 0.98) for model in measured),
        measured.more_than(larger, "AED", "AO", "encoder_delta"),
    ]


def draw(data: FigureData) -> Figure:
    picture, axes = plots.panels(4, 2, size=(5.2, 4.4))
    for (model, content), panels in zip(data.items(), (axes[::2], axes[1::2]), strict=True):
        example, walk, attention, words = panels
        draw_matrix(content["example"], example, f"{model}: attention of a sentence")
        draw_paths(content, walk, f"{model}: temporal components")
        draw_temporal_attention(content, attention, f"{model}: softmax of μ(s) · μ(t)")
        draw_cloud(content, words, f"{model}: input-delta components, readouts")
    return picture


FIG3 = Finding(
    name="fig3",
    title="How AED and AO solve extended SCAN",
    section="§4, figure 3",
    experiments=escan_networks, measure=measure, table=QUANTITIES,
    published=lambda label, name: published("escan", name), claims=claims, draw=draw,
    notes=(
        "What this does not show: whether other networks of the same accuracy attend in the same way; the pictures are "
        "of the first seed.",
    ),
)  # fmt: skip
