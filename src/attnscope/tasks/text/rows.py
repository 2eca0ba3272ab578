"""Rows of a corpus file, each with the line it is from, and what is wrong with a line that is none.

JSON lines, CSV with quotes, or TSV without them; each plain or packed with gzip, in UTF-8. A folder holds one file for
each split, named after it: train.jsonl, test.jsonl.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import numpy as np

from attnscope.errors import AttnscopeError
from attnscope.files import Malformed

BYTE_ORDER_MARK = "\ufeff"


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and lines without their end; a name that ends in .gz is unpacked."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield number, decode_line(raw, path, number)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Malformed(f"{path} is no whole gzip file: it breaks off after line {number} ({error})") from error
    except OSError as error:
        raise AttnscopeError(f"cannot read {path}: {error.strerror or error}") from error
    if number == 0:
        raise Malformed(f"{path} is empty")


def decode_line(raw: bytes, path: Path, number: int) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte, place = raw[error.start], error.start + 1
        raise Malformed(
            f"{path}, line {number}: byte {byte:#04x} at place {place} is not UTF-8; text must be encoded as UTF-8"
        ) from error
    text = text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
    return text.rstrip("\r\n")


SPLIT = "split"  # the usual name of the field that says which split a row belongs to
UNSPLIT = "all"  # the split of a row that names none
MAX_CELL_LENGTH = 1 << 30  # Python's csv module stops at 131,072 characters unless told otherwise


@dataclass(frozen=True, slots=True)
class Row:
    """One example as it is in the file, and where that is."""

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
        """A raw sentence, or its words if they are given as a list."""
        value = self.field(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return value
        raise self.wrong(f"{name!r} must be a string or a list of strings, not {short_json(value)}")

    def label(self, name: str) -> str:
        """A class by its name: a string, a whole number, a truth value, or 'null'."""
        value = self.field(name)
        if value is None or isinstance(value, bool | int):
            return json.dumps(value)
        if isinstance(value, str) and value:
            return value
        raise self.wrong(f"{name!r} must be a word or a whole number, not {short_json(value)}")

    def rationale(self, name: str) -> np.ndarray:
        """For each word, the share of people who marked it: numbers from 0 to 1, or a list of 0 and 1 a person."""
        value = self.field(name)
        rows = value if isinstance(value, list) and value and all(isinstance(row, list) for row in value) else [value]
        people = [row for row in rows if are_fractions(row)]
        if len(people) < len(rows):
            raise self.wrong(
                f"{name!r} must be a list with a number from 0 to 1 for each word, or such a list for each person, "
                f"not {short_json(value)}"
            )
        lengths = sorted({len(marks) for marks in people})
        if len(lengths) > 1:
            raise self.wrong(f"{name!r} has lists of {' and '.join(map(str, lengths))} words for one text")
        shares: np.ndarray = np.array(people, dtype=np.float32).mean(0)
        return shares

    def split(self, name: str) -> str:
        return str(self.fields.get(name, UNSPLIT))


def are_fractions(values: object) -> TypeGuard[list[float]]:
    if not isinstance(values, list) or not set(map(type, values)) <= {bool, int, float}:
        return False
    return all(0 <= value <= 1 for value in values)


def short_json(value: object) -> str:
    """A value as JSON, cut where it gets long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"


def read_json_lines(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    file = str(path)
    for number, line in read_lines(path):
        if line.strip():
            yield Row(file, number, parse_json_object(line, file, number))


def parse_json_object(line: str, file: str, number: int) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{file}, line {number}: this is no JSON ({error}); expected one JSON object a line") from error
    if not isinstance(value, dict):
        raise Malformed(f"{file}, line {number}: expected a JSON object with named fields, not {short_json(value)}")
    return value


def read_csv(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    return table_rows(path, columns, csv_cells(path))


def read_tsv(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    return table_rows(path, columns, ((number, line.split("\t")) for number, line in read_lines(path)))


def csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows separated by commas; a cell in quotes may hold commas, doubled quotes and line ends."""
    csv.field_size_limit(MAX_CELL_LENGTH)
    reader = csv.reader((f"{line}\n" for _, line in read_lines(path)), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise Malformed(f"{path}, line {reader.line_num}: this is no row of cells ({error})") from error


def table_rows(path: Path, columns: tuple[str, ...], numbered: Iterable[tuple[int, list[str]]]) -> Iterator[Row]:
    """Rows of cells, named by `columns` or, if these are not given, by the first line; empty ones are passed over."""
    names = columns
    for number, cells in numbered:
        place = f"{path}, line {number}"
        if not any(cells):
            continue
        if not names:
            names = column_names(cells, place)
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


READERS: dict[str, Callable[[Path, tuple[str, ...]], Iterator[Row]]] = {
    ".jsonl": read_json_lines,
    ".csv": read_csv,
    ".tsv": read_tsv,
}


def read_rows(path: Path, columns: tuple[str, ...] = ()) -> list[Row]:
    """All rows of a file, or of the files in a folder."""
    if path.is_dir():
        return read_folder(path, columns)
    ending = suffix_of(path)
    if ending not in READERS:
        raise Malformed(f"{path} is of no known kind; its name must end in {known_suffixes()}")
    rows = list(READERS[ending](path, columns))
    if not rows:
        raise Malformed(f"{path} has no rows")
    return rows


def read_folder(folder: Path, columns: tuple[str, ...]) -> list[Row]:
    """The rows of each file; one that names no split is of the split that its file is called after."""
    files = [path for path in sorted(folder.iterdir()) if suffix_of(path) in READERS]
    if not files:
        raise Malformed(f"the folder {folder} holds no corpus: no file there ends in {known_suffixes()}")
    return [
        Row(row.file, row.line, {SPLIT: path.name.split(".")[0]} | row.fields)
        for path in files
        for row in read_rows(path, columns)
    ]


def suffix_of(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def known_suffixes() -> str:
    return ", ".join(READERS) + ", each with or without .gz"


def format_name(file: str) -> str:
    """The format that a name stands for.

    >>> format_name("imdb/imdb.jsonl.gz")
    'JSON lines packed with gzip'
    """
    kinds = {".jsonl": "JSON lines", ".csv": "comma-separated values", ".tsv": "tab-separated values"}
    kind = kinds.get(suffix_of(Path(file)), "a folder with one file a split or saved by the datasets library")
    return f"{kind} packed with gzip" if file.endswith(".gz") else kind
