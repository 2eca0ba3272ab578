"""Where does a state go as time passes? (aitken2021 figure 2a)"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from attnscope.errors import require
from attnscope.plots.style import INK, Values, axes, colours, fade, legend, name_axes, styled


@styled
def trajectories(paths: Mapping[str, Values], ax: Axes | None = None) -> Axes:
    """Each path (T x 2) from light (early) to dark (late), a square at its first point and a star at its last."""
    ax = axes(ax, size=(4.2, 3.8))
    paint = colours(paths)
    for name, path in paths.items():
        points = np.asarray(path, dtype=float)
        require(points.ndim == 2 and points.shape[1] == 2, f"path '{name}' should be T x 2, but is {points.shape}")
        _path(ax, points, paint[name])
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    name_axes(ax, "PC 1", "PC 2")
    _key(ax, paint)
    return ax


def _path(ax: Axes, points: np.ndarray, colour: str) -> None:
    shades = fade(colour)(np.linspace(0, 1, len(points)))
    steps = np.stack([points[:-1], points[1:]], axis=1)  # (T - 1) x 2 ends x 2
    ax.add_collection(LineCollection(list(steps), colors=shades[1:], linewidths=1.8))
    ax.scatter(points[:, 0], points[:, 1], s=10, c=shades, linewidths=0, zorder=3)
    for end, marker, size in ((0, "s", 45), (-1, "*", 130)):
        x, y = points[end]
        ax.scatter(x, y, s=size, marker=marker, color=shades[end], edgecolors=INK, linewidths=0.7, zorder=4)


def _key(ax: Axes, paint: Mapping[str, str]) -> None:
    names = [Line2D([], [], color=colour, linewidth=2) for colour in paint.values()]
    ends = [
        Line2D([], [], marker=marker, linestyle="", markersize=size, markerfacecolor="white", markeredgecolor=INK)
        for marker, size in (("s", 5.5), ("*", 9))
    ]
    legend(ax, names + ends, [*paint, "first", "last"])
