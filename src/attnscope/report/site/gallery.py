"""What does a finding look like at a glance? A small picture that leads to the finding on the page of its study."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from attnscope.files import write_atomically
from attnscope.plots.style import RC
from attnscope.report import wording
from attnscope.report.html import Draw, Section, write_report
from attnscope.report.papers import PAPERS, Paper
from attnscope.report.picture import drawn_in
from attnscope.studies import study
from attnscope.studies.result import Result, Row, labels_of

HEIGHT = 400  # pixels of a thumbnail: twice what is shown, for fine screens
NARROWEST, WIDEST = 1.3, 7.0  # times as wide as high; what is narrower or wider has white beside it,
TALL = 0.8  # and of what is narrower than this the upper part is shown, for the whole would be too small to see


@dataclass(frozen=True)
class Thumbnail:
    path: str
    alt: str
    aspect: float
    fit: str  # as CSS names it


@dataclass(frozen=True)
class Shown:
    """A finding in the gallery."""

    result: Result
    thumbnail: Thumbnail | None

    @property
    def page(self) -> str:
        return f"{page_of(self.result.study)}#{Section(self.result, None).anchor}"

    @property
    def counts(self) -> dict[str, int]:
        return wording.tally(self.result.claims)

    @property
    def published(self) -> list[tuple[str, Row]]:
        """What each number is about, and the number beside the paper's, where the paper states one."""
        stated = [line for line in self.result.table if line["published"] is not None or line.get("published_text")]
        return [(" · ".join(labels_of(line).values()), line) for line in stated]


@dataclass(frozen=True)
class Studied:
    """A paper, its page, and its findings in the gallery."""

    name: str
    paper: Paper
    findings: Sequence[Shown]
    missing: Sequence[str]  # findings that have no result yet

    @property
    def page(self) -> str:
        return page_of(self.name)

    @property
    def counts(self) -> dict[str, int]:
        return wording.tally([claim for shown in self.findings for claim in shown.result.claims])


def page_of(name: str) -> str:
    """Where the page of a study lies on the site: where its report lies in the project."""
    return f"results/{name}/report.html"


def write_study(name: str, results: Sequence[Result], draw: Draw, out: Path) -> Studied:
    """Write the page of a study and its thumbnails; every figure is drawn once."""
    thumbnails: dict[str, Thumbnail] = {}

    def draw_both(result: Result) -> Figure | None:
        figure = draw(result)
        if figure is not None:
            thumbnails[result.finding] = write_thumbnail(figure, f"results/{name}/{result.finding}.png", out)
        return figure

    write_report(results, draw_both, out / page_of(name))
    shown = [Shown(result, thumbnails.get(result.finding)) for result in results]
    known = {result.finding for result in results}
    missing = [finding.name for finding in study(name).findings if finding.name not in known]
    return Studied(name, PAPERS.get(name, Paper(name, "")), shown, missing)


def write_thumbnail(figure: Figure, path: str, out: Path) -> Thumbnail:
    drawing = small(figure)
    write_atomically(out / path, drawing)
    width, height = struct.unpack(">II", drawing[16:24])  # the head of a PNG file
    aspect = width / height
    shown = round(min(max(aspect, NARROWEST), WIDEST), 3)
    return Thumbnail(path, drawn_in(figure), shown, "cover" if aspect < TALL else "contain")


def small(figure: Figure) -> bytes:
    """The figure as PNG: as many dots as are shown of it, and no date."""
    width, height = figure.get_size_inches()
    stream = io.BytesIO()
    with mpl.rc_context(RC):
        figure.savefig(stream, format="png", dpi=HEIGHT / min(width, height), metadata={"Software": None},
                       bbox_inches="tight", pad_inches=0.05)  # fmt: skip
    return stream.getvalue()
