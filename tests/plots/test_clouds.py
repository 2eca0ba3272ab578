"""Words are clouds with a centre; readouts are lines from the origin."""

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.plots import clouds

POINTS = np.array([[1.0, 0.1], [1.1, 0.0], [0.0, 2.0]])


@pytest.fixture
def ax():
    return clouds(POINTS, ["run", "run", "$_"], {"run": (1.05, 0.05), "$_": (0, 2)}, {"RUN": (2, 0), "</s>": (-1, -1)})


def test_points_are_drawn_at_their_coordinates(ax):
    cloud = ax.collections[0]
    assert np.array_equal(cloud.get_offsets(), POINTS)
    assert cloud.get_rasterized()


def test_points_of_a_word_share_a_colour(ax):
    first, second, third = ax.collections[0].get_facecolors()
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)


def test_readouts_start_at_the_origin(ax):
    assert [line.get_xydata().tolist() for line in ax.lines] == [[[0, 0], [2, 0]], [[0, 0], [-1, -1]]]


def test_every_centre_and_readout_has_its_unescaped_label(ax):
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == ["run", "$_", "RUN", "</s>"]


def test_a_readout_has_the_colour_of_its_word_in_whatever_case():
    readouts = {"RUN": (2, 0), "run": (1, 0), "</s>": (-1, -1)}
    upper, lower, other = clouds(POINTS, ["run", "run", "$_"], {}, readouts).lines
    assert upper.get_color() == lower.get_color() != other.get_color()


def test_an_empty_plot_is_no_error():
    clouds(np.empty((0, 2)), [], {}, {}).figure.canvas.draw()


def test_a_point_without_label_is_refused():
    with pytest.raises(BadSetting, match="3 points, but 1 labels"):
        clouds(POINTS, ["run"], {}, {})
