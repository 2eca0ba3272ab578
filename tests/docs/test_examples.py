"""Every Python example in the README and in docs/ runs unchanged."""

import re
from pathlib import Path

import pytest

from attnscope.models import ATTENTIONS

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_every_example_runs_unchanged(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    known = dict(ATTENTIONS)
    try:
        exec(compile(code, "example", "exec"), {"__name__": "example"})
    finally:
        ATTENTIONS.clear()
        ATTENTIONS.update(known)
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_have_targets(page):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
        if "://" not in target and not target.startswith("site:"):  # tests/docs/test_documentation_site.py
            assert (page.parent / target).exists(), target
