"""Fixtures of this folder: each file has a `study` of its own, at a tiny size, that is reproduced once."""

import pytest

from attnscope.lab.experiment import Run, train
from attnscope.lab.store import Store
from attnscope.studies.baan2019.experiments import guided
from studies import well_formed


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def reproduced(study, store):
    return well_formed.results_of(study, store)


@pytest.fixture(scope="module")
def run(study, tmp_path_factory) -> Run:
    """A guided network."""
    return train(guided(study.profiles["tiny"]), Store(tmp_path_factory.mktemp("runs")))
