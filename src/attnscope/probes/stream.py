"""How is a stream of sentences gone through more than once?"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from attnscope.errors import BadSetting
from attnscope.models.trace import Trace

Model = Callable[..., Trace]
T = TypeVar("T")
Stream = Iterable[T] | Callable[[], Iterable[T]]


def begun(stream: Stream[T]) -> Iterable[T]:
    """The stream from its beginning, as often as it is asked for."""
    check_twice(stream)
    return stream() if callable(stream) else stream


def check_twice(stream: Stream[Any], why: str = "") -> None:
    if isinstance(stream, Iterator):
        raise BadSetting(
            f"these batches are an iterator, which is spent after one pass, and two are needed{why}; give a list, or a "
            "function that begins anew"
        )
