"""The report is one page that needs nothing else and shows what a reader must know."""

import base64
import re
from html.parser import HTMLParser

import pytest

from attnscope.errors import BadSetting
from attnscope.plots import panels, profiles
from attnscope.report import write_report
from attnscope.studies.result import Result

EMPTY = {"meta", "img", "br"}


class Page(HTMLParser):
    """The page as its tags, their attributes and its text; tags that are not closed are an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.text = [], [], ""
        self.feed(text)
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.text += " " if tag in {"dt", "td", "th"} else ""

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data

    def tags(self, name):
        return [attributes for tag, attributes in self.found if tag == name]


def draw(result):
    figure, (ax,) = panels()
    profiles([0, 1], {"a": [0, 1]}, ax=ax, xlabel="offset", ylabel="alignment")
    return figure


@pytest.fixture
def read(tmp_path):
    def write(*results, draw=draw):
        return Page(write_report(results, draw, tmp_path / "report.html").read_text())

    return write


def words(page):
    return " ".join(page.text.split())


def test_the_page_asks_nothing_of_the_network_and_runs_no_script(read, result, tmp_path):
    page = read(result)
    assert page.tags("script") == page.tags("link") == []
    assert all(image["src"].startswith("data:image/svg+xml;base64,") for image in page.tags("img"))
    assert all(link["href"].startswith("#") for link in page.tags("a"))
    css = re.search(r"<style>(.*)</style>", (tmp_path / "report.html").read_text(), re.DOTALL).group(1)
    assert "url(" not in css
    assert "@import" not in css


def test_a_script_among_the_words_is_shown_and_not_run(read, result):
    page = read(result)
    assert page.tags("script") == []
    assert "<script>alert(1)</script>" in page.text
    assert "also in <b>French</b>" in page.text


def test_verdicts_come_before_figure_and_table_as_icon_and_word(read, result):
    page = read(result)
    text = words(page)
    for said in ("✓ holds", "✗ fails", "? undecided"):
        assert said in text
    order = [tag for tag, attributes in page.found if tag in {"img", "table"} or attributes.get("class") == "claims"]
    assert order == ["ul", "img", "table"]


def test_the_summary_counts_the_claims_and_says_where_they_come_from(read, result):
    text = words(read(result))
    for said in ("2 ✓ hold", "1 ✗ fails", "1 ? undecided", "quick", "3 (0 to 2)", "0123456789", "A processor, 2 cores"):
        assert said in text


def test_the_table_has_published_ours_difference_and_seeds(read, result):
    text = words(read(result))
    assert "> 0.77" in text
    assert "0.85 ± 0.1" in text
    assert "+0.08" in text


def test_the_study_is_cited(read, result):
    text = words(read(result))
    assert "Kyle Aitken, Vinay V. Ramasesh, Yuan Cao and Niru Maheswaranathan" in text


def test_a_quick_profile_is_labelled_at_each_verdict_and_a_full_one_is_not(read, make):
    assert words(read(make())).count("quick profile") == 4 + 1  # once more in the explanation
    assert "quick profile" not in words(read(make(profile="paper"))).lower()


def test_what_a_finding_does_not_show_is_said(read, result):
    text = words(read(result))
    assert "What this does not show a cause." in text
    assert "Shares are of absolute values." in text


def test_settings_are_folded_and_complete(read, result):
    page = read(result)
    assert len(page.tags("details")) == 1
    assert "open" not in page.tags("details")[0]
    assert "model.cell gru" in words(page)
    assert "lengths [15, 20]" in words(page)


def test_a_figure_is_described_for_those_who_cannot_see_it(read, result):
    (image,) = read(result).tags("img")
    assert image["alt"] == (
        "Figure for fig5a: Most of the alignment is temporal. alignment against offset. The numbers are in the table."
    )
    assert base64.b64decode(image["src"].split(",")[1]).startswith(b"<svg")


def test_contents_lead_to_each_finding(read, make):
    page = read(make("fig5a"), make("fig5b"))
    anchors = [article["id"] for article in page.tags("article")]
    assert [link["href"] for link in page.tags("a")] == [f"#{anchor}" for anchor in anchors]
    assert len(set(anchors)) == 2


def test_findings_of_several_studies_stand_under_their_papers(read, make):
    text = words(read(make(), make(study="tutek2020"), make("fig5b")))
    titles = ["Understanding How Encoder-Decoder Architectures Attend", "Staying True to Your Word"]
    assert text.rindex(titles[0]) < text.rindex("aitken2021 · fig5b") < text.rindex(titles[1])


def test_a_finding_without_figure_table_claims_or_notes_is_still_shown(read, make):
    page = read(make(study="mine", table=[], claims=[], notes=[], settings={}, commit=None), draw=lambda result: None)
    assert page.tags("img") == page.tags("table") == []
    assert "This finding makes no claim." in page.text


def test_the_same_results_give_the_same_page(result, tmp_path):
    one, other = (write_report([result], draw, tmp_path / f"{name}.html").read_bytes() for name in "ab")
    assert one == other


def test_no_figure_is_left_open(result, tmp_path):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    write_report([result], lambda result: pyplot.subplots()[0], tmp_path / "report.html")
    assert pyplot.get_fignums() == before


def test_no_results_are_refused(tmp_path):
    with pytest.raises(BadSetting, match="there are no results"):
        write_report([], draw, tmp_path / "report.html")


@pytest.mark.parametrize("name", ["report.pdf", "report"])
def test_a_report_that_is_no_web_page_is_refused(name, make, tmp_path):
    with pytest.raises(BadSetting, match=rf"a report is written as .html or .md, not as {name}"):
        write_report([make()], lambda result: None, tmp_path / name)


def test_a_finding_without_a_figure_is_reported(make, tmp_path):
    page = write_report([make(figure=None)], Result.display_figure, tmp_path / "report.html").read_text()
    assert "<img" not in page
    assert "This finding makes no claim" not in page
