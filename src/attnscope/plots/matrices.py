"""Which rows meet which columns, and how strongly? (attention, aitken2021 figures 3a, 4c, 5d)"""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh

from attnscope.errors import require
from attnscope.plots.style import FAINT, INK, MISSING, Values, axes, label, name_axes, styled

SHOWN = 60  # labels along an axis; of more, every second, third, ... is written
WRITTEN = 400  # cells with their number in them
DRAWN = 4000  # cells drawn one by one; more become a picture inside the drawing


@styled
def heatmap(
    values: Values,
    rows: Iterable[object] | None = None,
    columns: Iterable[object] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    diverging: bool = False,
    annotate: bool = False,
    xlabel: str | None = None,
    ylabel: str | None = None,
) -> Axes:
    """A cell for each value, the first row at the top; NaN is grey; `diverging` puts white at zero."""
    cells = np.ma.masked_invalid(np.asarray(values, dtype=float))
    require(cells.ndim == 2, f"a heatmap needs rows and columns, but the values have {cells.ndim} dimensions")
    ax = axes(ax, size=_size(*cells.shape))
    mesh = _mesh(ax, cells, diverging)
    _words(ax.yaxis, rows, cells.shape[0])
    _words(ax.xaxis, columns, cells.shape[1], upright=True)
    _colour_bar(ax, mesh)
    if annotate and cells.size <= WRITTEN:
        _write(ax, cells, mesh)
    if title is not None:
        ax.set_title(title)
    name_axes(ax, xlabel, ylabel)
    return ax


def limits(cells: np.ma.MaskedArray, diverging: bool) -> tuple[float, float]:
    """Zero is one end of the scale, or its middle; values that are all the same still get a scale.

    >>> limits(np.ma.array([[0.2, 0.8]]), diverging=False), limits(np.ma.array([[-1.0, 3.0]]), diverging=True)
    ((0.0, 0.8), (-3.0, 3.0))
    """
    if cells.count() == 0:
        return 0.0, 1.0
    lowest, highest = float(cells.min()), float(cells.max())
    if diverging:
        reach = max(abs(lowest), abs(highest)) or 1.0
        return -reach, reach
    lowest = min(lowest, 0.0)
    return lowest, highest if highest > lowest else lowest + 1.0


def _size(rows: int, columns: int) -> tuple[float, float]:
    return float(np.clip(1.8 + 0.26 * columns, 3.2, 9.0)), float(np.clip(1.2 + 0.26 * rows, 2.4, 9.0))


def _mesh(ax: Axes, cells: np.ma.MaskedArray, diverging: bool) -> QuadMesh:
    low, high = limits(cells, diverging)
    small = cells.size <= DRAWN
    mesh = ax.pcolormesh(
        cells, cmap=mpl.colormaps["RdBu_r" if diverging else "Blues"], vmin=low, vmax=high, rasterized=not small,
        edgecolors="white" if small else "none", linewidth=0.4 if small else 0,
    )  # fmt: skip
    ax.set_facecolor(MISSING)
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    longest, shortest = max(cells.shape), max(min(cells.shape), 1)
    ax.set_aspect("equal" if longest <= 4 * shortest else "auto")
    return mesh


def _words(axis: Axis, named: Iterable[object] | None, n: int, upright: bool = False) -> None:
    """The words in the middle of their cells; without words, a few numbers from 1."""
    axis.set_tick_params(length=0)
    if named is None:
        step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, n) if n / size <= 12 or size == n)
        places = [i for i in range(n) if (i + 1) % step == 0]
        axis.set_ticks([i + 0.5 for i in places], labels=[str(i + 1) for i in places])
        return
    words = [label(name) for name in named]
    require(len(words) == n, f"there are {len(words)} labels for {n} cells of the heatmap")
    places = list(range(0, n, 1 + (n - 1) // SHOWN)) if n else []
    rotation = 90 if upright and max(map(len, words), default=0) > 2 else 0
    axis.set_ticks([i + 0.5 for i in places], labels=[words[i] for i in places], parse_math=False, rotation=rotation)


def _colour_bar(ax: Axes, mesh: QuadMesh) -> None:
    beside = ax.inset_axes((1.03, 0, 0.04, 1))  # as tall as the cells, whatever room the panel has
    bar = ax.figure.colorbar(mesh, cax=beside)
    bar.outline.set_edgecolor(FAINT)
    bar.ax.tick_params(length=2, labelsize=7)


def _write(ax: Axes, cells: np.ma.MaskedArray, mesh: QuadMesh) -> None:
    colours = np.asarray(mesh.cmap(np.asarray(mesh.norm(cells))))  # rows x columns x RGBA
    shades = colours[..., :3] @ [0.299, 0.587, 0.114]  # how bright each cell looks
    decimals = 2 if np.abs(cells).max() < 10 else 0
    for (row, column), value in np.ma.ndenumerate(cells):
        colour = INK if shades[row, column] > 0.55 else "white"
        ax.text(column + 0.5, row + 0.5, f"{value:.{decimals}f}", ha="center", va="center", fontsize=6.5, color=colour)
