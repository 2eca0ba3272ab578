"""Configuration of the documentation site: `make site` runs Sphinx on the project's folder with this file.

Pages keep their places in the project, so that their links work on the site as they do in a checkout.
"""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

import attnscope

project = "attnscope"
author = "The attnscope authors"
version = release = attnscope.__version__

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "notebooks/*", "benchmarks/*.md"]
exclude_patterns = [".*", "site", "runs", "demo", "src", "tests", "results", "notebooks/*.py"]
templates_path = ["_templates"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_heading_anchors = 4  # links such as own-model.md#the-audit lead to headings, as on code hosts
myst_url_schemes = {"http": None, "https": None, "mailto": None, "site": "{{path}}"}
nb_execution_mode = "off"  # notebooks have been run: `make notebooks`
highlight_language = "text"  # of indented blocks, which hold commands and Python alike

default_role = "code"  # of `names` in docstrings
napoleon_attr_annotations = False  # shapes stand in the texts
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # types stand in the source; `Args` say what is meant
maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"attnscope {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_additional_pages = {"index": "redirect.html"}

ROOT = Path(__file__).parent.parent
RESULTS = re.compile(r"\]\(((?:\.\./)*results/[^)]*\.html)")


def prepare(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to results lead to the gallery, and offer notebooks as files."""
    source[0] = RESULTS.sub(r"](site:\1", source[0])
    if docname == "notebooks/README":
        files = [f"[{path.name}](site:{path.name})" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
        source[0] += f"\nAs Jupyter notebooks, with output: {', '.join(files)}.\n"


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Copy the notebooks beside their pages."""
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(path, app.outdir / "notebooks")


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare)
    app.connect("build-finished", finish)
