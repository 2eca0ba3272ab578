"""The site is a folder of linked pages that load nothing and agree with their sources."""

import json
import os
from urllib.parse import unquote, urlsplit

import pytest
from typer.testing import CliRunner

from attnscope.cli import app
from attnscope.errors import BadSetting
from attnscope.report.html import embed_figure
from attnscope.report.site import write_site
from attnscope.report.site.gallery import GalleryFinding, GalleryStudy, draw_published, write_study
from attnscope.studies import study
from attnscope.studies.naming import paper_of
from attnscope.studies.result import row
from report.conftest import fake
from report.test_html import Page, draw, words


class Lenient(Page):
    """A page with form fields, and with tags that end themselves."""

    def handle_starttag(self, tag, attrs):
        super().handle_starttag(tag, attrs)
        if tag == "input":
            self.open.pop()

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    audit = root / "results" / "audits" / "bert"
    audit.mkdir(parents=True)
    (audit / "audit.html").write_text("<!DOCTYPE html><html><head></head><body><h1>No</h1></body></html>")
    verdict = {"answer": "no", "headline": "Its attention may not be shown as a reason."}
    (audit / "audit.json").write_text(json.dumps({"verdict": verdict}))
    (audit / "name.json").write_text(json.dumps({"model": "BERT, fine-tuned", "texts": "SST"}))
    (root / "results" / "explorers").mkdir()
    (root / "results" / "explorers" / "one.html").write_text("<title>Edit &amp; see</title><body>a page</body>")
    (root / "results" / "calibration").mkdir()
    (root / "results" / "calibration" / "calibration.html").write_text("<body><h1>Calibration</h1></body>")
    return root


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("the documentation")
    return folder / "results"


@pytest.fixture(scope="module")
def site(project, out):
    """All pages by their names."""
    results = [fake("fig5a"), fake("fig5b", profile="paper"), fake("table2", study="snell2021")]
    assert write_site(results, out, project / "results" / "audits", "../index.html", draw) == out / "index.html"
    return {path.relative_to(out).as_posix(): Lenient(path.read_text()) for path in sorted(out.rglob("*.html"))}


def test_the_site_has_the_layout_of_the_folder_of_results(site):
    assert set(site) == {
        "index.html", "claims.html", "published.html", "aitken2021/report.html", "snell2021/report.html",
        "audits/bert/audit.html", "explorers/one.html", "calibration/calibration.html",
    }  # fmt: skip


def test_every_link_has_a_target_and_every_page_links_to_the_gallery_and_the_documentation(site, out):
    for name, page in site.items():
        targets = [link["href"] for link in page.tags("a")] + [image["src"] for image in page.tags("img")]
        homes = {(out / "index.html").resolve(), (out.parent / "index.html").resolve()}
        assert homes <= {(out / name).parent.joinpath(urlsplit(target).path).resolve() for target in targets}
        for target in targets:
            parts = urlsplit(target)
            if not parts.scheme:
                path = (out / name).parent.joinpath(unquote(parts.path)).resolve() if parts.path else out / name
                assert path.is_file(), (name, target)
                other = site.get(os.path.relpath(path, out.resolve()))
                anchors = {attributes.get("id") for _, attributes in other.found} if other else set()
                assert not parts.fragment or parts.fragment in anchors, (name, target)


def test_no_page_loads_anything_or_runs_a_script(site):
    for page in site.values():
        assert page.tags("script") == page.tags("link") == []
        assert all(not urlsplit(image["src"]).netloc for image in page.tags("img"))


def test_the_gallery_comes_first_and_each_thumbnail_leads_to_its_finding(site, out):
    home = site["index.html"]
    sections = [attributes["id"] for tag, attributes in home.found if tag == "section"]
    assert sections == ["gallery", "claims", "explorers", "audits", "cite"]
    sources = [image["src"] for image in home.tags("img")]
    assert sources == [f"{name}.png" for name in ("aitken2021/fig5a", "aitken2021/fig5b", "snell2021/table2")]
    assert all((out / source).read_bytes().startswith(b"\x89PNG") for source in sources)
    assert {image["alt"] for image in home.tags("img")} == {"alignment against offset"}
    assert "snell2021/report.html#snell2021-table2" in [link["href"] for link in home.tags("a")]


def test_findings_without_a_result_are_named(site):
    missing = [finding.name for finding in study("snell2021").findings if finding.name != "table2"]
    assert f"No result yet: {', '.join(missing)}." in words(site["index.html"])
    assert f"1 of {len(missing) + 1}" in words(site["index.html"])


def test_claims_of_all_studies_stand_on_one_page_with_their_verdicts(site):
    page = site["claims.html"]
    verdicts = [item["class"] for item in page.tags("li")]
    assert verdicts == 3 * ["holds", "fails", "undecided", "holds"]
    assert "also in <b>French</b>" in page.text
    assert words(page).count("quick profile") == 8  # four claims each of the two findings that are


def test_published_numbers_stand_beside_ours_where_a_paper_states_them(site):
    page = site["published.html"]
    assert words(page).count("eSCAN · AED > 0.77 0.85 ± 0.1 +0.08 3") == 3
    assert "AO" not in words(page)


def test_each_published_number_is_a_dot_against_ours(make, tmp_path):
    lines = [
        row(what="a", values=[0.5], published=0.4),
        row(what="b", values=[0.5]),
        row(what="c", values=[-1], published=2),
    ]
    figure = draw_published([write_study("aitken2021", [make(table=lines)], lambda result: None, tmp_path)])
    (dots,) = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert dots.get_xydata().tolist() == [[0.4, 0.5]]
    assert draw_published([write_study("aitken2021", [make(table=[])], lambda result: None, tmp_path)]) is None


def test_text_beside_published_numbers_is_legible_on_a_page_of_60_rem(make):
    findings = [GalleryFinding(make(table=[row(what="a", values=[0.5], published=0.4)]), None)]
    names = ("aitken2021", "baan2019", "snell2021", "tutek2020")
    figure = draw_published([GalleryStudy(name, paper_of(name), findings, ()) for name in names])
    assert len(figure.axes) == len(names)
    assert embed_figure(figure, "dots").min_width <= 60 * 16 - 90  # without the margins of the page and the figure


def test_audits_are_listed_with_their_answers(site):
    assert "BERT, fine-tuned no Its attention may not be shown as a reason." in words(site["index.html"])
    assert words(site["audits/bert/audit.html"]).startswith("attnscope Gallery")
    assert "How often the audit is wrong: its calibration" in words(site["index.html"])


def test_explorers_are_listed_by_their_titles(site):
    assert "Edit & see" in words(site["index.html"])


def test_papers_and_attnscope_are_cited(site):
    home = words(site["index.html"])
    for text in ("Kyle Aitken, Vinay V. Ramasesh", "Charlie Snell, Ruiqi Zhong", "attnscope 0."):
        assert text in home


def test_findings_without_figures_or_audits_still_make_a_site(make, tmp_path):
    write_site([make()], tmp_path, draw=lambda result: None)
    home = Lenient((tmp_path / "index.html").read_text())
    assert home.tags("img") == []
    assert [attributes["id"] for tag, attributes in home.found if tag == "section"] == ["gallery", "claims", "cite"]
    assert "attnscope Gallery Claims Published and ours How to cite" in words(home)


def test_no_results_are_refused(tmp_path):
    with pytest.raises(BadSetting, match="there are no results"):
        write_site([], tmp_path)


def test_the_command_writes_the_site_of_a_folder_of_results(make, tmp_path):
    make().write(tmp_path / "results")
    done = CliRunner().invoke(app, ["site", str(tmp_path / "results"), "--out", str(tmp_path / "site")])
    assert done.output == f"site: {tmp_path / 'site' / 'index.html'}\n"
    assert "Most of the alignment is temporal" in (tmp_path / "site" / "index.html").read_text()
