"""Lines: profiles along an axis, trajectories in a plane, and edges of a weight graph.

`trajectories` draws aitken2021 figure 2a, `edges` baan2019 figure 2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import SupportsFloat

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, Normalize, to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from attnscope.errors import require
from attnscope.plots.style import INK, WORDS, Handle, Values, axes, colours, fade, legend, name_axes, styled

BAND_ALPHA = 0.18
MAX_LEGEND_CURVES = len(WORDS)  # more numbered curves than this have a colour bar in place of a legend


@styled
def profiles(
    x: Values,
    curves: Mapping[str, Values],
    ax: Axes | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
    marks: Mapping[str, SupportsFloat] | None = None,
    bands: Mapping[str, Values] | None = None,
    bands_name: str | None = None,
) -> Axes:
    """Draw one line per name.

    Args:
        x: Positions on the x axis.
        curves: One value per position, by name.
        ax: Axes to draw on; new ones by default.
        xlabel: Name of the x axis.
        ylabel: Name of the y axis.
        marks: By name, the position of a dotted vertical line in the colour of the curve.
        bands: By name, half the height of a band around the curve, or its heights below and above it (2 x positions).
        bands_name: What the bands are, for the legend.
    """
    ax, x = axes(ax), np.asarray(x)
    numbers = numbers_in(list(curves))
    if numbers is None:
        paint = colours(curves)
    else:
        # Viridis without its palest end, which is invisible on white.
        colour_map = ListedColormap(mpl.colormaps["viridis_r"](np.linspace(0.12, 1.0, 256)))
        scale = Normalize(min(numbers[1]), max(numbers[1]))
        paint = {name: to_hex(colour_map(scale(number))) for name, number in zip(curves, numbers[1], strict=True)}
    handles = [_line(ax, x, name, curve, paint[name], (bands or {}).get(name)) for name, curve in curves.items()]
    for name, position in (marks or {}).items():
        ax.axvline(float(position), color=paint.get(name, "black"), linestyle=":", linewidth=1.2)
    name_axes(ax, xlabel, ylabel)
    if numbers is not None and len(curves) > MAX_LEGEND_CURVES:
        steps = MaxNLocator(6, integer=all(number.is_integer() for number in numbers[1]))
        bar = ax.figure.colorbar(ScalarMappable(scale, colour_map), ax=ax, pad=0.02, aspect=30, ticks=steps)
        bar.outline.set_visible(False)
        bar.set_label(numbers[0])
    elif len(curves) > 1 or bands_name is not None:
        keys: dict[str, Handle] = dict(zip(curves, handles, strict=True))
        if bands_name is not None:
            keys[bands_name] = Patch(color=INK, alpha=BAND_ALPHA, linewidth=0)
        legend(ax, list(keys.values()), list(keys))
    return ax


def numbers_in(names: Sequence[str]) -> tuple[str, list[float]] | None:
    """Return the common prefix and the numbers of three or more names of the form "prefix number", else None.

    >>> numbers_in(["s = 1", "s = 2", "s = 10"])
    ('s', [1.0, 2.0, 10.0])
    >>> numbers_in(["run", "walk", "look"])
    """
    matches = [re.fullmatch(r"(.*?)[\s=]*(-?\d+(?:\.\d+)?)", name) for name in names]
    parts = [match.groups() for match in matches if match]
    if len(parts) < max(len(names), 3) or len({prefix for prefix, _ in parts}) > 1:
        return None
    return parts[0][0], [float(number) for _, number in parts]


def _line(ax: Axes, x: np.ndarray, name: str, curve: Values, colour: str, band: Values | None) -> Line2D:
    y = np.asarray(curve, dtype=float)
    require(y.shape == x.shape, f"curve '{name}' has {y.size} values, but there are {x.size} positions on the x axis")
    if band is not None:
        below, above = np.broadcast_to(np.asarray(band, dtype=float), (2, x.size))
        ax.fill_between(x, y - below, y + above, color=colour, alpha=BAND_ALPHA, linewidth=0)
    return ax.plot(x, y, color=colour)[0]


@styled
def trajectories(paths: Mapping[str, Values], ax: Axes | None = None) -> Axes:
    """Draw each path from light (early) to dark (late), with a square at its first point and a star at its last.

    Args:
        paths: By name, points of shape T x 2.
        ax: Axes to draw on; new ones by default.
    """
    ax = axes(ax, size=(4.2, 3.8))
    paint = colours(paths)
    for name, path in paths.items():
        points = np.asarray(path, dtype=float)
        require(points.ndim == 2 and points.shape[1] == 2, f"path '{name}' should be T x 2, but is {points.shape}")
        _path(ax, points, paint[name])
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    name_axes(ax, "PC 1", "PC 2")
    ends = [
        Line2D([], [], marker=marker, linestyle="", markersize=size, markerfacecolor="white", markeredgecolor=INK)
        for marker, size in (("s", 5.5), ("*", 9))
    ]
    lines = [Line2D([], [], color=colour, linewidth=2) for colour in paint.values()]
    legend(ax, lines + ends, [*paint, "first", "last"])
    return ax


def _path(ax: Axes, points: np.ndarray, colour: str) -> None:
    shades = fade(colour)(np.linspace(0, 1, len(points)))
    steps = np.stack([points[:-1], points[1:]], axis=1)  # (T - 1) x 2 ends x 2
    ax.add_collection(LineCollection(list(steps), colors=shades[1:], linewidths=1.8))
    ax.scatter(points[:, 0], points[:, 1], s=10, c=shades, linewidths=0, zorder=3)
    for end, marker, size in ((0, "s", 45), (-1, "*", 130)):
        x, y = points[end]
        ax.scatter(x, y, s=size, marker=marker, color=shades[end], edgecolors=INK, linewidths=0.7, zorder=4)


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
    """Draw one line per edge, from its unit below to its unit above: red is positive, blue negative, strong is dark.

    Args:
        bottom: Index of the lower unit of each edge.
        top: Index of its upper unit.
        weights: Its weight.
        sizes: Number of units below and above.
        ax: Axes to draw on; new ones by default.
        title: Title of the axes.
        strongest: Weight of the darkest colour; give the same to two graphs that are compared.
    """
    low, high, value = np.asarray(bottom, dtype=int), np.asarray(top, dtype=int), np.asarray(weights, dtype=float)
    require(
        low.shape == high.shape == value.shape, f"{low.size} lower ends, {high.size} upper ends, {value.size} weights"
    )
    ax = axes(ax, size=(6.0, 2.4))
    limit = strongest or float(np.abs(value).max(initial=0.0)) or 1.0
    order = np.argsort(np.abs(value))  # the strongest on top
    ends = [(low / max(sizes[0] - 1, 1), np.zeros(low.size)), (high / max(sizes[1] - 1, 1), np.ones(high.size))]
    lines = np.stack([np.stack(end, -1) for end in ends], 1)[order]  # edges x 2 ends x (x, y)
    many = value.size > 2000
    ax.add_collection(
        LineCollection(
            list(lines), array=value[order], cmap=mpl.colormaps["RdBu_r"], norm=Normalize(-limit, limit),
            linewidths=0.3 if many else 0.6, rasterized=many,
        )
    )  # fmt: skip
    for level, size in enumerate(sizes):
        ax.scatter(np.arange(size) / max(size - 1, 1), np.full(size, level), s=2, color=INK, linewidths=0, zorder=3)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.06, 1.06), xticks=[])
    ax.set_yticks([0, 1], labels=["previous", "next"])
    ax.spines[:].set_visible(False)
    if title is not None:
        ax.set_title(title)
    return ax
