"""How do groups compare, and how do they compare with what was published?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from attnscope.plots.style import FAINT, INK, axes, colours, label, legend, styled, tint

WIDTH = 0.8  # of all bars of a group


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
    width = WIDTH / max(len(table.columns), 1)
    paint = colours([label(name) for name in table.columns])
    handles: list[Any] = []
    for i, column in enumerate(table.columns):
        where = np.arange(len(table)) - WIDTH / 2 + (i + 0.5) * width
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
