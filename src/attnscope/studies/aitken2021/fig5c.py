"""How much of the variance of a word's states is time? (aitken2021 §4.1, figure 5c)"""

from typing import TYPE_CHECKING, Any

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.experiments import NetworkLabel, of_figure_5
from attnscope.studies.aitken2021.look import look
from attnscope.studies.aitken2021.translated import NOTE
from attnscope.studies.bars import bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict, at_least, at_most
from attnscope.studies.finding import Finding, Measurement, Measurements, published_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

published = published_by("aitken2021")

QUANTITIES = {
    "drop": "drop of the variance",
    "drop_held_out": "the same, held out",
    "drop_rare": "the same, words seen fewer than 10 times",
}
ESCAN_AED, ESCAN_AO = NetworkLabel("eSCAN", "AED"), NetworkLabel("eSCAN", "AO")
FRENCH_AED, FRENCH_AO = NetworkLabel("translation", "AED"), NetworkLabel("translation", "AO")
IN_THE_PAPER = (ESCAN_AED, ESCAN_AO, FRENCH_AED, FRENCH_AO)


def measure(run: Run) -> Measurement:
    seen = look(run)
    return {
        "drop": 1 - seen.measured.encoder.variance.mean[0].item(),
        "drop_held_out": 1 - seen.held_out.encoder.variance.mean[0].item(),
        **({"drop_rare": 1 - seen.measured.encoder.variance.mean_rare[0].item()} if seen.translates else {}),
    }


def stated(label: NetworkLabel, name: str) -> dict[str, Any]:
    return published(label.task.lower(), f"variance_drop_{label.model.lower()}") if name == "drop" else {}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        at_least(
            "eSCAN, AED: the variance of a word's states drops by about 90 % (at least 85 %) without time",
            measured.values(ESCAN_AED, "drop"),
            0.85,
        ),
        at_least(
            "eSCAN, AO: the variance of a word's states drops by about 95 % (at least 90 %) without time",
            measured.values(ESCAN_AO, "drop"),
            0.90,
        ),
        at_most(
            "translation, AED: the variance of a word's states drops by about 8 % only (at most 13 %) without time",
            measured.values(FRENCH_AED, "drop"),
            0.13,
        ),
        at_most(
            "translation, AO: the variance of a word's states drops by about 25 % only (at most 30 %) without time",
            measured.values(FRENCH_AO, "drop"),
            0.30,
        ),
    ]


def draw(data: Any) -> "Figure":
    drops = (stated(label, "drop")["published"] for label in IN_THE_PAPER)
    theirs = {str(label): {"published": 1 - drop} for label, drop in zip(IN_THE_PAPER, drops, strict=True)}
    left = {
        label: {"variance left": bar_values([1 - drop for drop in drops], theirs.get(label))}
        for label, drops in data.items()
    }
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 3.6))
    draw_bars(left, ax, "variance of h − μ / variance of h")
    return picture


FIG5C = Finding(
    name="fig5c",
    title="How much of the variance of a word's states is time",
    section="§4.1, figure 5c",
    experiments=of_figure_5, measure=measure, table=lambda measured: measured.table(QUANTITIES, stated),
    claims=claims, figure=lambda measured: {str(label): measured.values(label, "drop") for label in measured},
    draw=draw,
    notes=(
        "Mean over words of the trace of the covariance, without the end and start tokens; in translation, over words "
        "that the test set has ten times or more, about a hundred.",
        NOTE,
        "What this does not show: variance is not use; what is left over may still be what the network decides by.",
    ),
)  # fmt: skip
