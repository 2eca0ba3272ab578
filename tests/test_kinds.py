"""Settings of another type than annotated are refused with a message that names the expected type."""

import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pytest

from attnscope.errors import BadSetting, check_kinds

if TYPE_CHECKING:
    from decimal import Decimal


class Place(ABC):
    @abstractmethod
    def of(self, word: int) -> int: ...


class Left(Place):
    def of(self, word: int) -> int:
        return word - 1


class Right(Place):
    def of(self, word: int) -> int:
        return word + 1


@dataclass(frozen=True)
class Wave:
    length: float = 1.0


@dataclass(frozen=True)
class Network:
    cell: str = "gru"
    units: int = 4
    rate: float = 0.5
    deep: bool = False
    steps: tuple[int, ...] = ()
    clip: float | None = None
    wave: Wave | None = None
    place: Place = field(default_factory=Left)
    bend: Callable[[float], float] = abs
    other: Any = None

    def __post_init__(self) -> None:
        check_kinds(self)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": Wave}, "cell of Network is a word, not <class 'test_kinds.Wave'>"),
        ({"units": "4"}, "units of Network is a whole number, not '4'"),
        ({"units": 4.0}, "units of Network is a whole number, not 4.0"),
        ({"units": True}, "units of Network is a whole number, not True"),
        ({"units": None}, "units of Network is a whole number, not None"),
        ({"rate": "fast"}, "rate of Network is a number, not 'fast'"),
        ({"deep": "yes"}, "deep of Network is true or false, not 'yes'"),
        ({"steps": "all"}, "steps of Network is a list of which each item is a whole number, not 'all'"),
        ({"clip": "none"}, "clip of Network is a number or None, not 'none'"),
        ({"wave": "sine"}, "wave of Network is Wave(…) or None, not 'sine'"),
        ({"place": "left"}, "place of Network is Left(…) or Right(…), not 'left'"),
    ],
)
def test_values_of_another_type_are_refused(settings, message):
    with pytest.raises(BadSetting) as refused:
        Network(**settings)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        {"rate": 1},
        {"clip": 2},
        {"units": np.int64(4), "rate": np.float32(1)},
        {"steps": [1, 2]},
        {"wave": Wave(2.0), "place": Right()},
        {"bend": "whatever", "other": "whatever"},
    ],
)
def test_compatible_types_are_accepted(settings):
    Network(**settings)


def test_annotations_for_type_checkers_are_ignored():
    @dataclass(frozen=True)
    class Precise:
        rate: "Decimal"

    check_kinds(Precise(1))


def test_types_that_cannot_be_checked_accept_everything():
    class Row(TypedDict):
        text: str

    check_kinds(make_dataclass("Table", [("row", Row)])({"text": "a"}))


WORDS_FOR_SETTINGS = """
from attnscope.lab.experiment import Experiment
from attnscope.models import MODELS, BagOfWordsSettings, ClassifierSettings, EncoderDecoderSettings, Positions, build
from attnscope.tasks import TASKS, Classification
from attnscope.training import TrainingSettings, fit

task, model, training = TASKS["one_to_one"](), MODELS["aed"], TrainingSettings()
network = build(model, len(task.source_vocabulary), len(task.target_vocabulary))
for wrong in (
    lambda: EncoderDecoderSettings(positions="sines"),
    lambda: EncoderDecoderSettings(units="64"),
    lambda: EncoderDecoderSettings(attention="uniform"),
    lambda: ClassifierSettings(attention=Positions),
    lambda: BagOfWordsSettings(size="256"),
    lambda: Positions(base="20"),
    lambda: TrainingSettings(steps="100"),
    lambda: TASKS["one_to_one"](max_length="9"),
    lambda: Classification("texts.csv", vocabulary="words"),
    lambda: Experiment(task, model, training, objective="cross_entropy"),
    lambda: Experiment(task, model, training, start=3),
    lambda: build("aed", 5, 5),
    lambda: network(next(task.batches("test")), attention="uniform"),
    lambda: fit(network, task, "cross_entropy"),
    lambda: fit(network, task, settings=100),
):
    try:
        wrong()
    except ValueError as error:
        print(error)
"""


def test_error_messages_of_settings_name_the_expected_type():
    """In a process of its own, where no types are checked."""
    process = subprocess.run([sys.executable, "-c", WORDS_FOR_SETTINGS], capture_output=True, text=True, check=True)
    messages = process.stdout.splitlines()
    assert messages[:2] == [
        "positions of EncoderDecoderSettings is Positions(…) or None, not 'sines'",
        "units of EncoderDecoderSettings is a whole number, not '64'",
    ]
    assert messages[2].startswith("there is no attention 'uniform'; choose one of none, dot, ")
    assert messages[3:9] == [
        "attention of ClassifierSettings is a word, not <class 'attnscope.models.encoder_decoder.Positions'>",
        "size of BagOfWordsSettings is a whole number, not '256'",
        "base of Positions is a number, not '20'",
        "steps of TrainingSettings is a whole number, not '100'",
        "max_length of OneToOne is a whole number, not '9'",
        "vocabulary of Classification is Words(…), Subwords(…) or WordPieces(…), not 'words'",
    ]
    assert messages[9].startswith("objective of Experiment is Sum(…), CrossEntropy(…), L2(…), ")
    assert re.search(r" or \w+\(…\), not 'cross_entropy'$", messages[9])
    assert messages[10:] == [
        "start of Experiment is Start(…), not 3",
        "a model is built from settings, one of EncoderDecoderSettings, ClassifierSettings, BagOfWordsSettings, "
        "TransformerSettings, TransformerDecoderSettings, TransformerClassifierSettings, such as MODELS['aed'], not "
        "from 'aed'",
        "attention= is weights, or a function of weights and mask such as attnscope.uniform, not 'uniform'",
        "an objective is one such as CrossEntropy(), not 'cross_entropy'",
        "settings are TrainingSettings(steps=100), say, not 100",
    ]
