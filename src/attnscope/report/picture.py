"""How does a figure become part of a page, also for those who cannot see it?"""

from __future__ import annotations

import base64
import re
import sys
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope.plots import svg
from attnscope.studies.result import Result


@dataclass(frozen=True)
class Picture:
    """A figure inside the page: its data, what it shows in words, its natural width in pixels."""

    source: str
    alt: str
    width: int


def picture(figure: Figure, result: Result) -> Picture:
    return embedded(figure, alt(figure, result))


def embedded(figure: Figure, said: str) -> Picture:
    """A figure, and what it shows in words; the figure is closed."""
    drawing = svg(figure)
    made = Picture("data:image/svg+xml;base64," + base64.b64encode(drawing.encode()).decode(), said, width(drawing))
    _close(figure)
    return made


def alt(figure: Figure, result: Result) -> str:
    """What the figure shows: its finding, and what is drawn against what in each panel."""
    drawn = drawn_in(figure)
    return (
        f"Figure for {result.finding}: {result.title}."
        + (f" {drawn}." if drawn else "")
        + " The numbers are in the table."
    )


def drawn_in(figure: Figure) -> str:
    """What is drawn against what, panel by panel."""
    panels = [_panel(ax) for ax in figure.axes if ax.get_label() != "<colorbar>"]
    return "; ".join(panel for panel in panels if panel)


def width(drawing: str) -> int:
    """In CSS pixels, of which there are 96 where there are 72 points."""
    found = re.search(r'<svg[^>]*\bwidth="([\d.]+)pt"', drawing)
    return round(float(found.group(1)) * 96 / 72) if found else 480


def _panel(ax: Axes) -> str:
    x, y, title = ax.get_xlabel(), ax.get_ylabel(), ax.get_title()
    against = f"{y} against {x}" if x and y else x or y
    return ": ".join(part for part in (title, against) if part)


def _close(figure: Figure) -> None:
    """Let go of a figure that pyplot holds open, if pyplot was ever loaded."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)
