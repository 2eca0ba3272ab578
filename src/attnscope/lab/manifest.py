"""Are the files of a finished run still what was written?"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from attnscope.files import PART, Malformed, read_json, sync, write_json

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Entry:
    """One file as it was when its run was finished."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Checked:
    """One state of a file whose content has been read and found right; a later change of it shows in the time."""

    path: Path
    entry: Entry
    changed: int


def seal(folder: Path) -> None:
    """Put every file of a run on the disk, and write down what each holds."""
    _sweep(folder)
    entries = {str(path.relative_to(folder).as_posix()): asdict(_entry(path)) for path in _files(folder)}
    for path in folder.rglob("*"):
        sync(path)
    write_json(folder / MANIFEST, {"files": entries})


def unseal(folder: Path) -> None:
    """Take back a seal: a run that was killed just before it was finished goes on."""
    (folder / MANIFEST).unlink(missing_ok=True)


def damage(folder: Path, checked: set[Checked]) -> str | None:
    """Which file of a sealed run is not what was written; None if all are. Contents in `checked` are not read again."""
    try:
        entries = _entries(folder / MANIFEST)
    except Malformed:
        return f"{MANIFEST} is missing or malformed"
    flaws = ((name, _flaw(folder / name, entry, checked)) for name, entry in entries.items())
    return next((f"{name} {flaw}" for name, flaw in flaws if flaw), None)


def _flaw(path: Path, entry: Entry, checked: set[Checked]) -> str | None:
    if not path.is_file():
        return "is missing"
    state = path.stat()
    if state.st_size != entry.bytes:
        return f"has {state.st_size} bytes, {entry.bytes} were written"
    seen = Checked(path, entry, state.st_mtime_ns)
    if seen not in checked and _digest(path) != entry.sha256:
        return "is altered"
    checked.add(seen)
    return None


def _entries(path: Path) -> dict[str, Entry]:
    if not path.is_file():
        raise Malformed(f"{path} is missing")
    try:
        files = read_json(path)["files"].items()
        return {name: Entry(int(entry["bytes"]), str(entry["sha256"])) for name, entry in files}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"{path} is not a list of files") from error


def _entry(path: Path) -> Entry:
    return Entry(path.stat().st_size, _digest(path))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST)


def _sweep(folder: Path) -> None:
    """Remove what a kill in the middle of a write left behind."""
    for path in folder.rglob(f".*{PART}"):
        path.unlink()
