"""Scatter plots of two measures of the same units."""

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.plots import scatter
from attnscope.plots.points import rank_correlation


def ranks(values):
    return np.argsort(np.argsort(values))


def test_the_rank_correlation_is_the_correlation_of_ranks():
    x, y = np.random.default_rng(0).normal(size=(2, 40))
    assert rank_correlation(x, y) == pytest.approx(np.corrcoef(ranks(x), ranks(y))[0, 1])


def test_the_corner_shows_correlation_and_number_of_complete_pairs():
    ax = scatter([1, 2, 3, np.nan], [1, 4, 9, 0], ["a", "b", "c", "d"], xlabel="attention", ylabel="saliency")
    assert ax.get_title(loc="right") == "Spearman's ρ = 1.00 (n = 3)"
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("attention", "saliency")


def test_the_line_is_the_least_squares_fit():
    x, y = np.random.default_rng(1).normal(size=(2, 20))
    (x0, y0), (x1, y1) = scatter(x, y).lines[0].get_xydata()
    slope = np.cov(x, y)[0, 1] / np.var(x, ddof=1)
    assert (y1 - y0) / (x1 - x0) == pytest.approx(slope)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [2, 2, 2])])
def test_constant_values_show_no_correlation(x, y):
    assert "undefined" in scatter(x, y, [""] * len(x)).get_title(loc="right")


def test_unequal_lengths_are_refused():
    with pytest.raises(BadSetting, match="3 values on the x axis, but 2 on the y axis"):
        scatter([1, 2, 3], [1, 2])
