"""The documentation builds without a warning, its links have targets, and its pages load nothing from other hosts."""

import functools
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from attnscope.display import Figure
from attnscope.report.site import write_site
from attnscope.studies.result import Result, load_results

pytest.importorskip("myst_nb", reason="needs the extra docs")
ROOT = Path(__file__).parent.parent.parent
PARTS = [
    "docs",
    "notebooks",
    "benchmarks",
    "examples",
    "results",
    *(path.name for path in ROOT.glob("*.md")),
    "LICENSE",
]
MAX_BYTES = 1_000_000  # of one page
SCREENS = {"wide": (1300, "light"), "narrow": (390, "dark")}
RULES = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The anchors of a page, the links to follow, and what is loaded when it is opened."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag != "a":
            self.loaded += [found[name] for name in ("src", "href") if name in found]

    handle_startendtag = handle_starttag


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, with notebooks that were not run (tests/notebooks does) and one figure per study (tests/report)."""
    project, out = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("site")
    for name in PARTS:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, project / name)
    run = functools.partial(subprocess.run, cwd=project, capture_output=True, text=True)
    scripts = [str(path) for path in sorted((project / "notebooks").glob("*.py"))]
    language = '{"language_info": {"name": "python", "pygments_lexer": "python"}}'  # which running them would add
    done = run([sys.executable, "-m", "jupytext", "--quiet", "--to", "ipynb", "--update-metadata", language, *scripts])
    assert done.returncode == 0, done.stderr
    done = run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(out)])
    assert done.returncode == 0, done.stderr
    results = project / "results"
    write_site(load_results(results), out / "results", results / "audits", "../docs/index.html", first_figures)
    return out


def first_figures(result: Result) -> list[Figure]:
    return result.figures() if result.finding in ("fig5a", "table5-6", "fig4", "ablation") else []


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


@pytest.mark.slow
def test_every_link_of_the_site_leads_to_a_file_and_an_anchor(site, pages):
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            anchors = pages[target].anchors if target in pages else set()
            scripted = target.suffix == ".html" and "explorers" in target.parts  # an explorer reads its state there
            if not target.is_file() or (parts.fragment and parts.fragment not in anchors and not scripted):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert len(pages) > 40


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site, pages):
    for path, page in pages.items():
        assert [link for link in page.loaded if urlsplit(link).netloc] == [], path
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()[^;)]*//[^;)]*", sheet.read_text(encoding="utf-8")) == [], sheet


@pytest.mark.slow
def test_every_page_is_small(site, pages):
    sizes = {path.relative_to(site): path.stat().st_size for path in pages}
    assert {path: size for path, size in sizes.items() if size > MAX_BYTES} == {}


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_fits_the_screen_and_is_accessible(site, pages, screen, browser):
    width, scheme = SCREENS[screen]
    found: dict[str, list[str]] = {}
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    page.on("pageerror", lambda error: found.setdefault(page.url, []).append(f"page error: {error}"))
    for path in pages:
        if path not in (site / "index.html", site / "search.html"):  # a redirection, and a page of Sphinx itself
            page.goto(path.as_uri())
            if problems := page.evaluate(RULES):
                found.setdefault(page.url, []).extend(problems)
    assert found == {}


def test_no_line_of_a_page_is_read_as_a_comment_and_no_block_begins_too_far_in():
    for path in [*ROOT.glob("*.md"), *ROOT.glob("[!.]*/**/*.md")]:
        outside = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^ *%.*", outside, flags=re.MULTILINE) == [], path  # Sphinx would leave the line out
        assert re.findall(r"^\n {8}\S.*\n {4}\S.*", outside, flags=re.MULTILINE) == [], path


@pytest.mark.slow
def test_notebooks_can_be_downloaded(site):
    scripts = {path.stem for path in (ROOT / "notebooks").glob("*.py")}
    assert {path.stem for path in (site / "notebooks").glob("*.ipynb")} == scripts
