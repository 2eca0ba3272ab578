"""How do F1, fragility and information run over the weight of a remedy? (the picture of `ablation`)"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnscope import plots
from attnscope.plots.style import INK, colours, legend, name_axes, styled
from attnscope.studies.claims import spread
from attnscope.studies.tutek2020.choosing import DECIDED_BY, WEIGHTS
from attnscope.studies.tutek2020.experiments import BASE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN = {
    "validation_f1": "F1, validation split",
    "permuted": "loss of F1, permuted",
    "information": "mutual information (nats)",
    "agreement": "agreement with people\n(average precision)",
}
LINES: dict[str, Literal["-", "--"]] = {"additive": "-", "dot": "--"}


@styled
def draw(data: Any) -> "Figure":
    """A row a corpus, a column a quantity: a curve a remedy over its weights; base is a horizontal line."""
    corpora = data["panels"]
    wide = max((len(panels) for panels in corpora.values()), default=1)
    picture, axes = plots.panels(max(len(corpora), 1), wide, size=(3.5, 2.7))
    for number, (corpus, panels) in enumerate(corpora.items()):
        line = axes[number * wide : (number + 1) * wide]
        for ax, (name, by_attention) in zip(line, panels.items(), strict=False):
            for attention, curves in by_attention.items():
                draw_curves(ax, curves, attention)
            frame(ax, DRAWN[name], corpus)
        ring(line[0], panels["validation_f1"], data["chosen"].get(corpus, {}))
        for ax in line[len(panels) :]:
            ax.set_axis_off()
    if corpora:
        key(
            axes[wide - 1],
            {attention for panels in corpora.values() for panel in panels.values() for attention in panel},
        )
    return picture


def draw_curves(ax: "Axes", curves: Mapping[str, Any], attention: str) -> None:
    paint = colours(WEIGHTS) | {BASE: INK}
    for remedy, by_weight in curves.items():
        look: dict[str, Any] = {"color": paint[remedy], "linestyle": LINES[attention]}
        weights, seeds = [float(weight) for weight in by_weight], list(by_weight.values())
        means = [float(np.mean(values)) for values in seeds]
        if remedy == BASE:
            ax.axhline(means[0], linewidth=1, **look)
        else:
            errors = [spread(values) for values in seeds]
            ax.errorbar(weights, means, yerr=errors, marker="o", markersize=3.5, capsize=2, **look)


def ring(ax: "Axes", by_attention: Mapping[str, Any], weights: Mapping[str, Mapping[str, float]]) -> None:
    """Around the weights with the best F1."""
    for attention, by_name in weights.items():
        for name, weight in by_name.items():
            height = float(np.mean(by_attention[attention][DECIDED_BY[name]][f"{weight:g}"]))
            ax.plot([weight], [height], "o", markersize=9, markerfacecolor="none", markeredgecolor=INK)


def frame(ax: "Axes", ylabel: str, title: str) -> None:
    ax.set_xscale("log")
    ax.set_xticks([0.1, 1, 10], labels=["0.1", "1", "10"])
    ax.minorticks_off()
    ax.set_title(title, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    name_axes(ax, "weight (δ, η)", ylabel)


def key(ax: "Axes", drawn: set[str]) -> None:
    """Remedies; attentions where there are two; what a ring means."""
    from matplotlib.lines import Line2D

    paint = colours(WEIGHTS) | {BASE: INK}
    lines = {attention: line for attention, line in LINES.items() if attention in drawn and len(drawn) > 1}
    handles = [Line2D([], [], color=paint[remedy]) for remedy in WEIGHTS]
    handles += [Line2D([], [], color=INK, linestyle=line) for line in lines.values()]
    circle = Line2D([], [], linestyle="", marker="o", markersize=9, markerfacecolor="none", markeredgecolor=INK)
    legend(ax, [*handles, circle], [*WEIGHTS, *lines, "best"])
