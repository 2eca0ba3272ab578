"""The style of all plots: distinguishable colours, and no changes to matplotlib's settings."""

import subprocess
import sys
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb

from attnscope import plots
from attnscope.plots.style import WORDS, colours, fade

TABLE = pd.DataFrame({"a": [0.6, 0.5], "b": [0.4, 0.5]}, index=["x", "y"])
CIRCLE = np.stack([np.cos(np.arange(6)), np.sin(np.arange(6))], axis=1)
DRAWN = {
    "stacked_shares": lambda ax: plots.stacked_shares(TABLE, ax=ax),
    "profiles": lambda ax: plots.profiles([0, 1], {"run": [1, 2], "walk": [2, 1]}, ax=ax),
    "heatmap": lambda ax: plots.heatmap([[0.1, 0.9]], ["a"], ["b", "c"], ax=ax),
    "trajectories": lambda ax: plots.trajectories({"encoder": CIRCLE}, ax=ax),
    "clouds": lambda ax: plots.clouds(CIRCLE, list("ababab"), {"a": (1, 0)}, {"A": (0, 1)}, ax=ax),
    "bars": lambda ax: plots.bars(TABLE, ax=ax),
    "scatter": lambda ax: plots.scatter([1, 2, 3], [3, 1, 2], ["a", "b", "c"], ax=ax),
}

# How a colour looks without one kind of cone: Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SIGHT = {
    "all cones": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def perceived_colour(colour, sight):
    """The colour in CIELAB, where a distance of about 2 can just be seen."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(XYZ @ np.clip(np.asarray(sight) @ linear, 1e-3, 1) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_can_be_told_apart_with_any_sight(sight):
    for one, other in [*combinations(WORDS, 2), (plots.ENCODER, plots.DECODER)]:
        assert np.linalg.norm(perceived_colour(one, SIGHT[sight]) - perceived_colour(other, SIGHT[sight])) > 10, (
            one,
            other,
        )


def test_encoder_and_decoder_keep_their_colours_among_others():
    palette = colours(["run", "decoder", "encoder", "walk"])
    assert (palette["encoder"], palette["decoder"]) == (plots.ENCODER, plots.DECODER)


def test_twenty_words_have_twenty_colours():
    assert len(set(colours(map(str, range(20))).values())) == 20


def test_late_is_darker_than_early():
    brightness = fade(plots.ENCODER)(np.linspace(0, 1, 10))[:, :3].sum(axis=1)
    assert (np.diff(brightness) < 0).all()


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_draws_on_the_axes_it_is_given(name):
    figure, (ax,) = plots.panels()
    assert DRAWN[name](ax) is ax
    assert pyplot.get_fignums() == [], "no second figure is opened"
    plots.svg(figure)


@pytest.mark.parametrize("name", DRAWN)
def test_a_plot_makes_its_own_axes_if_none_are_given(name):
    assert DRAWN[name](None).figure.number == pyplot.get_fignums()[0]


@pytest.mark.parametrize("name", DRAWN)
def test_matplotlibs_settings_are_left_as_they_were(name):
    before = dict(mpl.rcParams)
    plots.svg(DRAWN[name](None).figure)
    assert dict(mpl.rcParams) == before


def test_plots_load_no_torch_and_the_package_loads_no_plots():
    code = (
        "import sys, attnscope; assert 'matplotlib' not in sys.modules\n"
        "import attnscope.plots; assert 'torch' not in sys.modules; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
