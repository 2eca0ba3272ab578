"""What came of one piece of work: a value, or the sentence that says why there is none."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

from attnscope.errors import AttnscopeError

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 3  # at an item whose process dies under it


@dataclass(frozen=True)
class Outcome(Generic[R]):
    value: R | None = None
    failure: str | None = None


Done = Callable[[int, Outcome[R]], None]


@runtime_checkable
class Engine(Protocol):
    """Applies a function to items, each somewhere, and keeps their order.

    The function is one that another process can import; items and values are small plain data. An error in it is the
    failure of that item alone. An item whose process dies is tried again, up to three times in all. `done` is told of
    each outcome as it comes, with the item's place in the order.
    """

    def map(self, function: Callable[[T], R], items: Sequence[T], done: Done[R] | None = None) -> list[Outcome[R]]: ...


def attempt(function: Callable[[T], R], item: T) -> Outcome[R]:
    """The function's value for an item, or its error as a sentence.

    >>> attempt(len, "abc")
    Outcome(value=3, failure=None)
    """
    try:
        return Outcome(value=function(item))
    except (Exception, SystemExit) as error:
        return Outcome(failure=sentence(error))


def sentence(error: BaseException) -> str:
    """An error in words; one that was not meant for the reader says also what it is and where it arose."""
    if isinstance(error, AttnscopeError):
        return str(error)
    return f"{type(error).__name__}: {error}{_where(error)}"


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
