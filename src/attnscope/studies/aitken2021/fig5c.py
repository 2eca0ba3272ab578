"""How much of the variance of a word's states is temporal? (aitken2021 §4.1, figure 5c)"""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.analysis import analyse
from attnscope.studies.aitken2021.experiments import TRANSLATION_NOTE, NetworkLabel, of_figure_5
from attnscope.studies.bars import bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Finding, Measurement, Measurements, PublishedNumber, published_by

published = published_by("aitken2021")

QUANTITIES = {
    "drop": "drop of the variance",
    "drop_held_out": "the same, held out",
    "drop_rare": "the same, words that occur fewer than 10 times",
}
ESCAN_AED, ESCAN_AO = NetworkLabel("eSCAN", "AED"), NetworkLabel("eSCAN", "AO")
FRENCH_AED, FRENCH_AO = NetworkLabel("translation", "AED"), NetworkLabel("translation", "AO")
IN_THE_PAPER = (ESCAN_AED, ESCAN_AO, FRENCH_AED, FRENCH_AO)


def measure(run: Run) -> Measurement:
    analysis = analyse(run)
    variance = analysis.measured.encoder.variance
    return {
        "drop": 1 - variance.mean[0].item(),
        "drop_held_out": 1 - analysis.held_out.encoder.variance.mean[0].item(),
        **({"drop_rare": 1 - variance.mean_rare[0].item()} if analysis.translates else {}),
    }


def stated(label: NetworkLabel, name: str) -> PublishedNumber:
    return published(label.task.lower(), f"variance_drop_{label.model.lower()}") if name == "drop" else {}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    text = "the variance of a word's states drops by about"
    return [
        measured.at_least(f"eSCAN, AED: {text} 90 % (at least 85 %) without time", ESCAN_AED, "drop", 0.85),
        measured.at_least(f"eSCAN, AO: {text} 95 % (at least 90 %) without time", ESCAN_AO, "drop", 0.90),
        measured.at_most(f"translation, AED: {text} 8 % only (at most 13 %) without time", FRENCH_AED, "drop", 0.13),
        measured.at_most(f"translation, AO: {text} 25 % only (at most 30 %) without time", FRENCH_AO, "drop", 0.30),
    ]


def draw(data: Mapping[str, Sequence[float]]) -> Figure:
    theirs: dict[str, PublishedNumber] = {
        str(label): {"published": 1 - stated(label, "drop")["published"]} for label in IN_THE_PAPER
    }
    left = {
        label: {"variance left": bar_values([1 - drop for drop in drops], theirs.get(label))}
        for label, drops in data.items()
    }
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 3.6))
    draw_bars(left, ax, "variance of h − μ / variance of h")
    return picture


FIG5C = Finding(
    name="fig5c",
    title="How much of the variance of a word's states is temporal",
    section="§4.1, figure 5c",
    experiments=of_figure_5, measure=measure, table=QUANTITIES, published=stated, claims=claims,
    figure=lambda measured: {str(label): measured.values(label, "drop") for label in measured}, draw=draw,
    notes=(
        "Mean over words of the trace of the covariance, without the end and start tokens; in translation, over words "
        "that the test set has ten times or more, about a hundred.",
        TRANSLATION_NOTE,
        "What this does not show: variance is not use; the remaining variance may still determine the output.",
    ),
)  # fmt: skip
