"""Probes by name: each on every kind of model, and the table of what runs in docs/probes.md.

`ATTNSCOPE_WRITE_PROBES=1 pytest tests/probes/test_probes_by_name.py` writes that table again.
"""

import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from attnscope import plots
from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models import BagOfWords, BagOfWordsSettings, ClassifierSettings, EncoderDecoder, EncoderDecoderSettings
from attnscope.models import build as build_model
from attnscope.models.capabilities import MissingCapability
from attnscope.probes import PROBES, Probe, run_probe
from attnscope.probes.adversary import SearchSettings
from attnscope.tasks import Keyword, OneToOne

sys.path.append(str(Path(__file__).parents[1] / "models"))

PAGE = Path(__file__).parents[2] / "docs" / "probes.md"
MARKS = ("<!-- table -->", "<!-- end of table -->")
TRANSLATION = OneToOne(min_length=2, max_length=4, test_size=40)
CLASSIFICATION = Keyword(num_words=6, length=5, test_size=40)
QUICK = {
    "fragility": {"draws": 3},
    "adversary": {"settings": SearchSettings(steps=3, restarts=1)},
    "erasure": {"draws": 1},
    "plausibility": {"draws": 2},
    "information": {"k": 3},
    "distance_shares": {"window": 3},
}


def encoder_decoder():
    torch.manual_seed(0)
    sizes = len(TRANSLATION.source_vocabulary), len(TRANSLATION.target_vocabulary)
    return EncoderDecoder(EncoderDecoderSettings(units=6, inputs="learned", input_size=5), *sizes), list(
        TRANSLATION.batches("test", 20)
    )


def classifier():
    torch.manual_seed(0)
    settings = ClassifierSettings(input_size=6, units=4, hidden=4)
    sizes = len(CLASSIFICATION.source_vocabulary), len(CLASSIFICATION.target_vocabulary)
    return build_model(settings, *sizes), list(CLASSIFICATION.batches("test", 20))


def bag_of_words():
    torch.manual_seed(0)
    sizes = len(TRANSLATION.source_vocabulary), len(TRANSLATION.target_vocabulary)
    return BagOfWords(BagOfWordsSettings(size=6), *sizes), list(TRANSLATION.batches("test", 20))


def hugging_face_classifier():
    from adapter_examples import LABELS, SOURCES, adapter

    return adapter("bert"), list(zip(SOURCES * 5, LABELS * 5, strict=True))


def hugging_face_encoder_decoder():
    from adapter_examples import SOURCES, TARGETS, adapter

    return adapter("marian"), list(zip(SOURCES * 5, TARGETS * 5, strict=True))


def language_model():
    from language_examples import language_model as loaded

    prompts = ["the old cat sat on the", "a dog sees the old", "small dogs see the cat on", "the mat on the mat"]
    return loaded("llama"), prompts * 5


def bare_adapter():
    """Only a Trace: a bare subclass of Adapter around a classifier."""
    from attnscope.models.adapters import Adapter

    inner, data = classifier()

    class Mine(Adapter):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, batch, attention=None, teacher_forcing=None, gates=False):
            return self.inner(batch, attention)

    return Mine(), data


KINDS = {
    "encoder-decoder": encoder_decoder,
    "classifier": classifier,
    "bag of words": bag_of_words,
    "Hugging Face encoder-decoder": hugging_face_encoder_decoder,
    "Hugging Face classifier": hugging_face_classifier,
    "language model": language_model,
    "bare adapter": bare_adapter,
}


def with_data(name, kind, data):
    """The data with what the probe needs besides texts: rationales, or gold alignments."""
    if name == "plausibility" and kind in ("classifier", "bare adapter"):
        marked = [
            torch.zeros_like(batch.source, dtype=torch.float).index_fill(1, torch.tensor([1]), 1) for batch in data
        ]
        return [replace(batch, rationale=marks) for batch, marks in zip(data, marked, strict=True)]
    if name == "plausibility" and kind == "Hugging Face classifier":
        return [{"text": text, "label": label, "rationale": marks(text)} for text, label in data]
    if name == "word_alignment" and kind == "Hugging Face encoder-decoder":
        return [{"source": source, "target": target, "alignment": "0-0"} for source, target in data]
    return data


def marks(text):
    return [1.0] + [0.0] * (len(text.split()) - 1)


@cache
def answer(name, kind):
    """The answer of a probe on a kind of model, or the sentence why there is none."""
    model, data = KINDS[kind]()
    try:
        return run_probe(name, model, with_data(name, kind, data), **QUICK.get(name, {}))
    except AttnscopeError as error:
        return error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBES)
def test_every_probe_runs_on_every_kind_of_model_or_names_the_reason(name, kind):
    result = answer(name, kind)
    if isinstance(result, AttnscopeError):
        assert len(str(result)) > 30
        assert "Traceback" not in str(result)
        return
    table = result.table()
    assert len(table) > 0
    assert table.select_dtypes(np.number).notna().any().any()
    _, (ax,) = plots.panels()
    assert result.plot(ax) is not None


def page():
    """docs/probes.md, with the table as computed."""
    lines = ["| probe | question | needs | " + " | ".join(KINDS) + " |", "|---" * (3 + len(KINDS)) + "|"]
    for name, probe in PROBES.items():
        needed = [capability.__name__ for capability in probe.needs] + list(probe.needs_data)
        cells = ["–" if isinstance(answer(name, kind), AttnscopeError) else "yes" for kind in KINDS]
        lines.append(f"| `{name}` | {probe.question} | {', '.join(needed)} | " + " | ".join(cells) + " |")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    return before + MARKS[0] + "\n" + "\n".join(lines) + "\n" + MARKS[1] + rest.partition(MARKS[1])[2]


def test_docs_probes_shows_what_runs_on_which_kind_of_model():
    result = page()
    if os.environ.get("ATTNSCOPE_WRITE_PROBES"):
        PAGE.write_text(result, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == result


def test_a_probe_by_name_equals_its_function():
    model, data = encoder_decoder()
    assert run_probe("gates", model, data).table().equals(PROBES["gates"].function(model, data).table())


def test_a_probe_whose_result_has_no_table_is_named(monkeypatch):
    monkeypatch.setitem(PROBES, "movement", Probe("movement", "?", lambda model, data: torch.zeros(3)))
    message = r"a probe returns an object with .table\(\) and .plot\(ax\); 'movement' returned a Tensor"
    with pytest.raises(BadSetting, match=message):
        run_probe("movement", *encoder_decoder())


def test_an_unknown_probe_lists_the_known_ones_and_how_to_register():
    with pytest.raises(BadSetting, match=r"no probe 'movement'; choose one of decompose, .* adds it to PROBES"):
        run_probe("movement", *encoder_decoder())


def test_a_missing_capability_is_named_in_one_sentence():
    with pytest.raises(MissingCapability, match="the probe 'grounding' needs a model that can be read out"):
        run_probe("grounding", *bare_adapter())


def test_missing_data_are_named_in_one_sentence():
    with pytest.raises(AttnscopeError, match="have no rationales"):
        run_probe("plausibility", *classifier())
    with pytest.raises(AttnscopeError, match="no gold word alignments"):
        run_probe("word_alignment", *hugging_face_encoder_decoder())
