"""Settings of every kind are written to JSON and read back, also those that a user registers."""

import json
from dataclasses import dataclass, fields

import pytest

from attnscope.errors import BadSetting
from attnscope.lab.configuration import KINDS, describe, kinds, rebuild
from attnscope.tasks import CORPORA, TASKS, OneToOne, PublishedLookupTables, Scan, Subwords
from attnscope.tasks.text import WordPieces
from attnscope.training import OBJECTIVES, CrossEntropy


@dataclass(frozen=True)
class Spelling(OneToOne):
    loud: bool = False


@dataclass(frozen=True)
class Doubt(CrossEntropy):
    weight: float = 0.5


@pytest.mark.parametrize(
    ("registry", "settings"), [(TASKS, Spelling(loud=True)), (OBJECTIVES, Doubt(weight=2.0)), (KINDS, Doubt())]
)
def test_a_registered_class_is_known_until_it_is_removed(monkeypatch, registry, settings):
    with monkeypatch.context() as patch:
        patch.setitem(registry, "mine", type(settings))
        description = describe(settings)
        assert description["kind"] == "mine"
        assert rebuild(description) == settings
    with pytest.raises(
        BadSetting, match=r"there is no kind of settings 'mine'; choose one of one_to_one, .*, training"
    ):
        rebuild(description)


def test_an_unknown_kind_lists_the_known_ones_and_how_to_register():
    with pytest.raises(BadSetting) as error:
        rebuild({"kind": "rnn"})
    assert ", ".join(kinds()) in str(error.value)
    assert "TASKS, OBJECTIVES or KINDS" in str(error.value)


@pytest.mark.parametrize("name", CORPORA)
def test_a_named_corpus_comes_back_from_json(name):
    assert rebuild(json.loads(json.dumps(describe(CORPORA[name])))) == CORPORA[name]


@pytest.mark.parametrize(
    "settings", [Subwords(), Subwords(kind="bpe", size=500), WordPieces("vocab.txt"), Scan(), PublishedLookupTables()]
)
def test_settings_come_back_from_json(settings):
    assert rebuild(json.loads(json.dumps(describe(settings)))) == settings


def test_settings_with_a_kind_of_their_own_are_known_by_it():
    """Keys of stored translations are made of this."""
    assert describe(Subwords(kind="bpe")) == {"kind": "bpe", "size": 8000, "shared": True}
    with_kind = {name: kind for name, kind in kinds().items() if "kind" in {field.name for field in fields(kind)}}
    assert with_kind == {"unigram": Subwords, "bpe": Subwords}


def test_settings_that_nobody_registered_are_described_by_the_name_of_their_class():
    assert describe((Spelling(), 1))[0]["kind"] == "Spelling"
