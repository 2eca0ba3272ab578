"""Bars, stacked bars and violins: how groups compare, of what parts they are made, how values are distributed.

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
from attnscope.plots.style import FAINT, INK, WORDS, Values, axes, colours, label, legend, name_axes, styled, tint

GROUP_WIDTH = 0.8  # of all bars of a group


@styled
def bars(
    table: pd.DataFrame,
    ax: Axes | None = None,
    errors: pd.DataFrame | None = None,
    ylabel: str | None = None,
    published: pd.DataFrame | None = None,
    seeds: Sequence[pd.DataFrame] | None = None,
) -> Axes:
    """A group a row, a bar a column; ± `errors`, a dot for each table in `seeds`, a line for what was published."""
    ax = axes(ax, size=(1.6 + 0.4 * max(table.size, 5), 3.2))
    width = GROUP_WIDTH / max(len(table.columns), 1)
    paint = colours([label(name) for name in table.columns])
    handles: list[Any] = []
    for i, column in enumerate(table.columns):
        where = np.arange(len(table)) - GROUP_WIDTH / 2 + (i + 0.5) * width
        handles.append(
            ax.bar(where, table[column].to_numpy(dtype=float), width * 0.92, color=tint(paint[label(column)], 0.25))
        )
        _spread(ax, where, table[column], errors)
        _dots(ax, where, table[column], seeds or [], width)
        _lines(ax, where, table[column], published, width)
    _key(ax, handles, table, published)
    _frame(ax, table, ylabel)
    return ax


def _match(other: pd.DataFrame, column: pd.Series) -> np.ndarray:
    """The same cells of another table; NaN where it has none."""
    found = other.reindex(index=column.index, columns=pd.Index([column.name]))
    return found.to_numpy(dtype=float)[:, 0]


def _spread(ax: Axes, where: np.ndarray, column: pd.Series, errors: pd.DataFrame | None) -> None:
    if errors is not None:
        heights = column.to_numpy(dtype=float)
        ax.errorbar(where, heights, yerr=_match(errors, column), fmt="none", ecolor=INK, elinewidth=1, capsize=2.5)


def _dots(ax: Axes, where: np.ndarray, column: pd.Series, seeds: Sequence[pd.DataFrame], width: float) -> None:
    for shift, seed in zip(np.linspace(-0.25, 0.25, len(seeds)), seeds, strict=True):
        ax.scatter(where + shift * width, _match(seed, column), s=9, color=INK, alpha=0.65, linewidths=0, zorder=3)


def _lines(ax: Axes, where: np.ndarray, column: pd.Series, published: pd.DataFrame | None, width: float) -> None:
    if published is not None:
        heights = _match(published, column)
        known = np.isfinite(heights)
        left, right = where[known] - width * 0.46, where[known] + width * 0.46
        ax.hlines(heights[known], left, right, color="black", linewidth=2, zorder=4)


def _key(ax: Axes, handles: list[Any], table: pd.DataFrame, published: pd.DataFrame | None) -> None:
    names = [label(name) for name in table.columns] if len(table.columns) > 1 else []
    shown = handles[: len(names)]
    if published is not None:
        names, shown = [*names, "published"], [*shown, Line2D([], [], color="black", linewidth=2)]
    if names:
        legend(ax, shown, names)


def _frame(ax: Axes, table: pd.DataFrame, ylabel: str | None) -> None:
    names = [label(name) for name in table.index]
    slanted = max(map(len, names), default=0) > 10
    ax.set_xticks(np.arange(len(names)), labels=names, parse_math=False, rotation=35 if slanted else 0,
                  ha="right" if slanted else "center")  # fmt: skip
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    ax.axhline(0, color=INK, linewidth=0.8)
    if ylabel is not None:
        ax.set_ylabel(ylabel)


STACK_WIDTH = 0.7


@styled
def stacked_shares(table: pd.DataFrame, ax: Axes | None = None, errors: pd.DataFrame | None = None) -> Axes:
    """A bar a row, a part a column: the first at the bottom and darkest; what is negative hangs below zero."""
    ax = axes(ax, size=(1.8 + 0.7 * max(len(table), 2), 3.2))
    values = table.to_numpy(dtype=float, na_value=0.0)
    spreads = np.zeros_like(values) if errors is None else errors.loc[table.index, table.columns].to_numpy(dtype=float)
    bottoms = np.where(values >= 0, _below(values.clip(min=0)), _below(values.clip(max=0)))
    handles = [
        _layer(ax, values[:, i], bottoms[:, i], spreads[:, i], colour)
        for i, colour in enumerate(shades(len(table.columns)))
    ]
    legend(ax, handles[::-1], [label(name) for name in table.columns[::-1]])
    _stack_frame(ax, table, values)
    return ax


def shades(n: int) -> list[str]:
    """From dark to light."""
    return [to_hex(mpl.colormaps["Purples"](x)) for x in np.linspace(0.95, 0.25, n)]


def _below(values: np.ndarray) -> np.ndarray:
    """Where each part begins: the sum of the parts before it."""
    return np.asarray(np.cumsum(values, axis=1) - values)


def _layer(ax: Axes, heights: np.ndarray, bottoms: np.ndarray, spreads: np.ndarray, colour: str) -> BarContainer:
    where = np.arange(len(heights))
    made = ax.bar(where, heights, STACK_WIDTH, bottom=bottoms, color=colour, edgecolor="white", linewidth=0.8)
    seen = np.nan_to_num(spreads) > 0
    for shade, width in (("white", 3.0), (INK, 1.0)):  # a light rim, so that it is seen on the dark parts
        ax.errorbar(
            where[seen], (bottoms + heights)[seen], yerr=spreads[seen], fmt="none", ecolor=shade, elinewidth=width
        )
    return made


def _stack_frame(ax: Axes, table: pd.DataFrame, values: np.ndarray) -> None:
    names = [label(name) for name in table.index]
    slanted = max(map(len, names), default=0) > 8
    ax.set_xticks(np.arange(len(names)), labels=names, parse_math=False, rotation=35 if slanted else 0,
                  ha="right" if slanted else "center")  # fmt: skip
    ax.set_ylabel("share")
    if values.size and values.min() >= 0 and values.sum(axis=1).max() <= 1.001:
        ax.set_ylim(0, max(1.02, ax.get_ylim()[1] / 1.05))
    elif values.size and values.min() < 0:
        ax.axhline(0, color="black", linewidth=0.8)


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
