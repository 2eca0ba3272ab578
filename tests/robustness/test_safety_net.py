"""Unexpected errors: one message, the traceback in a log file, exit code 70, and no finished work lost."""

import re
import warnings
from pathlib import Path

import pytest

from attnscope import cli
from attnscope.auditing import runner
from attnscope.errors import InputWarning


def run(*words):
    with pytest.raises(SystemExit) as caught:
        cli.main(list(map(str, words)))
    return caught.value.code


@pytest.fixture
def logs(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def fails_with(error):
    def function(*given, **options):
        raise error

    return function


def test_an_unexpected_exception_gives_one_message_and_a_log_file(logs, monkeypatch, capsys):
    monkeypatch.setattr("attnscope.errors.choose", fails_with(ZeroDivisionError("of a\nkind")))
    assert run("train", "keyword", "classifier") == 70
    shown = capsys.readouterr().err
    assert "this is a bug, please report" in shown
    assert "ZeroDivisionError: of a kind" in shown
    assert shown.count("\n") == 1
    log = Path(re.search(r"\S+\.log", shown)[0])
    assert log.parent == logs
    assert "Traceback (most recent call last)" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError("of 9 PB"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory"),
        (PermissionError(13, "Permission denied", "data.csv"), "cannot use data.csv: Permission denied"),
    ],
)
def test_memory_and_files_are_not_bugs(error, sentence, monkeypatch, capsys):
    monkeypatch.setattr("attnscope.errors.choose", fails_with(error))
    assert run("train", "keyword", "classifier") == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(logs, monkeypatch, capsys):
    def warned(*given):
        warnings.warn(InputWarning("odd\ndata"), stacklevel=1)
        raise MemoryError

    monkeypatch.setattr("attnscope.errors.choose", warned)
    assert run("train", "keyword", "classifier") == 2
    assert capsys.readouterr().err.startswith("attnscope: warning: odd data\n")


def test_finished_parts_of_an_audit_survive_an_internal_error(logs, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(runner, "compile_report", fails_with(TypeError("None < 0.5")))
        store = ["--store", logs / "runs"]
        small = ["training.steps=1", "task.test_size=8", "task.length=3", "task.num_words=4", "model.units=2",
                 "model.input_size=2", "model.hidden=2"]  # fmt: skip
        assert run("train", "keyword", "classifier", *store, *(x for s in small for x in ("--set", s))) == 0
        key = capsys.readouterr().out.split("run: ")[1].strip()
        audit = ["audit", key, "--quick", "--out", logs / "audit", *store]
        assert run(*audit) == 70
    stored = [path for path in (logs / "audit" / "parts").glob("*.json") if b'"part": null' not in path.read_bytes()]
    parts = {path: path.stat().st_mtime_ns for path in stored}
    assert len(parts) > 3
    assert run(*audit) == 0
    assert {path: path.stat().st_mtime_ns for path in parts} == parts
