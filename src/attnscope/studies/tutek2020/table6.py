"""Does fragility change with more layers? (tutek2020 appendix B, table 6)"""

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.plots.style import INK, axes, colours, line_legend, name_axes, styled
from attnscope.studies.bars import BarValues, bar_values
from attnscope.studies.claims import ClaimVerdict, spread
from attnscope.studies.finding import Case, Finding, Measurements
from attnscope.studies.tutek2020.decisions import (
    NOTES,
    PERTURBED,
    QUANTITIES,
    case,
    label_columns,
    measure,
    published_in,
)
from attnscope.studies.tutek2020.experiments import BASE, CONCAT, MLM, TYING, LayersLabel, Sizes, model_experiment
from attnscope.studies.tutek2020.experiments import MODELS as ALL_MODELS  # whose colours are those of table 1

MODELS = (BASE, CONCAT, TYING, MLM)  # those of table 6, with additive attention
published = published_in("table6")
Curves = Mapping[str, Mapping[str, BarValues]]  # by model and number of layers


def experiments(sizes: Sizes) -> dict[LayersLabel, Case]:
    """Models of one layer are those of table 1."""
    return {
        LayersLabel(corpus, layers, model): case(
            sizes, partial(model_experiment, sizes, corpus, "additive", model, layers)
        )
        for corpus, layers, model in product(sizes.corpora, sizes.layers, MODELS)
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    """ "The base model consistently becomes more robust to attention perturbation the more layers we add." """
    text = "{}: with {} layers base loses less F1 under permuted attention than with one"
    return [
        measured.more_than(text.format(one.corpus, layers), one, one._replace(layers=layers), "permuted")
        for one in measured.where(model=BASE, layers=1)
        for layers in sorted(measured.each("layers"))
        if layers > 1
    ]


def figure(measured: Measurements) -> Mapping[str, Mapping[str, Curves]]:
    """Return curves by corpus and perturbation."""
    panels: dict[str, dict[str, dict[str, dict[str, BarValues]]]] = {}
    for label, how in product(measured, PERTURBED):
        curve = panels.setdefault(label.corpus, {}).setdefault(how, {}).setdefault(label.model, {})
        curve[str(label.layers)] = bar_values(measured.values(label, how), published(label, how))
    return panels


PUBLISHED: dict[str, Any] = {"linestyle": "", "marker": "_", "markersize": 11, "markeredgewidth": 2}


@styled
def draw(data: Mapping[str, Mapping[str, Curves]]) -> Figure:
    """Draw one column per corpus, one row per perturbation: loss over layers; published numbers are short lines."""
    picture, panels = plots.panels(len(PERTURBED), max(len(data), 1), size=(3.4, 2.7))
    for column, (corpus, by_perturbation) in enumerate(data.items()):
        for line, (how, curves) in enumerate(by_perturbation.items()):
            ax = panels[line * len(data) + column]
            draw_curves(curves, ax)
            ax.set_title(corpus if line == 0 else "")
            name_axes(ax, "layers", f"loss of F1, {how}" if column == 0 else None)
    if data:
        models = next(iter(data.values()))[PERTURBED[0]]
        lines = {model: {"color": colours(ALL_MODELS)[model], "marker": "o", "markersize": 4} for model in models}
        line_legend(panels[len(data) - 1], {**lines, "published": {"color": "black", **PUBLISHED}})
    return picture


def draw_curves(curves: Curves, ax: Axes) -> None:
    paint = colours(ALL_MODELS)
    for model, curve in curves.items():
        layers = sorted(map(int, curve))
        points = [curve[str(number)] for number in layers]
        seeds = [np.array(point["ours"], dtype=float) for point in points]
        means, errors = [values.mean() for values in seeds], [spread(values.tolist()) for values in seeds]
        ax.errorbar(layers, means, yerr=errors, color=paint[model], marker="o", markersize=4, capsize=2.5)
        theirs = np.array([point["published"] for point in points], dtype=float)
        ax.plot(layers, theirs, color=paint[model], **PUBLISHED)
    axes(ax).set_xticks(sorted({int(number) for curve in curves.values() for number in curve}))
    ax.margins(x=0.15)
    ax.axhline(0, color=INK, linewidth=0.8)


TABLE6 = Finding(
    name="table6",
    title="With more layers the base model is more robust to other attention",
    section="appendix B, table 6",
    experiments=experiments, measure=measure, table=QUANTITIES, published=published, columns=label_columns,
    claims=claims, figure=figure, draw=draw,
    notes=(
        "As in the paper, δ and η are those chosen for one layer.",
        "The paper's second observation, that regularisation gains less with more layers, it calls inconsistent "
        "itself; it is no claim here.",
        *NOTES,
    ),
)  # fmt: skip
