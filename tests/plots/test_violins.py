"""Violin plots of many distributions."""

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.plots.bars import violins


def test_every_column_has_a_violin_and_its_full_range_also_where_it_is_constant():
    values = np.stack([np.full(9, 0.5), np.linspace(-1, 1, 9)], 1)
    ax = violins(values, ["a", "b"], limits=(-1.0, 1.0), xlabel="unit", ylabel="activation")
    bodies, lines = ax.collections[:2], ax.collections[2]
    assert len(bodies) == 2
    assert [tuple(segment[:, 1]) for segment in lines.get_segments()] == [(0.5, 0.5), (-1.0, 1.0)]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("unit", "activation")


def test_of_many_names_some_are_labelled():
    assert len(violins(np.random.default_rng(0).normal(size=(5, 150)), range(150)).get_xticks()) <= 60


def test_bad_input_is_refused():
    with pytest.raises(BadSetting, match=r"not the shape \(3,\)"):
        violins([1, 2, 3])
    with pytest.raises(BadSetting, match="1 names for 2 violins"):
        violins(np.ones((3, 2)), ["a"])
