"""Fields of rows, pairs of texts and labels; warnings, and errors that name the line."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch
from adapter_examples import SOURCES, TARGETS, foreign, tokenizer_for

from attnscope.errors import AttnscopeError, BadSetting, InputWarning
from attnscope.loading import load
from attnscope.models.adapters.readers import TextPair
from attnscope.models.examples import Columns
from attnscope.models.inputs import Inputs

PAIRS = [
    ("a dog sleeps", "dogs see the house"),
    ("the old house", "unwatchable"),
    ("small", "the old films were charming"),
]


def with_segments():
    """BERT's own tokenizer names segments among the model's inputs."""
    tokenizer = copy.deepcopy(tokenizer_for("bert"))
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


@pytest.fixture(scope="module")
def classifier():
    return load(foreign("bert"), tokenizer=with_segments())


@pytest.fixture(scope="module")
def translator():
    return load(foreign("marian"), tokenizer=tokenizer_for("marian"))


def texts_of(model, data, **options):
    inputs = Inputs.of(model, data, **options)
    return inputs, next(inputs.texts())


@torch.no_grad()
@pytest.mark.parametrize("segments", [True, False])
def test_a_pair_is_read_as_the_tokenizer_and_the_model_read_it(segments):
    """The logits are those of the library itself, with segments where the tokenizer gives them."""
    tokenizer = with_segments() if segments else tokenizer_for("bert")
    model = foreign("bert")
    classifier = load(model, tokenizer=tokenizer)
    encoding = tokenizer([one for one, _ in PAIRS], [other for _, other in PAIRS], padding=True, return_tensors="pt")
    assert ("token_type_ids" in encoding) == segments
    expected = model(**encoding).logits
    trace = classifier.trace([TextPair(*pair) for pair in PAIRS])
    assert torch.equal(trace.source, encoding["input_ids"])
    torch.testing.assert_close(trace.logits[:, 0, 3:], expected)
    single = classifier.trace([f"{one} {other}" for one, other in PAIRS])
    assert not torch.allclose(single.logits[:, 0, 3:], expected)


def test_the_words_of_a_pair_are_those_of_both_texts(classifier):
    read = classifier.read([TextPair("a dog", "the isle")], [0])
    assert read.source.names[0] == ("[CLS]", "a", "dog", "[SEP]", "the", "isle", "[SEP]")


def test_a_separator_within_a_single_text_is_refused(classifier):
    with pytest.raises(BadSetting, match=r"holds the token \[SEP\]"):
        classifier.trace(["a dog [SEP] the isle"])


@pytest.mark.parametrize(
    "names",
    [
        ("text", "text_pair"),
        ("sentence1", "sentence2"),
        ("premise", "hypothesis"),
        ("question", "sentence"),
        ("question1", "question2"),
    ],
)
def test_pairs_are_found_by_their_usual_names(classifier, names):
    rows = [dict(zip(names, pair, strict=True)) | {"label": 1, "idx": 3} for pair in PAIRS]
    _, texts = texts_of(classifier, rows)
    assert torch.equal(texts.batch.source, classifier.read([TextPair(*pair) for pair in PAIRS], [1] * 3).batch.source)


def test_named_columns_are_read_and_others_are_not(classifier):
    table = pd.DataFrame(
        {"a": SOURCES, "b": TARGETS, "gold": [0, 1, 2, 1], "marks": [[0.5] * 5, [1, 0, 0], [1], [1] * 6]}
    )
    inputs, texts = texts_of(classifier, table[["a", "gold", "marks"]], columns=Columns("a", "gold", rationale="marks"))
    assert inputs.has_targets
    assert inputs.has_rationales
    assert texts.batch.target.flatten().tolist() == [3, 4, 5, 4]
    _, texts = texts_of(classifier, table[["a", "b", "gold"]], columns=Columns("a", "gold", "b"))
    pairs = [TextPair(*pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    assert torch.equal(texts.batch.source, classifier.read(pairs, [0] * 4).batch.source)


def test_a_field_that_looks_like_text_and_is_not_used_is_named(classifier):
    rows = [{"text": "a dog", "label": 1, "id": "17", "summary": "an old dog sleeps"}] * 2
    with pytest.warns(InputWarning, match="'text' is read, but 'summary' is not"):
        Inputs.of(classifier, rows)


def test_a_misspelt_field_is_named(classifier):
    with pytest.warns(InputWarning, match="the field 'lable' is not read; is it meant to be 'label'"):
        Inputs.of(classifier, [{"text": "a dog", "lable": 1}] * 2)
    Inputs.of(classifier, [{"text": "a dog", "label": 1, "labels": 2, "part": 3, "sentence_id": 4}])  # no warning


@pytest.mark.parametrize("missing", [None, "", -1, -1.0, "-1", float("nan")])
def test_a_text_without_a_label_is_left_out_where_others_have_one(classifier, missing):
    table = pd.DataFrame({"text": SOURCES, "label": pd.Series([1, missing, 2, 0], dtype=object)})
    with pytest.warns(InputWarning, match="1 texts of DataFrame have no label and are left out"):
        inputs, texts = texts_of(classifier, table)
    assert texts.batch.target.flatten().tolist() == [4, 5, 3]
    assert inputs.origin.available == 3


def test_a_column_or_field_that_is_named_twice_is_refused(classifier, tmp_path):
    with pytest.raises(BadSetting, match="several columns 'text'"):
        Inputs.of(classifier, pd.DataFrame([["a dog", "a film", 1]], columns=["text", "text", "label"]))
    for name, content in {
        "texts.jsonl": '{{"text": "a dog", {0}, {0}}}',
        "texts.json": '[{{"text": "a", {0}, {0}}}]',
    }.items():
        (tmp_path / name).write_text(content.format('"label": 1'), encoding="utf-8")
        with pytest.raises(AttnscopeError, match="the field 'label' is given twice"):
            Inputs.of(classifier, tmp_path / name)


def test_labels_are_optional(classifier):
    inputs, texts = texts_of(classifier, SOURCES)
    assert not inputs.has_targets
    assert torch.equal(texts.batch.target, classifier(texts.batch).predictions)
    assert not Inputs.of(classifier, pd.DataFrame({"text": SOURCES, "label": [-1] * 4})).has_targets


def test_an_unknown_label_is_refused_with_its_line(classifier, tmp_path):
    rows = [{"text": "a dog", "label": i % 3} for i in range(50)] + [{"text": "a dog", "label": "good"}]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(
        AttnscopeError, match=r"texts\.jsonl, line 51: there is no class 'good'; this model knows LABEL_0"
    ):
        Inputs.of(classifier, path, max_texts=2, seed=0)


def stars():
    names = {i: str(i + 1) for i in range(3)}
    return load(foreign("bert", id2label=names), tokenizer=tokenizer_for("bert"))


@pytest.mark.parametrize("labels", [[0, 1, 2], [1, 2, 1], ["1", "2", "0"]])
def test_labels_that_may_be_names_or_indices_are_refused(labels):
    with pytest.raises(BadSetting, match="may be names or indices of the classes 1, 2, 3"):
        Inputs.of(stars(), list(zip(SOURCES, labels, strict=False)))


def test_labels_that_can_only_be_names_are_names():
    _, texts = texts_of(stars(), list(zip(SOURCES, [1, 2, 3, 1], strict=True)))
    assert texts.batch.target.flatten().tolist() == [3, 4, 5, 3]


def aligned(*alignments):
    return [{"source": "a dog", "target": "ein hund", "alignment": alignment} for alignment in alignments]


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        ("0-2", "line 2: 'alignment' links word 0 to word 2, counted from 0, but source and target have 2 and 2 words"),
        ([[-1, 0]], "line 2: 'alignment' holds no pairs of word numbers"),
        ([[0.5, 0]], "line 2: 'alignment' holds no pairs of word numbers"),
        ("a-b", "line 2: 'alignment' is 'a-b', not of the form 0-0 1p2"),
    ],
)
def test_a_wrong_alignment_is_refused_with_its_line(translator, alignment, message):
    with pytest.raises(AttnscopeError, match=message):
        Inputs.of(translator, aligned("0-0", alignment))


def test_one_based_alignments_cause_a_warning(translator):
    with pytest.warns(InputWarning, match="are words counted from 1"):
        Inputs.of(translator, aligned("1-1", "1p1"))
    Inputs.of(translator, aligned("0-0 1-1", "1p1"))


def test_a_sample_of_a_file_is_that_of_the_list_of_its_rows(classifier, tmp_path):
    """Rows are read twice, one by one; the sample is the one of all rows in memory."""
    rows = [{"text": f"a dog {i}", "label": i % 3} for i in range(40)]
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    inputs = Inputs.of(classifier, path, max_texts=7, seed=3)
    order = np.random.default_rng(3).permutation(40)[:7]
    assert [example.source for example in inputs.examples] == [rows[i]["text"] for i in order]
    assert inputs.origin.available == 40
