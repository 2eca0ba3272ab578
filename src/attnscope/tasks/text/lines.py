"""How is a file read line by line, and what is said when it is no text?"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from attnscope.errors import AttnscopeError
from attnscope.files import Malformed

BYTE_ORDER_MARK = "\ufeff"


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and lines without their end; a name that ends in .gz is unpacked."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield number, decoded(raw, path, number)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Malformed(f"{path} is no whole gzip file: it breaks off after line {number} ({error})") from error
    except OSError as error:
        raise AttnscopeError(f"cannot read {path}: {error.strerror or error}") from error
    if number == 0:
        raise Malformed(f"{path} is empty")


def decoded(raw: bytes, path: Path, number: int) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte, place = raw[error.start], error.start + 1
        raise Malformed(
            f"{path}, line {number}: byte {byte:#04x} at place {place} is not UTF-8; text must be encoded as UTF-8"
        ) from error
    text = text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
    return text.rstrip("\r\n")
