"""The audit of a network trained to keep attention off the words that it uses (tutek2020, beyond)."""

from dataclasses import replace

import pytest

from attnscope.auditing import Settings, audit
from attnscope.lab.experiment import train
from attnscope.lab.store import Store
from attnscope.studies.tutek2020.deceptive import base_experiment, deceptive_experiment
from studies.small_texts import TINY, corpora

SIZES = replace(TINY, input_size=32, epochs={"sst": 150}, indicative_share=0.25)

MODELS = (base_experiment, deceptive_experiment)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hiding")
    with corpora(folder):
        runs = {make: train(make(SIZES, "sst"), Store(folder / "runs")) for make in MODELS}
        settings = Settings(quick=True)
        return {make: audit(run.folder, out=folder / make.__name__, settings=settings) for make, run in runs.items()}


def by_test_name(found):
    return {test.name: test for test in found.tests}


def test_both_models_classify_correctly(audited):
    assert all(result.parts["quality"].table[0]["accuracy"] > 0.9 for result in audited.values())


def test_the_model_trained_to_hide_is_flagged(audited):
    tests = by_test_name(audited[deceptive_experiment])
    assert tests["route"].answer == tests["agreement"].answer == "no"
    assert audited[deceptive_experiment].answer == "undecided"  # 30 texts, fewer of each class than a verdict needs


def test_attention_of_the_honest_model_is_more_comprehensive(audited):
    points = {make: by_test_name(result)["comprehensiveness"] for make, result in audited.items()}
    assert points[base_experiment].low > points[deceptive_experiment].high
