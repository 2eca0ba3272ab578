"""Where is a corpus, and what is its checksum?"""

import hashlib
import os
from pathlib import Path

from attnscope.errors import AttnscopeError
from attnscope.files import explained

DATA = "ATTNSCOPE_DATA"  # names the folder of corpora
CACHE = "ATTNSCOPE_CACHE"  # names the folder for what is made once from a corpus, such as subwords


class MissingCorpus(AttnscopeError):
    """The corpus is not on this machine."""


class ChangedCorpus(AttnscopeError):
    """The corpus is not the one that the settings speak of."""


def find(file: str, expected: str) -> Path:
    """The file or folder of this name: as it is if the path is complete, or below the folder of corpora, or here.

    `expected` says which format and fields are looked for.
    """
    places = candidates(file)
    for place in places:
        if place.exists():
            return place
    named = os.environ.get(DATA)
    origin = f"{DATA} names {named}" if named else f"{DATA} names no folder"
    raise MissingCorpus(
        f"there is no corpus {file}; looked for {' and for '.join(map(str, places))} ({origin}). "
        f"Expected is {expected}. Set {DATA} to the folder of corpora, or give the complete path"
    )


def candidates(file: str) -> list[Path]:
    path = Path(file).expanduser()
    folder = os.environ.get(DATA)
    below = [Path(folder).expanduser() / path] if folder and not path.is_absolute() else []
    return [*below, path.absolute()]


def digest(path: Path) -> str:
    """The SHA-256 of a file, or of the names and contents of all files in a folder."""
    with explained("read", path):
        if path.is_file():
            return _digest_of_file(path)
        inside = sorted(inner for inner in path.rglob("*") if inner.is_file())
        listing = [f"{_digest_of_file(inner)} {inner.relative_to(path).as_posix()}\n" for inner in inside]
    return hashlib.sha256("".join(listing).encode()).hexdigest()


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_folder() -> Path:
    """Where things made from a corpus are kept; nothing is lost when it is deleted."""
    if named := os.environ.get(CACHE):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "attnscope"
