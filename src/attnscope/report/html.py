"""The report of studies as one HTML file: figures are embedded, with alternative texts."""

from __future__ import annotations

import base64
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope.errors import require
from attnscope.files import write_atomically
from attnscope.plots import page_image, readable_width
from attnscope.report import wording
from attnscope.report.headlines import ALT as FOREST_ALT
from attnscope.report.headlines import draw_headlines
from attnscope.studies.naming import Paper, paper_of, plain, proper
from attnscope.studies.result import Result, labels_of
from attnscope.studies.summary import HeadlineVerdict, judge_headlines, substitute

HERE = Path(__file__).parent
Draw = Callable[[Result], Figure | Sequence[Figure] | None]
MAX_ROWS = 40  # of a table that is not folded
MAX_CLAIMS = 8  # of a list that is not folded


@dataclass(frozen=True)
class Picture:
    """A figure inside a page.

    Attributes:
        source: Its URL.
        alt: Its alternative text.
        width: Its natural width in CSS pixels.
        height: Its natural height; a page keeps that place free before the figure is loaded.
        min_width: The width below which its smallest text is illegible.
    """

    source: str
    alt: str
    width: int
    height: int
    min_width: int = 0


@dataclass(frozen=True)
class Section:
    """A finding in a report; `table_page` is the page of its table, where that is not in the report."""

    result: Result
    pictures: Sequence[Picture] = ()
    table_page: str | None = None

    @property
    def anchor(self) -> str:
        return f"{self.result.study}-{self.result.finding}"

    @property
    def quick(self) -> bool:
        return self.result.profile == "quick"

    @property
    def columns(self) -> list[str]:
        return list(labels_of(self.result.table[0])) if self.result.table else []

    @property
    def caption(self) -> str:
        """What to see in the figures; empty for a finding that is not of ours."""
        return captions().get(self.result.study, {}).get(self.result.finding, "")

    @property
    def claims_folded(self) -> bool:
        return len(self.result.claims) > MAX_CLAIMS

    @property
    def folded(self) -> bool:
        """Whether the table is long."""
        return len(self.result.table) > MAX_ROWS


@dataclass(frozen=True)
class StudySections:
    """A paper and its findings in a report."""

    name: str
    paper: Paper
    sections: Sequence[Section]


def write_report(results: Sequence[Result], draw: Draw, path: Path, embed: bool = True) -> Path:
    """Write the report of these results to one HTML file and return its path.

    Args:
        results: Findings, of one study or of several.
        draw: Returns the figure of a result, or None for one without.
        path: A file that ends in .html.
        embed: Whether figures are inside the file; else they are files beside it.
    """
    path = Path(path)
    folder = None if embed else path.parent
    require(path.suffix in (".html", ".htm"), f"a report is written as .html or .md, not as {path.name}")
    require(len(results) > 0, "there are no results to report")
    studies = [
        StudySections(
            name,
            paper_of(name),
            [_section(result, draw, folder) for result in results if result.study == name],
        )
        for name in dict.fromkeys(result.study for result in results)
    ]
    findings = {(result.study, result.finding) for result in results}
    headlines = [
        each
        for each in judge_headlines(results)
        if each.claims and findings >= {(each.headline.study, finding) for finding in each.headline.tests}
    ]
    forest = draw_headlines(headlines)
    templates = environment(HERE)
    for section in (section for study in studies for section in study.sections if section.table_page):
        page = templates.get_template("table.html.jinja").render(section=section, wording=wording, report=path.name)
        write_atomically(path.parent / str(section.table_page), page.encode())
    page = templates.get_template("report.html.jinja").render(
        headlines=headlines, forest=forest and embed_figure(forest, FOREST_ALT, folder and folder / "headlines"),
        studies=studies, facts=_facts(results), terms=terms(results, headlines), wording=wording, substitute=substitute,
        title=studies[0].paper.title if len(studies) == 1 else f"{len(studies)} studies of attention",
        counts=wording.tally([claim for result in results for claim in result.claims]),
        images="data:" if embed else "'self' file:",
        quick=any(section.quick for study in studies for section in study.sections),
    )  # fmt: skip
    write_atomically(path, page.encode())
    return path


def environment(*folders: Path) -> Environment:
    """Return the Jinja environment of the templates in these folders; HTML in all texts is escaped."""
    templates = Environment(
        loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    templates.filters |= {"proper": proper, "typeset": _typeset}
    return templates


def _typeset(text: str) -> Markup:
    """Return a sentence with minus signs, and with the superscripts of symbols such as β^uf."""
    return Markup(re.sub(r"(?<=[α-ω])\^(\w+)", r"<sup>\1</sup>", str(escape(wording.typeset(text)))))


def _section(result: Result, draw: Draw, folder: Path | None) -> Section:
    figures = as_figures(draw(result))
    names = [result.finding, *(f"{result.finding}-{number}" for number in range(2, len(figures) + 1))]
    pictures = [
        embed_figure(figure, _alternative_text(result, figure), folder and folder / name)
        for figure, name in zip(figures, names, strict=False)
    ]
    long = folder is not None and len(result.table) > MAX_ROWS
    return Section(result, pictures, f"{result.finding}-table.html" if long else None)


def as_figures(figures: Figure | Sequence[Figure] | None) -> Sequence[Figure]:
    """Return what was drawn as a list."""
    return [] if figures is None else figures if isinstance(figures, Sequence) else [figures]


def _alternative_text(result: Result, figure: Figure) -> str:
    panels = panel_texts(figure)
    parts = [f"Figure for {result.finding}: {result.title}.", panels and f"{panels}.", "The numbers are in the table."]
    return " ".join(filter(None, parts))


@cache
def captions() -> dict[str, dict[str, str]]:
    """Return what to see in the figures, by study and finding."""
    return tomllib.loads(files("attnscope.studies").joinpath("captions.toml").read_text(encoding="utf-8"))


def terms(results: Sequence[Result], headlines: Sequence[HeadlineVerdict] = ()) -> dict[str, str]:
    """Return the abbreviations and symbols that occur in these results and headlines, with what they mean."""
    meanings = tomllib.loads(files("attnscope.studies").joinpath("terms.toml").read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for result in results:
        labels = [label for line in result.table for label in labels_of(line).values()]
        claims = [f"{claim.text} {claim.evidence}" for claim in result.claims]
        quotes = [each.headline.quote for each in headlines if each.headline.study == result.study]
        text = proper("\n".join([result.title, *labels, *claims, *result.notes, Section(result).caption, *quotes]))
        for term, meaning in meanings.get(result.study, {}).items():
            name, call, _ = term.partition("(")  # of A(u, v), any A(
            if re.search(rf"(?<!\w){re.escape(name)}" + (r"\(" if call else r"(?!\w)"), text):
                found[term] = meaning
    return dict(sorted(found.items(), key=lambda item: item[0].casefold()))


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


def embed_figure(figure: Figure, alt: str, path: Path | None = None) -> Picture:
    """Return a figure as part of a page; pyplot no longer holds the figure open.

    Args:
        figure: The figure.
        alt: Its alternative text.
        path: A file beside the page, to which the suffix is added; None: the figure is inside the page.
    """
    suffix, data, width = page_image(figure)
    wide, high = figure.get_tightbbox().size
    height, least = round(width * high / wide), readable_width(figure, width)
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close(figure)
    if path is None:
        kind = {"svg": "svg+xml"}.get(suffix, suffix)
        return Picture(f"data:image/{kind};base64,{base64.b64encode(data).decode()}", alt, width, height, least)
    file = path.with_name(f"{path.name}.{suffix}")
    write_atomically(file, data)
    return Picture(quote(file.name), alt, width, height, least)


def panel_texts(figure: Figure) -> str:
    """Return what is plotted against what, panel by panel."""
    panels = [_panel_text(ax) for ax in figure.axes if ax.get_label() != "<colorbar>"]
    return plain("; ".join(panel for panel in panels if panel))


def _panel_text(ax: Axes) -> str:
    x, y, title = ax.get_xlabel(), ax.get_ylabel(), ax.get_title()
    against = f"{y} against {x}" if x and y else x or y
    return ": ".join(part for part in (title, against) if part)
