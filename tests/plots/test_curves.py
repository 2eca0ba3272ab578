"""A few lines are named; many numbered ones are coloured in order."""

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.plots import profiles

X = np.arange(-5, 6)


def colour_bars(ax):
    return [other for other in ax.figure.axes if other.get_label() == "<colorbar>"]


def test_a_line_has_the_values_of_its_curve():
    line = profiles(X, {"run": X**2}).lines[0]
    assert np.array_equal(line.get_xydata(), np.stack([X, X**2], axis=1))


def test_a_few_curves_have_a_legend_with_unescaped_names():
    ax = profiles(X, {"$x$": X, "_hidden": -X})
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["$x$", "_hidden"]
    ax.figure.canvas.draw()  # would fail on a broken formula


def test_twenty_decoder_steps_share_a_colour_bar():
    ax = profiles(X, {f"s = {s}": X * s for s in range(1, 21)})
    assert ax.get_legend() is None
    (bar,) = colour_bars(ax)
    assert bar.get_ylabel() == "s"
    assert bar.get_ylim() == (1, 20)


def test_many_words_keep_their_names():
    ax = profiles(X, {f"word{letter}": X for letter in "abcdefghijkl"})
    assert len(ax.get_legend().get_texts()) == 12
    assert not colour_bars(ax)


def test_a_mark_has_the_colour_of_its_curve():
    curve, mark = profiles(X, {"left": X}, marks={"left": 2.0}).lines
    assert mark.get_color() == curve.get_color()
    assert mark.get_linestyle() == ":"
    assert list(mark.get_xdata()) == [2.0, 2.0]


def test_a_band_reaches_as_far_above_as_below():
    ax = profiles(X, {"left": X}, bands={"left": np.full(X.shape, 0.5)})
    low, high = ax.collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == (-5.5, 5.5)


def test_a_band_may_reach_farther_below_than_above():
    bands = {"left": np.stack([np.full(X.shape, 0.5), np.full(X.shape, 0.25)])}
    ax = profiles(X, {"left": X}, bands=bands, bands_name="95 % interval")
    low, high = ax.collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == (-5.5, 5.25)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["left", "95 % interval"]


def test_a_curve_of_another_length_is_refused_by_name():
    with pytest.raises(BadSetting, match="curve 'left' has 3 values, but there are 11 positions"):
        profiles(X, {"left": np.arange(3)})
