"""Heat maps of matrices such as attention. (aitken2021 figures 3a, 4c, 5d)"""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh

from attnscope.errors import require
from attnscope.plots.style import FAINT, INK, MISSING, Values, axes, label, name_axes, styled

MAX_LABELS = 60  # along an axis; of more, every second, third, ... is written
MAX_ANNOTATED = 400  # cells with their number in them
MAX_VECTOR_CELLS = 4000  # more cells are rasterised


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
    """Draw one cell per value, the first row at the top; NaN is grey.

    Args:
        values: Rows x columns.
        rows: Names of the rows; numbers from 1 by default.
        columns: Names of the columns; numbers from 1 by default.
        ax: Axes to draw on; new ones by default.
        title: Title of the axes.
        diverging: Whether the colour scale has white at zero, red above and blue below.
        annotate: Whether the number is written in each cell, if there are not too many.
        xlabel: Name of the x axis.
        ylabel: Name of the y axis.
    """
    cells = np.ma.masked_invalid(np.asarray(values, dtype=float))
    require(cells.ndim == 2, f"a heatmap needs rows and columns, but the values have {cells.ndim} dimensions")
    height, width = (1.2 + 0.26 * cells.shape[0], 1.8 + 0.26 * cells.shape[1])
    ax = axes(ax, size=(float(np.clip(width, 3.2, 9.0)), float(np.clip(height, 2.4, 9.0))))
    mesh = _mesh(ax, cells, diverging)
    _name_cells(ax.yaxis, rows, cells.shape[0])
    _name_cells(ax.xaxis, columns, cells.shape[1], upright=True)
    bar = ax.figure.colorbar(mesh, cax=ax.inset_axes((1.03, 0, 0.04, 1)))  # as tall as the cells
    bar.outline.set_edgecolor(FAINT)
    bar.ax.tick_params(length=2, labelsize=8)
    if annotate and cells.size <= MAX_ANNOTATED:
        _annotate(ax, cells, mesh)
    if title is not None:
        ax.set_title(title)
    name_axes(ax, xlabel, ylabel)
    return ax


def limits(cells: np.ma.MaskedArray, diverging: bool) -> tuple[float, float]:
    """Return the ends of the colour scale: zero is one end, or the middle; equal values still get a scale.

    >>> limits(np.ma.array([[0.2, 0.8]]), diverging=False), limits(np.ma.array([[-1.0, 3.0]]), diverging=True)
    ((0.0, 0.8), (-3.0, 3.0))
    """
    if cells.count() == 0:
        return 0.0, 1.0
    lowest, highest = float(cells.min()), float(cells.max())
    if diverging:
        limit = max(abs(lowest), abs(highest)) or 1.0
        return -limit, limit
    lowest = min(lowest, 0.0)
    return lowest, highest if highest > lowest else lowest + 1.0


def _mesh(ax: Axes, cells: np.ma.MaskedArray, diverging: bool) -> QuadMesh:
    low, high = limits(cells, diverging)
    small = cells.size <= MAX_VECTOR_CELLS
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


def _name_cells(axis: Axis, names: Iterable[object] | None, n: int, upright: bool = False) -> None:
    """Write names in the middle of their cells; without names, a few numbers from 1."""
    axis.set_tick_params(length=0)
    if names is None:
        step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, n) if n / size <= 12 or size == n)
        indices = [i for i in range(n) if (i + 1) % step == 0]
        axis.set_ticks([i + 0.5 for i in indices], labels=[str(i + 1) for i in indices])
        return
    words = [label(name) for name in names]
    require(len(words) == n, f"there are {len(words)} labels for {n} cells of the heatmap")
    indices = list(range(0, n, 1 + (n - 1) // MAX_LABELS)) if n else []
    rotation = 90 if upright and max(map(len, words), default=0) > 2 else 0
    axis.set_ticks([i + 0.5 for i in indices], labels=[words[i] for i in indices], parse_math=False, rotation=rotation)


def _annotate(ax: Axes, cells: np.ma.MaskedArray, mesh: QuadMesh) -> None:
    colours = np.asarray(mesh.cmap(np.asarray(mesh.norm(cells))))  # rows x columns x RGBA
    shades = colours[..., :3] @ [0.299, 0.587, 0.114]  # how bright each cell looks
    largest = np.abs(cells).max()
    decimals = 0 if largest >= 10 else 2 if largest >= 0.1 else 3
    for (row, column), value in np.ma.ndenumerate(cells):
        colour = INK if shades[row, column] > 0.55 else "white"
        number = f"{round(float(value), decimals) + 0.0:.{decimals}f}"  # + 0.0: no minus before a zero
        ax.text(column + 0.5, row + 0.5, number, ha="center", va="center", fontsize=7.5, color=colour)
