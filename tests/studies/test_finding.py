"""Measurements by label, the file of a finding, and bars of ours beside what is published."""

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

import attnscope
from attnscope import plots
from attnscope.probes.positions import shared
from attnscope.studies import STUDIES, study
from attnscope.studies.bars import (
    bar_values,
    draw_bars,
    draw_curves,
    draw_points,
    keep_last_legend,
    panel,
    quantity_panel,
)
from attnscope.studies.claims import UNIT, at_least, at_most, equivalent, estimate, more_than, no_lower, proportion
from attnscope.studies.finding import Finding, Measurements, UnknownMeasurement


class Pair(NamedTuple):
    corpus: str
    model: str

    def __str__(self):
        return f"{self.model} on {self.corpus}"


LABELS = [Pair(corpus, model) for corpus in ("sst", "imdb") for model in ("base", "mlm")]
MEASURED = Measurements({label: [{"f1": number + seed} for seed in (0, 2)] for number, label in enumerate(LABELS)})


def published(label, name):
    return {"published": 2.5} if label == Pair("sst", "mlm") else {}


def test_labels_have_named_parts():
    assert MEASURED.each("corpus") == ["sst", "imdb"]
    assert MEASURED.each("corpus", "model") == LABELS
    assert list(MEASURED.where(corpus="imdb", model="mlm")) == [Pair("imdb", "mlm")]
    assert list(MEASURED.only(LABELS[2], LABELS[0])) == [LABELS[2], LABELS[0]]


def test_a_table_calls_a_label_by_its_text_or_by_columns_of_choice():
    assert [line["model"] for line in MEASURED.table({"f1": "F1"})] == [str(label) for label in LABELS]
    rows = MEASURED.table({"f1": "F1"}, published, columns=lambda label: label._asdict())
    assert [(line["corpus"], line["model"]) for line in rows] == LABELS
    assert [line["published"] for line in rows] == [None, 2.5, None, None]
    assert MEASURED.table({"accuracy": "a quantity that was not measured"}) == []


def test_a_finding_by_its_quantities_has_the_same_table_and_figure_data_as_by_functions():
    by_quantities = Finding(
        "f1", "title", "section", dict, dict, {"f1": "F1"}, lambda measured: [], print, ("f1",), published=published
    )
    by_functions = replace(
        by_quantities,
        table=lambda measured: measured.table({"f1": "F1"}, published),
        figure=lambda measured: {str(label): {"f1": measured.values(label, "f1")} for label in measured},
    )
    assert by_quantities.table_rows(MEASURED) == by_functions.table_rows(MEASURED)
    assert by_quantities.figure_data(MEASURED) == by_functions.figure_data(MEASURED)
    assert replace(by_quantities, draw=None).figure_data(MEASURED) is None


def test_claims_about_labels_are_those_about_their_values():
    first, second = LABELS[:2]
    values = MEASURED.values
    assert MEASURED.at_least("a", first, "f1", 0.5) == at_least("a", values(first, "f1"), 0.5)
    assert MEASURED.at_most("a", first, "f1", 0.5) == at_most("a", values(first, "f1"), 0.5)
    assert MEASURED.more_than("a", second, first, "f1", 2) == more_than(
        "a", values(second, "f1"), values(first, "f1"), 2
    )
    assert MEASURED.no_lower("a", first, second, "f1", 2) == no_lower("a", values(first, "f1"), values(second, "f1"), 2)
    assert MEASURED.equivalent("a", first, second, "f1", 2) == equivalent(
        "a", values(first, "f1"), values(second, "f1"), 2
    )
    assert MEASURED.exact("a", first, "f1", lambda f1: f1 < 3).holds
    assert MEASURED.proportion("a", first, "f1", lambda f1: f1 < 3) == proportion("a", [True] * len(MEASURED[first]))
    assert MEASURED.proportion("a", first, "f1").verdict == "undecided"  # 0 and 2


def test_an_unknown_measurement_lists_the_measured_ones():
    with pytest.raises(UnknownMeasurement, match="'f2' was not measured of 'base on sst'; what was measured is f1"):
        MEASURED.values(LABELS[0], "f2")
    with pytest.raises(
        UnknownMeasurement, match="no experiment 'tied'; the experiments measured are base on sst, mlm on sst, "
    ):
        MEASURED.flags("tied", "f1")


def test_bars_are_means_with_a_line_for_the_published_value_or_a_dot_per_seed():
    actual = panel(MEASURED, "f1", lambda label: label.corpus, lambda label: label.model, published)
    assert actual["sst"] == {"base": bar_values([0.0, 2.0]), "mlm": bar_values([1.0, 3.0], {"published": 2.5})}
    table = {"base": {"f1": [0.0, 2.0]}, "mlm": {"f1": [1.0, 3.0]}}
    by_quantity = quantity_panel(table, {"f1": "F1"}, lambda label, name: published(Pair("sst", label), name))
    assert by_quantity == {"F1": actual["sst"]}
    _, (left, right) = plots.panels(1, 2)
    draw_bars(actual, left, "F1")
    draw_bars(actual, right, "F1", dots=True)
    for ax, error in ((left, ["95 % interval"]), (right, [])):
        assert sorted(bar.get_height() for bar in ax.patches) == [1, 2, 3, 4]
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["base", "mlm", *error, "published"]
    assert len(right.collections) > len(left.collections)
    keep_last_legend([left, right])
    assert left.get_legend() is None
    assert right.get_legend() is not None


SHARES = [0.9, 1.0, 1.0]  # mean and standard deviation reach above 1


def ends_of(ax):
    return np.concatenate([path.vertices[:, 1] for one in ax.collections for path in one.get_paths()])


@pytest.mark.parametrize("draw", [
    lambda ax: draw_bars({"sst": {"base": bar_values(SHARES)}}, ax, "accuracy", UNIT),
    lambda ax: draw_curves([1, 2], {"base": np.array([SHARES, SHARES]).T}, ax, UNIT),
    lambda ax: draw_points([1, 2], [SHARES, SHARES], ax, UNIT),
])  # fmt: skip
def test_error_bars_and_bands_of_shares_are_their_interval_between_zero_and_one(draw):
    _, (ax,) = plots.panels()
    draw(ax)
    interval = estimate(SHARES, UNIT)
    assert (ends_of(ax).min(), ends_of(ax).max()) == pytest.approx((interval.low, interval.high))
    assert ends_of(ax).max() <= 1


@pytest.mark.parametrize("name", ["aitken2021", "snell2021", "baan2019", "tutek2020"])
def test_every_finding_says_which_file_it_is_written_in(name):
    assert name in STUDIES
    package = Path(attnscope.__file__).parent
    for finding in study(name).findings:
        assert finding.file.startswith(f"studies/{name}/")
        assert f'"{finding.section}"' in (package / finding.file).read_text(encoding="utf-8"), finding.name


@pytest.mark.parametrize("name", STUDIES)
def test_intervals_of_shares_stay_between_zero_and_one(name):
    quantities = {key: text for each in study(name).findings if isinstance(each.table, dict)
                  for key, text in each.table.items()}  # fmt: skip
    shares = [key for key, text in quantities.items() if "share of " in text]
    measured = Measurements({"one": [dict.fromkeys(shares, 0.5)]}, study(name).ranges)
    estimated = {key for key in shares if key.startswith(("position", "words", "rest", "most_"))}
    ratios = {key for key in shares if key.startswith("through_")}  # of masking to removing, which may change less
    within = {key: measured.values("one", key).within for key in shares}
    assert not {key for key in set(shares) - estimated - ratios if within[key] != UNIT}
    assert all(within[key] == (-math.inf, 1.0) for key in ratios)
    assert estimated <= {key for key in shares if within[key] in (None, (-1 / 7, 1.0))}


def test_unbiased_estimates_of_shares_may_be_below_zero():
    """`position_shares` multiplies pairs of eight permutations: the mean product is at least -1/7."""
    random = torch.Generator().manual_seed(0)
    scores = torch.randn(8, 1, 1, 1, 5, generator=random).double()
    opposed = scores - scores.mean(0)  # the permutations cancel out
    assert float(shared(opposed) / opposed.square().mean()) == pytest.approx(-1 / 7)
