"""Do the states of a word lie together, and does the readout point at them? (aitken2021 figures 2b, 3c)"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from matplotlib.axes import Axes

from attnscope.errors import require
from attnscope.plots.labels import place_labels
from attnscope.plots.style import INK, Values, axes, colours, name_axes, styled, tint


@styled
def clouds(
    points: Values,
    labels: Iterable[str],
    centres: Mapping[str, Values],
    arrows: Mapping[str, Values],
    ax: Axes | None = None,
) -> Axes:
    """Points coloured by word, a dark X at each word's centre, a line from the origin for each readout vector."""
    cloud, words = np.asarray(points, dtype=float).reshape(-1, 2), list(labels)
    require(len(cloud) == len(words), f"there are {len(cloud)} points, but {len(words)} labels")
    ax = axes(ax, size=(4.6, 4.2))
    paint = colours([*words, *centres])
    shade = [tint(paint[word], 0.35) for word in words]
    ax.scatter(cloud[:, 0], cloud[:, 1], s=7, c=shade, alpha=0.6, linewidths=0, rasterized=True)
    for word, centre in centres.items():
        ax.scatter(
            *_xy(centre), s=55, marker="X", color=tint(paint[word], -0.35), edgecolors="white", linewidths=0.7, zorder=4
        )
    shades = {word: _shade(word, paint) for word in arrows}
    for word, tip in arrows.items():
        ax.plot(*zip((0.0, 0.0), _xy(tip), strict=True), color=shades[word], linewidth=1.5, zorder=3)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.12)
    name_axes(ax, "PC 1", "PC 2")
    _name(ax, centres, arrows, [tint(paint[word], -0.35) for word in centres] + list(shades.values()))
    return ax


def _xy(point: Values) -> tuple[float, float]:
    x, y = np.asarray(point, dtype=float)
    return float(x), float(y)


def _shade(word: str, paint: Mapping[str, str]) -> str:
    """The colour of the word itself in whatever case ('RUN' is 'run'), grey for an output that is no input."""
    folded = {name.casefold(): colour for name, colour in paint.items()}
    return tint(folded[word.casefold()], -0.2) if word.casefold() in folded else INK


def _name(ax: Axes, centres: Mapping[str, Values], arrows: Mapping[str, Values], shades: list[str]) -> None:
    anchors = [_xy(point) for point in [*centres.values(), *arrows.values()]]
    if anchors:
        place_labels(ax, anchors, [*centres, *arrows], shades)
