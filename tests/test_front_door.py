"""The lines of the README work as written for a Hugging Face folder, a run of the store and a user's own adapter."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import attnscope
from attnscope.cli import app
from attnscope.errors import AttnscopeError, BadSetting
from attnscope.lab.experiment import Experiment, train
from attnscope.lab.store import DamagedRun, Store
from attnscope.models import ClassifierSettings, EncoderDecoderSettings
from attnscope.models.adapters import WordReader
from attnscope.models.loaded import LoadedModel
from attnscope.tasks import Classification, OneToOne, Splits, Words
from attnscope.training import TrainingSettings
from models.adapter_examples import foreign, tokenizer_for

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
WORDS = ["a", "fine", "dull", "film", "not"]
KINDS = ["folder", "run", "adapter"]


def rows(count, labels=("no", "yes"), seed=0):
    """Texts of which 'fine' and 'dull' tell the class."""
    random = torch.Generator().manual_seed(seed)
    for number in range(count):
        chosen = torch.randint(len(WORDS), (int(torch.randint(2, 6, (), generator=random)),), generator=random)
        words = [WORDS[i] for i in chosen if WORDS[i] not in ("fine", "dull")]
        yield {"text": " ".join([*words, ("dull", "fine")[number % 2]]), "label": labels[number % 2]}


def write_rows(path, count, labels=("no", "yes")):
    path.write_text("\n".join(map(json.dumps, rows(count, labels))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with one model of each kind, and texts for it."""
    folder = tmp_path_factory.mktemp("home")
    foreign("bert").save_pretrained(folder / "folder")
    tokenizer_for("bert").save_pretrained(folder / "folder")
    shutil.copy(EXAMPLES / "adapter.py", folder)
    (folder / "mine.py").write_text("from adapter import model  # a sibling file\n")
    write_rows(folder / "texts.jsonl", 12)
    write_rows(folder / "folder.jsonl", 12, ("LABEL_0", "LABEL_2"))
    corpus = Classification(
        file=str(write_rows(folder / "corpus.jsonl", 60)),
        vocabulary=Words(min_count=1),
        splits=Splits(validation_share=0.2, test_share=0.2),
    )
    small = ClassifierSettings(input_size=5, units=4, hidden=3)
    settings = TrainingSettings(steps=3, batch_size=8, checkpoints=(2,))
    train(Experiment(corpus, small, settings), Store(folder / "runs"))
    return folder


@pytest.fixture
def at_home(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield home
    for name in ("mine", "adapter"):
        sys.modules.pop(name, None)


def name_of(kind, home):
    return {"folder": "folder", "run": Store(home / "runs").keys()[0][:8], "adapter": "mine.py:model"}[kind]


def data_of(kind):
    return "folder.jsonl" if kind == "folder" else "texts.jsonl"


def command(*words, cwd):
    environment = {**os.environ, "COLUMNS": "160", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "attnscope", *map(str, words)]
    answer = subprocess.run(line, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120)
    assert answer.returncode != 70, answer.stderr  # a bug that the safety net caught
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_the_lines_of_the_readme_work_as_written(kind, at_home, tmp_path):
    texts = [row["text"] for row in rows(6)]
    model = attnscope.load(name_of(kind, at_home))
    trace = model.trace(["a fine film"])
    assert "fine" in "".join(trace.source_tokens[0]).replace("##", "")
    assert trace.attention.shape[-1] == len(trace.source_tokens[0])
    assert len(attnscope.saliency(model, texts, method="leave_one_out").table())
    assert len(attnscope.fragility(model, texts).table())
    assert len(attnscope.decompose(model, texts).table())
    assert len(attnscope.agreement(model, texts, "attention", "lexical").table())
    report = attnscope.audit(model, data_of(kind), out=tmp_path / "audit", quick=True)
    assert report.answer in ("yes", "with care", "no", "undecided")
    assert len(report.table()) == len(report.tests)
    assert report.plot().axison
    assert "<html" in Path(report.save(tmp_path / "page.html")).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_predicts_one_of_its_classes(kind, at_home):
    model = attnscope.load(name_of(kind, at_home))
    assert model.kind == "classifier"
    assert set(model.predict(["a fine film", "dull"])) <= set(model.classes)
    assert model.trace(["fine"], [model.classes[0]]).target.item() == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_is_explained(kind, at_home):
    explanation = attnscope.explain(name_of(kind, at_home), "a fine film")
    assert list(explanation.table()) == ["attention", "leave-one-out", "gradient × input", "β"]
    assert not explanation.missing
    assert explanation.table()["attention"].sum() == pytest.approx(1, abs=1e-5)
    assert explanation.table()["β"].between(0, 1).all()
    assert explanation.plot().get_title().startswith(explanation.model)


@pytest.mark.parametrize("text", ["", " \n ", []])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_a_word_is_not_explained(kind, text, at_home):
    with pytest.raises(BadSetting, match="a text without any word cannot be"):
        attnscope.explain(name_of(kind, at_home), text)


def test_an_explanation_shows_the_verdict_of_an_audit_of_this_model_only(at_home, tmp_path):
    content = {"model": {"name": "folder"}, "verdict": {"answer": "no", "headline": "Do not."}}
    (tmp_path / "audit.json").write_text(json.dumps(content))
    assert "no. Do not." in attnscope.explain("folder", "fine", audit=tmp_path).verdict
    assert attnscope.explain("mine.py:model", "fine", audit=tmp_path).verdict is None


def test_the_command_explains(home):
    shown = command("explain", "mine.py:model", "a fine film", "--out", "one.png", cwd=home)
    assert shown.returncode == 0, shown.stderr
    assert "leave-one-out" in shown.stdout
    assert "not audited" in shown.stdout
    assert (home / "one.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_in_memory_is_loaded_with_its_tokenizer(at_home):
    model = attnscope.load(foreign("bert"), tokenizer=tokenizer_for("bert"))
    by_folder = attnscope.load("folder").trace(["a fine film"])
    torch.testing.assert_close(model.trace(["a fine film"]).logits, by_folder.logits)
    with pytest.raises(BadSetting, match=r"needs its tokenizer: load\(model, tokenizer=tokenizer\)"):
        attnscope.load(foreign("bert"))


def test_an_adapter_in_memory_is_loaded_as_it_is(at_home):
    adapter = attnscope.load("mine.py:model").module
    assert attnscope.load(adapter).module is adapter
    assert isinstance(attnscope.load(adapter).reader, WordReader)
    with pytest.raises(BadSetting, match="Linear gives no Traces: wrap it in a class that inherits"):
        attnscope.load(torch.nn.Linear(1, 1))


def test_a_module_of_the_current_folder_is_imported_by_name(at_home):
    assert isinstance(attnscope.load("mine:model"), LoadedModel)


def test_a_run_is_loaded_by_key_by_folder_and_at_a_checkpoint(at_home):
    (key,) = Store("runs").keys()
    one, other, early = (
        attnscope.load(key),
        attnscope.load(Path("runs") / "runs" / key),
        attnscope.load(key, checkpoint=2),
    )
    torch.testing.assert_close(one.trace(["fine film"]).logits, other.trace(["fine film"]).logits)
    assert not torch.equal(one.trace(["fine film"]).logits, early.trace(["fine film"]).logits)
    assert one.task == other.task


def test_a_damaged_run_is_not_loaded_from_its_folder(at_home, tmp_path):
    shutil.copytree("runs", tmp_path / "runs")
    (folder,) = (tmp_path / "runs" / "runs").iterdir()
    (folder / "weights.safetensors").write_bytes(b"other")
    with pytest.warns(DamagedRun), pytest.raises(AttnscopeError, match="was damaged and is set aside; train it again"):
        attnscope.load(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "there is no model 'nowhere': give a folder of save_pretrained, hf:owner/name, "),
        ("mine.py:other", "there is no function other in mine.py"),
        ("no.py:model", "there is no file no.py"),
        ("nomodule:model", "nomodule cannot be imported: No module named 'nomodule'"),
        ("mine.py:torch_model", "there is no function torch_model"),
        ("abc", "0 finished runs begin with 'abc'"),
    ],
)
def test_an_unknown_model_gives_one_error_message(name, message, at_home):
    with pytest.raises(AttnscopeError, match=message):
        attnscope.load(name)


def test_device_and_dtype_are_set(at_home):
    assert attnscope.load("mine.py:model", dtype="float64").trace(["fine"]).logits.dtype == torch.float64
    with pytest.raises(BadSetting, match="there is no dtype 'float65'"):
        attnscope.load("mine.py:model", dtype="float65")
    with pytest.raises(BadSetting, match="there is no device 'tpu'"):
        attnscope.load("mine.py:model", device="tpu")


def test_the_top_of_the_package_shows_what_is_public_and_imports_it_when_used():
    program = "import sys, attnscope; sys.exit('torch' in sys.modules or 'torch' in dir(attnscope))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
    assert {name for name in dir(attnscope) if name != "__version__"} == {*attnscope.__all__, *attnscope.FOLDERS}
    for name in dir(attnscope):
        assert getattr(attnscope, name) is not None
    assert (Path(attnscope.__file__).parent / "py.typed").exists()


@pytest.fixture(scope="module")
def runs(home):
    """Two runs, by kind: the classifier, and an encoder-decoder that decodes greedily."""
    task = OneToOne(min_length=2, max_length=4, test_size=12)
    settings = EncoderDecoderSettings(units=4)
    (classifier,) = Store(home / "runs").keys()
    run = train(Experiment(task, settings, TrainingSettings(steps=2, batch_size=8)), Store(home / "more"))
    return {"classifier": (classifier, "runs"), "encoder-decoder": (run.folder.name, "more")}


@pytest.mark.parametrize("kind", ["classifier", "encoder-decoder"])
@pytest.mark.parametrize("name", sorted(attnscope.PROBES))
def test_the_command_and_python_give_the_same_table(name, kind, runs, at_home, tmp_path):
    """On the same run, with the decoding that it was trained for; what it cannot answer, in the same words."""
    key, store = runs[kind]
    words = ["probe", key[:6], name, "--csv", str(tmp_path / "table.csv"), "--store", store]
    try:
        table = attnscope.run_probe(name, attnscope.load(key, store=store)).table()
    except AttnscopeError as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            app(words, standalone_mode=False)
    else:
        app(words, standalone_mode=False)
        assert (tmp_path / "table.csv").read_text() == table.to_csv()


@pytest.mark.parametrize("name", ["decompose", "agreement", "entropy"])
def test_a_probe_decodes_as_the_run_does_unless_told_otherwise(name, runs, at_home):
    key, store = runs["encoder-decoder"]
    model = attnscope.load(key, store=store)
    default, greedy, forced = (
        attnscope.run_probe(name, model, **options).table()
        for options in ({}, {"decoding": "greedy"}, {"decoding": "teacher_forced"})
    )
    assert model.decoding == "greedy"
    assert default.equals(greedy)
    assert not default.equals(forced)


def test_every_probe_of_the_registry_is_a_function_at_the_top():
    for probe in attnscope.PROBES.values():
        assert getattr(attnscope, probe.function.__name__) is probe.function
