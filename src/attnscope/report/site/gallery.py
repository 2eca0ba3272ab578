"""The gallery of a site: thumbnails that link to findings, and our numbers plotted against the published ones."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.files import write_atomically
from attnscope.plots.style import INK, RC, WORDS, axes, name_axes
from attnscope.report import wording
from attnscope.report.html import PAPERS, Draw, Paper, Section, drawn_in, write_report
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


Pair = tuple[float, float]  # published and ours


def against(studies: Sequence[Studied]) -> Figure | None:
    """A panel a study that has published numbers; numbers below or at zero have no place on these scales."""
    pairs = {study.name: pairs_of(study) for study in studies}
    pairs = {name: found for name, found in pairs.items() if found}
    if not pairs:
        return None
    with plots.style():
        figure, empty = plots.panels(1, len(pairs), size=(3.6, 3.6))
        for ax, (name, found) in zip(empty, pairs.items(), strict=True):
            _draw_pairs(ax, name, found)
    return figure


def pairs_of(study: Studied) -> list[Pair]:
    lines = [line for finding in study.findings for _, line in finding.published]
    pairs = [(line["published"], line["mean"]) for line in lines if None not in (line["published"], line["mean"])]
    return [pair for pair in pairs if min(pair) > 0]


def _draw_pairs(ax: Axes, name: str, pairs: Sequence[Pair]) -> None:
    ends = [end(number for pair in pairs for number in pair) for end in (min, max)]
    axes(ax).plot(ends, ends, color=INK, linewidth=0.8)
    ax.plot(*zip(*pairs, strict=True), "o", color=WORDS[0], alpha=0.45, markersize=4, markeredgewidth=0)
    ax.set(xscale="log", yscale="log", aspect="equal", title=f"{name}, {len(pairs)} numbers")
    name_axes(ax, "published", "ours")
