"""How is JSD distributed over texts, and does it depend on how peaked their attention is? (Jain and Wallace 2019)"""

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attnscope.errors import choose
from attnscope.plots.style import INK, WORDS, axes, name_axes, styled, tint
from attnscope.probes.adversary.divergences import MOST

EDGES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # of the highest weight
BINS = 30
FEWEST = 3  # texts that a violin is drawn of; fewer are dots


@styled
def drawn(jsd: np.ndarray, highest: np.ndarray, by: str, ax: Axes | None) -> Axes:
    choose("way to draw the adversaries", by, ("highest", "texts"))
    ax = axes(ax)
    return by_highest(ax, jsd, highest) if by == "highest" else histogram(ax, jsd)


def by_highest(ax: Axes, jsd: np.ndarray, highest: np.ndarray) -> Axes:
    """A violin for texts of each range of the highest weight."""
    ranges = np.digitize(highest, EDGES[1:-1])
    names = []
    for i, (low, high) in enumerate(pairwise(EDGES)):
        values = jsd[ranges == i]
        names.append(f"{low:g} to {high:g}\n(n = {len(values)})")
        _violin(ax, values, i)
    ax.set_xticks(range(len(names)), labels=names)
    ax.set_ylim(-0.02, MOST + 0.02)
    name_axes(ax, "highest weight of the model's own attention", "JSD from it, in nats")
    return ax


def _violin(ax: Axes, values: np.ndarray, where: int) -> None:
    if len(values) < FEWEST or np.ptp(values) < 1e-6:  # a density needs some spread
        ax.scatter(np.full(len(values), where), values, s=9, color=WORDS[0], linewidths=0)
        return
    made: dict[str, Any] = ax.violinplot(values, [where], widths=0.8, showextrema=False)
    for body in made["bodies"]:
        body.set(facecolor=tint(WORDS[0], 0.25), edgecolor="none", alpha=0.9)
    ax.scatter([where], [np.median(values)], s=9, color=INK, linewidths=0, zorder=3)


def histogram(ax: Axes, jsd: np.ndarray) -> Axes:
    ax.hist(jsd, np.linspace(0, MOST, BINS + 1).tolist(), color=tint(WORDS[0], 0.25))
    name_axes(ax, "JSD from the model's own attention, in nats", "texts")
    return ax
