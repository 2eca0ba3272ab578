"""Figures of results: tables in, matplotlib axes out."""

from attnscope.plots.bars import bars, stacked_shares
from attnscope.plots.lines import profiles, trajectories
from attnscope.plots.matrices import heatmap
from attnscope.plots.points import clouds, scatter
from attnscope.plots.style import (
    DECODER,
    ENCODER,
    colours,
    figure_format,
    page_image,
    panels,
    readable_width,
    save,
    style,
    svg,
)

__all__ = [
    "DECODER", "ENCODER", "bars", "clouds", "colours", "figure_format", "heatmap", "page_image", "panels", "profiles",
    "readable_width", "save", "scatter", "stacked_shares", "style", "svg", "trajectories",
]  # fmt: skip
