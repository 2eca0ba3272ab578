"""How are rows read with the Hugging Face `datasets` library?

A folder that it saved (`save_to_disk`), or `hf:name` or `hf:name:configuration` of a data set that it can find.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.tasks.text.extras import optional
from attnscope.tasks.text.places import MissingCorpus
from attnscope.tasks.text.rows import SPLIT, Row

PREFIX = "hf:"
MARKS = ("dataset_dict.json", "state.json")  # a file of one of these names is in every folder that the library saved


def is_saved(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in MARKS)


def read_saved(path: Path) -> list[Row]:
    library = optional("datasets", f"the data set in {path}")
    try:
        loaded = library.load_from_disk(str(path))
    except Exception as error:  # whatever the library meets in a broken folder
        raise AttnscopeError(f"the datasets library cannot read {path}: {error}") from error
    return rows_of(loaded, str(path))


@lru_cache(maxsize=2)  # asked for its fingerprint first, then for its rows
def load(name: str) -> Any:
    """A data set by its name; the library looks in its own cache, then in the network."""
    library = optional("datasets", f"the data set {name}")
    dataset, _, configuration = name.removeprefix(PREFIX).partition(":")
    try:
        return library.load_dataset(dataset, configuration or None)
    except Exception as error:  # there is no common class of what goes wrong between here and the network
        raise MissingCorpus(f"the datasets library cannot load {name.removeprefix(PREFIX)!r}: {error}") from error


def rows_of(loaded: Any, name: str) -> list[Row]:
    """The rows of every split, each with the name of its split."""
    splits = loaded if isinstance(loaded, dict) else {None: loaded}
    return [
        Row(f"{name} ({split})" if split else name, number, ({SPLIT: split} if split else {}) | dict(row))
        for split, dataset in splits.items()
        for number, row in enumerate(dataset, 1)
    ]


def fingerprint(loaded: Any) -> str:
    """The library's own fingerprint of the content."""
    splits = loaded.values() if isinstance(loaded, dict) else [loaded]
    return "+".join(str(dataset._fingerprint) for dataset in splits)
