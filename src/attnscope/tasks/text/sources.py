"""Where corpora are, how they are read, and whether they are the ones that settings name.

A corpus is a file or folder below the folder that ATTNSCOPE_DATA names, a folder that the Hugging Face `datasets`
library saved (`save_to_disk`), or `hf:name` or `hf:name:configuration`, a data set that this library can load.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from attnscope.errors import AttnscopeError, import_optional
from attnscope.files import explained, file_checksum
from attnscope.tasks.text.rows import SPLIT, Row, read_rows

DATA = "ATTNSCOPE_DATA"  # names the folder of corpora
CACHE = "ATTNSCOPE_CACHE"  # names the folder for what is made once from a corpus, such as subwords


class MissingCorpus(AttnscopeError):
    """The corpus is not on this machine."""


class ChangedCorpus(AttnscopeError):
    """The corpus is not the one that the settings speak of."""


def find_corpus(file: str, expected: str) -> Path:
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


def checksum(path: Path) -> str:
    """The SHA-256 of a file, or of the names and contents of all files in a folder."""
    with explained("read", path):
        if path.is_file():
            return file_checksum(path)
        inside = sorted(inner for inner in path.rglob("*") if inner.is_file())
        listing = [f"{file_checksum(inner)} {inner.relative_to(path).as_posix()}\n" for inner in inside]
    return hashlib.sha256("".join(listing).encode()).hexdigest()


def cache_folder() -> Path:
    """Where things made from a corpus are kept; nothing is lost when it is deleted."""
    if named := os.environ.get(CACHE):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "attnscope"


HF_PREFIX = "hf:"
SAVED_FILES = (
    "dataset_dict.json",
    "state.json",
)  # a file of one of these names is in every folder that the library saved


@runtime_checkable
class HFDataset(Protocol):
    """One split of the `datasets` library."""

    _fingerprint: str

    def __iter__(self) -> Iterator[Mapping[str, object]]: ...


def is_saved_dataset(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in SAVED_FILES)


def read_saved_dataset(path: Path) -> list[Row]:
    library = import_optional("datasets", f"the data set in {path}")
    try:
        loaded = library.load_from_disk(str(path))
    except Exception as error:  # whatever the library meets in a broken folder
        raise AttnscopeError(f"the datasets library cannot read {path}: {error}") from error
    return dataset_rows(loaded, str(path))


@lru_cache(maxsize=2)  # asked for its fingerprint first, then for its rows
def load_dataset(name: str) -> "HFDataset | Mapping[str, HFDataset]":
    """A data set by its name; the library looks in its own cache, then in the network."""
    library = import_optional("datasets", f"the data set {name}")
    dataset, _, configuration = name.removeprefix(HF_PREFIX).partition(":")
    try:
        loaded: HFDataset | Mapping[str, HFDataset] = library.load_dataset(dataset, configuration or None)
    except Exception as error:  # there is no common class of what goes wrong between here and the network
        raise MissingCorpus(f"the datasets library cannot load {name.removeprefix(HF_PREFIX)!r}: {error}") from error
    return loaded


def dataset_rows(loaded: "HFDataset | Mapping[str, HFDataset]", name: str) -> list[Row]:
    """The rows of every split, each with the name of its split."""
    splits = loaded if isinstance(loaded, Mapping) else {"": loaded}
    return [
        Row(f"{name} ({split})" if split else name, number, ({SPLIT: split} if split else {}) | dict(row))
        for split, dataset in splits.items()
        for number, row in enumerate(dataset, 1)
    ]


def dataset_fingerprint(loaded: "HFDataset | Mapping[str, HFDataset]") -> str:
    """The library's own fingerprint of the content."""
    splits = loaded.values() if isinstance(loaded, Mapping) else [loaded]
    return "+".join(str(dataset._fingerprint) for dataset in splits)


def read_corpus(file: str, columns: tuple[str, ...], expected: str) -> list[Row]:
    if file.startswith(HF_PREFIX):
        return dataset_rows(load_dataset(file), file)
    path = find_corpus(file, expected)
    return read_saved_dataset(path) if is_saved_dataset(path) else read_rows(path, columns)


def corpus_fingerprint(file: str, expected: str, known: str | None = None) -> str:
    """What changes when the content changes; where it is known already, another one is refused."""
    by_name = file.startswith(HF_PREFIX)
    found = dataset_fingerprint(load_dataset(file)) if by_name else checksum(find_corpus(file, expected))
    if known not in (None, found):
        raise ChangedCorpus(f"{file} has changed: its checksum is {found[:12]}…, the settings say {str(known)[:12]}…")
    return found
