"""The common style of all figures: matplotlib settings, colours for colour-blind readers, axes and legends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

ENCODER, DECODER = "#E66101", "#5E3C99"  # orange and purple, as in aitken2021
INK, FAINT, MISSING = "#333333", "#E4E4E4", "#DDDDDD"
WORDS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#6B6B6B"]  # Okabe and Ito
FIXED = {"encoder": ENCODER, "decoder": DECODER}

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
}

Values = np.ndarray | Sequence[object] | pd.Series
Handle = Artist | tuple[Artist, ...]  # of a legend
Size = tuple[float | int, float | int]  # width and height in inches

P = ParamSpec("P")
R = TypeVar("R")


def style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib draws in this style."""
    return mpl.rc_context(RC)


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that draws, so that it uses this style and leaves matplotlib's settings as they were."""

    @wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with style():
            return draw(*args, **kwargs)

    return inner


@styled
def panels(rows: int = 1, columns: int = 1, size: Size = (4.8, 3.2)) -> tuple[Figure, list[Axes]]:
    """Return a figure of equal panels, each of this size in inches, and its axes; pyplot does not hold it open."""
    figure = Figure(figsize=(columns * size[0], rows * size[1]))
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def axes(ax: Axes | None, size: Size = (4.8, 3.2)) -> Axes:
    """Return the axes to draw on, new ones if none are given, without upper and right spines."""
    if ax is None:
        from matplotlib import pyplot  # loads a window system, so only where it is needed

        _, ax = pyplot.subplots(figsize=size)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3, width=0.8)
    return ax


def name_axes(ax: Axes, xlabel: str | None, ylabel: str | None) -> None:
    """Set the names that are given."""
    if xlabel is not None:
        ax.set_xlabel(xlabel)
    if ylabel is not None:
        ax.set_ylabel(ylabel)


def name_ticks(ax: Axes, names: Sequence[str], max_length: int) -> None:
    """Write names at 0, 1, 2, ... of the x axis; slanted if one is longer than `max_length` letters."""
    slanted = max(map(len, names), default=0) > max_length
    ax.set_xticks(np.arange(len(names)), labels=names, parse_math=False, rotation=35 if slanted else 0,
                  ha="right" if slanted else "center")  # fmt: skip


def tint(colour: str, amount: float) -> str:
    """Return the colour mixed with white (amount up to 1) or with black (down to -1).

    >>> tint("#808080", 1.0), tint("#808080", -1.0)
    ('#ffffff', '#000000')
    """
    end = 1.0 if amount > 0 else 0.0
    red, green, blue = (channel + (end - channel) * abs(amount) for channel in to_rgb(colour))
    return to_hex((red, green, blue))


def fade(colour: str) -> Colormap:
    """Return a colour map from light (early) to dark (late)."""
    return LinearSegmentedColormap.from_list("fade", [tint(colour, 0.75), colour, tint(colour, -0.45)])


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name: fixed for encoder and decoder, the others in turn, darker in each further round.

    >>> colours(["encoder", "run", "walk"])
    {'encoder': '#E66101', 'run': '#0072B2', 'walk': '#D55E00'}
    """
    unique = list(dict.fromkeys(names))
    others = [name for name in unique if name not in FIXED]
    rounds = [tint(colour, shift) for shift in (0.0, -0.4, 0.4) for colour in WORDS]
    chosen = {name: rounds[i % len(rounds)] if i >= len(WORDS) else WORDS[i] for i, name in enumerate(others)}
    return {name: FIXED.get(name) or chosen[name] for name in unique}


def legend(ax: Axes, handles: Sequence[Handle], names: Sequence[str]) -> Legend:
    """Return a new legend beside the axes that shows names verbatim: a word may begin with '_' or hold '$'."""
    key = ax.legend(handles, ["name"] * len(names), loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for text, name in zip(key.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
    return key


def line_legend(ax: Axes, lines: Mapping[str, Mapping[str, Any]]) -> Legend:
    """Return a new legend of lines, by name the settings that they are drawn with."""
    return legend(ax, [Line2D([], [], **settings) for settings in lines.values()], list(lines))


def label(name: object) -> str:
    """Return the name of a row or column as text, also where it has several levels.

    >>> label(("escan", "AED"))
    'escan AED'
    """
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
