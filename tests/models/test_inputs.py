"""Texts become the same Batches, however they are given; mistakes name the row and the valid choices."""

import gzip
import json

import pandas as pd
import pytest
import torch
from adapter_examples import LABELS, SOURCES, TARGETS, adapter

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models import MODELS, build
from attnscope.models.examples import Example
from attnscope.models.inputs import Inputs, as_batches
from attnscope.models.loaded import LoadedModel, TaskReader
from attnscope.tasks import TASKS, Batch

ROWS = [{"text": text, "label": label} for text, label in zip(SOURCES, LABELS, strict=True)]


@pytest.fixture(scope="module")
def classifier():
    return adapter("bert")


@pytest.fixture(scope="module")
def translator():
    return adapter("marian")


@pytest.fixture(scope="module")
def run():
    task = TASKS["one_to_one"](min_length=2, max_length=3, test_size=5)
    torch.manual_seed(0)
    model = build(MODELS["aed"], len(task.source_vocabulary), len(task.target_vocabulary))
    return LoadedModel(model, TaskReader(task), "run", task)


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(one.tensors()[name], tensor) for name, tensor in other.tensors().items())


def written(folder, name, text):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def as_json_lines(rows):
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize(
    "give",
    [
        lambda folder: list(zip(SOURCES, LABELS, strict=True)),
        lambda folder: ROWS,
        lambda folder: pd.DataFrame(ROWS),
        lambda folder: [Example(row["text"], row["label"]) for row in ROWS],
        lambda folder: written(folder, "a.jsonl", as_json_lines(ROWS)),
        lambda folder: str(written(folder, "a.jsonl.gz", as_json_lines(ROWS))),
        lambda folder: written(folder, "a.json", json.dumps(ROWS)),
        lambda folder: written(folder, "a.csv", pd.DataFrame(ROWS).to_csv(index=False)),
        lambda folder: written(folder, "a.tsv", pd.DataFrame(ROWS).to_csv(index=False, sep="\t")),
    ],
    ids=["pairs", "dicts", "table", "examples", "jsonl", "jsonl.gz", "json", "csv", "tsv"],
)
def test_every_kind_of_data_gives_the_same_batch(give, classifier, tmp_path):
    (batch,) = as_batches(classifier, give(tmp_path))
    assert same(batch, classifier.reader.read(SOURCES, LABELS).batch)


def test_a_dataset_is_read_from_its_test_split(classifier):
    datasets = pytest.importorskip("datasets")
    test = datasets.Dataset.from_list(ROWS[:2])
    (batch,) = as_batches(classifier, datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS), test=test))
    assert same(batch, classifier.reader.read(SOURCES[:2], LABELS[:2]).batch)
    assert same(next(as_batches(classifier, test)), batch)


def test_batches_are_passed_on(classifier):
    batch = classifier.reader.read(SOURCES, LABELS).batch
    for data in (batch, [batch], iter([batch]), lambda: [batch]):
        assert next(as_batches(classifier, data)) is batch


def test_texts_without_labels_have_the_predicted_class_as_target(classifier):
    (batch,) = as_batches(classifier, SOURCES)
    assert torch.equal(batch.target, classifier(batch).predictions)
    assert not Inputs.of(classifier, SOURCES).has_targets


def test_texts_without_translations_have_the_generated_one_as_target(translator):
    (batch,) = as_batches(translator, SOURCES)
    generated = translator.generate(batch.source, batch.source_mask, batch.target.shape[1])
    assert torch.equal(batch.target[batch.target_mask], generated[batch.target_mask])


def test_a_run_reads_its_own_test_set_texts_and_batches(run):
    (batch,) = as_batches(run, None)
    assert same(batch, next(run.task.batches("test")))
    (batch,) = as_batches(run, [("A B", "1 2"), ("C", "3")])
    assert batch.source.tolist() == [[3, 4, 1], [5, 1, 0]]
    assert batch.target.tolist() == [[3, 4, 1], [5, 1, 0]]


def test_inputs_can_be_read_again_in_batches_of_any_size(classifier):
    inputs = Inputs.of(classifier, ROWS)
    assert len(inputs) == 4
    assert [len(batch) for batch in inputs.batches(3)] == [3, 1]
    assert [len(texts.batch) for texts in inputs.texts(2, max_texts=3)] == [2, 1]


def test_sampling_follows_the_seed_and_says_how_many_there_were(classifier):
    one, two = (Inputs.of(classifier, ROWS, max_texts=2, seed=seed) for seed in (0, 0))
    assert same(next(iter(one)), next(iter(two)))
    assert one.origin.available == 4
    assert len(one) == 2


def test_rationales_stand_on_every_token_of_their_words(classifier):
    inputs = Inputs.of(classifier, [{"text": "a charming dog", "label": 1, "rationale": [0, 1, 0.5]}])
    (texts,) = inputs.texts()
    assert inputs.has_rationales
    marked = dict(zip(texts.source.tokens[0], texts.batch.rationale[0].tolist(), strict=True))
    assert (marked["c"], marked["##g"], marked["dog"], marked["[CLS]"]) == (1.0, 1.0, 0.5, 0.0)


def test_gold_word_alignments_are_passed_on(translator):
    rows = [{"source": SOURCES[1], "target": TARGETS[1], "alignment": alignment} for alignment in ("0-0 1p1", [[0, 0]])]
    sure, possible = Inputs.of(translator, rows).alignments[0]
    assert (set(sure), set(possible)) == ({(0, 0)}, {(1, 1)})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a fine film", "there is no file 'a fine film'; a single text is given as a list"),
        (7, "data is a list of texts, of .* not 7"),
        ([], "there is no text"),
        ([3, 4], "text 1 is 3; give a string"),
        ([{"texte": "a"}], r"line 1: there is no field with a text \(text, tokens, .* has texte"),
        ([("a", "LABEL_0"), ("b", "bad")], "there is no class 'bad'; this model knows LABEL_0"),
        ([{"text": "a b", "label": 0, "rationale": [1]}], "marks 1 words, but the text has 2"),
        ([{"text": "a", "label": 0}, {"text": "b"}], "some texts of given texts have a label"),
        (None, "HFClassifier needs texts: give data"),
    ],
)
def test_invalid_data_give_one_error_message(data, message, classifier):
    with pytest.raises(AttnscopeError, match=message):
        list(as_batches(classifier, data))


def test_a_mistake_in_a_file_names_its_line(classifier, tmp_path):
    path = written(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n{"text": 3, "label": 1}')
    with pytest.raises(AttnscopeError, match=r"a\.jsonl, line 2: 'text' must be a string"):
        list(as_batches(classifier, path))


def test_a_model_without_a_reader_takes_batches_but_no_texts(run):
    with pytest.raises(BadSetting, match="EncoderDecoder has no reader, so it takes Batches but no texts"):
        list(as_batches(run.module, ["A"]))
    assert list(as_batches(run.module, run.task))


def test_a_word_that_a_run_does_not_know_is_named(run):
    with pytest.raises(BadSetting, match="has no word 'Z'; its words are A, B, C"):
        run.trace(["A Z"])
