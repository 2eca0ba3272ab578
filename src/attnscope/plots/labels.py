"""Where can a name stand beside its point without covering another?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from attnscope.plots.style import INK, Values

SIZE = 8.0  # of the letters, in points
GAP = 5.0
DIRECTIONS = [
    (1.0, 0.6), (-1.0, 0.6), (1.0, -0.6), (-1.0, -0.6), (0.0, 1.2), (0.0, -1.2), (1.4, 0.0), (-1.4, 0.0),
    (1.6, 1.8), (-1.6, 1.8), (1.6, -1.8), (-1.6, -1.8),
]  # fmt: skip
OUTSIDE = 0.5  # how much worse than nothing it is to leave the axes, as a part of the letters' area


@dataclass(frozen=True)
class Box:
    """A rectangle on the page, in points."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(width, 0.0) * max(height, 0.0)

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.top - self.bottom)


def place_labels(
    ax: Axes, points: Values, names: Sequence[str], colours: Sequence[str] | None = None, drop: bool = False
) -> None:
    """Write each name near its point, where it covers least; with `drop`, leave out what would cover another name."""
    frame, anchors = _on_page(ax, points)
    dots = [_around(x, y, 3.0) for x, y in anchors]
    taken: list[Box] = []
    for i, name in enumerate(names):
        others = taken + dots[:i] + dots[i + 1 :]
        _, offset, box = min((_cost(anchors[i], d, name, others, frame) for d in DIRECTIONS), key=lambda c: c[0])
        if drop and any(box.overlap(other) > 0 for other in taken):
            continue
        taken.append(box)
        _write(ax, np.asarray(points)[i], name, offset, colours[i] if colours else INK)


def _on_page(ax: Axes, points: Values) -> tuple[Box, np.ndarray]:
    """The frame of the axes and the points, in points of the page."""
    ax.get_xlim(), ax.get_ylim()  # settles the limits that the transformation depends on
    scale = 72 / ax.figure.dpi
    (left, bottom), (right, top) = ax.get_window_extent().get_points() * scale
    return Box(left, bottom, right, top), ax.transData.transform(np.asarray(points, dtype=float)) * scale


def _around(x: float, y: float, reach: float) -> Box:
    return Box(x - reach, y - reach, x + reach, y + reach)


def _cost(
    anchor: np.ndarray, direction: tuple[float, float], name: str, others: Sequence[Box], frame: Box
) -> tuple[float, tuple[float, float], Box]:
    """How much a name in this direction covers, its offset from the point, and the box it fills."""
    width, height = 0.62 * SIZE * len(name), 1.15 * SIZE
    dx, dy = direction[0] * GAP, direction[1] * GAP
    x, y = anchor[0] + dx, anchor[1] + dy
    left = x if dx > 0 else x - width if dx < 0 else x - width / 2
    bottom = y if dy > 0 else y - height if dy < 0 else y - height / 2
    box = Box(left, bottom, left + width, bottom + height)
    outside = (box.area - box.overlap(frame)) * OUTSIDE
    return sum(box.overlap(other) for other in others) + outside, (dx, dy), box


def _write(ax: Axes, point: np.ndarray, name: str, offset: tuple[float, float], colour: str) -> None:
    dx, dy = offset
    ax.annotate(
        name, (point[0], point[1]), xytext=offset, textcoords="offset points", fontsize=SIZE, color=colour,
        ha="left" if dx > 0 else "right" if dx < 0 else "center",
        va="bottom" if dy > 0 else "top" if dy < 0 else "center",
        parse_math=False,
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )  # fmt: skip
