"""Keys of stored runs do not follow the names in the code: those of version 0.1 are found as they were."""

import importlib.util
import json
import sys
from dataclasses import dataclass, replace

import pytest

from attnscope.errors import BadSetting
from attnscope.lab.configuration import ADDED_FIELDS, STORED_NAMES, describe, rebuild
from attnscope.lab.experiment import Experiment
from attnscope.lab.store import key
from attnscope.models import CELLS, ClassifierSettings, EncoderDecoderSettings, Start
from attnscope.studies import study
from attnscope.studies.finding import Case
from attnscope.tasks import (
    CORPORA,
    TASKS,
    Copying,
    ExtendedSCAN,
    Keyword,
    LookupTables,
    OneToOne,
    PublishedLookupTables,
    ReversedOneToOne,
    Scan,
    Sorting,
    Subwords,
    Words,
)
from attnscope.training import (
    L2,
    Conicity,
    CrossEntropy,
    Guidance,
    Hiding,
    MaskedWords,
    TrainingSettings,
    Tying,
)

SETTINGS = {
    "one to one": OneToOne(num_words=5, min_length=2, max_length=9, test_size=7),
    "reversed": ReversedOneToOne(num_words=5),
    "sorting": Sorting(num_words=10),
    "escan": ExtendedSCAN(min_length=10, max_length=15, max_source_length=20),
    "copying": Copying(num_words=80, evaluation_distribution="mixture", permutation_seed=3),
    "keyword": Keyword(num_words=6),
    "lookup tables": LookupTables(bits=2, heldout_inputs=1, heldout_compositions=2),
    "published tables": PublishedLookupTables(end=False, fingerprint="x"),
    "scan": Scan("length", gold_attention=True, fingerprint="x"),
    "words": Words(min_count=1, max_size=9, shared=True),
    "subwords": Subwords(size=500, kind="bpe"),
    "corpora": tuple(CORPORA.values()),
    "objectives": (
        CrossEntropy(total=True) + L2(0.1) + Guidance(2.0, share=0.5) + Tying(0.3, per_dimension=True),
        MaskedWords(0.5) + Conicity(0.1) + Hiding(1.0, token_ids=(3, 4)),
    ),
    "training": TrainingSettings(
        max_grad_norm=None, stop_at_accuracy=0.9, keep_weights="best", best_metric="word_accuracy", checkpoints=(1, 2)
    ),
    "models": (EncoderDecoderSettings(), ClassifierSettings(), Start(weights=3)),
}
# Computed with version 0.1.
STORED = {
    "one to one": "38c6feffce6d806ca0e8",
    "reversed": "d59cda1969d9a1d23793",
    "sorting": "56175952c21e888b14f8",
    "escan": "8cff182a7f5276ebbe46",
    "copying": "c3efbe27149ac80a60f2",
    "keyword": "8f0c3eb3c556434624f1",
    "lookup tables": "46c453bd9c59eb2dfe5e",
    "published tables": "5193a1cba6ca8d4fa7a0",
    "scan": "c1611f5501c43287ad03",
    "words": "61b00021d81f5f608a43",
    "subwords": "0b5b3f006a10054e934d",
    "corpora": "e26a70fdcbc997c7880e",
    "objectives": "bc4fa3b4b462d2759841",
    "training": "53003647b9cd2904996e",
    "models": "692406e88ab4f691be1d",
}

ESCAN = Experiment(  # aitken2021 fig. 3, quick
    ExtendedSCAN(test_size=500),
    EncoderDecoderSettings(units=64, first_state="trained", inputs="one_hot", initialisation="fan_in"),
    TrainingSettings(batch_size=64, learning_rate=0.01, epsilon=0.01, schedule="exponential", max_grad_norm=1.0),
    CrossEntropy() + L2(1e-4),
)


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_stored_as_by_version_0_1(name):
    assert key({"settings": describe(SETTINGS[name])}) == STORED[name]


@pytest.mark.parametrize("name", SETTINGS)
def test_stored_settings_are_read_back(name):
    assert rebuild(json.loads(json.dumps(describe(SETTINGS[name])))) == SETTINGS[name]


def test_an_experiment_of_a_study_has_the_key_that_it_had():
    assert ESCAN.key == "e9c72cc9ec48e8e28eb4"


def test_names_in_the_code_are_read_as_well():
    stored, named = {"kind": "words", "least": 2}, {"kind": "words", "min_count": 2}
    assert rebuild(stored) == rebuild(named) == Words(min_count=2)


def test_a_new_setting_is_stored_only_where_it_differs_from_its_default():
    assert "decoding" not in describe(TrainingSettings())
    forced = TrainingSettings(decoding="teacher_forced")
    assert describe(forced)["decoding"] == "teacher_forced"
    assert rebuild(describe(forced)) == forced
    assert replace(ESCAN, training=replace(ESCAN.training, decoding="teacher_forced")).key != ESCAN.key


def test_a_user_defined_subclass_inherits_the_stored_names(monkeypatch):
    @dataclass(frozen=True)
    class Longer(OneToOne):
        extra: int = 1

    monkeypatch.setitem(TASKS, "longer", Longer)
    assert describe(Longer())["longest"] == 20
    assert rebuild(describe(Longer(max_length=30))) == Longer(max_length=30)


def test_the_code_of_a_cell_of_ones_own_is_part_of_the_key(tmp_path, monkeypatch):
    monkeypatch.setitem(CELLS, "own", None)

    def experiment(formula):
        path = tmp_path / f"{formula}.py"
        path.write_text(f"from attnscope.models.cells import UGRNN\nclass Own(UGRNN):\n    factor = {formula!r}\n")
        spec = importlib.util.spec_from_file_location(formula, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, formula, module)
        spec.loader.exec_module(module)
        CELLS["own"] = module.Own
        return replace(ESCAN, model=replace(ESCAN.model, cell="own"))

    first = experiment("one")
    stored = first.config()
    assert Experiment.of(stored) == first
    second = experiment("two")
    assert key(stored) != second.key
    with pytest.raises(BadSetting, match="trained with other code of Own"):
        Experiment.of(stored)


def test_every_entry_of_the_tables_names_a_field_that_exists():
    classes = {type(value).__name__: type(value) for value in everything(tuple(SETTINGS.values()))}
    for name in {*STORED_NAMES, *ADDED_FIELDS} & set(classes):
        field_names = set(classes[name].__dataclass_fields__)
        assert {*STORED_NAMES.get(name, ()), *ADDED_FIELDS.get(name, ())} <= field_names


def everything(value):
    if isinstance(value, tuple):
        for item in value:
            yield from everything(item)
    elif hasattr(value, "__dataclass_fields__"):
        yield value
        for field in value.__dataclass_fields__:
            yield from everything(getattr(value, field))


def test_a_configuration_of_a_later_schema_is_refused():
    with pytest.raises(BadSetting, match="stored under schema 2"):
        Experiment.of(ESCAN.config() | {"schema": 2})


# Runs of the profile quick, as version 0.1 keyed them.
RUNS = {
    "aitken2021": (
        "5d03c380bba86761247c",
        "fdb3af79f3c7036e3a06",
        "9caad05d3ac03b040c5a",
        "49d0db79efde33e7e1a2",
        "ba42a5027a445bf9c85d",
        "7cf1996e9d6625c8b6df",
    ),
    "snell2021": (
        "be6428ffcfa90820a8ee",
        "0ba456dd9a26e4c40c98",
        "22a333c5812e0770a1c2",
        "a15c0990713febf64d28",
        "b47295a80b1be6c4a7e1",
        "651d2385af121644521e",
    ),
    "baan2019": (
        "40cc910b1a2cdf4da51d",
        "8e19f0338cc56b77f382",
        "30c9f53852346259c6dd",
        "1e7668430fb132d01e11",
        "3d722e843a599481d466",
        "f074e2c4482dbf6400ff",
    ),
    "tutek2020": (
        "ba9f46a918fe5b011239",
        "f62d6a7ddee97d7e4c13",
        "a81075e081e7c3fc43f5",
        "5eda4076803dfb737cdf",
        "4948ca3054b9e50941e6",
        "f36fb22aa5d44691a3a1",
    ),
}


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("name", RUNS)
def test_runs_of_a_study_have_the_keys_that_they_had(corpus, name):
    assert set(RUNS[name]) <= {experiment.key for experiment in experiments_of(name, "quick")}


def experiments_of(name, profile):
    for finding in study(name).findings:
        for experiment in finding.experiments(study(name).profiles[profile]).values():
            experiment = experiment if isinstance(experiment, Experiment | Case) else experiment(1)
            yield from [experiment] if isinstance(experiment, Experiment) else experiment.runs.values()
