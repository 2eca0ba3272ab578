"""The report is one self-contained page."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from attnscope.errors import BadSetting
from attnscope.plots import bars, panels, profiles, svg
from attnscope.report import write_report
from attnscope.report.html import MAX_ROWS, captions, panel_texts, terms
from attnscope.studies import STUDIES, study
from attnscope.studies.naming import name_properly
from attnscope.studies.result import Result, load_results, row

EMPTY = {"meta", "img", "br"}
ROOT = Path(__file__).parent.parent.parent


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


def test_the_page_loads_nothing_and_runs_no_script(read, result, tmp_path):
    page = read(result)
    assert page.tags("script") == page.tags("link") == []
    assert all(image["src"].startswith("data:image/svg+xml;base64,") for image in page.tags("img"))
    assert all(link["href"].startswith("#") for link in page.tags("a"))
    css = re.search(r"<style>(.*)</style>", (tmp_path / "report.html").read_text(), re.DOTALL).group(1)
    assert "url(" not in css
    assert "@import" not in css


def test_a_script_in_a_text_is_escaped(read, result):
    page = read(result)
    assert page.tags("script") == []
    assert "<script>alert(1)</script>" in page.text
    assert "also in <b>French</b>" in page.text


def test_the_figure_comes_first_then_verdicts_as_icon_and_word_then_the_table(read, result):
    page = read(result)
    text = words(page)
    for said in ("✓ holds", "✗ fails", "? undecided"):
        assert said in text
    order = [tag for tag, attributes in page.found if tag in {"img", "table"} or attributes.get("class") == "claims"]
    assert order == ["img", "ul", "table"]


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


def test_notes_on_what_a_finding_does_not_show_are_listed(read, result):
    text = words(read(result))
    assert "What this does not show a cause." in text
    assert "Shares are of absolute values." in text


def test_settings_are_complete_in_a_collapsed_section(read, result):
    page = read(result)
    assert len(page.tags("details")) == 1
    assert "open" not in page.tags("details")[0]
    assert "model.cell gru" in words(page)
    assert "lengths [15, 20]" in words(page)


def test_a_figure_has_a_text_alternative(read, result):
    (image,) = read(result).tags("img")
    assert image["alt"] == (
        "Figure for fig5a: Most of the alignment is temporal. alignment against offset. The numbers are in the table."
    )
    assert base64.b64decode(image["src"].split(",")[1]).startswith(b"<svg")


def dense(result):
    figure, (ax,) = panels()
    ax.scatter(range(5000), range(5000))
    return figure


def test_a_figure_with_many_points_is_a_compressed_image_of_two_pixels_per_pixel(read, result):
    (image,) = read(result, draw=dense).tags("img")
    kind, content = image["src"].split(";base64,")
    assert kind == "data:image/webp"
    data = base64.b64decode(content)
    assert len(data) < len(svg(dense(result))) / 10
    width = int(re.match(r"--width: (\d+)px", image["style"])[1])
    assert Image.open(io.BytesIO(data)).width in (2 * width, 2 * width + 1)


def test_figures_may_be_separate_files(make, tmp_path):
    draw_each = {"fig5a": draw, "sec4.1": dense}
    results = [make("fig5a"), make("sec4.1")]
    path = write_report(results, lambda one: draw_each[one.finding](one), tmp_path / "report.html", embed=False)
    assert [image["src"] for image in Page(path.read_text()).tags("img")] == ["fig5a.svg", "sec4.1.webp"]
    assert {file.name for file in tmp_path.iterdir()} == {"report.html", "fig5a.svg", "sec4.1.webp"}


def test_a_figure_is_never_so_narrow_that_its_smallest_text_is_under_nine_pixels(read, result):
    def small(result):
        figure, (ax,) = panels(size=(8.0, 3.0))
        ax.set_title("small", fontsize=7.5)  # 10 CSS pixels
        ax.set_axis_off()
        return figure

    style = read(result, draw=small).tags("img")[0]["style"]
    width, least = map(int, re.fullmatch(r"--width: (\d+)px; --least: (\d+)px", style).groups())
    assert least == pytest.approx(0.9 * width, abs=1)


def test_a_finding_may_have_several_figures_with_one_caption(read, make):
    page = read(make(), draw=lambda result: [draw(result), draw(result)])
    assert len(page.tags("img")) == len(page.tags("figure")) == 2
    assert len(page.tags("figcaption")) == 1
    assert captions()["aitken2021"]["fig5a"] in words(page)


def test_terms_that_occur_are_explained_and_symbols_have_superscripts(read, make):
    result = make(study="snell2021", finding="made up", title="A(β^uf, α) of AED", table=[], claims=[], notes=[])
    assert set(terms([result])) == {"A(u, v)", "α", "β", "β^uf", "uf"}  # AED is a term of another study
    page = read(result)
    assert page.tags("sup")
    assert "βuf β of a model trained under uniform attention" in words(page)


def test_every_finding_with_a_figure_has_a_caption():
    with_figures = {(name, each.name) for name in STUDIES for each in study(name).findings if each.draw}
    text = {(name, finding) for name, by_finding in captions().items() for finding in by_finding}
    assert text <= with_figures
    assert {name for name, _ in with_figures - text} <= {
        "transformers"
    }  # a study of our own, whose findings still change


def test_long_tables_are_folded_and_beside_a_page_with_files_on_pages_of_their_own(read, make, tmp_path):
    long = make(table=[row(model=f"number {number}", values=[0.5]) for number in range(MAX_ROWS + 1)])
    assert len(read(long).tags("details")) == 2  # settings are the other
    path = write_report([long], lambda result: None, tmp_path / "beside" / "report.html", embed=False)
    assert Page(path.read_text()).tags("table") == []
    assert "fig5a-table.html" in [link["href"] for link in Page(path.read_text()).tags("a")]
    other = Page((tmp_path / "beside" / "fig5a-table.html").read_text())
    assert f"number {MAX_ROWS}" in words(other)
    assert "report.html#aitken2021-fig5a" in [link["href"] for link in other.tags("a")]


def test_ticks_have_proper_names_when_a_figure_is_drawn():
    figure, (ax,) = panels()
    bars(pd.DataFrame({"mlm": [1.0, 2.0], "base": [2.0, 1.0]}, index=["ag_news", "other"]), ax=ax)
    name_properly(figure).draw_without_rendering()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["AG News", "other"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["MLM", "base"]


def test_symbols_have_superscripts_in_figures_but_not_in_their_description():
    figure, (ax,) = panels()
    bars(pd.DataFrame({"A(α, β^uf)": [1.0], "$x^2$": [2.0]}, index=["α^opt"]), ax=ax)
    ax.set_title("β^uf during training")
    name_properly(name_properly(figure)).draw_without_rendering()
    symbol, verbatim = ax.get_legend().get_texts()
    tick = ax.get_xticklabels()[0]
    for text, shown in ((symbol, "A(α, $\\mathregular{β^{uf}}$)"), (tick, "$\\mathregular{α^{opt}}$")):
        assert (text.get_text(), text.get_parse_math()) == (shown, True)
    assert (verbatim.get_text(), verbatim.get_parse_math()) == ("$x^2$", False)
    assert panel_texts(figure) == "β^uf during training"


def test_corpora_and_models_have_their_proper_names(read, make):
    page = read(make(table=[row(corpus="ag_news", model="mlm", values=[0.5])]))
    assert "AG News MLM" in words(page)


def test_a_study_with_all_findings_of_a_headline_begins_with_it(tmp_path):
    results = [each for each in load_results(ROOT / "results") if each.study == "baan2019"]

    page = Page(write_report(results, lambda result: None, tmp_path / "report.html").read_text())
    sections = [attributes.get("aria-label") for tag, attributes in page.found if tag in ("section", "nav")]
    assert sections[:3] == ["Summary", "Headline claims", "Terms"]
    assert len(page.tags("img")) == 1  # the forest plot


def test_a_run_lists_what_differs_from_the_run_before(read, make):
    first, other = {"cell": "gru", "units": 8, "positions": 3}, {"cell": "lstm", "units": 8}
    together = {"runs": {"model": other, "copy": {**other, "units": 9}}, "settings": {"texts": 5}}
    text = words(read(make(settings={"experiments": {"a": first, "b": other, "c": together}})))
    assert "a cell gru units 8 positions 3 b cell lstm positions – c, model settings.texts 5 c, copy units 9" in text


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


@pytest.mark.slow
@pytest.mark.parametrize("study", ["aitken2021", "snell2021", "baan2019", "tutek2020"])
def test_the_page_of_a_study_stays_small(study, tmp_path):
    results = [one for one in load_results(ROOT / "results") if one.study == study]
    assert write_report(results, Result.display_figure, tmp_path / "report.html").stat().st_size < 3_000_000


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
