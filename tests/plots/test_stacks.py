"""Parts of a whole are stacked, darkest first."""

import numpy as np
import pandas as pd
import pytest

from attnscope.plots import stacked_shares
from attnscope.plots.bars import shades

TABLE = pd.DataFrame({"temporal": [0.7, 0.2], "input": [0.2, 0.3], "rest": [0.1, 0.5]}, index=["AED", "AO"])


def test_each_bar_reaches_the_sum_of_its_parts():
    ax = stacked_shares(TABLE)
    tops = {round(bar.get_x(), 6): bar.get_y() + bar.get_height() for bar in ax.patches}  # the last layer stays
    assert list(tops.values()) == pytest.approx([1.0, 1.0])
    assert ax.get_ylim()[1] == pytest.approx(1.02)


def test_the_legend_reads_from_top_to_bottom_like_the_bars():
    assert [text.get_text() for text in stacked_shares(TABLE).get_legend().get_texts()] == ["rest", "input", "temporal"]


def test_the_first_part_is_darkest():
    assert np.all(np.diff([int(shade[1:3], 16) for shade in shades(4)]) > 0)


def test_negative_parts_hang_below_zero():
    ax = stacked_shares(pd.DataFrame({"a": [0.9], "b": [-0.2], "c": [0.3]}))
    assert [bar.get_y() for bar in ax.patches] == pytest.approx([0, 0, 0.9])
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([0.9, -0.2, 0.3])


def test_a_missing_part_counts_as_nothing():
    ax = stacked_shares(pd.DataFrame({"a": [np.nan], "b": [0.4]}))
    assert ax.patches[1].get_y() == 0


def test_errors_stand_at_the_top_of_their_part():
    ax = stacked_shares(TABLE, errors=TABLE * 0.1)
    segments = ax.collections[0].get_segments()
    assert segments[0][:, 1] == pytest.approx([0.63, 0.77])
    ax = stacked_shares(TABLE, errors=(TABLE * 0.1, TABLE * 0.2), errors_name="± sd")
    assert ax.collections[0].get_segments()[0][:, 1] == pytest.approx([0.63, 0.84])
    assert ax.get_legend().get_texts()[-1].get_text() == "± sd"
