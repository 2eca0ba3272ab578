"""Write the site: the gallery, claims, published numbers, and the pages of studies, audits and explorers."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from jinja2 import Environment

import attnscope
from attnscope.errors import require
from attnscope.faithfulness.records import Verdict
from attnscope.files import read_json, write_atomically
from attnscope.report import wording
from attnscope.report.headlines import ALT as FOREST_ALT
from attnscope.report.headlines import draw_headlines
from attnscope.report.html import HERE as REPORT
from attnscope.report.html import Draw, embed_figure, environment
from attnscope.report.site.gallery import GalleryStudy, draw_published, write_study
from attnscope.studies.naming import audit_name
from attnscope.studies.result import Result
from attnscope.studies.summary import count, judge_headlines

HERE = Path(__file__).parent
ALT = "Ours against the published numbers, one panel per study; the numbers are in the tables."
PLACES = {"explorers": "Explorers", "audits": "Audits", "cite": "How to cite"}
AUDIT_PAGE = "audit.html"
CALIBRATION_PAGE = "calibration/calibration.html"


@dataclass(frozen=True)
class ListedAudit:
    """An audit in the list: `source` is its page as `attnscope audit` wrote it."""

    source: Path
    answer: str
    headline: str

    @property
    def name(self) -> str:
        return audit_name(self.source.parent).model

    @property
    def page(self) -> str:
        return f"audits/{self.source.parent.name}/{AUDIT_PAGE}"


@dataclass(frozen=True)
class ListedExplorer:
    """A static explorer in the list: `source` is its page."""

    source: Path

    @property
    def title(self) -> str:
        match = re.search(r"<title>(.*?)</title>", self.source.read_text(encoding="utf-8"))
        return html.unescape(match[1]) if match else self.source.stem

    @property
    def page(self) -> str:
        return f"explorers/{self.source.name}"


@dataclass(frozen=True)
class Site:
    """A folder of pages, and the environment of their templates."""

    out: Path
    templates: Environment

    def write(self, path: str, template: str, **content: object) -> None:
        page = self.templates.get_template(template).render(root=root_of(path), wording=wording, **content)
        write_atomically(self.out / path, page.encode())

    def add_navigation(self, path: str) -> None:
        """Insert the site's navigation into a page that was written to stand alone."""
        navigation = self.templates.get_template("way.html.jinja").render(root=root_of(path))
        page = (self.out / path).read_text(encoding="utf-8")
        if navigation in page:
            return
        page = re.sub(r"<body[^>]*>", lambda body: f"{body[0]}\n{navigation}", page, count=1)
        write_atomically(self.out / path, page.encode())


def write_site(
    results: Sequence[Result],
    out: Path,
    audits: Path | None = None,
    home: str | None = None,
    draw: Draw = Result.figures,
) -> Path:
    """Write the site and return its first page.

    Args:
        results: Findings of all studies.
        out: Folder to write to.
        audits: Folder with one folder per audit; `explorers` and `calibration` lie beside it.
        home: Address of the documentation, relative to `out`, which every page links to; None: no link.
        draw: Returns the figure of a result, or None for one without.
    """
    require(len(results) > 0, "there are no results to show")
    audit_pages = [] if audits is None else audits_in(audits)
    explorers = [] if audits is None else list(map(ListedExplorer, sorted(audits.parent.glob("explorers/*.html"))))
    calibration = audits is not None and (audits.parent / CALIBRATION_PAGE).exists()
    site = Site(out, environment(HERE, REPORT))
    parts = {"explorers": explorers, "audits": audit_pages}
    site.templates.globals["home"] = home
    site.templates.globals["places"] = [(place, name) for place, name in PLACES.items() if parts.get(place, True)]
    studies = _write_studies(site, results, draw)
    pages = [*((one.source, one.page) for one in audit_pages), *((one.source, one.page) for one in explorers)]
    if audits is not None and calibration:
        pages.append((audits.parent / CALIBRATION_PAGE, CALIBRATION_PAGE))
    for source, path in pages:
        write_atomically(out / path, source.read_bytes())
        site.add_navigation(path)
    site.write("claims.html", "claims.html.jinja", studies=studies)
    figure, headlines = draw_published(studies), [each for each in judge_headlines(results) if each.claims]
    forest = draw_headlines(headlines)
    site.write("published.html", "published.html.jinja", studies=studies, picture=figure and embed_figure(figure, ALT))
    site.write(
        "index.html", "home.html.jinja", studies=studies, audits=audit_pages, explorers=explorers,
        calibration=calibration and CALIBRATION_PAGE,
        about=metadata.metadata("attnscope")["Summary"], version=attnscope.__version__,
        counts=wording.tally([claim for result in results for claim in result.claims]), ranks=count(results),
        headlines=headlines, forest=forest and embed_figure(forest, FOREST_ALT),
    )  # fmt: skip
    return out / "index.html"


def root_of(path: str) -> str:
    """Return the relative path from a page to the folder of the site.

    >>> root_of("aitken2021/report.html"), root_of("index.html")
    ('../', '')
    """
    return "../" * path.count("/")


def audits_in(folder: Path) -> list[ListedAudit]:
    """Return the audits in the folders below, by name; the answer stands in the JSON beside each page, if any."""
    audits = []
    for page in sorted(folder.glob(f"*/{AUDIT_PAGE}")):
        beside = page.with_suffix(".json")
        verdict = Verdict.from_json((read_json(beside) if beside.exists() else {}).get("verdict") or {})
        audits.append(ListedAudit(page, verdict.answer, verdict.headline))
    return audits


def _write_studies(site: Site, results: Sequence[Result], draw: Draw) -> list[GalleryStudy]:
    names = dict.fromkeys(result.study for result in results)
    studies = [write_study(name, [r for r in results if r.study == name], draw, site.out) for name in names]
    for study in studies:
        for page in sorted((site.out / study.page).parent.glob("*.html")):
            site.add_navigation(page.relative_to(site.out).as_posix())
    return studies
