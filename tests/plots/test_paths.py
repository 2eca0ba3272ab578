"""A path is light where it begins, at a square, and dark where it ends, at a star."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from attnscope.errors import BadSetting
from attnscope.plots import trajectories

PATH = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 0.0], [3.0, 2.0]])


def test_the_first_point_is_a_square_and_the_last_a_star():
    _, points, square, star = trajectories({"encoder": PATH}).collections
    assert np.array_equal(points.get_offsets(), PATH)
    assert np.array_equal(square.get_offsets(), PATH[:1])
    assert np.array_equal(star.get_offsets(), PATH[-1:])
    assert len(star.get_paths()[0].vertices) > len(square.get_paths()[0].vertices)


def test_every_step_is_drawn_darker_than_the_one_before():
    (steps,) = [
        collection
        for collection in trajectories({"decoder": PATH}).collections
        if isinstance(collection, LineCollection)
    ]
    assert len(steps.get_segments()) == len(PATH) - 1
    assert (np.diff(steps.get_colors()[:, :3].sum(axis=1)) < 0).all()


def test_a_path_of_one_point_is_drawn():
    trajectories({"encoder": PATH[:1]}).figure.canvas.draw()


def test_a_path_that_is_not_two_dimensional_is_refused():
    with pytest.raises(BadSetting, match="path 'encoder' should be T x 2"):
        trajectories({"encoder": np.zeros((4, 3))})
