"""Files are written whole or not at all, as strict JSON."""

import os
from pathlib import Path
from typing import Any

import pytest

from attnscope.errors import AttnscopeError
from attnscope.files import Malformed, read_json, write_atomically, write_json


def test_written_files_are_read_back(tmp_path: Path) -> None:
    content = {"symbol": "α", "values": [1, 2.5, None, True]}
    write_json(tmp_path / "a" / "b.json", content)
    assert read_json(tmp_path / "a" / "b.json") == content


def test_a_write_leaves_one_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "weights", b"old")
    write_atomically(tmp_path / "weights", b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "weights", b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(AttnscopeError, match=r"cannot write .*weights: No space left on device; finished runs are"):
        write_atomically(tmp_path / "weights", b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize("content", [float("nan"), {"loss": float("inf")}, {1, 2}, "\ud800"])
def test_values_that_json_cannot_represent_are_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(AttnscopeError, match=r"cannot write .*x\.json: its content is not JSON"):
        write_json(tmp_path / "x.json", content)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", [b"", b'{"a": ', b"NaN", b"\xff", b"[" * 100_000])
def test_a_malformed_file_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(Malformed, match=r"x\.json is not JSON"):
        read_json(tmp_path / "x.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AttnscopeError, match=r"cannot read .*x\.json: No such file"):
        read_json(tmp_path / "x.json")
