"""A figure is written in the format its name asks for, the same each time."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.plots import clouds, heatmap, panels, save, svg


def figure():
    figure, (left, right) = panels(1, 2)
    points = np.random.default_rng(0).normal(size=(50, 2))
    clouds(points, ["<script>"] * 50, {"<script>": (0, 0)}, {"&": (1, 1)}, ax=left)
    heatmap(points[:4], rows=["<b>", "&", '"', "'"], ax=right)
    return figure


def test_an_exported_svg_is_well_formed_and_self_contained():
    text = svg(figure())
    ElementTree.fromstring(text)
    assert text.startswith("<svg")
    references = re.findall(r'href="([^"]*)"', text)
    assert references
    assert all(reference.startswith(("#", "data:")) for reference in references)


def test_the_same_figure_gives_the_same_bytes_without_a_date(tmp_path):
    for suffix in ("png", "svg", "pdf"):
        one, other = (save(figure(), tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab")
        assert one == other
        assert b"date" not in one.lower()


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_the_suffix_chooses_the_format(tmp_path, suffix, start):
    path = save(figure(), tmp_path / "new folder" / f"figure.{suffix}")
    assert path.read_bytes().startswith(start)


def test_another_suffix_is_refused_with_the_valid_ones(tmp_path):
    with pytest.raises(BadSetting, match="no figure format 'bmp'; choose one of png, svg, pdf"):
        save(figure(), tmp_path / "figure.bmp")
