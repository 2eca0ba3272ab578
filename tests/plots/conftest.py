"""No figure outlives its test."""

import pytest
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def _closed_figures():
    pyplot.close("all")  # those that tests elsewhere left open
    yield
    pyplot.close("all")
