"""Do readouts and input components implement the dictionary? (aitken2021 §4.1, figure 5d)"""

from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.experiments import AED, AO, escan
from attnscope.studies.aitken2021.look import look
from attnscope.studies.claims import ClaimVerdict, always
from attnscope.studies.finding import Finding, Measurement, Measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {
    "errors": "readouts that face another word than their own (of 5)",
    "idle_words": "readouts that face 'and' or 'twice'",
}


def measure(run: Run) -> Measurement:
    seen = look(run)
    table = seen.decomposition.readout(seen.model.context_readout).table(seen.target_vocabulary, seen.source_vocabulary)
    actions, words = [str(action) for action in table.index], [str(word) for word in table.columns]
    best = {action: words[place] for action, place in zip(actions, table.to_numpy().argmax(1), strict=True)}
    return {
        "errors": sum(word != named_by(action) for action, word in best.items()),
        "idle_words": sum(word in ("and", "twice") for word in best.values()),
        "picture": {"values": table.to_numpy(), "outputs": actions, "inputs": words},
    }


def named_by(action: str) -> str:
    """The word that an action comes from.

    >>> named_by("LTURN"), named_by("RUN"), named_by(".")
    ('left', 'run', '.')
    """
    return "left" if action == "LTURN" else action.lower()


def claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts = []
    for model in measured:
        own = f"{model}: for each readout, the argmax over input words is its own word"
        idle = f"{model}: 'and' and 'twice' are the argmax of no readout"
        verdicts += [
            always(own, [errors == 0 for errors in measured.values(model, "errors")]),
            always(idle, [count == 0 for count in measured.values(model, "idle_words")]),
        ]
    return verdicts


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(1, 2, size=(5.0, 3.6))
    for (model, content), ax in zip(data.items(), axes, strict=True):
        title = f"{model}: readout · input component"
        cells = np.array(content["values"])
        plots.heatmap(cells, content["outputs"], content["inputs"], ax=ax, title=title, diverging=True)
    return picture


FIG5D = Finding(
    name="fig5d",
    title="Whether readouts and input components implement the dictionary",
    section="§4.1, figure 5d",
    experiments=lambda sizes: {"AED": escan(AED, sizes), "AO": escan(AO, sizes)}, measure=measure,
    table=lambda measured: measured.table(QUANTITIES), claims=claims, draw=draw,
    notes=(
        "For AED the half of the readout that meets the context (footnote 6 of the paper). The heatmaps are of the "
        "first seed.",
        "What this does not show: a dictionary of single words explains no output that depends on several.",
    ),
)  # fmt: skip
