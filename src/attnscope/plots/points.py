"""Points: scatter plots with rank correlation, fractions in a triangle, and clouds of states with their labels.

`fractions` draws baan2019 figure 4, `clouds` aitken2021 figures 2b and 3c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from attnscope.errors import require
from attnscope.plots.style import FAINT, INK, WORDS, Values, axes, colours, legend, name_axes, styled, tint


@styled
def scatter(
    x: Values,
    y: Values,
    labels: Iterable[str] | None = None,
    ax: Axes | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
) -> Axes:
    """Draw labelled points, the least-squares line, and Spearman's rank correlation in the corner.

    Args:
        x: Values on the x axis; points with NaN are omitted.
        y: Values on the y axis.
        labels: Names of the points.
        ax: Axes to draw on; new ones by default.
        xlabel: Name of the x axis.
        ylabel: Name of the y axis.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    require(x.shape == y.shape, f"there are {x.size} values on the x axis, but {y.size} on the y axis")
    finite = np.isfinite(x) & np.isfinite(y)
    ax = axes(ax, size=(4.4, 3.8))
    ax.scatter(x[finite], y[finite], s=18, color=WORDS[0], alpha=0.75, linewidths=0, rasterized=finite.sum() > 2000)
    if finite.sum() > 1 and np.ptp(x[finite]) > 0:
        slope, level = np.polyfit(x[finite], y[finite], 1)
        ends = np.array([x[finite].min(), x[finite].max()])
        ax.plot(ends, slope * ends + level, color=INK, linewidth=1, linestyle="--", zorder=1)
    ax.margins(0.1)
    name_axes(ax, xlabel, ylabel)
    correlation = rank_correlation(x[finite], y[finite])
    rho = f"ρ = {correlation:.2f}" if np.isfinite(correlation) else "ρ undefined"
    ax.set_title(f"Spearman's {rho} (n = {finite.sum()})", loc="right", fontsize=8)
    if labels is not None and finite.any():
        names = [name for name, is_finite in zip(labels, finite, strict=True) if is_finite]
        place_labels(ax, np.stack([x, y], axis=1)[finite], names, drop=True)
    return ax


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's ρ; NaN for fewer than three points or constant values."""
    from scipy.stats import spearmanr  # takes half a second to load

    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(spearmanr(x, y).statistic)


@styled
def fractions(
    points: Mapping[str, tuple[Values, Values]],
    ax: Axes | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
) -> Axes:
    """Draw points in the triangle under the diagonal on which two fractions sum to one, one colour per name.

    Args:
        points: By name, the fractions on the x axis and on the y axis.
        ax: Axes to draw on; new ones by default.
        xlabel: Name of the x axis.
        ylabel: Name of the y axis.
    """
    ax = axes(ax, size=(3.8, 3.4))
    ax.plot([0, 1], [1, 0], color=FAINT, linewidth=1, zorder=0)
    paint = colours(points)
    handles = []
    for name, (across, up) in points.items():
        x, y = np.asarray(across, dtype=float), np.asarray(up, dtype=float)
        require(x.shape == y.shape, f"'{name}' has {x.size} fractions on the x axis, but {y.size} on the y axis")
        require(not (x + y > 1 + 1e-6).any(), f"two fractions of '{name}' sum to more than one; they must not overlap")
        handles.append(ax.scatter(x, y, s=14, color=paint[name], alpha=0.55, linewidths=0, rasterized=x.size > 2000))
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    name_axes(ax, xlabel, ylabel)
    if len(points) > 1:
        legend(ax, handles, list(points))
    return ax


@styled
def clouds(
    points: Values,
    labels: Iterable[str],
    centres: Mapping[str, Values],
    arrows: Mapping[str, Values],
    ax: Axes | None = None,
) -> Axes:
    """Draw points coloured by word, an X at each word's centre, a line from the origin for each readout vector.

    Args:
        points: Points x 2.
        labels: The word of each point.
        centres: The centre of each word.
        arrows: Readout vectors by output word; they have the colour of the word, ignoring case.
        ax: Axes to draw on; new ones by default.
    """
    cloud, words = np.asarray(points, dtype=float).reshape(-1, 2), list(labels)
    require(len(cloud) == len(words), f"there are {len(cloud)} points, but {len(words)} labels")
    ax = axes(ax, size=(4.6, 4.2))
    paint = colours([*words, *centres])
    folded = {word.casefold(): tint(colour, -0.2) for word, colour in paint.items()}
    shades = [tint(paint[word], -0.35) for word in centres] + [folded.get(word.casefold(), INK) for word in arrows]
    ends = [np.asarray(end, dtype=float) for end in (*centres.values(), *arrows.values())]
    pale = [tint(paint[word], 0.35) for word in words]
    ax.scatter(cloud[:, 0], cloud[:, 1], s=7, c=pale, alpha=0.6, linewidths=0, rasterized=True)
    for number, ((x, y), shade) in enumerate(zip(ends, shades, strict=True)):
        if number < len(centres):
            ax.scatter(x, y, s=55, marker="X", color=shade, edgecolors="white", linewidths=0.7, zorder=4)
        else:
            ax.plot((0.0, x), (0.0, y), color=shade, linewidth=1.5, zorder=3)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.12)
    name_axes(ax, "PC 1", "PC 2")
    if ends:
        place_labels(ax, ends, [*centres, *arrows], shades)
    return ax


# Labels that do not overlap ------------------------------------------------------------------------------------------

SIZE = 8.0  # font size in points
GAP = 5.0  # between a point and its label, in points
DIRECTIONS = [
    (1.0, 0.6), (-1.0, 0.6), (1.0, -0.6), (-1.0, -0.6), (0.0, 1.2), (0.0, -1.2), (1.4, 0.0), (-1.4, 0.0),
    (1.6, 1.8), (-1.6, 1.8), (1.6, -1.8), (-1.6, -1.8),
]  # fmt: skip
OUTSIDE = 0.5  # the cost of leaving the axes, as a fraction of the label's area outside


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
    """Write each name near its point where it overlaps least; with `drop`, skip names that would cover another one."""
    frame, anchors = _on_page(ax, points)
    dots = [Box(x - 3.0, y - 3.0, x + 3.0, y + 3.0) for x, y in anchors]
    labels: list[Box] = []
    for i, name in enumerate(names):
        others = labels + dots[:i] + dots[i + 1 :]
        _, offset, box = min((_cost(anchors[i], d, name, others, frame) for d in DIRECTIONS), key=lambda c: c[0])
        if drop and any(box.overlap(other) > 0 for other in labels):
            continue
        labels.append(box)
        _write(ax, np.asarray(points)[i], name, offset, colours[i] if colours else INK)


def _on_page(ax: Axes, points: Values) -> tuple[Box, np.ndarray]:
    """Return the frame of the axes and the points, in points of the page."""
    ax.get_xlim(), ax.get_ylim()  # computes the limits that the transformation depends on
    scale = 72 / ax.figure.dpi
    (left, bottom), (right, top) = ax.get_window_extent().get_points() * scale
    return Box(left, bottom, right, top), ax.transData.transform(np.asarray(points, dtype=float)) * scale


def _cost(
    anchor: np.ndarray, direction: tuple[float, float], name: str, others: Sequence[Box], frame: Box
) -> tuple[float, tuple[float, float], Box]:
    """Return how much a name in this direction overlaps, its offset from the point, and the box that it fills."""
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
