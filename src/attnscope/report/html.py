"""The report of studies as one HTML file: figures are embedded as SVG, with alternative texts."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope.errors import require
from attnscope.files import write_atomically
from attnscope.plots import svg
from attnscope.report import wording
from attnscope.studies.result import Result, labels_of

HERE = Path(__file__).parent
Draw = Callable[[Result], Figure | None]


@dataclass(frozen=True)
class Paper:
    """A paper that a study reproduces."""

    title: str
    citation: str


@dataclass(frozen=True)
class Picture:
    """A figure inside a page: its data URL, its alternative text, its natural width in pixels."""

    source: str
    alt: str
    width: int


@dataclass(frozen=True)
class Section:
    """A finding in a report."""

    result: Result
    picture: Picture | None

    @property
    def anchor(self) -> str:
        return f"{self.result.study}-{self.result.finding}"

    @property
    def quick(self) -> bool:
        return self.result.profile == "quick"

    @property
    def columns(self) -> list[str]:
        return list(labels_of(self.result.table[0])) if self.result.table else []


@dataclass(frozen=True)
class StudySections:
    """A paper and its findings in a report."""

    name: str
    paper: Paper
    sections: Sequence[Section]


def write_report(results: Sequence[Result], draw: Draw, path: Path) -> Path:
    """Write the report of these results to one HTML file and return its path.

    Args:
        results: Findings, of one study or of several.
        draw: Returns the figure of a result, or None for one without.
        path: A file that ends in .html.
    """
    path = Path(path)
    require(path.suffix in (".html", ".htm"), f"a report is written as .html or .md, not as {path.name}")
    require(len(results) > 0, "there are no results to report")
    studies = [
        StudySections(name, paper_of(name), [_section(result, draw) for result in results if result.study == name])
        for name in dict.fromkeys(result.study for result in results)
    ]
    page = environment(HERE).get_template("report.html.jinja").render(
        studies=studies, facts=_facts(results), wording=wording,
        title=studies[0].paper.title if len(studies) == 1 else f"{len(studies)} studies of attention",
        counts=wording.tally([claim for result in results for claim in result.claims]),
        quick=any(section.quick for study in studies for section in study.sections),
    )  # fmt: skip
    write_atomically(path, page.encode())
    return path


def environment(*folders: Path) -> Environment:
    """Return a reader of the templates in these folders, which escapes HTML in all texts."""
    return Environment(
        loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def _section(result: Result, draw: Draw) -> Section:
    figure = draw(result)
    if figure is None:
        return Section(result, None)
    panels = panel_texts(figure)
    parts = [f"Figure for {result.finding}: {result.title}.", panels and f"{panels}.", "The numbers are in the table."]
    return Section(result, embed_figure(figure, " ".join(filter(None, parts))))


def _facts(results: Sequence[Result]) -> dict[str, str]:
    """Return what all findings share; where they differ, each value once."""
    facts = {
        "Profile": [result.profile for result in results],
        "Seeds": [wording.seeds(result.seeds) for result in results],
        "Commit": [wording.commit(result.commit) for result in results],
        "Machine": [result.machine for result in results],
    }
    return {name: "; ".join(dict.fromkeys(values)) for name, values in facts.items()}


# Figures -------------------------------------------------------------------------------------------------------------


def embed_figure(figure: Figure, alt: str) -> Picture:
    """Return a figure as part of a page, with its alternative text; pyplot no longer holds the figure open."""
    drawing = svg(figure)
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close(figure)
    width = re.search(r'<svg[^>]*\bwidth="([\d.]+)pt"', drawing)  # 72 points are 96 CSS pixels
    pixels = round(float(width.group(1)) * 96 / 72) if width else 480
    return Picture("data:image/svg+xml;base64," + base64.b64encode(drawing.encode()).decode(), alt, pixels)


def panel_texts(figure: Figure) -> str:
    """Return what is plotted against what, panel by panel."""
    panels = [_panel_text(ax) for ax in figure.axes if ax.get_label() != "<colorbar>"]
    return "; ".join(panel for panel in panels if panel)


def _panel_text(ax: Axes) -> str:
    x, y, title = ax.get_xlabel(), ax.get_ylabel(), ax.get_title()
    against = f"{y} against {x}" if x and y else x or y
    return ": ".join(part for part in (title, against) if part)


# Papers --------------------------------------------------------------------------------------------------------------


def paper_of(study: str) -> Paper:
    """Return the paper of a study; of a study that is not ours, its name."""
    return PAPERS.get(study, Paper(study, ""))


PAPERS = {
    "aitken2021": Paper(
        "Understanding How Encoder-Decoder Architectures Attend",
        "Kyle Aitken, Vinay V. Ramasesh, Yuan Cao and Niru Maheswaranathan. Understanding How Encoder-Decoder "
        "Architectures Attend. Advances in Neural Information Processing Systems 34, 2021.",
    ),
    "baan2019": Paper(
        "On the Realization of Compositionality in Neural Networks",
        "Joris Baan, Jana Leible, Mitja Nikolaus, David Rau, Dennis Ulmer, Tim Baumgärtner, Dieuwke Hupkes and Elia "
        "Bruni. On the Realization of Compositionality in Neural Networks. Proceedings of BlackboxNLP, 2019.",
    ),
    "snell2021": Paper(
        "Approximating How Single Head Attention Learns",
        "Charlie Snell, Ruiqi Zhong, Dan Klein and Jacob Steinhardt. Approximating How Single Head Attention Learns. "
        "arXiv:2103.07601, 2021.",
    ),
    "tutek2020": Paper(
        "Staying True to Your Word: (How) Can Attention Become Explanation?",
        "Martin Tutek and Jan Šnajder. Staying True to Your Word: (How) Can Attention Become Explanation? Proceedings "
        "of the 5th Workshop on Representation Learning for NLP, pages 131–142, 2020.",
    ),
}
