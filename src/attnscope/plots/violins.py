"""How are the values of many things distributed? (baan2019 fig. 3)"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes

from attnscope.errors import require
from attnscope.plots.style import INK, WORDS, Values, axes, label, name_axes, styled, tint

SHOWN = 60  # names along the axis; of more, every second, third, ... is written


@styled
def violins(
    values: Values,
    names: Iterable[object] | None = None,
    ax: Axes | None = None,
    limits: tuple[float, float] | None = None,
    colour: str | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
) -> Axes:
    """A violin a column, a thin line over its full range, and a dot at its median."""
    table = np.asarray(values, dtype=float)
    require(table.ndim == 2 and table.size > 0, f"violins need rows and columns of values, not the shape {table.shape}")
    ax = axes(ax, size=(1.6 + 0.14 * max(table.shape[1], 20), 3.2))
    where, paint = np.arange(table.shape[1]), colour or WORDS[0]
    made = ax.violinplot(table, where, widths=0.9, showextrema=False)
    for body in made["bodies"]:  # type: ignore[attr-defined]
        body.set(facecolor=tint(paint, 0.25), edgecolor="none", alpha=0.9)
    ax.vlines(where, table.min(0), table.max(0), color=tint(paint, -0.3), linewidth=0.6)
    ax.scatter(where, np.median(table, 0), s=6, color=INK, linewidths=0, zorder=3)
    if limits is not None:
        room = 0.03 * (limits[1] - limits[0])
        ax.set_ylim(limits[0] - room, limits[1] + room)
    _names(ax, names, table.shape[1])
    name_axes(ax, xlabel, ylabel)
    return ax


def _names(ax: Axes, names: Iterable[object] | None, n: int) -> None:
    if names is None:
        ax.set_xticks([])
        return
    words = [label(name) for name in names]
    require(len(words) == n, f"there are {len(words)} names for {n} violins")
    places = list(range(0, n, 1 + (n - 1) // SHOWN))
    ax.set_xticks(places, labels=[words[i] for i in places], parse_math=False, rotation=90 if n > 12 else 0, fontsize=6)
