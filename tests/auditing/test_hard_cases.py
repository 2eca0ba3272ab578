"""Audits of models and texts for which some statistics are undefined, rare or beside the point."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from attnscope.auditing import Example, Report, audit
from attnscope.errors import AttnscopeError
from attnscope.faithfulness import assess
from attnscope.faithfulness.checks import TokenStates
from attnscope.faithfulness.criteria import Interval
from attnscope.faithfulness.interventions import Effort, WordInterventions
from attnscope.lab.experiment import Experiment, train
from attnscope.lab.store import Store
from attnscope.models import MODELS
from attnscope.models.inputs import Inputs
from attnscope.probes.heads.sentences import Sentences
from attnscope.tasks import TASKS
from attnscope.testing.known_answers import known_answer
from attnscope.training import TrainingSettings
from auditing.known_answers import OneHead, honest, marked_examples
from models.adapter_examples import LABELS, SOURCES, adapter, foreign, tokenizer_for


class Constant(OneHead):
    """Its attention is uniform."""

    def __init__(self):
        super().__init__(honest=True)
        nn.init.constant_(self.strength, 40.0)

    def forward(self, batch, attention=None, teacher_forcing=1.0, gates=False):
        even = batch.source_mask[:, None, None].float()
        even = even / even.sum(-1, keepdim=True)
        if callable(attention):
            attention = attention(even, batch.source_mask)
        return super().forward(batch, even if attention is None else attention)


def constant_classifier():
    model = honest()
    nn.init.zeros_(model.strength)  # always negative
    return model


def imbalanced(count, every, seed=0):
    """Texts of which one in so many has the word that makes it positive."""
    random = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        words = random.choice([f"word{i}" for i in range(8)], random.integers(4, 9)).tolist()
        if number % every == 0:
            words[int(random.integers(len(words)))] = "good"
        texts.append(Example(tuple(words), "positive" if number % every == 0 else "negative"))
    return texts


ONE_WORD = [Example(("good",), "positive"), Example(("bad",), "negative")] * 10
CASES = {
    "constant attention": (Constant, marked_examples(40), "no"),
    "one-word texts": (honest, ONE_WORD, "undecided"),
    "two texts": (honest, marked_examples(2), "undecided"),
    "300 texts of which 5 % are positive": (honest, imbalanced(300, 20), "undecided"),
    "50 texts of which 5 % are positive": (honest, imbalanced(50, 20), "undecided"),
    "constant classifier": (constant_classifier, marked_examples(40), "undecided"),
}


@pytest.mark.parametrize("name", CASES)
def test_undefined_tests_say_why_and_the_page_is_written(name, tmp_path):
    model, texts, answer = CASES[name]
    report = audit(model(), texts, tmp_path, quick=True)  # of at most 100 texts
    assert report.answer == answer
    assert ("Too few texts" in report.headline) == (answer == "undecided")
    assert not {part: one.failed for part, one in report.parts.items() if one.failed and part in ("words", "quality")}
    assert all(test.reason for test in report.tests if test.answer == "not measurable")
    assert all(test.texts is not None for test in report.tests)
    assert (tmp_path / "audit.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert Report.load(tmp_path / "audit.json") == report


def test_nan_weights_give_one_error_message(tmp_path):
    model = honest()
    nn.init.constant_(model.strength, math.nan)
    with pytest.raises(AttnscopeError, match="outputs NaN: its weights are damaged"):
        audit(model, marked_examples(20), tmp_path, quick=True)


def test_the_same_model_gets_the_same_answer_at_every_class_balance():
    """At 4 %, 32 texts are positive: fewer than 30 of the only class that is judged would be undecided."""
    assert [assess(honest(), imbalanced(800, every)).answer for every in (2, 5, 10, 25)] == ["yes"] * 4
    assert assess(honest(), imbalanced(500, 25)).answer == "undecided"


def test_a_class_decided_by_the_absence_of_words_is_not_judged():
    result = assess(honest(), imbalanced(100, 2))["route"]
    assert result.classes["negative"].reason.startswith("deleting half of the words")
    assert not result.classes["positive"].reason
    assert result.texts == result.classes["positive"].texts == 50


def test_an_exception_in_one_part_keeps_the_other_parts(tmp_path, monkeypatch):
    from attnscope.auditing import runner

    def broken(subject, sample):
        raise ZeroDivisionError("no cluster")

    monkeypatch.setitem(runner.CHECKS, "identity", broken)
    report = audit(honest(), marked_examples(60), tmp_path, quick=True)
    assert report.parts["identity"].failed == "ZeroDivisionError: no cluster"
    assert report.answer == "yes"


class Redundant(OneHead):
    """Decides by the presence of any keyword, however often it occurs."""

    def readout(self, context, decoder=None):
        return super().readout(context.clamp(-0.2, 0.2) * 5)


def test_redundant_keywords_are_a_reason_although_no_decision_flips_without_one():
    texts = [
        Example((*one.source, *[("good", "bad")[number % 2]] * 2), one.target)
        for number, one in enumerate(marked_examples(60))
    ]
    result = assess(Redundant(honest=True), texts)
    assert result.answer == "yes"
    assert result["agreement"].value > 0.9


def test_the_keyword_network_is_not_refused(tmp_path):
    experiment = Experiment(TASKS["keyword"](), MODELS["classifier"], TrainingSettings(steps=60))
    run = train(experiment, Store(tmp_path / "runs"))
    report = audit(run.folder, out=tmp_path / "out", quick=True)
    assert report.parts["quality"].table[0]["accuracy"] > 0.95
    assert report.answer in ("yes", "with care")
    assert {test.name: test for test in report.tests}["rank correlation with leave-one-out"].value > 0.5


def test_a_collapsed_model_gets_a_warning_first():
    report = audit(constant_classifier(), marked_examples(40), quick=True)
    assert report.verdict.paragraphs[0].startswith("Warning: the model is right in 50.0%")
    assert not audit(honest(), marked_examples(40), quick=True).verdict.paragraphs[0].startswith("Warning")


def accuracy(report):
    return report.parts["quality"].table[0]["accuracy"]


def test_parts_are_measured_again_when_labels_or_rationales_or_heads_change(tmp_path):
    texts = [replace(one, rationale=None) for one in marked_examples(30)]
    first = audit(honest(), texts, tmp_path, quick=True)
    other = {"positive": "negative", "negative": "positive"}
    flipped = audit(honest(), [replace(one, target=other[one.target]) for one in texts], tmp_path, quick=True)
    assert accuracy(flipped) == pytest.approx(1 - accuracy(first))
    assert "plausibility" not in first.parts
    assert "plausibility" in audit(honest(), marked_examples(30), tmp_path, quick=True).parts


def test_the_number_of_heads_is_part_of_the_key():
    from attnscope.auditing.runner import configuration_of

    heads = [adapter("bert", num_attention_heads=heads) for heads in (1, 2)]
    assert heads[0].state_dict().keys() == heads[1].state_dict().keys()
    assert configuration_of(heads[0]) != configuration_of(heads[1])
    assert configuration_of(honest().train()) == configuration_of(honest().eval())


def test_whole_words_are_deleted_and_special_tokens_stay():
    model = adapter("bert")
    texts = Inputs.of(model, list(zip(SOURCES, LABELS, strict=True))).read(slice(None))
    whole, single = (
        WordInterventions.of(model, Sentences(texts.batch, texts.source, texts.target), Effort(), whole_words=words)
        for words in (True, False)
    )
    assert whole.words.sum(1).tolist() == [len(text.split()) for text in SOURCES]
    assert single.words.sum(1).tolist() == texts.batch.word_mask.sum(1).tolist()
    assert single.words.sum() > whole.words.sum()
    row = torch.tensor([0])
    keep = whole.keep_mask(row, torch.arange(whole.words.shape[1])[None] == 1)[0]
    gone = [token for token, stays in zip(texts.source.tokens[0], keep, strict=False) if not stays]
    assert "".join(gone).replace("##", "") == SOURCES[0].split()[1]
    assert keep[texts.batch.source_special[0] & texts.batch.source_mask[0]].all()


def test_texts_without_spaces_are_assessed_by_token(tmp_path):
    joined = [("".join(text.split()), label) for text, label in zip(SOURCES, LABELS, strict=True)]
    assert assess(adapter("bert"), joined, quick=True).unit == "tokens"
    assert assess(adapter("bert"), list(zip(SOURCES, LABELS, strict=True)), quick=True).unit == "words"
    report = audit(foreign("bert"), joined, tmp_path, tokenizer=tokenizer_for("bert"), quick=True)
    assert "Tokens, not words, are deleted" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert report.data.texts == len(joined)


def test_texts_that_are_all_alike_leave_an_interval():
    result = Interval.of([1.0] * 30, within=(0.0, 1.0))
    assert (result.value, result.low, result.high) == (1.0, 0.9, 1.0)
    assert Interval.of([1.0] * 30).low == -math.inf


def test_intervals_have_their_nominal_coverage():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        to = random.gamma(2.0, size=60)
        result = Interval.ratio(0.6 * to + 0.5 * random.normal(size=60) * to, to)
        covered += result.low <= 0.6 <= result.high
    assert 0.88 <= covered / 200 <= 0.99


def test_uniqueness_by_search_is_named_a_lower_bound(tmp_path):
    report = audit(adapter("bert"), list(zip(SOURCES, LABELS, strict=True)) * 3, tmp_path, quick=True)
    names = {test.name for test in report.tests}
    assert "uniqueness, lower bound" in names
    assert "uniqueness" not in names
    assert "uniqueness" in {test.name for test in audit(honest(), marked_examples(20), quick=True).tests}


@pytest.mark.parametrize("count", [30, 200])
def test_states_that_lost_their_words_identify_none(count):
    """The vector of a word identifies it; that of its text does not, however many texts there are."""
    random = np.random.default_rng(0)
    labels, texts = random.integers(0, 20, 10 * count), np.repeat(np.arange(count), 10)
    own, of_text = random.normal(size=(20, 8))[labels], random.normal(size=(count, 8))[texts]
    noisy = own + 0.3 * random.normal(size=own.shape)
    states = TokenStates(labels, texts, {"own": own, "noisy": noisy, "text": of_text})
    right = {name: states.identified(name).sum() / len(labels) for name in states.vectors}
    assert right["own"] == 1
    assert 0.9 < right["noisy"] <= 1
    assert right["text"] < 0.15


def test_an_audit_of_the_former_rule_is_marked(tmp_path):
    content = {"version": 2, "verdict": {"answer": "partly", "headline": "Attention is related."}}
    (tmp_path / "audit.json").write_text(json.dumps(content), encoding="utf-8")
    report = Report.load(tmp_path / "audit.json")
    assert report.answer == "with care"
    page = report.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Judged by a former rule" in page
    assert Report.load(report.save(tmp_path / "again.json")).verdict.former_rule
    assert not audit(honest(), marked_examples(20), quick=True).verdict.former_rule


def assess_positional(kind, seed=0):
    known = known_answer(kind, seed)
    return assess(known.model, known.batches(50, seed=3), quick=True)


def test_a_translator_that_aligns_by_position_is_not_refused_for_words_that_move(monkeypatch):
    assert assess_positional("translator-positional").answer == "yes"
    assert assess_positional("translator-positional-permuted").answer == "no"
    monkeypatch.setattr(WordInterventions, "removal", "deleted")  # words behind a deleted one move up
    deleted = assess_positional("translator-positional")
    assert deleted["route"].value < deleted["route"].bounds[0]
    assert deleted.answer == "undecided"
    assert deleted["agreement"].value == pytest.approx(1.0)


def test_a_gap_and_a_deletion_are_the_same_where_positions_do_not_matter(monkeypatch):
    gap = assess_positional("translator").decisions
    monkeypatch.setattr(WordInterventions, "removal", "deleted")
    pd.testing.assert_frame_equal(gap, assess_positional("translator").decisions, atol=1e-5)
