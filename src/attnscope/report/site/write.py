"""Write the site: pages, studies and audits, in the layout of the project so that relative links keep working."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from jinja2 import Environment

import attnscope
from attnscope.errors import require
from attnscope.files import read_json, write_atomically
from attnscope.report import wording
from attnscope.report.html import HERE as REPORT
from attnscope.report.html import Draw, embedded, environment
from attnscope.report.site.gallery import Studied, against, write_study
from attnscope.report.site.pages import PAGES, Page, pages_of, surprises_of
from attnscope.studies.result import Result

HERE = Path(__file__).parent
ALT = "Ours against the published numbers, a panel a study; the numbers are in the tables."
PLACES = {"surprises": "What surprised us", "audits": "Audits", "read": "Read on", "cite": "How to cite"}


@dataclass(frozen=True)
class Site:
    """A folder of pages, and what reads the templates."""

    out: Path
    templates: Environment

    def write(self, path: str, template: str, **content: object) -> None:
        page = self.templates.get_template(template).render(root=root_of(path), wording=wording, **content)
        write_atomically(self.out / path, page.encode())

    def copy(self, source: Path, path: str) -> None:
        write_atomically(self.out / path, source.read_bytes())

    def frame(self, path: str) -> None:
        """Put the way through the site above a page that was written to stand alone."""
        way = self.templates.get_template("way.html.jinja").render(root=root_of(path))
        page = (self.out / path).read_text(encoding="utf-8")
        framed = re.sub(r"<body[^>]*>", lambda body: f"{body[0]}\n{way}", page, count=1)
        write_atomically(self.out / path, framed.encode())


def write_site(
    results: Sequence[Result],
    out: Path,
    audits: Path | None = None,
    project: Path | None = None,
    draw: Draw = Result.display_figure,
) -> Path:
    """Write the pages and give the first; `audits` has a folder an audit, `project` has README.md and docs/."""
    require(len(results) > 0, "there are no results to show")
    surprises = [] if project is None else surprises_of(project)
    audited = [] if audits is None else audits_in(audits)
    pages = [] if project is None else pages_of(project)
    site = Site(out, templates(surprises=surprises, audits=audited, read=pages))
    _write_pages(site, pages, project or Path())
    studies = _write_studies(site, results, draw)
    _write_audits(site, audited)
    site.write("claims.html", "claims.html.jinja", studies=studies)
    figure = against(studies)
    site.write("published.html", "published.html.jinja", studies=studies, picture=figure and embedded(figure, ALT))
    site.write(
        "index.html", "home.html.jinja", studies=studies, pages=pages, audits=audited, surprises=surprises,
        about=metadata.metadata("attnscope")["Summary"], version=attnscope.__version__,
        counts=wording.tally([claim for result in results for claim in result.claims]),
    )  # fmt: skip
    return out / "index.html"


def root_of(path: str) -> str:
    """The way from a page up to the folder of the site.

    >>> root_of("results/aitken2021/report.html"), root_of("index.html")
    ('../../', '')
    """
    return "../" * path.count("/")


def templates(**parts: Sequence[object]) -> Environment:
    """What reads the templates, and knows those places on the first page that there is something to see at."""
    made = environment(HERE, REPORT)
    made.globals["places"] = [(place, name) for place, name in PLACES.items() if parts.get(place, True)]
    return made


def _write_pages(site: Site, pages: Sequence[Page], project: Path) -> None:
    """The pages in Markdown, and the pictures and other files that they link to."""
    for page in pages:
        site.write(page.path, "page.html.jinja", page=page)
        for file in page.files:
            if file.suffix not in PAGES:
                site.copy(project / file, file.as_posix())


def _write_studies(site: Site, results: Sequence[Result], draw: Draw) -> list[Studied]:
    names = dict.fromkeys(result.study for result in results)
    studies = [write_study(name, [r for r in results if r.study == name], draw, site.out) for name in names]
    for studied in studies:
        site.frame(studied.page)
    return studies


def _write_audits(site: Site, audited: Sequence[Audited]) -> None:
    for audit in audited:
        site.copy(audit.source, audit.page)
        site.frame(audit.page)


PAGE = "audit.html"


@dataclass(frozen=True)
class Audited:
    """An audit as it is listed: `source` is its page as `attnscope audit` wrote it."""

    source: Path
    answer: str
    headline: str

    @property
    def name(self) -> str:
        """That of its folder: a model may be known by the key of its run only."""
        return self.source.parent.name

    @property
    def page(self) -> str:
        return f"results/audits/{self.name}/{PAGE}"


def audits_in(folder: Path) -> list[Audited]:
    """The audits in the folders below, by name; the answer is read from the JSON beside each page, if there is one."""
    return [_audited(page) for page in sorted(folder.glob(f"*/{PAGE}"))]


def _audited(page: Path) -> Audited:
    beside = page.with_suffix(".json")
    content: dict[str, Any] = read_json(beside) if beside.exists() else {}
    verdict = content.get("verdict") or {}
    return Audited(page, verdict.get("answer") or "unclear", verdict.get("headline") or "")
