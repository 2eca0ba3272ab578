"""Do two measures rank the same things alike?"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes

from attnscope.errors import require
from attnscope.plots.labels import place_labels
from attnscope.plots.style import INK, WORDS, Values, axes, name_axes, styled


@styled
def scatter(
    x: Values,
    y: Values,
    labels: Iterable[str] | None = None,
    ax: Axes | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
) -> Axes:
    """Labelled points, the least-squares line, and Spearman's rank correlation in the corner; NaN is left out."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    require(x.shape == y.shape, f"there are {x.size} values on the x axis, but {y.size} on the y axis")
    kept = np.isfinite(x) & np.isfinite(y)
    ax = axes(ax, size=(4.4, 3.8))
    ax.scatter(x[kept], y[kept], s=18, color=WORDS[0], alpha=0.75, linewidths=0, rasterized=kept.sum() > 2000)
    _fit(ax, x[kept], y[kept])
    ax.margins(0.1)
    name_axes(ax, xlabel, ylabel)
    _corner(ax, rank_correlation(x[kept], y[kept]), int(kept.sum()))
    if labels is not None and kept.any():
        place_labels(
            ax,
            np.stack([x, y], axis=1)[kept],
            [name for name, keep in zip(labels, kept, strict=True) if keep],
            drop=True,
        )
    return ax


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's ρ, NaN where it has no meaning: fewer than three points, or no spread."""
    from scipy.stats import spearmanr  # takes half a second to load

    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(spearmanr(x, y).statistic)


def _fit(ax: Axes, x: np.ndarray, y: np.ndarray) -> None:
    if len(x) > 1 and np.ptp(x) > 0:
        slope, level = np.polyfit(x, y, 1)
        ends = np.array([x.min(), x.max()])
        ax.plot(ends, slope * ends + level, color=INK, linewidth=1, linestyle="--", zorder=1)


def _corner(ax: Axes, correlation: float, n: int) -> None:
    stated = f"ρ = {correlation:.2f}" if np.isfinite(correlation) else "ρ undefined"
    ax.set_title(f"Spearman's {stated} (n = {n})", loc="right", fontsize=8)
