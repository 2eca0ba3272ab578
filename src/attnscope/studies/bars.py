"""How do our numbers compare with the published ones? Bars for the figures of all studies."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attnscope import plots
from attnscope.studies.claims import spread
from attnscope.studies.finding import Label, Measurements, PublishedOf

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BarValues = Mapping[str, Any]  # `ours`, one number a seed, and the `published` one, or None
Panel = Mapping[str, Mapping[str, BarValues]]  # by group of bars, and bar


def bar_values(ours: Sequence[float], stated: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"ours": ours, "published": (stated or {}).get("published")}


def panel(
    measured: Measurements,
    name: str,
    group: Callable[[Label], str],
    bar: Callable[[Label], str],
    stated: PublishedOf = lambda label, name: {},
) -> Panel:
    """One quantity of every label."""
    found: dict[str, dict[str, BarValues]] = {}
    for label in measured:
        found.setdefault(group(label), {})[bar(label)] = bar_values(measured.values(label, name), stated(label, name))
    return found


def draw_bars(content: Panel, ax: "Axes", ylabel: str, dots: bool = False) -> None:
    """Means over seeds with their deviation, or with a dot a seed; and a line at what is published."""
    means = frame(content, lambda found: float(np.mean(numbers(found))))
    errors = frame(content, lambda found: spread(numbers(found)))
    stated = frame(content, lambda found: np.nan if found["published"] is None else found["published"])
    plots.bars(
        means,
        ax=ax,
        errors=errors if errors.any(axis=None) and not dots else None,
        published=stated if stated.notna().any(axis=None) else None,
        seeds=seed_by_seed(content) if dots else None,
        ylabel=ylabel,
    )


def draw_panels(by_name: Mapping[str, Panel]) -> "Figure":
    """One above another, as wide as their groups need."""
    groups = max((len(content) for content in by_name.values()), default=1)
    picture, axes = plots.panels(len(by_name), 1, size=(2.6 + 1.3 * max(groups, 3), 3.3))
    for ax, (name, content) in zip(axes, by_name.items(), strict=True):
        draw_bars(content, ax, name)
    return picture


def numbers(found: BarValues) -> list[float]:
    return [np.nan if value is None else value for value in found["ours"]]  # JSON has null for NaN


def seed_by_seed(content: Panel) -> list[pd.DataFrame]:
    """As many tables as all bars have seeds."""
    fewest = min(len(found["ours"]) for group in content.values() for found in group.values())
    return [frame(content, partial(of_seed, seed)) for seed in range(fewest)]


def of_seed(seed: int, found: BarValues) -> float:
    return numbers(found)[seed]


def frame(content: Panel, summary: Callable[[BarValues], float]) -> pd.DataFrame:
    """A row a group, a column a bar."""
    cells = {group: {bar: summary(found) for bar, found in bars.items()} for group, bars in content.items()}
    return pd.DataFrame.from_dict(cells, orient="index", dtype=float)


def one_key(axes: Sequence["Axes"]) -> None:
    """Of panels in a row with the same bars, the last one's key is enough."""
    for ax in axes[:-1]:
        if (key := ax.get_legend()) is not None:
            key.remove()
