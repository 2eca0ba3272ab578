"""Draw answers: tables in, matplotlib axes out."""

from attnscope.plots.bars import bars, stacked_shares
from attnscope.plots.export import save, svg
from attnscope.plots.lines import profiles, trajectories
from attnscope.plots.matrices import heatmap
from attnscope.plots.points import clouds, scatter
from attnscope.plots.style import DECODER, ENCODER, colours, panels, style

__all__ = [
    "DECODER", "ENCODER", "bars", "clouds", "colours", "heatmap", "panels", "profiles", "save", "scatter",
    "stacked_shares", "style", "svg", "trajectories",
]  # fmt: skip
