"""Labels stand beside their points and do not overlap."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnscope.plots import panels
from attnscope.plots.points import Box, place_labels


def written(points, **options):
    figure, (ax,) = panels()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    place_labels(ax, points, [f"word{i}" for i in range(len(points))], **options)
    figure.canvas.draw()
    return [text.get_window_extent() for text in ax.texts]


def test_names_of_neighbours_do_not_overlap():
    boxes = written([(0.5, 0.5), (0.53, 0.5), (0.5, 0.54), (0.47, 0.49)])
    assert len(boxes) == 4
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_labels_that_do_not_fit_are_omitted():
    crowd = 0.5 + np.random.default_rng(0).normal(0, 0.01, (50, 2))
    assert 2 <= len(written(crowd, drop=True)) < 25
    assert len(written(crowd)) == 50


sides = st.floats(-100, 100)
boxes = st.tuples(sides, sides, sides, sides).map(
    lambda s: Box(min(s[0], s[1]), min(s[2], s[3]), max(s[0], s[1]), max(s[2], s[3]))
)


@given(boxes, boxes)
def test_overlap_is_symmetric_and_at_most_the_smaller_area(one, other):
    assert one.overlap(other) == pytest.approx(other.overlap(one))
    assert one.overlap(other) <= min(one.area, other.area) + 1e-9
    assert one.overlap(one) == pytest.approx(one.area)
