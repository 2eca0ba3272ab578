"""Probes by name: what stands in PROBES, and what it must give."""

import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.models import EncoderDecoder, EncoderDecoderSettings
from attnscope.probes import PROBES, probe
from attnscope.tasks import OneToOne

TASK = OneToOne(min_length=1, max_length=3, test_size=10)


def model():
    torch.manual_seed(0)
    return EncoderDecoder(EncoderDecoderSettings(units=4), len(TASK.source_vocabulary), len(TASK.target_vocabulary))


def test_a_probe_by_name_gives_what_the_probe_gives():
    asked = model()
    assert probe("agreement")(asked, TASK).table().equals(PROBES["agreement"](asked, TASK).table())


def test_a_probe_whose_answer_cannot_be_shown_is_named(monkeypatch):
    monkeypatch.setitem(PROBES, "movement", lambda model, task: torch.zeros(3))
    message = r"a probe gives an object with .table\(\) and .plot\(ax\); 'movement' gave a Tensor"
    with pytest.raises(BadSetting, match=message):
        probe("movement")(model(), TASK)


def test_an_unknown_probe_says_which_are_known_and_how_one_becomes_so():
    with pytest.raises(BadSetting, match=r"no probe 'entropy'; choose one of decomposition, .* puts it into PROBES"):
        probe("entropy")
