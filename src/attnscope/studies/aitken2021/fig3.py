"""How do AED and AO solve extended SCAN? (aitken2021 §4, figure 3)

Both keep to the picture of one-to-one translation, time meeting time. AED gathers what a sub-phrase says at its end, so
that its deltas matter; AO cannot, and looks at single words.
"""

from typing import TYPE_CHECKING, Any

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.aitken2021.experiments import AED, AO, Sizes, escan
from attnscope.studies.aitken2021.look import look
from attnscope.studies.aitken2021.pictures import (
    cloud,
    draw_cloud,
    draw_matrix,
    draw_paths,
    draw_temporal_attention,
    matrix,
    paths,
)
from attnscope.studies.claims import ClaimVerdict, at_least, more_than
from attnscope.studies.finding import Finding, Measurement, Measurements, published_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

published = published_by("aitken2021")

QUANTITIES = {
    "word_accuracy": "word accuracy",
    "sentence_accuracy": "sentences without an error",
    "encoder_delta": "encoder delta / input component",
}


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    return {"AED": escan(AED, sizes), "AO": escan(AO, sizes)}


def measure(run: Run) -> Measurement:
    seen = look(run)
    geometry = seen.measured.encoder.geometry
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "sentence_accuracy": run.summary["sentence_accuracy"],
        "encoder_delta": (geometry.length("delta") / geometry.length("input"))[0].item(),
        "picture": {"example": matrix(seen, seen.example), **paths(seen), **cloud(seen)},
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        *(
            at_least(f"{model}: word accuracy at least 98 %", measured.values(model, "word_accuracy"), 0.98)
            for model in measured
        ),
        more_than(
            "deltas matter more in AED, whose states carry sub-phrases, than in AO (relative to the input component)",
            measured.values("AED", "encoder_delta"),
            measured.values("AO", "encoder_delta"),
        ),
    ]


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(4, 2, size=(5.2, 4.4))
    for model, panels in zip(data, (axes[::2], axes[1::2]), strict=True):
        example, walk, attention, words = panels
        draw_matrix(data[model]["example"], example, f"{model}: attention of a sentence")
        draw_paths(data[model], walk, f"{model}: temporal components")
        draw_temporal_attention(data[model]["temporal attention"], attention, f"{model}: softmax of μ(s) · μ(t)")
        draw_cloud(data[model], words, f"{model}: input-delta components, readouts")
    return picture


FIG3 = Finding(
    name="fig3",
    title="How AED and AO solve extended SCAN",
    section="§4, figure 3",
    experiments=experiments, measure=measure,
    table=lambda measured: measured.table(QUANTITIES, lambda label, name: published("escan", name)), claims=claims,
    draw=draw,
    notes=(
        "What this does not show: whether other networks of the same accuracy attend in the same way; the pictures are "
        "of the first seed.",
    ),
)  # fmt: skip
