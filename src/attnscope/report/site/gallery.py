"""The gallery of a site: thumbnails that link to findings, and our numbers plotted against the published ones."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.errors import BadSetting
from attnscope.files import write_atomically
from attnscope.plots.style import INK, RC, WORDS, axes, name_axes
from attnscope.report import wording
from attnscope.report.html import Draw, Section, as_figures, panel_texts, write_report
from attnscope.studies import study
from attnscope.studies.naming import Paper, paper_of
from attnscope.studies.result import Result, Row, labels_of

HEIGHT = 400  # pixels of a thumbnail: twice its size on the page, for fine screens
MIN_ASPECT, MAX_ASPECT = 1.3, 7.0  # width over height; narrower or wider figures have white beside them
TALL = 0.8  # of figures narrower than this the upper part is shown, since the whole would be too small to see


@dataclass(frozen=True)
class Thumbnail:
    """A small PNG of a figure: its path, alternative text, width over height, and CSS `object-fit`."""

    path: str
    alt: str
    aspect: float
    fit: str


@dataclass(frozen=True)
class GalleryFinding:
    """A finding in the gallery."""

    result: Result
    thumbnail: Thumbnail | None

    @property
    def page(self) -> str:
        return f"{page_of(self.result.study)}#{Section(self.result).anchor}"

    @property
    def counts(self) -> dict[str, int]:
        return wording.tally(self.result.claims)

    @property
    def published(self) -> list[tuple[str, Row]]:
        """The rows with a published number, each with its labels as text."""
        rows = [line for line in self.result.table if line["published"] is not None or line.get("published_text")]
        return [(" · ".join(labels_of(line).values()), line) for line in rows]


@dataclass(frozen=True)
class GalleryStudy:
    """A paper, its page, its findings in the gallery, and those without a result."""

    name: str
    paper: Paper
    findings: Sequence[GalleryFinding]
    missing: Sequence[str]

    @property
    def page(self) -> str:
        return page_of(self.name)

    @property
    def counts(self) -> dict[str, int]:
        return wording.tally([claim for finding in self.findings for claim in finding.result.claims])


def page_of(name: str) -> str:
    """Return the path of a study's page on the site."""
    return f"{name}/report.html"


def write_study(name: str, results: Sequence[Result], draw: Draw, out: Path) -> GalleryStudy:
    """Write the page of a study and its thumbnails; every figure is drawn once."""
    thumbnails: dict[str, Thumbnail] = {}

    def draw_both(result: Result) -> Sequence[Figure]:
        figures = as_figures(draw(result))
        if figures:
            thumbnails[result.finding] = _write_thumbnail(figures[0], f"{name}/{result.finding}.png", out)
        return figures

    write_report(results, draw_both, out / page_of(name), embed=False)
    findings = [GalleryFinding(result, thumbnails.get(result.finding)) for result in results]
    try:
        names = [finding.name for finding in study(name).findings]
    except BadSetting:  # a study that is not on this machine
        names = []
    missing = [finding for finding in names if finding not in {result.finding for result in results}]
    return GalleryStudy(name, paper_of(name), findings, missing)


def _write_thumbnail(figure: Figure, path: str, out: Path) -> Thumbnail:
    stream, shorter = io.BytesIO(), min(figure.get_size_inches())
    with mpl.rc_context(RC):
        figure.savefig(stream, format="png", dpi=HEIGHT / shorter, metadata={"Software": None},
                       bbox_inches="tight", pad_inches=0.05)  # fmt: skip
    write_atomically(out / path, stream.getvalue())
    width, height = struct.unpack(">II", stream.getvalue()[16:24])  # the head of a PNG file
    aspect = round(min(max(width / height, MIN_ASPECT), MAX_ASPECT), 3)
    return Thumbnail(path, panel_texts(figure), aspect, "cover" if width / height < TALL else "contain")


def draw_published(studies: Sequence[GalleryStudy]) -> Figure | None:
    """Return our numbers against the published ones, one panel per study; numbers at or below zero are left out."""
    pairs = {name: numbers for name, numbers in ((study.name, _pairs(study)) for study in studies) if numbers}
    if not pairs:
        return None
    with plots.style():
        columns = min(len(pairs), 2)  # side by side with text that is legible on a page of 60 rem
        figure, panels = plots.panels(math.ceil(len(pairs) / columns), columns, size=(4.4, 4.4))
        for ax in panels[len(pairs) :]:
            ax.remove()
        for ax, (name, numbers) in zip(panels, pairs.items(), strict=False):
            ends = [end(number for pair in numbers for number in pair) for end in (min, max)]
            axes(ax).plot(ends, ends, color=INK, linewidth=0.8)
            ax.plot(*zip(*numbers, strict=True), "o", color=WORDS[0], alpha=0.45, markersize=4, markeredgewidth=0)
            ax.set(xscale="log", yscale="log", aspect="equal", title=f"{name}, {len(numbers)} numbers")
            name_axes(ax, "published", "ours")
    return figure


def _pairs(study: GalleryStudy) -> list[tuple[float, float]]:
    """Return published numbers and ours, where both are positive."""
    lines = [line for finding in study.findings for _, line in finding.published]
    pairs = [(line["published"], line["mean"]) for line in lines if None not in (line["published"], line["mean"])]
    return [pair for pair in pairs if min(pair) > 0]
