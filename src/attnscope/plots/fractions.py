"""Of two fractions that exclude each other, how much of each? (gate saturation, baan2019 fig. 4)"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from attnscope.errors import require
from attnscope.plots.style import FAINT, Values, axes, colours, legend, name_axes, styled


@styled
def fractions(
    points: Mapping[str, tuple[Values, Values]],
    ax: Axes | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
) -> Axes:
    """Points in the triangle under the diagonal on which the two fractions sum to one; a colour a name."""
    ax = axes(ax, size=(3.8, 3.4))
    ax.plot([0, 1], [1, 0], color=FAINT, linewidth=1, zorder=0)
    paint = colours(points)
    handles = []
    for name, (across, up) in points.items():
        x, y = np.asarray(across, dtype=float), np.asarray(up, dtype=float)
        require(x.shape == y.shape, f"'{name}' has {x.size} fractions on the x axis, but {y.size} on the y axis")
        require(not (x + y > 1 + 1e-6).any(), f"two fractions of '{name}' sum to more than one; they must not overlap")
        handles.append(ax.scatter(x, y, s=14, color=paint[name], alpha=0.55, linewidths=0, rasterized=x.size > 2000))
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    name_axes(ax, xlabel, ylabel)
    if len(points) > 1:
        legend(ax, handles, list(points))
    return ax
