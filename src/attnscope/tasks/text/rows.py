"""Locating, reading and fingerprinting corpora.

A corpus is a file or folder below the folder that ATTNSCOPE_DATA names, a folder that the Hugging Face `datasets`
library saved (`save_to_disk`), or `hf:name` or `hf:name:configuration`, a data set that this library can load.

A file holds JSON lines, one JSON document, CSV with quotes or TSV without them, each plain or packed with gzip, in
UTF-8; or Parquet. A folder holds one file per split, named after it: train.jsonl, test.jsonl. Files are read row by
row, and errors name the line.
"""

import csv
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import ClassVar, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np

from attnscope.errors import AttnscopeError, check_kinds, first_line, import_optional
from attnscope.files import Malformed, file_checksum, translate_os_error

BYTE_ORDER_MARK = "\ufeff"


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines without their end; a name that ends in .gz is unpacked."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield number, decode_line(raw, path, number)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Malformed(f"{path} is not a complete gzip file: it ends after line {number} ({error})") from error
    except OSError as error:
        raise AttnscopeError(f"cannot read {path}: {error.strerror or error}") from error
    if number == 0:
        raise Malformed(f"{path} is empty")


def decode_line(raw: bytes, path: Path, number: int) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte, position = raw[error.start], error.start + 1
        raise Malformed(
            f"{path}, line {number}: byte {byte:#04x} at position {position} is not UTF-8; text must be UTF-8"
        ) from error
    text = text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
    return text.rstrip("\r\n")


SPLIT = "split"  # the usual name of the field that says which split a row belongs to
INDEX_NAME = "index"  # of the first column, where it has none
UNSPLIT = "all"  # the split of a row that names none
MAX_CELL_LENGTH = 1 << 30  # characters; the default of Python's csv module is 131,072


@dataclass(frozen=True, slots=True)
class Row:
    """One example as it is in the file, with its file and line."""

    file: str
    line: int
    fields: dict[str, object]

    def wrong(self, what: str) -> Malformed:
        return Malformed(f"{self.file}, line {self.line}: {what}")

    def field(self, name: str) -> object:
        if name not in self.fields:
            raise self.wrong(f"there is no field {name!r}; this line has {', '.join(self.fields) or 'none'}")
        return self.fields[name]

    def text(self, name: str) -> str | list[str]:
        """Return a raw sentence, or its words if the field is a list."""
        value = self.field(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return value
        raise self.wrong(f"{name!r} must be a string or a list of strings, not {short_json(value)}")

    def label(self, name: str) -> str:
        """Return the name of a class: a string, an integer, a Boolean, or 'null'."""
        value = self.field(name)
        if isinstance(value, float) and value.is_integer():  # tables with missing labels have floats
            value = int(value)
        if value is None or isinstance(value, bool | int):
            return json.dumps(value)
        if isinstance(value, str) and value:
            return value
        raise self.wrong(f"{name!r} must be a word or a whole number, not {short_json(value)}")

    def rationale(self, name: str) -> np.ndarray:
        """Return the fraction of annotators who marked each word, from such numbers or one list per annotator."""
        value = self.field(name)
        value = parse_numbers(value) if isinstance(value, str) else value
        rows = value if isinstance(value, list) and value and all(isinstance(row, list) for row in value) else [value]
        annotations = [row for row in rows if are_fractions(row)]
        if len(annotations) < len(rows):
            raise self.wrong(
                f"{name!r} must be a list with a number from 0 to 1 for each word, or such a list for each person, "
                f"not {short_json(value)}"
            )
        lengths = sorted({len(marks) for marks in annotations})
        if len(lengths) > 1:
            raise self.wrong(f"{name!r} has lists of {' and '.join(map(str, lengths))} words for one text")
        fractions: np.ndarray = np.array(annotations, dtype=np.float32).mean(0)
        return fractions

    def split(self, name: str) -> str:
        return str(self.fields.get(name, UNSPLIT))


def are_fractions(values: object) -> TypeGuard[list[float]]:
    if not isinstance(values, list) or not set(map(type, values)) <= {bool, int, float}:
        return False
    return all(0 <= value <= 1 for value in values)


def parse_numbers(text: str) -> object:
    """Return the numbers of a cell, a JSON list or separated by spaces; otherwise the text itself.

    >>> parse_numbers("[0, 1]"), parse_numbers("0 0.5 1"), parse_numbers("none")
    ([0, 1], [0.0, 0.5, 1.0], 'none')
    """
    try:
        return json.loads(text) if text.lstrip().startswith("[") else [float(word) for word in text.split()]
    except (ValueError, RecursionError):
        return text


def short_json(value: object) -> str:
    """Return a value as JSON, truncated to 40 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"


def read_json_lines(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    file = str(path)
    for number, line in read_lines(path):
        if line.strip():
            yield Row(file, number, parse_json_object(line, file, number))


def parse_json_object(line: str, file: str, number: int) -> dict[str, object]:
    try:
        value = json.loads(line, object_pairs_hook=named_once)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{file}, line {number}: not JSON ({error}); expected one JSON object per line") from error
    if not isinstance(value, dict):
        raise Malformed(f"{file}, line {number}: expected a JSON object with named fields, not {short_json(value)}")
    return value


def named_once(fields: list[tuple[str, object]]) -> dict[str, object]:
    """Return the fields of a JSON object; a name that is given twice is refused, since one of the values is lost."""
    found = dict(fields)
    if len(found) < len(fields):
        names = [name for name, _ in fields]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return found


def read_csv(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    return table_rows(path, columns, csv_cells(path))


def read_tsv(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    return table_rows(path, columns, ((number, line.split("\t")) for number, line in read_lines(path)))


def csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and cells of a CSV file; quoted cells may contain commas, doubled quotes and line ends."""
    csv.field_size_limit(MAX_CELL_LENGTH)
    reader = csv.reader((f"{line}\n" for _, line in read_lines(path)), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise Malformed(f"{path}, line {reader.line_num}: not a row of CSV ({error})") from error


def table_rows(path: Path, columns: tuple[str, ...], numbered: Iterable[tuple[int, list[str]]]) -> Iterator[Row]:
    """Yield the rows of a table, with fields named by `columns` or by the first line; empty rows are skipped.

    A first column without a name is the index that pandas writes.
    """
    names = columns
    for number, cells in numbered:
        place = f"{path}, line {number}"
        if not any(cells):
            continue
        if not names:
            names = column_names([cells[0] or INDEX_NAME, *cells[1:]], place)
        elif len(cells) != len(names):
            raise Malformed(f"{place}: expected {len(names)} cells ({', '.join(names)}), not {len(cells)}")
        else:
            yield Row(str(path), number, dict(zip(names, cells, strict=True)))


def column_names(cells: list[str], place: str) -> tuple[str, ...]:
    if len(set(cells)) < len(cells) or not all(cells):
        raise Malformed(
            f"{place}: the first line must name each column once, not {short_json(cells)}; "
            "for a file without such a line, give their names as `columns`"
        )
    return tuple(cells)


def read_json_document(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Read a list of objects, an object with such a list as `data`, columns by name, or JSON lines."""
    lines = [line for _, line in read_lines(path) if line.strip()]
    try:
        content = json.loads("\n".join(lines), object_pairs_hook=named_once)
    except (ValueError, RecursionError) as error:
        if len(lines) > 1 and lines[0].startswith("{") and lines[0].rstrip().endswith("}"):
            yield from read_json_lines(path, columns)
            return
        raise Malformed(f"{path} is not JSON: {error}") from error
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        content = content["data"]
    if isinstance(content, dict) and content and all(isinstance(column, list) for column in content.values()):
        if len({len(column) for column in content.values()}) > 1:
            raise Malformed(f"the columns of {path} are not of one length")
        content = [dict(zip(content, row, strict=True)) for row in zip(*content.values(), strict=True)]
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise Malformed(f"{path} should hold a list of JSON objects, one per text")
    yield from (Row(str(path), number, row) for number, row in enumerate(content, 1))


def read_parquet(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield rows batch by batch, so that the whole file is never in memory."""
    parquet = import_optional("pyarrow.parquet", f"the file {path}")
    try:
        rows = (row for batch in parquet.ParquetFile(path).iter_batches() for row in batch.to_pylist())
        yield from (Row(str(path), number, row) for number, row in enumerate(rows, 1))
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise Malformed(f"{path} is not a Parquet file: {first_line(error)}") from error


READERS: dict[str, Callable[[Path, tuple[str, ...]], Iterator[Row]]] = {
    ".jsonl": read_json_lines,
    ".json": read_json_document,
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".parquet": read_parquet,
}


def read_rows(path: Path, columns: tuple[str, ...] = ()) -> list[Row]:
    """Return all rows of a file, or of the files in a folder."""
    return list(stream_rows(path, columns))


def stream_rows(path: Path, columns: tuple[str, ...] = ()) -> Iterator[Row]:
    """Yield the rows of a file, or of the files in a folder."""
    if path.is_dir():
        yield from stream_folder(path, columns)
        return
    ending = suffix_of(path)
    if ending not in READERS:
        raise Malformed(f"{path} is of an unknown format; its name must end in {known_suffixes()}")
    row = None
    for row in READERS[ending](path, columns):
        yield row
    if row is None:
        raise Malformed(f"{path} has no rows")


def stream_folder(folder: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield the rows of each file; a row that names no split belongs to the split that its file is named after."""
    readable = [path for path in sorted(folder.iterdir()) if suffix_of(path) in READERS]
    files = [path for path in readable if suffix_of(path) != ".json"] or readable  # JSON beside others is metadata
    if not files:
        raise Malformed(f"the folder {folder} holds no corpus: no file there ends in {known_suffixes()}")
    for path in files:
        for row in stream_rows(path, columns):
            yield Row(row.file, row.line, {SPLIT: path.name.split(".")[0]} | row.fields)


def suffix_of(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def known_suffixes() -> str:
    return ", ".join(READERS) + ", each with or without .gz"


def format_name(file: str) -> str:
    """Return the format that a file name implies.

    >>> format_name("imdb/imdb.jsonl.gz")
    'JSON lines packed with gzip'
    """
    kinds = {
        ".jsonl": "JSON lines",
        ".json": "JSON",
        ".parquet": "Parquet",
        ".csv": "comma-separated values",
        ".tsv": "tab-separated values",
    }
    kind = kinds.get(suffix_of(Path(file)), "a folder with one file per split or saved by the datasets library")
    return f"{kind} packed with gzip" if file.endswith(".gz") else kind


# Where corpora are ---------------------------------------------------------------------------------------------------


DATA = "ATTNSCOPE_DATA"  # names the folder of corpora
CACHE = "ATTNSCOPE_CACHE"  # names the folder for what is computed once per corpus, such as subword models


class MissingCorpus(AttnscopeError):
    """The corpus is not on this machine."""


class ChangedCorpus(AttnscopeError):
    """The corpus does not have the checksum that the settings name."""


def find_corpus(file: str, expected: str) -> Path:
    """Return the path of a corpus.

    Args:
        file: An absolute path, or one relative to ATTNSCOPE_DATA or to the working directory.
        expected: The format and fields, for the error message.
    """
    paths = candidates(file)
    for path in paths:
        if os.path.exists(path):  # unlike Path.exists, false for invalid names
            return path
    folder = os.environ.get(DATA)
    origin = f"{DATA} names {folder}" if folder else f"{DATA} names no folder"
    raise MissingCorpus(
        f"there is no corpus {file}; looked for {' and for '.join(dict.fromkeys(map(str, paths)))} ({origin}). "
        f"Expected is {expected}. Set {DATA} to the folder of corpora, or give the complete path"
    )


def candidates(file: str) -> list[Path]:
    path = Path(file).expanduser()
    folder = os.environ.get(DATA)
    below = [Path(folder).expanduser() / path] if folder and not path.is_absolute() else []
    return [*below, path.absolute()]


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all files in a folder."""
    with translate_os_error("read", path):
        if path.is_file():
            return _checksum_once(path, path.stat().st_size, path.stat().st_mtime_ns)
        inside = sorted(inner for inner in path.rglob("*") if inner.is_file())
        listing = [f"{checksum(inner)} {inner.relative_to(path).as_posix()}\n" for inner in inside]
    return hashlib.sha256("".join(listing).encode()).hexdigest()


@cache
def _checksum_once(path: Path, size: int, changed: int) -> str:
    """Return the checksum of a file, which is read again if it has changed: every key of a run contains it."""
    return file_checksum(path)


def cache_folder() -> Path:
    """Return the cache folder, which may be deleted at any time."""
    if folder := os.environ.get(CACHE):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "attnscope"


HF_PREFIX = "hf:"
SAVED_FILES = ("dataset_dict.json", "state.json")  # one of them is in every folder that `save_to_disk` wrote


@runtime_checkable
class HFDataset(Protocol):
    """One split of the `datasets` library."""

    _fingerprint: str

    def __iter__(self) -> Iterator[Mapping[str, object]]: ...


def read_saved_dataset(path: Path) -> Iterator[Row]:
    library = import_optional("datasets", f"the data set in {path}")
    try:
        loaded = library.load_from_disk(str(path))
    except Exception as error:  # the library's errors have no common class
        raise AttnscopeError(f"the datasets library cannot read {path}: {error}") from error
    return dataset_rows(loaded, str(path))


@lru_cache(maxsize=2)  # loaded for its fingerprint first, then for its rows
def load_dataset(name: str) -> "HFDataset | Mapping[str, HFDataset]":
    """Return a data set by its name, from the library's cache or the network."""
    library = import_optional("datasets", f"the data set {name}")
    dataset, _, configuration = name.removeprefix(HF_PREFIX).partition(":")
    try:
        loaded: HFDataset | Mapping[str, HFDataset] = library.load_dataset(dataset, configuration or None)
    except Exception as error:  # the library's errors have no common class
        raise MissingCorpus(f"the datasets library cannot load {name.removeprefix(HF_PREFIX)!r}: {error}") from error
    return loaded


def dataset_rows(loaded: "HFDataset | Mapping[str, HFDataset]", name: str) -> Iterator[Row]:
    """Yield the rows of every split, each with the name of its split."""
    for split, dataset in (loaded if isinstance(loaded, Mapping) else {"": loaded}).items():
        for number, row in enumerate(dataset, 1):
            yield Row(f"{name} ({split})" if split else name, number, ({SPLIT: split} if split else {}) | dict(row))


def dataset_fingerprint(loaded: "HFDataset | Mapping[str, HFDataset]") -> str:
    """Return the library's own fingerprint of the content."""
    splits = loaded.values() if isinstance(loaded, Mapping) else [loaded]
    return "+".join(str(dataset._fingerprint) for dataset in splits)


def read_corpus(file: str, columns: tuple[str, ...], expected: str) -> list[Row]:
    return list(stream_corpus(file, columns, expected))


def stream_corpus(file: str, columns: tuple[str, ...], expected: str) -> Iterator[Row]:
    """Return an iterator over the rows of a corpus."""
    if file.startswith(HF_PREFIX):
        return dataset_rows(load_dataset(file), file)
    path = find_corpus(file, expected)
    is_saved_dataset = path.is_dir() and any((path / name).is_file() for name in SAVED_FILES)
    return read_saved_dataset(path) if is_saved_dataset else stream_rows(path, columns)


def corpus_fingerprint(file: str, expected: str, required: str | None = None) -> str:
    """Return a checksum of the content; raise ChangedCorpus if it is not the one required."""
    by_name = file.startswith(HF_PREFIX)
    actual = dataset_fingerprint(load_dataset(file)) if by_name else checksum(find_corpus(file, expected))
    if required not in (None, actual):
        raise ChangedCorpus(
            f"{file} has changed: its checksum is {actual[:12]}…, the settings say {str(required)[:12]}…"
        )
    return actual


File = TypeVar("File", bound="PublishedFile")


@dataclass(frozen=True)
class PublishedFile:
    """A published file beside the corpora, by an absolute path or one relative to ATTNSCOPE_DATA."""

    file: str
    fingerprint: str | None = None  # a checksum; if given, another file is refused
    expected: ClassVar[str]  # what the file holds, for the error message where it is missing

    def __post_init__(self) -> None:
        check_kinds(self)

    def resolved(self: File) -> File:
        """Return the same with a checksum of the file, as it enters the key of a run."""
        return replace(self, fingerprint=corpus_fingerprint(self.file, self.expected, self.fingerprint))

    @property
    def path(self) -> Path:
        return find_corpus(self.file, self.expected)
