"""Of what parts is each whole made? (aitken2021 figure 5a)"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer

from attnscope.plots.style import INK, axes, label, legend, styled

WIDTH = 0.7


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
    _frame(ax, table, values)
    return ax


def shades(n: int) -> list[str]:
    """From dark to light."""
    return [to_hex(mpl.colormaps["Purples"](x)) for x in np.linspace(0.95, 0.25, n)]


def _below(values: np.ndarray) -> np.ndarray:
    """Where each part begins: the sum of the parts before it."""
    return np.asarray(np.cumsum(values, axis=1) - values)


def _layer(ax: Axes, heights: np.ndarray, bottoms: np.ndarray, spreads: np.ndarray, colour: str) -> BarContainer:
    where = np.arange(len(heights))
    made = ax.bar(where, heights, WIDTH, bottom=bottoms, color=colour, edgecolor="white", linewidth=0.8)
    seen = np.nan_to_num(spreads) > 0
    for shade, width in (("white", 3.0), (INK, 1.0)):  # a light rim, so that it is seen on the dark parts
        ax.errorbar(
            where[seen], (bottoms + heights)[seen], yerr=spreads[seen], fmt="none", ecolor=shade, elinewidth=width
        )
    return made


def _frame(ax: Axes, table: pd.DataFrame, values: np.ndarray) -> None:
    names = [label(name) for name in table.index]
    slanted = max(map(len, names), default=0) > 8
    ax.set_xticks(np.arange(len(names)), labels=names, parse_math=False, rotation=35 if slanted else 0,
                  ha="right" if slanted else "center")  # fmt: skip
    ax.set_ylabel("share")
    if values.size and values.min() >= 0 and values.sum(axis=1).max() <= 1.001:
        ax.set_ylim(0, max(1.02, ax.get_ylim()[1] / 1.05))
    elif values.size and values.min() < 0:
        ax.axhline(0, color="black", linewidth=0.8)
