"""Measurements by label, the file of a finding, and bars of ours beside what is published."""

from pathlib import Path
from typing import NamedTuple

import pytest

import attnscope
from attnscope import plots
from attnscope.auditing.drawing import cell
from attnscope.studies import STUDIES, study
from attnscope.studies.bars import draw_bars, one_key, panel
from attnscope.studies.finding import Measurements, UnknownMeasurement


class Pair(NamedTuple):
    corpus: str
    model: str

    def __str__(self):
        return f"{self.model} on {self.corpus}"


LABELS = [Pair(corpus, model) for corpus in ("sst", "imdb") for model in ("base", "mlm")]
MEASURED = Measurements({label: [{"f1": number + seed} for seed in (0, 2)] for number, label in enumerate(LABELS)})


def stated(label, name):
    return {"published": 2.5} if label == Pair("sst", "mlm") else {}


def test_labels_know_their_parts():
    assert MEASURED.each("corpus") == ["sst", "imdb"]
    assert MEASURED.each("corpus", "model") == LABELS
    assert list(MEASURED.where(corpus="imdb", model="mlm")) == [Pair("imdb", "mlm")]
    assert list(MEASURED.only(LABELS[2], LABELS[0])) == [LABELS[2], LABELS[0]]


def test_a_table_calls_a_label_by_its_text_or_by_columns_of_choice():
    assert [line["model"] for line in MEASURED.table({"f1": "F1"})] == [str(label) for label in LABELS]
    named = MEASURED.table({"f1": "F1"}, stated, columns=lambda label: label._asdict())
    assert [(line["corpus"], line["model"]) for line in named] == LABELS
    assert [line["published"] for line in named] == [None, 2.5, None, None]
    assert MEASURED.table({"accuracy": "a quantity that was not measured"}) == []


def test_what_was_not_measured_is_told_with_what_was():
    with pytest.raises(UnknownMeasurement, match="'f2' was not measured of 'base on sst'; what was measured is f1"):
        MEASURED.values(LABELS[0], "f2")
    with pytest.raises(
        UnknownMeasurement, match="no experiment 'tied'; the experiments measured are base on sst, mlm on sst, "
    ):
        MEASURED.flags("tied", "f1")


def test_bars_are_means_with_a_line_where_the_paper_is_or_with_a_dot_for_every_seed():
    found = panel(MEASURED, "f1", lambda label: label.corpus, lambda label: label.model, stated)
    assert found["sst"] == {"base": cell([0.0, 2.0]), "mlm": cell([1.0, 3.0], {"published": 2.5})}
    _, (left, right) = plots.panels(1, 2)
    draw_bars(found, left, "F1")
    draw_bars(found, right, "F1", dots=True)
    for ax in (left, right):
        assert sorted(bar.get_height() for bar in ax.patches) == [1, 2, 3, 4]
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["base", "mlm", "published"]
    assert len(right.collections) > len(left.collections)
    one_key([left, right])
    assert left.get_legend() is None
    assert right.get_legend() is not None


@pytest.mark.parametrize("name", ["aitken2021", "snell2021", "baan2019", "tutek2020"])
def test_every_finding_says_which_file_it_is_written_in(name):
    assert name in STUDIES
    package = Path(attnscope.__file__).parent
    for finding in study(name).findings:
        assert finding.file.startswith(f"studies/{name}/")
        assert f'"{finding.section}"' in (package / finding.file).read_text(encoding="utf-8"), finding.name
