"""How far are our numbers from the published ones? A dot a number, on the line where both agree."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.plots.style import INK, WORDS, axes, name_axes
from attnscope.report.site.gallery import Studied

Pair = tuple[float, float]  # published and ours


def against(studies: Sequence[Studied]) -> Figure | None:
    """A panel a study that has published numbers; numbers below or at zero have no place on these scales."""
    pairs = {study.name: pairs_of(study) for study in studies}
    pairs = {name: found for name, found in pairs.items() if found}
    if not pairs:
        return None
    with plots.style():
        figure, empty = plots.panels(1, len(pairs), size=(3.6, 3.6))
        for ax, (name, found) in zip(empty, pairs.items(), strict=True):
            draw(ax, name, found)
    return figure


def pairs_of(study: Studied) -> list[Pair]:
    lines = [line for finding in study.findings for _, line in finding.published]
    pairs = [(line["published"], line["mean"]) for line in lines if None not in (line["published"], line["mean"])]
    return [pair for pair in pairs if min(pair) > 0]


def draw(ax: Axes, name: str, pairs: Sequence[Pair]) -> None:
    ends = [end(number for pair in pairs for number in pair) for end in (min, max)]
    axes(ax).plot(ends, ends, color=INK, linewidth=0.8)
    ax.plot(*zip(*pairs, strict=True), "o", color=WORDS[0], alpha=0.45, markersize=4, markeredgewidth=0)
    ax.set(xscale="log", yscale="log", aspect="equal", title=f"{name}, {len(pairs)} numbers")
    name_axes(ax, "published", "ours")
