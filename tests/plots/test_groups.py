"""Groups of bars with published values beside them."""

import numpy as np
import pandas as pd
import pytest

from attnscope.plots import bars

TABLE = pd.DataFrame({"AED": [0.1, 0.9], "AO": [0.2, np.nan]}, index=["escan", "en-fr"])


def test_bars_are_as_high_as_their_numbers():
    heights = [bar.get_height() for bar in bars(TABLE).patches]
    assert heights == pytest.approx([0.1, 0.9, 0.2, np.nan], nan_ok=True)


def test_a_published_value_is_a_line_as_wide_as_its_bar():
    published = pd.DataFrame({"AO": [0.25]}, index=["escan"])  # known for one bar only
    ax = bars(TABLE, published=published)
    (line,) = [segment for lines in ax.collections for segment in lines.get_segments()]
    bar = ax.patches[2]
    assert line[:, 1].tolist() == [0.25, 0.25]
    assert line[:, 0] == pytest.approx([bar.get_x(), bar.get_x() + bar.get_width()])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["AED", "AO", "published"]


def test_each_seed_is_a_dot_over_its_bar():
    ax = bars(TABLE, seeds=[TABLE * 0.9, TABLE * 1.1])
    heights = np.concatenate([dots.get_offsets()[:, 1] for dots in ax.collections])
    assert np.ma.compressed(np.ma.masked_invalid(heights)) == pytest.approx([0.09, 0.81, 0.11, 0.99, 0.18, 0.22])


def test_errors_reach_from_mean_less_to_mean_plus():
    ax = bars(TABLE[["AED"]], errors=TABLE[["AED"]] * 0.5)
    assert ax.collections[0].get_segments()[1][:, 1] == pytest.approx([0.45, 1.35])


def test_errors_of_two_tables_reach_below_and_above_and_are_named():
    one = TABLE[["AED"]]
    ax = bars(one, errors=(one * 0.5, one * 0.1), errors_name="95 % interval")
    assert ax.collections[0].get_segments()[1][:, 1] == pytest.approx([0.45, 0.99])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["95 % interval"]


def test_one_series_needs_no_legend():
    assert bars(TABLE[["AED"]]).get_legend() is None


def test_long_names_are_broken_into_lines_where_they_fit_and_slanted_where_they_do_not():
    name = "variance of a word's states without time"
    few = bars(pd.DataFrame({"a": [1.0, 2.0]}, index=[name, "other"]))
    first, other = (label.get_text() for label in few.get_xticklabels())
    assert (first.replace("\n", " "), first.count("\n"), other) == (name, 2, "other")
    assert {label.get_rotation() for label in few.get_xticklabels()} == {0}
    many = bars(pd.DataFrame({"a": range(12)}, index=[f"{name} {i}" for i in range(12)]))
    assert [label.get_text() for label in many.get_xticklabels()] == [f"{name} {i}" for i in range(12)]
    assert {label.get_rotation() for label in many.get_xticklabels()} == {35}
