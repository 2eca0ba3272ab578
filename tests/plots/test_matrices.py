"""Heat maps with one cell per value."""

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.plots import heatmap

SOURCE, OUTPUT = ["<s>", "run", "$5", "_"], ["RUN", "</s>"]
VALUES = np.array([[0.1, 0.9, 0.0, np.nan], [0.2, 0.1, 0.3, 0.4]])


def words(labels):
    return [label.get_text() for label in labels]


def test_the_axes_have_the_words_as_labels_and_the_first_row_on_top():
    ax = heatmap(VALUES, OUTPUT, SOURCE, title="attention")
    ax.figure.canvas.draw()
    assert words(ax.get_yticklabels()) == OUTPUT
    assert words(ax.get_xticklabels()) == SOURCE
    assert ax.yaxis_inverted()


def test_nan_is_masked():
    mesh = heatmap(VALUES).collections[0]
    assert np.array_equal(np.ma.getmaskarray(mesh.get_array()), np.isnan(VALUES))


def test_a_diverging_scale_is_white_at_zero():
    mesh = heatmap([[-1.0, 3.0]], diverging=True).collections[0]
    assert mesh.get_clim() == (-3, 3)
    assert min(mesh.to_rgba([0.0])[0]) > 0.95


@pytest.mark.parametrize("values", [np.full((2, 2), np.nan), np.zeros((2, 2)), np.full((2, 2), -1.0), [[5.0]]])
@pytest.mark.parametrize("diverging", [True, False])
def test_constant_values_have_a_colour_scale(values, diverging):
    ax = heatmap(values, diverging=diverging, annotate=True)
    low, high = ax.collections[0].get_clim()
    assert low < high
    ax.figure.canvas.draw()


def test_cells_with_a_value_show_its_number():
    assert words(heatmap(VALUES, annotate=True).texts) == ["0.10", "0.90", "0.00", "0.20", "0.10", "0.30", "0.40"]
    assert words(heatmap([[-0.0001, 0.006]], annotate=True).texts) == ["0.000", "0.006"]


def test_of_very_many_words_some_are_labelled():
    ax = heatmap(np.zeros((2, 500)), columns=[f"w{i}" for i in range(500)])
    assert 30 < len(ax.get_xticks()) <= 60
    assert words(ax.get_xticklabels())[1] == f"w{int(ax.get_xticks()[1])}"


@pytest.mark.parametrize("n", [1, 12, 13, 90, 5000])
def test_without_words_the_axes_have_round_numbers(n):
    ax = heatmap(np.zeros((1, n)))
    assert 1 <= len(ax.get_xticks()) <= 12
    assert int(words(ax.get_xticklabels())[0]) == ax.get_xticks()[0] + 0.5


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(BadSetting, match="3 labels for 2 cells"):
        heatmap(VALUES, rows=["a", "b", "c"])
    with pytest.raises(BadSetting, match="1 dimension"):
        heatmap([1.0, 2.0])
