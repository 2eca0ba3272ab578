"""Write the site: pages, studies and audits, in the layout of the project so that relative links keep working."""

from __future__ import annotations

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
from attnscope.report.html import HERE as REPORT
from attnscope.report.html import Draw, embed_figure, environment
from attnscope.report.site.gallery import GalleryStudy, draw_published, write_study
from attnscope.report.site.pages import PAGES, Page, pages_of, surprises_of
from attnscope.studies.result import Result

HERE = Path(__file__).parent
ALT = "Ours against the published numbers, one panel per study; the numbers are in the tables."
PLACES = {"surprises": "What surprised us", "audits": "Audits", "read": "Read on", "cite": "How to cite"}
AUDIT_PAGE = "audit.html"


@dataclass(frozen=True)
class ListedAudit:
    """An audit in the list: `source` is its page as `attnscope audit` wrote it."""

    source: Path
    answer: str
    headline: str

    @property
    def name(self) -> str:
        """The name of its folder, since a model may be known by the key of its run only."""
        return self.source.parent.name

    @property
    def page(self) -> str:
        return f"results/audits/{self.name}/{AUDIT_PAGE}"


@dataclass(frozen=True)
class Site:
    """A folder of pages, and the reader of templates."""

    out: Path
    templates: Environment

    def write(self, path: str, template: str, **content: object) -> None:
        page = self.templates.get_template(template).render(root=root_of(path), wording=wording, **content)
        write_atomically(self.out / path, page.encode())

    def copy(self, source: Path, path: str) -> None:
        write_atomically(self.out / path, source.read_bytes())

    def add_navigation(self, path: str) -> None:
        """Insert the site's navigation into a page that was written to stand alone."""
        navigation = self.templates.get_template("way.html.jinja").render(root=root_of(path))
        page = (self.out / path).read_text(encoding="utf-8")
        page = re.sub(r"<body[^>]*>", lambda body: f"{body[0]}\n{navigation}", page, count=1)
        write_atomically(self.out / path, page.encode())


def write_site(
    results: Sequence[Result],
    out: Path,
    audits: Path | None = None,
    project: Path | None = None,
    draw: Draw = Result.display_figure,
) -> Path:
    """Write the site and return its first page.

    Args:
        results: Findings of all studies.
        out: Folder to write to.
        audits: Folder with one folder per audit.
        project: Folder of README.md and docs/, which become pages.
        draw: Returns the figure of a result, or None for one without.
    """
    require(len(results) > 0, "there are no results to show")
    surprises = [] if project is None else surprises_of(project)
    listed = [] if audits is None else audits_in(audits)
    pages = [] if project is None else pages_of(project)
    site = Site(out, environment(HERE, REPORT))
    parts = {"surprises": surprises, "audits": listed, "read": pages}
    site.templates.globals["places"] = [(place, name) for place, name in PLACES.items() if parts.get(place, True)]
    _write_pages(site, pages, project or Path())
    studies = _write_studies(site, results, draw)
    for audit in listed:
        site.copy(audit.source, audit.page)
        site.add_navigation(audit.page)
    site.write("claims.html", "claims.html.jinja", studies=studies)
    figure = draw_published(studies)
    site.write("published.html", "published.html.jinja", studies=studies, picture=figure and embed_figure(figure, ALT))
    site.write(
        "index.html", "home.html.jinja", studies=studies, pages=pages, audits=listed, surprises=surprises,
        about=metadata.metadata("attnscope")["Summary"], version=attnscope.__version__,
        counts=wording.tally([claim for result in results for claim in result.claims]),
    )  # fmt: skip
    return out / "index.html"


def root_of(path: str) -> str:
    """Return the relative path from a page to the folder of the site.

    >>> root_of("results/aitken2021/report.html"), root_of("index.html")
    ('../../', '')
    """
    return "../" * path.count("/")


def audits_in(folder: Path) -> list[ListedAudit]:
    """Return the audits in the folders below, by name; the answer stands in the JSON beside each page, if any."""
    audits = []
    for page in sorted(folder.glob(f"*/{AUDIT_PAGE}")):
        beside = page.with_suffix(".json")
        verdict = Verdict.from_json((read_json(beside) if beside.exists() else {}).get("verdict") or {})
        audits.append(ListedAudit(page, verdict.label, verdict.headline))
    return audits


def _write_pages(site: Site, pages: Sequence[Page], project: Path) -> None:
    """Write the pages, and copy the pictures and other files that they link to."""
    for page in pages:
        site.write(page.path, "page.html.jinja", page=page)
        for file in page.files:
            if file.suffix not in PAGES:
                site.copy(project / file, file.as_posix())


def _write_studies(site: Site, results: Sequence[Result], draw: Draw) -> list[GalleryStudy]:
    names = dict.fromkeys(result.study for result in results)
    studies = [write_study(name, [r for r in results if r.study == name], draw, site.out) for name in names]
    for study in studies:
        site.add_navigation(study.page)
    return studies
