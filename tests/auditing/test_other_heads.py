"""Audits of regression heads, of single labels of multi-label heads, and the refusal of token classification."""

import csv
import math
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from torch.nn.functional import pad

import attnscope
from attnscope.auditing import Settings, audit
from attnscope.models.adapters import NoModel, adapt
from attnscope.models.adapters.readers import ClassOutputs
from attnscope.models.inputs import Inputs
from attnscope.probes.divergences import tvd
from attnscope.tasks import SPECIALS
from auditing.known_answers import OneHead, marked_examples
from models.adapter_examples import FLAT, wordpiece

WORDS = ["the", "old", "film", "dog", "sees", "a", "house", "were", "small"]
QUICK = Settings(quick=True, examples=False)


@cache
def texts(count=60):
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(count)]


def model_of(**given):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("bert", vocab_size=len(wordpiece()), **FLAT | given)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.4)
    return model.eval()


def multi_label():
    names = {0: "toxic", 1: "rude", 2: "spam"}
    return model_of(
        problem_type="multi_label_classification", id2label=names, label2id={name: i for i, name in names.items()}
    )


def values(report):
    return {test.name: test.value for test in report.tests if test.name != "uniqueness, lower bound"}


def test_tvd_of_a_number_is_its_change_in_standard_deviations():
    outputs = ClassOutputs(regression=True)
    numbers = torch.tensor([[1.0], [2.0], [5.0]])
    outputs.standardise(outputs(row) for row in numbers)
    shares = outputs(numbers).softmax(-1)
    expected = (numbers[:, 0] - numbers[0, 0]).abs() / numbers.std() / (2 * ClassOutputs.SPAN)
    torch.testing.assert_close(tvd(shares, shares[:1].expand_as(shares)), expected, atol=1e-6, rtol=1e-5)
    assert (shares[:, 1] > 0.5).tolist() == [False, False, True]  # above the mean


def test_a_regression_model_is_judged_whatever_its_unit():
    """Another unit and another zero of the output change nothing."""
    one, other = model_of(num_labels=1), model_of(num_labels=1)
    with torch.no_grad():
        other.classifier.weight *= 100
        other.classifier.bias += 1000
    rows = [{"text": text, "label": 3.7} for text in texts()]  # which are not read
    result, same = (audit(model, rows, settings=QUICK, tokenizer=wordpiece()) for model in (one, other))
    assert not [part.failed for part in result.parts.values() if part.failed]
    assert result.model.classes == ("below the mean", "above the mean")
    assert "quality" not in result.parts
    assert "one standard deviation of the model's output" in result.parts["words"].sentences[0]
    assert values(result) == pytest.approx(values(same), abs=2e-3)
    assert result.answer == same.answer


class Number(OneHead):
    """Predicts a number: what the words attended to are worth."""

    def __init__(self, honest):
        super().__init__(honest)
        self.outputs = ClassOutputs(regression=True)
        self.outputs.sd = 6.0  # of outputs that are 6 or -6 by turns

    def readout(self, context, decoder=None):
        return pad(self.outputs(self.strength * context), (len(SPECIALS), 0), value=-math.inf)


@pytest.mark.parametrize(("honest", "answer"), [(True, "yes"), (False, "no")])
def test_a_number_that_is_read_from_attended_words_is_explained_by_attention(honest, answer):
    assert audit(Number(honest), marked_examples(120), settings=QUICK).answer == answer


def test_every_label_of_a_multi_label_model_is_audited_by_itself(tmp_path):
    with pytest.raises(NoModel, match="of toxic, rude, spam: every label is read by itself; choose one with label="):
        attnscope.load(multi_label(), tokenizer=wordpiece())
    with pytest.raises(NoModel, match="but not 'kind'"):
        attnscope.load(multi_label(), tokenizer=wordpiece(), label="kind")
    path = tmp_path / "comments.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "toxic", "rude"])
        rows.writerows([text, i % 2, i % 3 == 0] for i, text in enumerate(texts()))
    result = audit(multi_label(), path, settings=QUICK, tokenizer=wordpiece(), label="toxic")
    assert result.model.classes == ("not toxic", "toxic")
    assert "quality" in result.parts
    assert not [part.failed for part in result.parts.values() if part.failed]
    unlabelled = audit(multi_label(), path, settings=QUICK, tokenizer=wordpiece(), label="spam")
    assert unlabelled.model.classes == ("not spam", "spam")
    assert "quality" not in unlabelled.parts  # there is no such column
    assert values(unlabelled) != values(result)


@torch.no_grad()
def test_labels_of_a_multi_label_model_are_in_the_column_of_their_name():
    model = attnscope.load(multi_label(), tokenizer=wordpiece(), label="rude")
    rows = [{"text": "the old dog", "label": 1, "rude": 0}, {"text": "a film", "label": 0, "rude": 1}]
    assert Inputs.of(model, rows).read(slice(2)).batch.target.flatten().tolist() == [3, 4]
    others = [{"text": row["text"], "label": row["label"]} for row in rows]
    assert not Inputs.of(model, others).has_targets


def test_the_probability_of_a_label_is_the_library_s():
    model = multi_label()
    adapter = adapt(model, wordpiece(), "rude")
    batch = adapter.reader.read(texts()[:4]).batch
    ours = adapter(batch).logits[:, 0, len(SPECIALS) :].softmax(-1)[:, 1]
    logits = model(input_ids=batch.source, attention_mask=batch.source_mask.long()).logits
    torch.testing.assert_close(ours, logits[:, 1].sigmoid(), atol=1e-5, rtol=1e-4)


def test_token_classification_is_refused_with_a_sentence():
    config = transformers.BertConfig(vocab_size=len(wordpiece()), **FLAT)
    with pytest.raises(NoModel, match="which classifies every token"):
        adapt(transformers.BertForTokenClassification(config), wordpiece())
