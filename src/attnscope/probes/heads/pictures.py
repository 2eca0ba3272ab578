"""How is a number of every layer and head drawn? A layer a row, a head a column; several numbers, several panels."""

from collections.abc import Sequence
from math import ceil

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.display import Figure
from attnscope.errors import choose
from attnscope.probes.drawing import Axes

ACROSS = 4  # panels in a row
WRITTEN = 16  # cells with their number in them


def by_head(columns: dict[str, Float[Tensor, "layers heads"]]) -> pd.DataFrame:
    """A row a layer and head, counted from 0, as attention={(layer, head): ...} counts them."""
    layers, heads = next(iter(columns.values())).shape
    index = pd.MultiIndex.from_product([range(layers), range(heads)], names=["layer", "head"])
    values = {name: tensor.detach().cpu().to(torch.float64).flatten().numpy() for name, tensor in columns.items()}
    return pd.DataFrame(values, index)


def grid(table: pd.DataFrame, column: str, ax: Axes | None = None) -> Axes:
    """One column of such a table; what may be negative has white at zero."""
    from attnscope import plots

    choose("column", column, map(str, table.columns))
    layers, heads = (table.index.unique(level) for level in ("layer", "head"))
    cells = table[column].to_numpy(dtype=float).reshape(len(layers), len(heads))
    return plots.heatmap(
        cells, rows=layers, columns=heads, ax=ax, title=column, xlabel="head", ylabel="layer",
        diverging=bool((cells < 0).any()), annotate=cells.size <= WRITTEN,
    )  # fmt: skip


def grids(table: pd.DataFrame, columns: Sequence[str]) -> Figure:
    """Small multiples, a panel a column."""
    from attnscope import plots

    across = min(ACROSS, len(columns))
    layers, heads = (len(table.index.unique(level)) for level in ("layer", "head"))
    size = (1.8 + 0.22 * max(heads, 4), 1.2 + 0.22 * max(layers, 3))
    figure, panels = plots.panels(ceil(len(columns) / across), across, size)
    for column, ax in zip(columns, panels, strict=False):
        grid(table, column, ax)
    for ax in panels[len(columns) :]:
        ax.set_axis_off()
    return figure
