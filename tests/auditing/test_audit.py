"""Audits of models whose answer is known, and of data and models of any kind."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import attnscope
from attnscope.auditing import Example, Report, Settings, audit, runner
from attnscope.auditing.page import TITLES
from attnscope.errors import AttnscopeError
from attnscope.faithfulness.records import ANSWERS, Part, answer_of
from attnscope.faithfulness.subject import Reading, Subject
from attnscope.models.inputs import Inputs
from attnscope.models.loaded import LoadedModel, TaskReader
from attnscope.tasks import Copying
from auditing.known_answers import OneHead, hiding, honest, marked_examples
from models.adapter_examples import LABELS, SOURCES, adapter, foreign, tokenizer_for

QUICK = Settings(quick=True)


def answers(found):
    return {test.name: test.answer for test in found.tests}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audits")
    models = {"honest": honest(), "hiding": hiding()}
    return {name: audit(model, marked_examples(60), folder / name, QUICK) for name, model in models.items()}, folder


def test_a_model_whose_attention_decides_gets_the_answer_yes(audited):
    result, _ = audited
    assert result["honest"].answer == "yes"
    assert not {"no", "undecided", "not measurable"} & set(answers(result["honest"]).values())


def test_the_deciding_word_suffices_alone_whatever_its_token_id(audited):
    """The reader's word ids begin at 0."""
    sufficiency = {test.name: test.value for test in audited[0]["honest"].tests}["single-token sufficiency"]
    assert sufficiency == pytest.approx(0.1743, abs=1e-4)  # one of 4 to 8 words


def test_a_model_that_hides_what_it_uses_is_flagged(audited):
    result, _ = audited
    assert result["hiding"].answer == "no"
    assert answers(result["hiding"])["route"] == answers(result["hiding"])["agreement"] == "no"
    assert "not a reason" in result["hiding"].headline


def test_only_the_honest_model_agrees_with_human_rationales(audited):
    result, _ = audited
    precision = {
        name: one.parts["plausibility"].table[0]["average_precision"] for name, one in result.items()
    }  # fmt: skip
    assert precision["honest"] == 1.0
    assert precision["hiding"] < 0.3


def test_every_part_is_measured_and_the_page_is_self_contained(audited):
    result, folder = audited
    of_others = {"another_seed", "units", "named_parts", "mixture"}  # it has one head, and is no language model
    assert set(result["honest"].parts) == set(runner.PARTS) - of_others
    assert any("F1 is" in sentence for sentence in result["honest"].parts["quality"].sentences)
    assert not [part for part in result["honest"].parts.values() if part.failed]
    page = (folder / "honest" / "audit.html").read_text(encoding="utf-8")
    assert result["honest"].headline in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert json.loads((folder / "honest" / "audit.json").read_text(encoding="utf-8")) == result["honest"].to_dict()
    assert Report.load(folder / "honest" / "audit.json") == result["honest"]


def numbers(found):
    parts = found.to_dict()["parts"]
    return {name: {k: v for k, v in part.items() if k != "seconds"} for name, part in parts.items()}


def close(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float):
        return other == pytest.approx(one, abs=2e-3, rel=1e-3)
    return one == other


@pytest.mark.slow
def test_the_size_of_batches_changes_no_result(tmp_path):
    examples = [Example(text, str(label)) for text, label in zip(SOURCES, LABELS, strict=True)] * 2
    model = adapter("bert")
    result = [numbers(audit(model, examples, tmp_path / str(n), Settings(quick=True, batch_size=n))) for n in (2, 5)]
    differing = [name for name in result[0] if not close(result[0][name], result[1][name])]
    assert not differing


def test_an_interrupted_audit_resumes(tmp_path, monkeypatch):
    audit(honest(), marked_examples(20), tmp_path, QUICK)
    (tmp_path / "parts" / "words.json").unlink()
    calls = []
    whole = runner.Parts.compute

    def counted(self, name, most):
        calls.append(name)
        return whole(self, name, most)

    monkeypatch.setattr(runner.Parts, "compute", counted)
    audit(honest(), marked_examples(20), tmp_path, QUICK)
    assert calls == ["words"]
    changed = honest()
    torch.nn.init.constant_(changed.strength, 5.0)
    audit(changed, marked_examples(20), tmp_path, QUICK)
    # Other weights: all again but `another_seed`, `units` and `named_parts` (prompts), and `mixture` (several heads).
    assert len(calls) == 1 + len(runner.PARTS) - 4


def test_a_time_budget_reduces_the_number_of_texts(tmp_path):
    result = audit(honest(), marked_examples(60), tmp_path, Settings(budget=1e-6))
    assert {part.texts for part in result.parts.values()} == {runner.FIRST_TEXTS}


def test_the_part_with_the_verdict_gets_the_largest_share_of_a_budget(tmp_path, monkeypatch):
    now = 0.0

    def compute(parts, name, texts):
        nonlocal now
        now += texts  # a second per text
        return Part()

    monkeypatch.setattr(runner.Parts, "compute", compute)
    monkeypatch.setattr(runner.time, "monotonic", lambda: now)
    result = audit(honest(), marked_examples(600), tmp_path, Settings(budget=10))
    texts = {name: result.parts[name].texts for name in ("quality", "words", "formation")}
    assert texts["words"] > 2 * texts["quality"] == 2 * texts["formation"]  # later parts have what is left over


def test_the_first_texts_of_a_sorted_file_are_not_all_of_one_class(tmp_path):
    by_class = sorted(marked_examples(60), key=lambda example: example.target)
    result = audit(honest(), by_class, tmp_path, Settings(budget=1e-6))
    assert result.parts["quality"].table[0]["commonest class"] < 1.0


def test_texts_can_be_kept_out_of_the_page(tmp_path):
    result = audit(honest(), marked_examples(20), tmp_path, Settings(quick=True, examples=False))
    assert "examples" not in result.parts
    assert "word5" not in (tmp_path / "audit.html").read_text(encoding="utf-8")


def test_the_report_compares_with_another_seed(tmp_path):
    result = audit(honest(), marked_examples(20), tmp_path, QUICK, against=hiding())
    table = {row["attention"]: row["τ"] for row in result.parts["another_seed"].table}
    assert table["another seed"] == pytest.approx(-1.0)


def test_a_model_is_left_as_it_was(tmp_path):
    model = foreign("distilbert").train()
    before = model.config.to_dict(), {name: value.clone() for name, value in model.state_dict().items()}
    from attnscope.models.adapters import adapt

    examples = [Example(text, str(label)) for text, label in zip(SOURCES, LABELS, strict=True)]
    audit(adapt(model, tokenizer_for("distilbert")), examples, tmp_path, QUICK)
    assert model.config.to_dict() == before[0]
    assert model.training
    assert all(torch.equal(value, before[1][name]) for name, value in model.state_dict().items())


def saved(folder, kind="bert"):
    foreign(kind).save_pretrained(folder)
    tokenizer_for(kind).save_pretrained(folder)
    return folder


@pytest.fixture
def lines(tmp_path):
    def write(rows):
        path = tmp_path / "texts.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


TEXT = {"text": "the old films were charming", "label": 1}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"label": 1}] * 2, "no field with a text"),
        ([{"text": "a dog", "label": "cat"}] * 2, "there is no class 'cat'"),
        ([{"text": "a dog", "label": 1, "rationale": [1]}] * 2, "marks 1 words, but the text has 2"),
        ([TEXT], "only one text"),
    ],
)
def test_texts_that_cannot_be_audited_are_refused(rows, said, lines, tmp_path):
    with pytest.raises(AttnscopeError, match=said):
        audit(saved(tmp_path / "model"), lines(rows), tmp_path / "out", QUICK)
    assert not (tmp_path / "out" / "audit.html").exists()


def test_models_that_cannot_be_audited_are_refused(lines, tmp_path):
    texts = lines([TEXT] * 3)
    with pytest.raises(AttnscopeError, match="there is no model"):
        audit(tmp_path / "nothing", texts, tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AttnscopeError, match="has no config"):
        audit(tmp_path / "empty", texts, tmp_path / "out")
    without = saved(tmp_path / "without")
    for path in without.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(AttnscopeError, match="no tokenizer"):
        audit(without, texts, tmp_path / "out")
    with pytest.raises(AttnscopeError, match="needs texts"):
        audit(saved(tmp_path / "model"), None, tmp_path / "out")
    with pytest.raises(AttnscopeError, match="gives no Traces"):
        audit("torch.nn:Identity", texts, tmp_path / "out")
    with pytest.raises(AttnscopeError, match="there is no function made"):
        audit("auditing.known_answers:made", texts, tmp_path / "out")
    with pytest.raises(AttnscopeError, match="cannot be imported"):
        audit("no.such.module:made", texts, tmp_path / "out")


class IgnoresAttention(OneHead):
    """Ignores `attention=`."""

    def forward(self, batch, attention=None, teacher_forcing=None, gates=False):
        return super().forward(batch)


def test_an_adapter_that_ignores_attention_is_refused(tmp_path):
    with pytest.raises(AttnscopeError, match="violates the contract of an adapter"):
        audit(IgnoresAttention(honest=True), marked_examples(20), tmp_path, quick=True)
    assert list(tmp_path.iterdir()) == []


class DropsSpecialPositions(OneHead):
    """Its traces do not say which tokens are special."""

    def forward(self, batch, attention=None, teacher_forcing=None, gates=False):
        return replace(super().forward(batch, attention), source_special=None)


def test_an_adapter_that_drops_special_positions_is_refused_and_a_reading_restores_them(tmp_path):
    with pytest.raises(AttnscopeError, match=r"Trace\.of"):
        audit(DropsSpecialPositions(honest=True), marked_examples(20), tmp_path, quick=True)
    model = attnscope.load(DropsSpecialPositions(honest=True))
    subject = Subject(model, Inputs.of(model, marked_examples(4)))
    reading = Reading.of(subject, subject.inputs.read(slice(4)))
    assert torch.equal(reading.trace.word_mask, reading.batch.word_mask)
    assert torch.equal(reading.words, reading.batch.source_mask)  # every token is a word, those with ids below 3 too


def command(*words):
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    program = [sys.executable, "-m", "attnscope", "audit", *map(str, words)]
    return subprocess.run(program, capture_output=True, text=True, env=environment, timeout=300)


def test_a_file_with_an_adapter_is_audited_by_one_command(lines, tmp_path):
    texts = lines([{"tokens": list(one.source), "label": one.target} for one in marked_examples(60)])
    shown = command(f"{Path(__file__).parent / 'known_answers.py'}:honest", texts, "--quick", "--out", tmp_path / "out")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("yes")
    assert (tmp_path / "out" / "audit.html").is_file()


def test_a_run_of_the_store_is_audited_on_its_own_task(tmp_path):
    from attnscope.lab.experiment import Experiment, train
    from attnscope.lab.store import Store
    from attnscope.models import MODELS
    from attnscope.tasks import TASKS
    from attnscope.training import TrainingSettings

    experiment = Experiment(TASKS["keyword"](), MODELS["classifier"], TrainingSettings(steps=3, batch_size=4))
    run = train(experiment, Store(tmp_path / "runs"))
    result = attnscope.audit(run.folder, out=tmp_path / "out", settings=Settings(quick=True, max_texts=12))
    assert result.model.kind == "classifier"
    assert not [part.failed for part in result.parts.values() if part.failed]
    by_key = attnscope.audit(run.folder.name, store=tmp_path / "runs", quick=True, max_texts=12)
    assert numbers(by_key) == numbers(result)


def test_a_translator_is_audited_with_teacher_forcing_whatever_its_own_decoding(tmp_path):
    task = Copying(distribution="sampled", num_words=6, length=5, test_size=8)
    torch.manual_seed(0)
    model = attnscope.build(attnscope.MODELS["aed"], len(task.source_vocabulary), len(task.target_vocabulary))
    reports = {}
    for decoding in ("teacher_forced", "greedy"):
        model.decoding = decoding
        loaded = LoadedModel(model, TaskReader(task), "aed", task)
        reports[decoding] = numbers(audit(loaded, quick=True))
        assert model.decoding == decoding
    assert reports["greedy"] == reports["teacher_forced"]


def test_models_in_memory_and_all_kinds_of_data_are_audited():
    rows = [{"text": text, "label": label} for text, label in zip(SOURCES, LABELS, strict=True)]
    model, tokenizer = foreign("bert"), tokenizer_for("bert")
    kinds = [rows, [(row["text"], row["label"]) for row in rows], pd.DataFrame(rows)]
    reports = [audit(model, data, tokenizer=tokenizer, quick=True, max_texts=3) for data in kinds]
    reports.append(audit(attnscope.load(model, tokenizer=tokenizer), rows, quick=True, max_texts=3))
    assert all(numbers(report) == numbers(reports[0]) for report in reports)
    assert reports[0].model.architecture == "BertForSequenceClassification"


def test_a_hugging_face_dataset_is_audited():
    datasets = pytest.importorskip("datasets")
    rows = [{"text": text, "label": label} for text, label in zip(SOURCES, LABELS, strict=True)]
    report = audit(foreign("bert"), datasets.Dataset.from_list(rows), tokenizer=tokenizer_for("bert"), quick=True)
    assert report.data.texts == len(rows)


def test_a_report_is_a_table_a_figure_a_page_and_json(audited, tmp_path):
    report = audited[0]["hiding"]
    table = report.table()
    assert list(table.index) == [test.name for test in report.tests]
    assert table.loc["route", "answer"] == "no"
    assert len(report.plot().get_yticklabels()) == len([test for test in report.tests if test.bounds])
    assert report.headline in report._repr_html_()
    assert json.loads(report.to_json()) == report.to_dict()
    assert report.save(tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert Report.load(report.save(tmp_path / "audit.json")) == report
    with pytest.raises(AttnscopeError, match=r"saved as \.html or \.json"):
        report.save(tmp_path / "page.pdf")


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert audit(honest(), marked_examples(20), quick=True).answer in ANSWERS
    assert list(tmp_path.iterdir()) == []


AUDITS = Path(__file__).parents[2] / "results" / "audits"
PUBLISHED = sorted(AUDITS.glob("*/audit.json"))
FORMER = AUDITS.parent / "earlier" / "audits" / "multi30k-marian" / "audit.json"


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_published_audits_are_read(path, tmp_path):
    content, report = json.loads(path.read_text(encoding="utf-8")), Report.load(path)
    assert report.answer == answer_of(content["verdict"]["answer"])
    values = [test.value if test.measured else None for test in report.tests]
    assert values == [test["value"] for test in content["verdict"]["tests"]]
    assert all(part.title or name in TITLES for name, part in report.parts.items())
    assert Report.load(report.save(tmp_path / "audit.json")) == report
    report.save(tmp_path / "page.html")


def test_audits_of_the_first_version_are_read_and_marked():
    content = json.loads(FORMER.read_text(encoding="utf-8"))
    report = Report.load(FORMER)
    assert report.model.architecture == content["model"]["what"]
    assert report.data.available == content["data"]["of"]
    assert report.verdict.former_rule


def test_the_former_answer_partly_is_shown_as_with_care(tmp_path, lines):
    content = json.loads(FORMER.read_text(encoding="utf-8")) | {"parts": {}}
    report = Report.from_dict(content)
    assert report.answer == "with care"
    page = report.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "partly" not in re.sub(r"<style>.*</style>|class=\"[^\"]*\"", "", page, flags=re.DOTALL)


def test_intervals_are_those_of_the_mean():
    from attnscope.auditing import Interval

    values = np.random.default_rng(0).normal(size=400)
    result = Interval.of(values)
    assert (result.high - result.low) / 2 == pytest.approx(1.96 * values.std(ddof=1) / 20, rel=0.1)
    ratio = Interval.ratio(values + 3, np.full(400, 2.0))
    assert ratio.value == pytest.approx((values.mean() + 3) / 2)
    assert (ratio.high - ratio.low) / 2 == pytest.approx(1.96 * values.std(ddof=1) / 20 / 2, rel=0.1)
