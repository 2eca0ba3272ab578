"""What the files here share: each has a `study` of its own, at a tiny size, that is reproduced once."""

import pytest

from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import Run, train
from attnscope.lab.store import Store
from attnscope.studies.baan2019.experiments import guided
from attnscope.studies.reproduce import reproduce


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def reproduced(study, store):
    results = reproduce(study, study.findings, "tiny", None, store, LocalEngine(0))
    return {result.finding: result for result in results}


@pytest.fixture(scope="module")
def run(study, tmp_path_factory) -> Run:
    """A guided network."""
    return train(guided(study.profiles["tiny"]), Store(tmp_path_factory.mktemp("runs")))
