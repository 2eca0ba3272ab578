"""Files about the release agree with the package: version, papers, commands in workflows."""

import tomllib
from pathlib import Path

import pytest

import attnscope
from attnscope.studies.naming import PAPERS

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent.parent
FORMS = sorted((ROOT / ".github").rglob("*.yml"))


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    newest = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert citation["version"] == project["version"] == newest.split()[1] == attnscope.__version__


def test_the_four_papers_are_cited_with_their_authors():
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert {each["title"] for each in references} == {paper.title for paper in PAPERS.values() if paper.citation}
    for each in references:
        (paper,) = [paper for paper in PAPERS.values() if paper.title == each["title"]]
        for author in each["authors"]:
            assert f"{author['given-names']} {author['family-names']}" in paper.citation
        assert str(each["year"]) in paper.citation


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_forms_and_workflows_are_well_formed(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.parent.name == "workflows":
        assert all(step.keys() & {"run", "uses"} for job in content["jobs"].values() for step in job["steps"])
    elif path.name != "config.yml":
        assert {"name", "description", "body"} <= content.keys()
        assert all(part["type"] in ("textarea", "input") and "label" in part["attributes"] for part in content["body"])
