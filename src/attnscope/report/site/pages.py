"""Markdown pages as pages of the site: each keeps its path, so that relative links keep working."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from attnscope.errors import require
from attnscope.files import Malformed
from attnscope.report.text import MARK

MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
PAGES = (".md", ".py", "")  # suffixes of pages: Markdown, programs, folders of programs, files such as LICENSE
FENCE = "~" * 8
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)  # another address, or a place on the same page
RESULTS = Path("docs/results.md")  # has the surprises
SURPRISES = ("**What surprised us", "**What our controls")  # first words of a paragraph on a surprise or a confound


@dataclass(frozen=True)
class Page:
    """A page of the site, the files that it links to, and whether its tables were left to the pages of studies."""

    source: Path
    title: str
    body: str
    files: Sequence[Path]
    tables: bool

    @property
    def path(self) -> str:
        return self.source.with_suffix(".html").as_posix()


@dataclass(frozen=True)
class Surprise:
    """A paragraph on a surprise, as HTML, and its study."""

    study: str
    body: str


def pages_of(project: Path) -> list[Page]:
    """Return the pages of a project: README.md, those beside it and in docs/, and all pages that these link to."""
    require((project / "README.md").is_file(), f"a project has a README.md, but there is none in {project}")
    paths = [project / "README.md", *sorted((project / "docs").glob("*.md")), *sorted(project.glob("*.md"))]
    queue = [path.relative_to(project) for path in paths]
    pages: dict[Path, Page] = {}
    while queue:
        source = queue.pop(0)
        if source not in pages:
            pages[source] = load_page(project, source)
            queue += [path for path in pages[source].files if path.suffix in PAGES]
    return list(pages.values())


def load_page(project: Path, source: Path) -> Page:
    """Return one page."""
    text, mark, _ = text_of(project / source).partition(MARK)
    tokens = MARKDOWN.parse(text)
    headings = [inner.content for token, inner in pairwise(tokens) if token.type == "heading_open"]
    files = [_file(str(token.attrGet(name)), project, source) for token, name in _links(tokens)]
    return Page(source, headings[0] if headings else source.stem, html_of(text), files, bool(mark))


def text_of(path: Path) -> str:
    """Return a page as Markdown: a folder as its programs, other files as code blocks."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    shown = [f"## {file.name}\n\n{FENCE}\n{file.read_text(encoding='utf-8')}\n{FENCE}\n" for file in files]
    return "\n".join([f"# {path.name}\n", *shown] if path.is_dir() else shown)


def html_of(text: str, folder: str = "") -> str:
    """Return Markdown as HTML: headings have anchors, links lead to pages of the site, wide tables scroll.

    Args:
        text: Markdown; HTML in it is escaped.
        folder: Folder of the text, relative to the page that shows it.
    """
    tokens = MARKDOWN.parse(text)
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(tokens[number + 1].content))
    for token, name in _links(tokens):
        token.attrSet(name, folder + on_site(str(token.attrGet(name))))
    html: str = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
    scrolling = '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>'
    return html.replace("<table>", scrolling).replace("</table>", "</table></div>")


def on_site(link: str) -> str:
    """Return the target of a link on the site.

    >>> on_site("own-model.md#the-audit"), on_site("../examples/"), on_site("fig2.png")
    ('own-model.html#the-audit', '../examples.html', 'fig2.png')
    """
    path, mark, place = link.partition("#")
    page = PurePosixPath(path)
    return (page.with_suffix(".html").as_posix() if page.suffix in PAGES else path) + mark + place


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as code hosts name it.

    >>> anchor("aitken2021: `fig5a`, in short")
    'aitken2021-fig5a-in-short'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def _links(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    """Yield links and pictures that lead to files of the project, each with the attribute that has the path."""
    for token in (child for parent in tokens for child in parent.children or []):
        name = {"link_open": "href", "image": "src"}.get(token.type)
        if name and not ELSEWHERE.match(str(token.attrGet(name))):
            yield token, name


def _file(link: str, project: Path, source: Path) -> Path:
    """Return the file or folder that a link on a page leads to, relative to the project."""
    path = (project / source.parent / unquote(link.partition("#")[0])).resolve()
    if not path.exists() or project.resolve() not in path.parents:
        raise Malformed(f"{source} links to {link}, which is not there, or not in the project")
    return path.relative_to(project.resolve())


def surprises_of(project: Path) -> list[Surprise]:
    """Return the paragraphs of the results page on surprises and confounds, by study."""
    path = project / RESULTS
    text = path.read_text(encoding="utf-8").partition(MARK)[0] if path.exists() else ""
    return [Surprise(study, html_of(paragraph, f"{RESULTS.parent}/")) for study, paragraph in surprises_in(text)]


def surprises_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield each surprise with the study of the heading above; it ends at the next subject in bold, or heading.

    >>> list(surprises_in("## mine in short\\n\\n**What surprised us.**\\n\\n- It works.\\n\\n**Also.** No."))
    [('mine', '**What surprised us.**\\n\\n- It works.')]
    """
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        for paragraph in re.split(r"\n\n(?=\*\*|#)", section):
            if paragraph.startswith(SURPRISES):
                yield section.split()[0], paragraph.strip()
