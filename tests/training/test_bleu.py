import sys

import numpy as np
import pytest
import torch
from torch import nn

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models import EncoderDecoder, EncoderDecoderSettings
from attnscope.models.capabilities import Generates
from attnscope.tasks import END, Preparation, Subwords, Translation, Words, pad
from attnscope.training.evaluation import bleu

LETTERS = list("abcdefghij")


@pytest.fixture(params=["words", "subwords"])
def task(request, tmp_path, monkeypatch):
    """A sentence of letters and the same in capitals."""
    monkeypatch.setenv("ATTNSCOPE_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    sentences = [" ".join(random.choice(LETTERS, random.integers(5, 12))) for _ in range(80)]
    file = tmp_path / "pairs.tsv"
    file.write_text("source\ttarget\n" + "".join(f"{text}\t{text.upper()}\n" for text in sentences))
    vocabulary = Words(min_count=1) if request.param == "words" else Subwords(size=40)
    return Translation(str(file), preparation=Preparation("spaces", lower=False), vocabulary=vocabulary)


class Oracle(Generates, nn.Module):
    """Says the reference, through `changed`."""

    def __init__(self, task, changed=lambda words: words):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.changed, self.lengths = changed, []
        parts = [task.part(name) for name in ("training", "validation", "test")]
        self.answers = {s.tobytes(): t for part in parts for s, t in zip(part.source, part.target, strict=True)}

    def generate(self, source, source_mask, max_length):
        assert not self.training
        assert max_length >= source.shape[1]
        rows = [row[mask].numpy().astype(np.int32) for row, mask in zip(source, source_mask, strict=True)]
        self.lengths += [len(row) for row in rows]
        return pad([self.changed(self.answers[row.tobytes()]) for row in rows], fill=END)[0]


def test_the_reference_has_a_bleu_of_100(task):
    result = bleu(Oracle(task).train(), task, batch_size=3)
    assert result.score == pytest.approx(100)
    assert result.sentences == len(task.part("validation"))
    assert "tok:13a" in result.signature
    assert "case:mixed" in result.signature


def test_an_empty_translation_has_a_bleu_of_zero_and_a_short_one_less(task):
    nothing = bleu(Oracle(task, lambda words: words[-1:]), task)
    early = bleu(Oracle(task, lambda words: np.append(words[:-3], END)), task)
    assert nothing.score == 0
    assert 0 < early.score < 100


def test_a_subset_is_a_random_sample_sorted_by_length(task):
    oracle = Oracle(task)
    assert bleu(oracle, task, "training", max_sentences=9, batch_size=4).sentences == 9
    assert oracle.lengths == sorted(task.sample_batch("training", 9).source_mask.sum(1).tolist())


def test_a_task_in_lower_case_is_compared_in_lower_case(tmp_path):
    file = tmp_path / "pairs.tsv"
    rows = "".join(f"a b c d e f x{i}\tThe Cat sat on a Mat.\n" for i in range(40))
    file.write_text("source\ttarget\n" + rows)
    lower = Translation(str(file), vocabulary=Words(min_count=1))
    result = bleu(Oracle(lower), lower)
    assert result.score == pytest.approx(100)
    assert "case:lc" in result.signature


def test_a_network_translates_and_is_left_in_its_mode(task):
    settings = EncoderDecoderSettings(units=8)
    model = EncoderDecoder(settings, len(task.source_vocabulary), len(task.target_vocabulary)).train()
    assert 0 <= bleu(model, task, max_sentences=5).score < 50
    assert model.training


def test_a_missing_library_and_an_impossible_number_are_named(task, monkeypatch):
    with pytest.raises(BadSetting, match="max_sentences must be positive"):
        bleu(Oracle(task), task, max_sentences=0)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(AttnscopeError, match=r"sacrebleu.*attnscope\[text\]"):
        bleu(Oracle(task), task)
