"""The store of runs, with checksums of their files.

A run is identified by its key, the hash of its complete configuration. Below the root of a store:

    runs/<key>/       finished: never written again; its manifest lists the checksum of each file
    working/<key>/    unfinished: stays when it is interrupted, so that it can be resumed
    damaged/<key>-1/  was finished, but a file has changed since
    locks/<key>       held by the process that trains this run

Unfinished files carry their own checksum (`files.write_checked`): the progress of a run in working/<key>/ and the
measurements in measurements/. A file that is damaged, or that an earlier version wrote without a checksum, is renamed
to <name>.damaged-1 and computed again.
"""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from attnscope.errors import AttnscopeError, BadSetting, require
from attnscope.files import (
    PART,
    Damaged,
    Malformed,
    file_checksum,
    move,
    read_json,
    set_aside,
    sync,
    translate_os_error,
    write_json,
)

MANIFEST = "manifest.json"
CONFIG = "config.json"
DIGITS = 20


@dataclass(frozen=True)
class Entry:
    """Size and hash of one file at the end of its run."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class VerifiedFile:
    """A file whose checksum has been verified, with the time of its last change."""

    path: Path
    entry: Entry
    changed: int


def seal(folder: Path) -> None:
    """Sync every file of a run to the disk, and write the manifest of their checksums."""
    for path in folder.rglob(f".*{PART}"):  # left by a process killed while writing
        path.unlink()
    entries = {}
    for path in sorted(folder.rglob("*")):
        sync(path)
        if path.is_file() and path != folder / MANIFEST:
            entries[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": file_checksum(path)}
    write_json(folder / MANIFEST, {"files": entries})


def damage(folder: Path, verified: set[VerifiedFile]) -> str | None:
    """Return which file of a sealed run has changed, or None; files in `verified` are not read again."""
    try:
        entries = _entries(folder / MANIFEST)
    except AttnscopeError:
        return f"{MANIFEST} is missing or malformed"
    flaws = ((name, _flaw(folder / name, entry, verified)) for name, entry in entries.items())
    return next((f"{name} {flaw}" for name, flaw in flaws if flaw), None)


def _flaw(path: Path, entry: Entry, verified: set[VerifiedFile]) -> str | None:
    if not path.is_file():
        return "is missing"
    state = path.stat()
    if state.st_size != entry.bytes:
        return f"has {state.st_size} bytes, {entry.bytes} were written"
    file = VerifiedFile(path, entry, state.st_mtime_ns)
    if file not in verified and file_checksum(path) != entry.sha256:
        return "is altered"
    verified.add(file)
    return None


def _entries(path: Path) -> dict[str, Entry]:
    try:
        files = read_json(path)["files"].items()
        entries = {name: Entry(int(entry["bytes"]), str(entry["sha256"])) for name, entry in files}
        require(CONFIG in entries, f"{path} does not list {CONFIG}")
        return entries
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"{path} is not a list of files") from error


class DamagedRun(Damaged):
    """A finished run lost or changed a file; it is set aside and will be trained again."""


def verified_run(folder: Path) -> Path:
    """Return the folder of a finished run, in a store or not, after verifying its files; a damaged one is an error."""
    folder = folder.absolute()
    if in_store(folder):
        if Store(folder.parent.parent).find(folder.name) is None:
            raise AttnscopeError(f"the run in {folder} was damaged and is set aside; train it again")
    elif flaw := damage(folder, set()):
        raise AttnscopeError(f"the run in {folder} is damaged: {flaw}")
    return folder


def in_store(folder: Path) -> bool:
    """Return whether a folder is a finished run of a store."""
    return folder.absolute().parent.name == "runs" and _is_key(folder.absolute().name)


def key(config: Mapping[str, object]) -> str:
    """Return the key of the run of this complete configuration.

    >>> key({"seed": 1, "cell": "gru"}) == key({"cell": "gru", "seed": 1})
    True
    """
    try:
        text = json.dumps(config, sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSetting(f"a configuration must be JSON: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Work:
    """A locked run: its folder, and whether it is finished. If not, it is sealed on leaving the block."""

    key: str
    folder: Path
    finished: bool


class Store:
    """A folder of runs, safe to share between processes."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._verified: set[VerifiedFile] = set()

    def keys(self) -> list[str]:
        """Return the keys of finished runs; `find` verifies their files."""
        with translate_os_error("read", self.root):
            return sorted(path.name for path in (self.root / "runs").glob("*") if _is_key(path.name))

    def config(self, key: str) -> dict[str, object]:
        folder = self._finished(key)
        if not folder.is_dir():
            raise AttnscopeError(f"there is no finished run {key} in {self.root}")
        config: dict[str, object] = read_json(folder / CONFIG)
        return config

    def find(self, key: str) -> Path | None:
        """Return the folder of a finished run, its files verified; None if there is none.

        A damaged run is set aside, with a warning.

        Args:
            key: The key of the run.
        """
        folder = self._finished(key)
        with translate_os_error("read", folder):
            if not os.path.lexists(folder):
                return None
            if damage(folder, self._verified) is None:
                return folder
            with self._lock(key, wait=False) as ours:  # another holder is setting the run aside
                return self._verify(key) if ours else None

    @contextmanager
    def work(self, config: Mapping[str, object]) -> Iterator[Work]:
        """Lock a run; a second process waits, then gets the finished run.

        An error inside the block leaves the folder as it is, so that the next attempt resumes from it.

        Args:
            config: The complete configuration, of which the key is the hash.

            with store.work(config) as run:
                if not run.finished:
                    train(config, run.folder)
        """
        name = key(config)
        folder = self.find(name)
        if folder:
            yield Work(name, folder, finished=True)
            return
        with self._lock(name), self._prepare(name, config) as run:
            yield run

    @contextmanager
    def _prepare(self, key: str, config: Mapping[str, object]) -> Iterator[Work]:
        finished = self._verify(key)
        if finished:
            yield Work(key, finished, finished=True)
            return
        folder = self.root / "working" / key
        with translate_os_error("use", folder):
            (folder / MANIFEST).unlink(missing_ok=True)  # of a run killed just before it was finished
            write_json(folder / CONFIG, config)
            yield Work(key, folder, finished=False)
            seal(folder)
            move(folder, self._finished(key))

    def _verify(self, key: str) -> Path | None:
        """Return the finished run if its files are unchanged, else set it aside; its lock must be held."""
        folder = self._finished(key)
        with translate_os_error("read", folder):
            if not os.path.lexists(folder):
                return None
            flaw = damage(folder, self._verified)
            if flaw is None:
                return folder
            aside = set_aside(folder, self.root / "damaged" / key)
        warnings.warn(DamagedRun(f"in run {key}, {flaw}: moved to {aside}, to be trained again"), stacklevel=3)
        return None

    def _finished(self, key: str) -> Path:
        require(_is_key(key), f"{key!r} is not the key of a run, which has {DIGITS} digits from 0 to f")
        return self.root / "runs" / key

    @contextmanager
    def _lock(self, key: str, wait: bool = True) -> Iterator[bool]:
        """Hold a run's lock; the system releases it when the process ends."""
        path = self.root / "locks" / key
        with translate_os_error("lock", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path)
            with suppress(Timeout):  # held by another process
                lock.acquire(blocking=wait)
        try:
            yield lock.is_locked
        finally:
            lock.release()


def _is_key(name: str) -> bool:
    return re.fullmatch(f"[0-9a-f]{{{DIGITS}}}", name) is not None
