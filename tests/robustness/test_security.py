"""No code of a model folder is run, not even if a user at a terminal agrees, and reports escape markup."""

import json
import os
import pickle
import pty
import subprocess
import sys
import time

import pytest
import torch

from attnscope.errors import AttnscopeError
from attnscope.loading import load
from attnscope.report.text import tables
from attnscope.studies.result import load_results
from models.adapter_examples import foreign, tokenizer_for

CODE = "import pathlib\npathlib.Path({marker!r}).write_text('code of the folder was run')\n"


@pytest.fixture
def hostile(tmp_path):
    """A folder with code of its own for its configuration, model and tokenizer, which would leave a marker file."""
    folder = tmp_path / "hostile"
    foreign("bert").save_pretrained(folder)
    tokenizer_for("bert").save_pretrained(folder)
    (folder / "own.py").write_text(CODE.format(marker=str(tmp_path / "marker")))
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "own.Config", "AutoModelForSequenceClassification": "own.Model"}
    config |= {"model_type": "unknown_to_the_library", "auto_map": names}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


def test_code_of_a_folder_is_not_run(hostile, tmp_path):
    with pytest.raises(AttnscopeError, match="configuration"):
        load(hostile)
    assert not (tmp_path / "marker").exists()


def test_code_of_a_tokenizer_is_not_run(hostile, tmp_path):
    config = json.loads((hostile / "config.json").read_text())
    del config["auto_map"]
    (hostile / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    load(hostile)  # its tokenizer.json is enough
    assert not (tmp_path / "marker").exists()


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_code_of_a_folder_is_not_run_when_a_terminal_answers_yes(hostile, tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "attnscope", "explain", str(hostile), "a dog"]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    os.write(ours, b"y\n" * 5)
    assert process.wait(timeout=120) == 2
    time.sleep(0.1)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    process.stdout.close()
    assert "cannot be read" in shown
    assert "[y/N]" not in shown
    assert not (tmp_path / "marker").exists()


class LeavesMarker:
    """A pickle of it writes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_in_place_of_weights_is_not_run(tmp_path):
    folder, marker = tmp_path / "pickled", tmp_path / "marker"
    foreign("bert").save_pretrained(folder)
    tokenizer_for("bert").save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(LeavesMarker(marker)))
    with pytest.raises(AttnscopeError, match=r"weights of .* cannot be read"):
        load(folder)
    torch.save({"classifier.weight": LeavesMarker(marker)}, folder / "pytorch_model.bin")
    with pytest.raises(AttnscopeError, match=r"weights of .* cannot be read"):
        load(folder)
    assert not marker.exists()


def test_safetensors_are_preferred_to_a_pickle_beside_them(tmp_path):
    folder, marker = tmp_path / "both", tmp_path / "marker"
    foreign("bert").save_pretrained(folder)
    tokenizer_for("bert").save_pretrained(folder)
    torch.save({"classifier.weight": LeavesMarker(marker)}, folder / "pytorch_model.bin")
    assert load(folder).kind == "classifier"
    assert not marker.exists()


def test_markdown_reports_hold_no_html(tmp_path):
    from pathlib import Path

    shipped = Path(__file__).parents[2] / "results" / "aitken2021" / "fig3.json"
    (tmp_path / "aitken2021").mkdir()
    content = shipped.read_text(encoding="utf-8")
    result = json.loads(content)
    (tmp_path / "aitken2021" / "fig3.json").write_text(content, encoding="utf-8")
    (stored,) = load_results(tmp_path)
    hostile = "<script>alert(1)</script> <img src=x onerror=alert(1)> [x](javascript:alert(1)) `<b>`"
    object.__setattr__(stored, "notes", [hostile])
    object.__setattr__(stored, "title", hostile)
    text = tables([stored])
    assert result["finding"] in text
    assert "<script" not in text
    assert "<img" not in text
    assert "](javascript:" not in text
