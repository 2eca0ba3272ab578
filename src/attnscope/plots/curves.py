"""How does a quantity run along an axis, for each of several things?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import SupportsFloat

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize, to_hex
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from attnscope.errors import require
from attnscope.plots.style import WORDS, Values, axes, colours, legend, name_axes, styled

FEW = len(WORDS)  # more numbered curves than this get a colour bar in place of a legend


@styled
def profiles(
    x: Values,
    curves: Mapping[str, Values],
    ax: Axes | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
    marks: Mapping[str, SupportsFloat] | None = None,
    bands: Mapping[str, Values] | None = None,
) -> Axes:
    """A line for each name, with ± a band, and a dotted vertical mark in the line's colour where one is given."""
    ax, x = axes(ax), np.asarray(x)
    numbered = numbers_in(list(curves))
    paint = colours(curves) if numbered is None else _in_order(curves, numbered[1])
    handles = [_line(ax, x, name, curve, paint[name], (bands or {}).get(name)) for name, curve in curves.items()]
    for name, position in (marks or {}).items():
        ax.axvline(float(position), color=paint.get(name, "black"), linestyle=":", linewidth=1.2)
    name_axes(ax, xlabel, ylabel)
    if numbered is not None and len(curves) > FEW:
        _colour_bar(ax, *numbered)
    elif len(curves) > 1:
        legend(ax, handles, list(curves))
    return ax


def numbers_in(names: Sequence[str]) -> tuple[str, list[float]] | None:
    """What is counted and its numbers, if three names or more are numbered alike.

    >>> numbers_in(["s = 1", "s = 2", "s = 10"])
    ('s', [1.0, 2.0, 10.0])
    >>> numbers_in(["run", "walk", "look"])
    """
    found = [re.fullmatch(r"(.*?)[\s=]*(-?\d+(?:\.\d+)?)", name) for name in names]
    parts = [match.groups() for match in found if match]
    if len(parts) < max(len(names), 3) or len({prefix for prefix, _ in parts}) > 1:
        return None
    return parts[0][0], [float(number) for _, number in parts]


def _line(ax: Axes, x: np.ndarray, name: str, curve: Values, colour: str, band: Values | None) -> Line2D:
    y = np.asarray(curve, dtype=float)
    require(y.shape == x.shape, f"curve '{name}' has {y.size} values, but there are {x.size} places on the x axis")
    if band is not None:
        reach = np.asarray(band, dtype=float)
        ax.fill_between(x, y - reach, y + reach, color=colour, alpha=0.18, linewidth=0)
    return ax.plot(x, y, color=colour)[0]


def _in_order(names: Iterable[str], numbers: Sequence[float]) -> dict[str, str]:
    colour_map, scale = _sequence(numbers)
    return {name: to_hex(colour_map(scale(number))) for name, number in zip(names, numbers, strict=True)}


def _sequence(numbers: Sequence[float]) -> tuple[Colormap, Normalize]:
    """Viridis without its palest end, which is lost on white."""
    trimmed = ListedColormap(mpl.colormaps["viridis_r"](np.linspace(0.12, 1.0, 256)))
    return trimmed, Normalize(min(numbers), max(numbers))


def _colour_bar(ax: Axes, what: str, numbers: Sequence[float]) -> None:
    colour_map, scale = _sequence(numbers)
    steps = MaxNLocator(6, integer=all(number.is_integer() for number in numbers))
    bar = ax.figure.colorbar(ScalarMappable(scale, colour_map), ax=ax, pad=0.02, aspect=30, ticks=steps)
    bar.outline.set_visible(False)
    bar.set_label(what)
