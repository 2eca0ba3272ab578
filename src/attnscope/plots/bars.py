"""Grouped bars, stacked bars and violins.

`stacked_shares` draws aitken2021 figure 5a, `violins` baan2019 figure 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D

from attnscope.errors import require
from attnscope.plots.style import (
    FAINT,
    INK,
    WORDS,
    Handle,
    Values,
    axes,
    colours,
    label,
    legend,
    name_axes,
    name_ticks,
    styled,
    tint,
)

Errors = pd.DataFrame | tuple[pd.DataFrame, pd.DataFrame]  # below and above

ERROR_BAR: dict[str, Any] = {"color": INK, "linestyle": "", "marker": "|", "markersize": 10}  # in a legend
GROUP_WIDTH = 0.8  # all bars of a group
STACK_WIDTH = 0.7
MAX_NAMES = 60  # under violins


@styled
def bars(
    table: pd.DataFrame,
    ax: Axes | None = None,
    errors: Errors | None = None,
    ylabel: str | None = None,
    published: pd.DataFrame | None = None,
    seeds: Sequence[pd.DataFrame] | None = None,
    errors_name: str | None = None,
) -> Axes:
    """Draw one group of bars per row, one bar per column.

    Args:
        table: Heights of the bars.
        ax: Axes to draw on; new ones by default.
        errors: How far the error bar of each bar reaches below and above it: one table for both, or two.
        ylabel: Name of the y axis.
        published: Published numbers, drawn as black lines across the bars.
        seeds: One table per seed, each drawn as dots.
        errors_name: What the error bars are, for the legend.
    """
    ax = axes(ax, size=(1.6 + 0.4 * max(table.size, 5), 3.2))
    width = GROUP_WIDTH / max(len(table.columns), 1)
    names = [label(name) for name in table.columns]
    paint, handles = colours(names), list[Handle]()
    for i, (name, column) in enumerate(zip(names, table.columns, strict=True)):
        x, heights = np.arange(len(table)) - GROUP_WIDTH / 2 + (i + 0.5) * width, table[column].to_numpy(dtype=float)
        handles.append(ax.bar(x, heights, width * 0.92, color=tint(paint[name], 0.25)))
        if errors is not None:
            reach = [_cells(side, table[column]) for side in _sides(errors)]
            ax.errorbar(x, heights, yerr=reach, fmt="none", ecolor=INK, elinewidth=1, capsize=2.5)
        for shift, seed in zip(np.linspace(-0.25, 0.25, len(seeds or [])), seeds or [], strict=True):
            dots = _cells(seed, table[column])
            ax.scatter(x + shift * width, dots, s=9, color=INK, alpha=0.65, linewidths=0, zorder=3)
        if published is not None:
            levels = _cells(published, table[column])
            finite, half_width = np.isfinite(levels), width * 0.46
            ax.hlines(
                levels[finite], x[finite] - half_width, x[finite] + half_width, color="black", linewidth=2, zorder=4
            )
    keys = dict(zip(names, handles, strict=True)) if len(names) > 1 else {}
    if errors_name is not None:
        keys[errors_name] = Line2D([], [], **ERROR_BAR)
    if published is not None:
        keys["published"] = Line2D([], [], color="black", linewidth=2)
    if keys:
        legend(ax, list(keys.values()), list(keys))
    name_ticks(ax, [label(name) for name in table.index], max_length=10)
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    ax.axhline(0, color=INK, linewidth=0.8)
    name_axes(ax, None, ylabel)
    return ax


def _cells(other: pd.DataFrame, column: pd.Series) -> np.ndarray:
    """Return the cells of another table for this column; NaN where it has none."""
    return other.reindex(index=column.index, columns=pd.Index([column.name])).to_numpy(dtype=float)[:, 0]


def _sides(errors: Errors) -> tuple[pd.DataFrame, pd.DataFrame]:
    return errors if isinstance(errors, tuple) else (errors, errors)


@styled
def stacked_shares(
    table: pd.DataFrame, ax: Axes | None = None, errors: Errors | None = None, errors_name: str | None = None
) -> Axes:
    """Draw one bar per row, one part per column: the first lowest and darkest; negative parts extend below zero.

    Args:
        table: Sizes of the parts.
        ax: Axes to draw on; new ones by default.
        errors: How far the error bar of each part reaches below and above its top: one table for both, or two.
        errors_name: What the error bars are, for the legend.
    """
    ax = axes(ax, size=(1.8 + 0.7 * max(len(table), 2), 3.2))
    values = table.to_numpy(dtype=float, na_value=0.0)
    reach = np.zeros((2, *values.shape))  # below and above
    if errors is not None:
        reach = np.stack([side.loc[table.index, table.columns].to_numpy(dtype=float) for side in _sides(errors)])
    bottoms = np.where(values >= 0, _sums_before(values.clip(min=0)), _sums_before(values.clip(max=0)))
    handles = [
        _layer(ax, values[:, i], bottoms[:, i], reach[:, :, i], colour)
        for i, colour in enumerate(shades(len(table.columns)))
    ]
    keys: dict[str, Handle] = dict(zip(map(label, table.columns[::-1]), handles[::-1], strict=True))
    if errors_name is not None:
        keys[errors_name] = Line2D([], [], **ERROR_BAR)
    legend(ax, list(keys.values()), list(keys))
    name_ticks(ax, [label(name) for name in table.index], max_length=8)
    ax.set_ylabel("share")
    if values.size and values.min() >= 0 and values.sum(axis=1).max() <= 1.001:
        ax.set_ylim(0, max(1.02, ax.get_ylim()[1] / 1.05))
    elif values.size and values.min() < 0:
        ax.axhline(0, color="black", linewidth=0.8)
    return ax


def shades(n: int) -> list[str]:
    """Return n purples from dark to light."""
    return [to_hex(mpl.colormaps["Purples"](x)) for x in np.linspace(0.95, 0.25, n)]


def _sums_before(values: np.ndarray) -> np.ndarray:
    """Return where each part begins: the sum of the parts before it."""
    return np.asarray(np.cumsum(values, axis=1) - values)


def _layer(ax: Axes, heights: np.ndarray, bottoms: np.ndarray, reach: np.ndarray, colour: str) -> BarContainer:
    x = np.arange(len(heights))
    layer = ax.bar(x, heights, STACK_WIDTH, bottom=bottoms, color=colour, edgecolor="white", linewidth=0.8)
    has_error = np.nan_to_num(reach).any(0)
    tops = (bottoms + heights)[has_error]
    for shade, width in (("white", 3.0), (INK, 1.0)):  # a white outline, to stand out on the dark parts
        ax.errorbar(x[has_error], tops, yerr=reach[:, has_error], fmt="none", ecolor=shade, elinewidth=width)
    return layer


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
    """Draw one violin per column, a thin line over its full range, and a dot at its median.

    Args:
        values: Rows x columns.
        names: Names of the columns; none are written by default.
        ax: Axes to draw on; new ones by default.
        limits: Ends of the y axis, to which a margin is added.
        colour: Colour of the violins.
        xlabel: Name of the x axis.
        ylabel: Name of the y axis.
    """
    table = np.asarray(values, dtype=float)
    require(table.ndim == 2 and table.size > 0, f"violins need rows and columns of values, not the shape {table.shape}")
    ax = axes(ax, size=(1.6 + 0.14 * max(table.shape[1], 20), 3.2))
    x, paint = np.arange(table.shape[1]), colour or WORDS[0]
    for body in ax.violinplot(table, x, widths=0.9, showextrema=False)["bodies"]:  # type: ignore[attr-defined]
        body.set(facecolor=tint(paint, 0.25), edgecolor="none", alpha=0.9)
    ax.vlines(x, table.min(0), table.max(0), color=tint(paint, -0.3), linewidth=0.6)
    ax.scatter(x, np.median(table, 0), s=6, color=INK, linewidths=0, zorder=3)
    if limits is not None:
        margin = 0.03 * (limits[1] - limits[0])
        ax.set_ylim(limits[0] - margin, limits[1] + margin)
    if names is None:
        ax.set_xticks([])
    else:
        _name_violins(ax, [label(name) for name in names], table.shape[1])
    name_axes(ax, xlabel, ylabel)
    return ax


def _name_violins(ax: Axes, names: Sequence[str], n: int) -> None:
    """Write at most `MAX_NAMES` names; of more, every second, third, ..."""
    require(len(names) == n, f"there are {len(names)} names for {n} violins")
    x = list(range(0, n, 1 + (n - 1) // MAX_NAMES))
    ax.set_xticks(x, labels=[names[i] for i in x], parse_math=False, rotation=90 if n > 12 else 0, fontsize=7)
