"""Do readouts and input components implement the dictionary? (aitken2021 §4.1, figure 5d)"""

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.aitken2021.analysis import analyse
from attnscope.studies.aitken2021.experiments import escan_networks
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements

QUANTITIES = {
    "errors": "readouts that are best aligned with another word than their own (of 5)",
    "idle_words": "readouts that are best aligned with 'and' or 'twice'",
}


def measure(run: Run) -> Measurement:
    analysis = analyse(run)
    readout = analysis.decomposition.readout(analysis.model.context_readout)
    table = readout.table(analysis.target_tokens, analysis.source_tokens)
    actions, words = [str(action) for action in table.index], [str(word) for word in table.columns]
    best = {action: words[place] for action, place in zip(actions, table.to_numpy().argmax(1), strict=True)}
    return {
        "errors": sum(word != word_of(action) for action, word in best.items()),
        "idle_words": sum(word in ("and", "twice") for word in best.values()),
        "picture": {"values": table.to_numpy(), "outputs": actions, "inputs": words},
    }


def word_of(action: str) -> str:
    """Return the word that an action translates.

    >>> word_of("LTURN"), word_of("RUN"), word_of(".")
    ('left', 'run', '.')
    """
    return "left" if action == "LTURN" else action.lower()


def claims(measured: Measurements) -> list[ClaimVerdict]:
    texts = {
        "errors": "for each readout, the argmax over input words is its own word",
        "idle_words": "'and' and 'twice' are the argmax of no readout",
    }
    return [
        measured.proportion(f"{model}: {text}", model, name, lambda count: count == 0)
        for model in measured
        for name, text in texts.items()
    ]


def draw(data: FigureData) -> Figure:
    picture, axes = plots.panels(1, 2, size=(5.0, 3.6))
    for (model, content), ax in zip(data.items(), axes, strict=True):
        title = f"{model}: readout · input component"
        products = np.array(content["values"])
        plots.heatmap(products, content["outputs"], content["inputs"], ax=ax, title=title, diverging=True)
    return picture


FIG5D = Finding(
    name="fig5d",
    title="Whether readouts and input components implement the dictionary",
    section="§4.1, figure 5d",
    experiments=escan_networks, measure=measure, table=QUANTITIES, claims=claims, draw=draw,
    notes=(
        "For AED the half of the readout that meets the context (footnote 6 of the paper). The heatmaps are of the "
        "first seed.",
        "What this does not show: a dictionary of single words explains no output that depends on several.",
    ),
)  # fmt: skip
