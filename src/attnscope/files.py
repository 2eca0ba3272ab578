"""Atomic writes, checksums of files, and JSON."""

import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from attnscope.errors import AttnscopeError

PART = ".part"  # suffix of an incomplete file


class Malformed(AttnscopeError):
    """A file that can be read but has the wrong content."""


class Damaged(UserWarning):
    """A stored file has changed: it is set aside, and its content is computed again."""


@contextmanager
def translate_os_error(action: str, path: Path) -> Iterator[None]:
    """Raise an OSError, such as of a full disk, as an AttnscopeError that names the file or folder."""
    try:
        yield
    except OSError as error:
        target, reason = error.filename or path, error.strerror or error
        raise AttnscopeError(f"cannot {action} {target}: {reason}; finished runs are untouched") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely or not at all; the former content stays until the new one is on the disk."""
    if path.is_dir():
        raise AttnscopeError(f"cannot write {path}: it is a folder")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(part, data)
        os.replace(part, path)
        sync(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise AttnscopeError(f"cannot write {path}: {reason}; finished runs are untouched") from error


def _write(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checked(path: Path, data: bytes) -> None:
    """Write `path` atomically, with the SHA-256 of the data as its first line."""
    write_atomically(path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


def read_checked(path: Path) -> bytes | None:
    """Return the data that `write_checked` wrote; None if there is no such file, or a damaged one.

    A file whose checksum is wrong or missing (earlier versions wrote none) is set aside, with a warning.
    """
    with translate_os_error("read", path):
        if not path.exists():
            return None
        checksum, _, data = path.read_bytes().partition(b"\n")
        if checksum == hashlib.sha256(data).hexdigest().encode():
            return data
    discard(path, "its checksum is wrong or missing")
    return None


def discard(path: Path, flaw: str) -> None:
    """Set a damaged file aside, with a warning."""
    with translate_os_error("set aside", path):
        aside = set_aside(path, path.with_name(f"{path.name}.damaged"))
    warnings.warn(Damaged(f"{path}: {flaw}; moved to {aside.name}, to be computed again"), stacklevel=3)


def set_aside(path: Path, place: Path) -> Path:
    """Move a damaged file or folder to the first free name of <place>-1, <place>-2, … and return its new path."""
    places = (place.with_name(f"{place.name}-{n}") for n in count(1))
    return move(path, next(place for place in places if not os.path.lexists(place)))


def move(path: Path, place: Path) -> Path:
    """Rename a file or folder atomically, and sync the folders to the disk."""
    place.parent.mkdir(parents=True, exist_ok=True)
    path.rename(place)
    sync(place.parent)
    sync(path.parent)
    return place


def write_json(path: Path, content: object) -> None:
    """Write standard JSON, which has no NaN and no infinity: these raise an error."""
    try:
        data = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise AttnscopeError(f"cannot write {path}: its content is not JSON ({error})") from error
    write_atomically(path, data + b"\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes(), parse_constant=_refuse)
    except OSError as error:
        raise AttnscopeError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path} is not JSON: {error}") from error


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")
