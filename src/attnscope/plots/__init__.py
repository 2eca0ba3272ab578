"""How an answer is drawn: tables in, matplotlib axes out."""

from attnscope.plots.clusters import clouds
from attnscope.plots.curves import profiles
from attnscope.plots.export import save, svg
from attnscope.plots.groups import bars
from attnscope.plots.matrices import heatmap
from attnscope.plots.paths import trajectories
from attnscope.plots.relations import scatter
from attnscope.plots.stacks import stacked_shares
from attnscope.plots.style import DECODER, ENCODER, colours, panels, style

__all__ = [
    "DECODER", "ENCODER", "bars", "clouds", "colours", "heatmap", "panels", "profiles", "save", "scatter",
    "stacked_shares", "style", "svg", "trajectories",
]  # fmt: skip
