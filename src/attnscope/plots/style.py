"""The common style of all figures (matplotlib settings, colour-blind-safe colours, axes, legends), and their files.

Figures are written as PNG, SVG, PDF or, inside pages, WebP. The same figure gives the same bytes, without dates.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from PIL import Image

from attnscope.errors import choose
from attnscope.files import write_atomically

ENCODER, DECODER = "#E66101", "#5E3C99"  # orange and purple, as in aitken2021
INK, FAINT, MISSING = "#333333", "#E4E4E4", "#DDDDDD"
WORDS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#6B6B6B"]  # Okabe and Ito
FIXED = {
    "encoder": ENCODER, "decoder": DECODER,
    "base": WORDS[0], "tying": WORDS[1], "residual": WORDS[2], "mlm": WORDS[3], "concat": WORDS[4],
    "conicity": WORDS[5], "deceptive": WORDS[6],
    "baseline": WORDS[0], "guided": WORDS[1],
    "AED": WORDS[0], "AO": WORDS[1], "VED": WORDS[2],
    "no guidance": WORDS[0], "one head, right": WORDS[1], "one head, wrong": WORDS[3],
    "all heads, right": WORDS[2], "all heads, wrong": WORDS[4],
    "honest": WORDS[0], "penalty": WORDS[1], "relay": WORDS[2], "tying and mlm": WORDS[5],
}  # of models: the same in every figure of a study  # fmt: skip
LETTERS_PER_INCH = 11  # of a tick label, with a gap to the next one
MAX_LINES = 3  # of a tick label
VARIANTS = (0.0, -0.35, 0.5)  # tints of "base", "base, one" and "base, other"

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
    "figure.constrained_layout.h_pad": 0.09,  # a title keeps clear of the labels above it
    "savefig.dpi": 200,
}

Values = np.ndarray | Sequence[object] | pd.Series
Handle = Artist | tuple[Artist, ...]  # of a legend
Size = tuple[float | int, float | int]  # width and height in inches

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def style() -> Iterator[None]:
    """Draw in this style. Other settings stay: the backend of a notebook changes some when it is first loaded."""
    before = {name: mpl.rcParams[name] for name in RC}
    try:
        mpl.rcParams.update(RC)
        yield
    finally:
        mpl.rcParams.update(before)


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that draws, so that it uses this style and restores matplotlib's settings."""
    return style()(draw)


@styled
def panels(rows: int = 1, columns: int = 1, size: Size = (4.8, 3.2)) -> tuple[Figure, list[Axes]]:
    """Return a figure of equal panels and its axes; pyplot does not hold it open.

    Args:
        rows: Number of rows.
        columns: Number of columns.
        size: Width and height of a panel in inches.
    """
    figure = Figure(figsize=(columns * size[0], rows * size[1]))
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def grid(count: int, columns: int, size: Size) -> tuple[Figure, list[Axes]]:
    """Return a figure of so many equal panels, row by row in at most so many columns, and its axes."""
    columns = min(count, columns)
    figure, axes = panels(-(-count // columns), columns, size)
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes[:count]


def axes(ax: Axes | None, size: Size = (4.8, 3.2)) -> Axes:
    """Return the axes to draw on, new ones for None, without upper and right spines."""
    if ax is None:
        from matplotlib import pyplot  # loads a window system, so only where it is needed

        _, ax = pyplot.subplots(figsize=size)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3, width=0.8)
    return ax


def name_axes(ax: Axes, xlabel: str | None, ylabel: str | None) -> None:
    """Set the labels of the axes that are not None."""
    if xlabel is not None:
        ax.set_xlabel(xlabel)
    if ylabel is not None:
        ax.set_ylabel(ylabel)


def name_ticks(ax: Axes, names: Sequence[str], max_length: int) -> None:
    """Write names at 0, 1, 2, ... of the x axis; if one is longer than `max_length` letters, in lines or slanted."""
    inches = ax.get_window_extent().width / ax.figure.dpi
    width = inches * LETTERS_PER_INCH / max(1, len(names))
    lines = [textwrap.wrap(name, max(1, int(width)), break_long_words=False, break_on_hyphens=False) for name in names]
    fit = all(len(each) <= MAX_LINES and max(map(len, each), default=0) <= width for each in lines)
    slanted = max(map(len, names), default=0) > max_length and not fit
    labels = ["\n".join(each) for each in lines] if fit else names
    ax.set_xticks(np.arange(len(names)), labels=labels, parse_math=False, rotation=35 if slanted else 0,
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
    """Return a colour for each name: fixed for known models and their variants, the others in turn.

    A variant, such as "base, two layers", has a tint of its model's colour. Further rounds of the others are darker.

    >>> colours(["encoder", "run", "walk"])
    {'encoder': '#E66101', 'run': '#0072B2', 'walk': '#D55E00'}
    >>> colours(["base", "run"])
    {'base': '#0072B2', 'run': '#D55E00'}
    """
    unique = list(dict.fromkeys(names))
    palette: dict[str, str] = {}
    for model in dict.fromkeys(map(_model_of, unique)):
        own = [name for name in unique if model in FIXED and _model_of(name) == model]
        shifts = VARIANTS if len(own) <= len(VARIANTS) else np.linspace(0.6, -0.5, len(own)).tolist()
        paint = [tint(FIXED[model], shift) if shift else FIXED[model] for shift in shifts[: len(own)]]
        palette |= dict(zip(own, paint, strict=True))
    free = [colour for colour in WORDS if colour not in palette.values()]
    rounds = free + [tint(colour, shift) for shift in (-0.4, 0.4) for colour in WORDS]
    others = [name for name in unique if name not in palette]
    palette |= {name: rounds[index % len(rounds)] for index, name in enumerate(others)}
    return {name: palette[name] for name in unique}


def _model_of(name: str) -> str:
    return next((model for model in FIXED if f"{name}, ".startswith(f"{model}, ")), name)


def legend(ax: Axes, handles: Sequence[Handle], names: Sequence[str]) -> Legend:
    """Return a new legend beside the axes that shows names verbatim: a word may begin with '_' or hold '$'."""
    key = ax.legend(handles, ["name"] * len(names), loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for text, name in zip(key.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
    return key


def line_legend(ax: Axes, lines: Mapping[str, Mapping[str, Any]]) -> Legend:
    """Return a new legend of lines.

    Args:
        ax: The axes.
        lines: The settings of each line, by its name.
    """
    return legend(ax, [Line2D([], [], **settings) for settings in lines.values()], list(lines))


def label(name: object) -> str:
    """Return the name of a row or column as text, also where it has several levels.

    >>> label(("escan", "AED"))
    'escan AED'
    """
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name)


# Files ---------------------------------------------------------------------------------------------------------------


DATELESS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
MAX_ELEMENTS = 250  # of a vector graphic inside a page: some 70 kB
LINE_DRAWING = 10_000  # colours at most; shaded figures have more, and would show bands with a palette
CSS_DPI = 96  # CSS pixels per inch
MIN_TEXT = 9  # CSS pixels


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure and return the path.

    Args:
        figure: The figure.
        path: A file whose suffix is .png, .svg or .pdf.
    """
    path = Path(path)
    write_atomically(path, _bytes(figure, figure_format(path)))
    return path


def figure_format(path: Path) -> str:
    """Return the format that the suffix of a path names: png, svg or pdf; others are refused."""
    return choose("figure format", path.suffix.lstrip(".").lower(), DATELESS)


def svg(figure: Figure) -> str:
    """Return the figure as one `<svg>` element that needs no font, no style sheet and no network."""
    text = _bytes(figure, "svg").decode()
    return text[text.index("<svg") :]


def page_image(figure: Figure) -> tuple[str, bytes, int]:
    """Return the suffix, content and width in CSS pixels of the figure as an image for a page.

    A figure is an SVG. One with many elements is a WebP of two pixels per CSS pixel, a fraction of the size: lossless
    (a line drawing with a palette of 128 colours), or of high quality where that is smaller.
    """
    if num_elements(figure) <= MAX_ELEMENTS:
        drawing = svg(figure)
        points = float(re.search(r'<svg[^>]*\bwidth="([\d.]+)pt"', drawing)[1])  # type: ignore[index]
        return "svg", drawing.encode(), round(points * CSS_DPI / 72)
    image = Image.open(io.BytesIO(_bytes(figure, "png", dpi=2 * CSS_DPI))).convert("RGB")
    streams = io.BytesIO(), io.BytesIO()
    lossless = image.quantize(128, dither=Image.Dither.NONE).convert("RGB") if image.getcolors(LINE_DRAWING) else image
    lossless.save(streams[0], "webp", lossless=True, quality=100)  # 100: the smallest file
    image.save(streams[1], "webp", quality=80)
    return "webp", min((stream.getvalue() for stream in streams), key=len), image.width // 2


def readable_width(figure: Figure, width: int) -> int:
    """Return the width in CSS pixels at which the smallest text of the figure has `MIN_TEXT` pixels, at most `width`.

    Args:
        figure: The figure.
        width: Its natural width.
    """
    sizes = [float(one.get_fontsize()) for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    return min(width, math.ceil(width * MIN_TEXT * 72 / (CSS_DPI * min(sizes)))) if sizes else 0


def num_elements(figure: Figure) -> int:
    """Return how many lines, texts, shapes and points a figure has: the size of its SVG grows with them."""
    artists = figure.findobj()
    collections = [one for one in artists if isinstance(one, Collection)]
    points = (max(len(one.get_paths() or ()), len(np.asarray(one.get_offsets()))) for one in collections)
    on_lines: int = sum(np.asarray(one.get_xydata()).shape[0] for one in artists if isinstance(one, Line2D))
    return len(artists) + sum(points) + on_lines // 10  # some 150 bytes of SVG per element, 13 per point of a line


def _bytes(figure: Figure, kind: str, dpi: float | None = None) -> bytes:
    stream = io.BytesIO()
    with mpl.rc_context({**RC, "svg.fonttype": "path", "svg.hashsalt": "attnscope"}):
        figure.savefig(stream, format=kind, metadata=DATELESS[kind], bbox_inches="tight", pad_inches=0.05,
                       dpi=dpi or RC["savefig.dpi"])  # fmt: skip
    return stream.getvalue()
