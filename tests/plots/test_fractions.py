"""Scatter plots of two fractions that exclude each other."""

import pytest

from attnscope.errors import BadSetting
from attnscope.plots.points import fractions


def test_each_name_has_its_points_and_a_place_in_the_legend():
    ax = fractions({"keep": ([0.2, 0.5], [0.1, 0.5]), "reset": ([1.0], [0.0])}, xlabel="closed", ylabel="open")
    assert [points.get_offsets().tolist() for points in ax.collections] == [[[0.2, 0.1], [0.5, 0.5]], [[1.0, 0.0]]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["keep", "reset"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("closed", "open")


def test_one_name_needs_no_legend():
    assert fractions({"": ([0.2], [0.1])}).get_legend() is None


def test_fractions_that_overlap_and_unequal_lengths_are_refused():
    with pytest.raises(BadSetting, match="sum to more than one"):
        fractions({"a": ([0.7], [0.7])})
    with pytest.raises(BadSetting, match="2 fractions on the x axis, but 1 on the y axis"):
        fractions({"a": ([0.1, 0.2], [0.1])})
