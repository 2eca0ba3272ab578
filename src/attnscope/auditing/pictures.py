"""Which evidence is better seen than read? Heads side by side, how their rankings agree, adversaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnscope import plots
from attnscope.probes.adversary.pictures import histogram
from attnscope.probes.heads.pictures import ACROSS, grids
from attnscope.probes.heads.ranking import RANKINGS
from attnscope.report.html import Picture, drawn_in, embedded

BELIEVED = 10  # heads that are named, the most believed first
FEW_HEADS, FEW_ACROSS = 6, 2  # panels of more heads in a layer are wider
MEANINGS = {
    "time": "share of the alignment that is known before any word is read",
    "word": "share that is known once the two words are",
    "rest": "share that depends on what else was read",
    "entropy": "0 looks at one position, 1 at all alike",
    "offset": "positions behind the diagonal (of a classifier: behind the middle of the text)",
    "spread": "standard deviation of that; 0 always looks equally far",
    "on specials": "weight on special tokens such as [CLS] or the end of the sentence",
    "alignment error": "against gold links or IBM Model 1; less is better",
    "loss if ablated": "what is lost without the head, ± its standard error",
    "loss if uniform": "what is lost if it looks at all positions alike, ± its standard error",
    "τ with saliency": "how far it ranks words as their influence on the output does",
}


def heads_of(part: dict[str, Any]) -> pd.DataFrame:
    """A row a layer and head; columns without any number are left out."""
    columns = part.get("heads") or {}
    if not columns.get("layer"):
        return pd.DataFrame()
    table = pd.DataFrame(columns).set_index(["layer", "head"]).sort_index()
    return table.astype(float).dropna(axis="columns", how="all")


def formed_columns(heads: pd.DataFrame) -> list[str]:
    return [str(name) for name in heads.columns if not str(name).endswith("common words")]


def ranked_columns(heads: pd.DataFrame) -> list[str]:
    return [column for column, _ in RANKINGS.values() if column in heads]


def small_multiples(heads: pd.DataFrame, columns: Sequence[str]) -> list[Picture]:
    """As many side by side as can be read; none where there is but one head, of which a table says more."""
    if len(heads) < 2:
        return []
    across = FEW_ACROSS if len(heads.index.unique("head")) > FEW_HEADS else ACROSS
    rows = [columns[start : start + across] for start in range(0, len(columns), across)]
    return [described(grids(heads, row), "Every layer and head") for row in rows]


def believed(heads: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The heads by the mean of their ranks, the most believed first; all rankings count alike."""
    ranks = heads[[name for name in heads.columns if str(name).startswith("rank by ")]]
    measured = [name for column in columns for name in dict.fromkeys((column, column.replace("loss", "±")))]
    shown = heads[[name for name in measured if name in heads]]
    if len(heads) > 1 and len(ranks.columns):
        shown = shown.assign(**{"mean rank": ranks.mean(axis="columns")}).sort_values("mean rank", kind="stable")
        shown = shown[["mean rank", *shown.columns.drop("mean rank")]]
    rows = shown.head(BELIEVED).reset_index().to_dict("records")
    return [{"head": f"layer {row.pop('layer')}, head {row.pop('head')}", **known(row)} for row in rows]


def known(row: dict[Any, Any]) -> dict[str, Any]:
    """What is not known is None, as in JSON."""
    return {str(name): None if pd.isna(value) else value for name, value in row.items()}


def agreement(part: dict[str, Any]) -> Picture | None:
    """How far every two rankings agree; None where fewer than two rank the heads at all."""
    between = part.get("between") or {}
    values = np.array(between.get("values") or [[]], dtype=float)
    if values.shape[0] < 2 or np.isfinite(values).sum() < 2:
        return None
    figure, (ax,) = plots.panels(size=(3.4, 2.8))
    plots.heatmap(values, rows=between["names"], columns=between["names"], ax=ax, diverging=True, annotate=True,
                  title="agreement of rankings (τ)")  # fmt: skip
    return described(figure, "Rank correlation of the rankings of heads")


def adversaries(part: dict[str, Any]) -> Picture | None:
    """How many texts have an adversary how far away."""
    distances = np.array([value for value in part.get("histogram") or [] if value is not None])
    if not len(distances):
        return None
    figure, (ax,) = plots.panels(size=(5.2, 2.6))
    with plots.style():
        histogram(ax, distances)
    ax.spines[["top", "right"]].set_visible(False)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return described(
        figure, f"{len(distances)} texts, of which the adversary lies {distances.mean():.2f} away on average"
    )


def described(figure: Figure, said: str) -> Picture:
    drawn = drawn_in(figure)
    return embedded(figure, f"{said}{': ' if drawn else ''}{drawn}.")
