"""Results in a notebook: complete, escaped, truncated where they are long, and self-contained."""

import base64
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import torch

import attnscope
from attnscope import probes
from attnscope.display import MAX_COLUMNS, MAX_ROWS, Displayed, fields_table, table_html
from attnscope.errors import AttnscopeError, BadSetting
from attnscope.lab.engines import LocalEngine
from attnscope.models import PRESETS, EncoderDecoder
from attnscope.probes import PROBES
from attnscope.studies.result import Result
from attnscope.tasks import OneToOne

RESULTS = Path(__file__).parent.parent.parent / "results"


class Links(HTMLParser):
    """What a page would load, and which tags it holds."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]


def read(page: str) -> Links:
    found = Links()
    found.feed(page)
    return found


def stands_alone(page: str) -> bool:
    found = read(page)
    return "script" not in found.tags and all(each.startswith("data:image/svg+xml;base64,") for each in found.addresses)


@dataclass(frozen=True)
class Answer(Displayed):
    """What was found.

    More about it.
    """

    words: tuple[str, ...]

    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"word": self.words, "score": 0.5})

    def plot(self, ax=None):
        if not self.words:
            raise AttnscopeError("there are no <words>")
        ax.bar(range(len(self.words)), 1.0)
        return ax


@pytest.fixture(scope="module")
def task() -> OneToOne:
    return OneToOne(min_length=2, max_length=3, test_size=10)


@pytest.fixture(scope="module")
def model(task) -> EncoderDecoder:
    torch.manual_seed(0)
    return EncoderDecoder(PRESETS["aed"], len(task.source_vocabulary), len(task.target_vocabulary))


def test_a_result_shows_its_name_table_and_figure():
    page = Answer(("good", "bad"))._repr_html_()
    assert "<b>Answer</b> What was found.<" in page
    assert "More about it" not in page
    assert read(page).tags.count("img") == read(page).tags.count("table") == 1
    assert stands_alone(page)


def test_the_figure_is_svg():
    source = re.search(r"base64,([^\"]+)", Answer(("good",))._repr_html_()).group(1)
    assert base64.b64decode(source).startswith(b"<svg")


def test_words_are_escaped():
    page = Answer(("<script>alert(1)</script>", "a & b"))._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "a &amp; b" in page
    assert stands_alone(page)


def test_names_of_rows_and_columns_are_escaped_and_whole():
    long = "x" * 200 + "<b>"
    page = table_html(pd.DataFrame({long: [1.0]}, index=[long]))
    assert page.count("x" * 200 + "&lt;b&gt;") == 2
    assert "<b>" not in page


def test_a_long_table_is_truncated_with_a_note():
    page = table_html(pd.DataFrame(0, index=range(100), columns=[f"c{i}" for i in range(50)]))
    assert page.count("<tr") == MAX_ROWS + 1
    assert f"the first {MAX_ROWS} of 100 rows" in page
    assert f"the first {MAX_COLUMNS} of 50 columns" in page


def test_one_wide_row_is_transposed():
    page = table_html(pd.DataFrame([dict.fromkeys("abcdef", 0.25)]))
    assert page.count("<tr") == 6


def test_a_result_without_a_figure_shows_its_table():
    page = Answer(())._repr_html_()
    assert "no figure: there are no &lt;words&gt;" in page
    assert "<table" in page


def test_a_trace_shows_names_axes_and_shapes(model, task):
    trace = model(next(task.batches("test")), gates=True)
    shown = fields_table(trace)
    assert list(shown.loc["encoder"]) == ["batch × source × state", "10 × 4 × 128"]
    assert list(shown.loc["layers[-1].weights"]) == ["batch × heads × target × source", "10 × 1 × 4 × 4"]
    assert "gates['encoder.keep']" in shown.index
    assert stands_alone(trace._repr_html_())


def test_a_trace_without_attention_reports_that(task):
    model = EncoderDecoder(PRESETS["ved"], len(task.source_vocabulary), len(task.target_vocabulary))
    shown = fields_table(model(next(task.batches("test"))))
    assert shown.loc["layers", "axes"] == "none"


@pytest.mark.parametrize("name", ["decompose", "agreement"])
def test_results_of_probes_are_displayed_without_opening_a_window(name, model, task):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    assert stands_alone(PROBES[name](model, task)._repr_html_())
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("path", ["aitken2021/fig3.json", "baan2019/table4.json"])
def test_a_result_shows_claims_numbers_and_figure(path):
    result = Result.read(RESULTS / path)
    page = result._repr_html_()
    assert stands_alone(page)
    assert page.count("<br>") == len(result.claims)
    assert {"table", "img"} <= set(read(page).tags)


def test_every_result_of_a_probe_can_be_displayed():
    found = []
    for module in pkgutil.walk_packages(probes.__path__, "attnscope.probes."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name and {"table", "plot"} & set(vars(kind)):
                found.append(kind)
    assert len(found) > 30
    assert [kind.__name__ for kind in found if not issubclass(kind, Displayed)] == []


def test_every_public_name_is_listed_and_documented():
    assert set(attnscope.__all__) <= set(dir(attnscope))
    assert all(getattr(attnscope, name).__doc__ for name in attnscope.__all__)
    with pytest.raises(AttributeError, match=r"no attribute 'audits'; it offers .*audit"):
        _ = attnscope.audits


def test_importing_the_package_or_its_display_loads_nothing_heavy():
    program = "import sys, attnscope, attnscope.display; dir(attnscope); print({*sys.modules} & {'torch', 'pandas'})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


def test_findings_are_reproduced_by_name(monkeypatch):
    asked = []
    monkeypatch.setattr("attnscope.studies.reproduce.reproduce", lambda *given: asked.append(given) or [])
    attnscope.reproduce("aitken2021", "fig3", "fig2-aed", seeds=1, store="here", workers=0)
    attnscope.reproduce("aitken2021", profile="paper")
    (study, findings, *rest), everything = asked
    assert (study.name, [finding.name for finding in findings]) == ("aitken2021", ["fig3", "fig2-aed"])
    assert rest == ["quick", 1, Path("here"), LocalEngine(0), "cpu", None, None, False]
    assert everything[1] == list(study.findings)


def test_a_wrong_profile_is_refused_before_anything_is_trained():
    with pytest.raises(BadSetting, match="there is no profile 'slow'; choose one of quick, paper"):
        attnscope.reproduce("aitken2021", profile="slow")


CELLS = """
from IPython.core.interactiveshell import InteractiveShell

shell, shown = InteractiveShell.instance(), []
shell.display_pub.publish = lambda data, **_: shown.append("image/png" in data)
for _ in range(3):
    shell.run_cell("from attnscope import plots; plots.heatmap([[0.0, 1.0]]); None").raise_error()
assert shown == [True, True, True], shown
"""


def test_every_cell_that_draws_shows_its_figure_not_only_the_first():
    pytest.importorskip("matplotlib_inline", reason="needs a notebook")
    settings = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    done = subprocess.run([sys.executable, "-c", CELLS], env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
