"""Lines between two layers."""

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.plots.lines import edges


def test_each_edge_leads_from_its_unit_below_to_its_unit_above_the_strongest_last():
    ax = edges([0, 2], [1, 0], [0.9, -0.3], (3, 2), title="update gate")
    lines = ax.collections[0]
    assert [segment.tolist() for segment in lines.get_segments()] == [
        [[1.0, 0.0], [0.0, 1.0]],
        [[0.0, 0.0], [1.0, 1.0]],
    ]
    assert lines.get_array().tolist() == [-0.3, 0.9]
    assert (lines.norm.vmin, lines.norm.vmax) == (-0.9, 0.9)
    assert ax.get_title() == "update gate"
    assert [len(dots.get_offsets()) for dots in ax.collections[1:]] == [3, 2]


def test_two_graphs_can_have_one_scale_and_a_graph_may_have_no_edge():
    empty = np.array([], dtype=int)
    lines = edges(empty, empty, empty.astype(float), (3, 3), strongest=0.5).collections[0]
    assert lines.norm.vmax == 0.5
    assert edges(empty, empty, [], (1, 1)).collections[0].norm.vmax == 1.0


def test_ends_without_a_partner_are_refused():
    with pytest.raises(BadSetting, match="1 lower ends, 2 upper ends"):
        edges([0], [1, 2], [0.5], (3, 3))
