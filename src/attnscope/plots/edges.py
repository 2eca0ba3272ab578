"""Which units of one layer lead to which of the next? (weight graphs, baan2019 fig. 2)"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize

from attnscope.errors import require
from attnscope.plots.style import INK, Values, axes, styled


@styled
def edges(
    bottom: Values,
    top: Values,
    weights: Values,
    sizes: tuple[int, int],
    ax: Axes | None = None,
    title: str | None = None,
    strongest: float | None = None,
) -> Axes:
    """A line an edge, from its unit below to its unit above: red is positive, blue negative, the strongest darkest.

    `strongest` is the weight of the darkest colour; give the same to two graphs that are to be compared.
    """
    low, high, value = np.asarray(bottom, dtype=int), np.asarray(top, dtype=int), np.asarray(weights, dtype=float)
    require(
        low.shape == high.shape == value.shape, f"{low.size} lower ends, {high.size} upper ends, {value.size} weights"
    )
    ax = axes(ax, size=(6.0, 2.4))
    reach = strongest or float(np.abs(value).max(initial=0.0)) or 1.0
    order = np.argsort(np.abs(value))  # the strongest on top
    lines = np.stack([_ends(low, sizes[0], 0.0), _ends(high, sizes[1], 1.0)], 1)[order]  # edges x 2 x (x, y)
    ax.add_collection(
        LineCollection(
            list(lines), array=value[order], cmap=mpl.colormaps["RdBu_r"], norm=Normalize(-reach, reach),
            linewidths=0.3 if value.size > 2000 else 0.6, rasterized=value.size > 2000,
        )
    )  # fmt: skip
    for size, level in zip(sizes, (0.0, 1.0), strict=True):
        ax.scatter(_places(np.arange(size), size), np.full(size, level), s=2, color=INK, linewidths=0, zorder=3)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.06, 1.06), xticks=[])
    ax.set_yticks([0, 1], labels=["previous", "next"])
    ax.spines[:].set_visible(False)
    if title is not None:
        ax.set_title(title)
    return ax


def _places(units: np.ndarray, size: int) -> np.ndarray:
    return np.asarray(units / max(size - 1, 1))


def _ends(units: np.ndarray, size: int, level: float) -> np.ndarray:
    return np.stack([_places(units, size), np.full(len(units), level)], -1)
