"""Bar charts of our numbers beside the published ones, and curves over seeds, for the figures of all studies.

Error bars and bands are the 95 % interval of the mean over seeds, inside the range of the quantity as in claims.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from attnscope import plots
from attnscope.display import Figure
from attnscope.studies.claims import Range, Values, error_bar
from attnscope.studies.finding import Label, Measurements, PublishedNumber, PublishedOf, nothing_published


class BarValues(TypedDict):
    """One bar: our numbers, one per seed (JSON has null for NaN), and the published one."""

    ours: Sequence[float | None]
    published: float | None


INTERVAL = "95 % interval"
MAX_WIDTH = 13.4  # inches: at the width of a page its texts are still legible
Panel = Mapping[str, Mapping[str, BarValues]]  # by group of bars, and bar
SeedTable = Mapping[str, Mapping[str, Sequence[float | None]]]  # by label and quantity: `Measurements.seed_values`


def bar_values(ours: Sequence[float | None], published: PublishedNumber | None = None) -> BarValues:
    """Return one bar."""
    return {"ours": ours, "published": (published or {}).get("published")}


def panel(
    measured: Measurements,
    name: str,
    group: Callable[[Label], str],
    bar: Callable[[Label], str],
    published: PublishedOf = nothing_published,
) -> Panel:
    """Return one quantity of every label, in groups of bars by the label's parts."""
    groups: dict[str, dict[str, BarValues]] = {}
    for label in measured:
        groups.setdefault(group(label), {})[bar(label)] = bar_values(
            measured.values(label, name), published(label, name)
        )
    return groups


def label_panels(
    names: Iterable[str],
    group: Callable[[Label], str],
    bar: Callable[[Label], str],
    published: PublishedOf = nothing_published,
) -> Callable[[Measurements], dict[str, Panel]]:
    """Return the `figure` of a finding that `draw_panels` draws: one panel per quantity, by its name."""
    names = tuple(names)
    return lambda measured: {name: panel(measured, name, group, bar, published) for name in names}


def quantity_panel(
    data: SeedTable,
    quantities: Mapping[str, str],
    published: PublishedOf = nothing_published,
    labels: Iterable[str] | None = None,
) -> Panel:
    """Return one group of bars per quantity, and in it one bar per label.

    Args:
        data: Our numbers by label and quantity.
        quantities: Names of the quantities, and the text under their groups.
        published: The published number of a label's quantity.
        labels: The labels to show, in their order; all by default.
    """
    names_of_bars = list(data if labels is None else labels)
    return {
        text: {label: bar_values(data[label][name], published(label, name)) for label in names_of_bars}
        for name, text in quantities.items()
    }


def draw_bars(content: Panel, ax: Axes, ylabel: str, within: Range | None = None, dots: bool = False) -> None:
    """Draw means over seeds with their 95 % interval, or with one dot per seed; a line at what is published.

    Args:
        content: Bars by group.
        ax: The axes.
        ylabel: The label of their vertical axis.
        within: The range of the quantity, which intervals keep to.
        dots: Whether there is one dot per seed in place of the interval.
    """
    means = _frame(content, lambda bar: float(np.mean(np.array(bar["ours"], dtype=float))))
    below = _frame(content, lambda bar: error_bar(bar["ours"], within)[0])
    above = _frame(content, lambda bar: error_bar(bar["ours"], within)[1])
    has_errors = bool(below.any(axis=None) or above.any(axis=None)) and not dots
    published = _frame(content, lambda bar: np.nan if bar["published"] is None else bar["published"])
    plots.bars(
        means,
        ax=ax,
        errors=(below, above) if has_errors else None,
        errors_name=INTERVAL if has_errors else None,
        published=published if published.notna().any(axis=None) else None,
        seeds=_seed_frames(content) if dots else None,
        ylabel=ylabel,
    )


def draw_panels(
    by_name: Mapping[str, Panel],
    ylabels: Mapping[str, str] | None = None,
    within: Mapping[str, Range] | None = None,
    row: tuple[float, float] | None = None,
) -> Figure:
    """Draw panels one above another, as wide as their groups need; or in a row.

    Args:
        by_name: The panels.
        ylabels: The labels of their vertical axes; by default their names.
        within: By name, the range of a quantity that has one.
        row: The size of each of the panels in a row, in inches.
    """
    groups = max((len(content) for content in by_name.values()), default=1)
    size = row or (min(2.6 + 1.3 * max(groups, 3), MAX_WIDTH), 3.3)
    picture, axes = plots.panels(1 if row else len(by_name), len(by_name) if row else 1, size=size)
    for ax, (name, content) in zip(axes, by_name.items(), strict=True):
        draw_bars(content, ax, name if ylabels is None else ylabels[name], (within or {}).get(name))
    return picture


def draw_curves(
    x: Sequence[float] | np.ndarray,
    curves: Mapping[str, np.ndarray],
    ax: Axes,
    within: Range | None = None,
    **settings: Any,
) -> None:
    """Draw means over seeds with a band, their 95 % interval.

    Args:
        x: Positions on the x axis.
        curves: By name, seeds x positions.
        ax: The axes.
        within: The range of the quantity.
        settings: Of `profiles`.
    """
    means = {name: seeds.mean(0) for name, seeds in curves.items()}
    name = INTERVAL if any(len(seeds) > 1 for seeds in curves.values()) else None
    bands = {name: _reach(seeds.T, within) for name, seeds in curves.items()}
    plots.profiles(x, means, ax=ax, bands=bands, bands_name=name, **settings)


def draw_points(
    x: Sequence[float], seeds: Sequence[Values], ax: Axes, within: Range | None = None, **look: Any
) -> Line2D:
    """Draw means over the seeds at each position, with error bars, and return their line."""
    means = [np.mean(values) for values in seeds]
    return ax.errorbar(x, means, _reach(seeds, within), marker="o", capsize=2.5, **look).lines[0]


def _reach(seeds: Iterable[Values], within: Range | None) -> np.ndarray:
    """Return how far the interval reaches below and above the mean at each position, 2 x positions."""
    return np.transpose([error_bar(values, within) for values in seeds])


def keep_last_legend(axes: Sequence[Axes]) -> None:
    """Remove the legends of panels in a row that have the same bars, except the last one's."""
    for ax in axes[:-1]:
        if (legend := ax.get_legend()) is not None:
            legend.remove()


def _seed_frames(content: Panel) -> list[pd.DataFrame]:
    """Return as many frames as all bars have seeds."""
    fewest = min(len(bar["ours"]) for group in content.values() for bar in group.values())
    return [_frame(content, partial(_seed_value, seed)) for seed in range(fewest)]


def _seed_value(seed: int, bar: BarValues) -> float:
    return float(np.array(bar["ours"], dtype=float)[seed])


def _frame(content: Panel, summary: Callable[[BarValues], float]) -> pd.DataFrame:
    """Return one row per group and one column per bar."""
    bars = {group: {name: summary(bar) for name, bar in content[group].items()} for group in content}
    return pd.DataFrame.from_dict(bars, orient="index", dtype=float)
