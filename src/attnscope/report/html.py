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
class Section:
    """A finding as it is shown."""

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
class Study:
    """A paper and the findings of it that were measured again."""

    name: str
    paper: Paper
    sections: Sequence[Section]


def write_report(results: Sequence[Result], draw: Draw, path: Path) -> Path:
    """Write the report of these results to one HTML file; `draw` gives the figure of a result, or None."""
    require(len(results) > 0, "there are no results to report")
    studies = [_study(name, results, draw) for name in dict.fromkeys(result.study for result in results)]
    page = environment(HERE).get_template("report.html.jinja").render(
        studies=studies, title=_title(studies), facts=_facts(results), wording=wording,
        counts=wording.tally([claim for result in results for claim in result.claims]),
        quick=any(section.quick for study in studies for section in study.sections),
    )  # fmt: skip
    write_atomically(Path(path), page.encode())
    return Path(path)


def environment(*folders: Path) -> Environment:
    """What reads the templates in these folders: it shows every word as it is, whatever brackets it holds."""
    return Environment(
        loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def _study(name: str, results: Sequence[Result], draw: Draw) -> Study:
    sections = [_section(result, draw(result)) for result in results if result.study == name]
    return Study(name, PAPERS.get(name, Paper(name, "")), sections)


def _section(result: Result, figure: Figure | None) -> Section:
    return Section(result, None if figure is None else picture(figure, result))


def _title(studies: Sequence[Study]) -> str:
    return studies[0].paper.title if len(studies) == 1 else f"{len(studies)} studies of attention"


def _facts(results: Sequence[Result]) -> dict[str, str]:
    """What all findings share; where they differ, each value once."""
    facts = {
        "Profile": [result.profile for result in results],
        "Seeds": [wording.seeds(result.seeds) for result in results],
        "Commit": [wording.commit(result.commit) for result in results],
        "Machine": [result.machine for result in results],
    }
    return {name: "; ".join(dict.fromkeys(values)) for name, values in facts.items()}


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


@dataclass(frozen=True)
class Paper:
    title: str
    citation: str


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
