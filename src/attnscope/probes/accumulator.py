"""How do the totals of two halves of a stream become those of the whole?"""

# TODO(docstring) join:
#   How is a stream of sentences gone through more than once?
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from torch import Tensor

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models.trace import Trace

S = TypeVar("S", bound="Sums")


@dataclass(frozen=True)
class Sums:
    """Totals over a stream. Two of them add up field by field, so two halves merged equal the whole.

    Late time steps and words of a high number may be missing from either half: they count as zero there.
    """

    def __add__(self: S, other: S) -> S:
        return type(self)(**{f.name: joined(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


class Accumulator(Generic[S]):
    """Totals so far. Its memory does not depend on how many sequences came by."""

    def __init__(self) -> None:
        self.sums: S | None = None

    def add(self, sums: S) -> None:
        self.sums = sums if self.sums is None else self.sums + sums

    def merge(self, other: "Accumulator[S]") -> None:
        """Take in what another pass, over another part of the stream, has gathered."""
        if other.sums is not None:
            self.add(other.sums)

    @property
    def total(self) -> S:
        if self.sums is None:
            raise AttnscopeError("nothing has come by yet; give at least one batch before asking for a result")
        return self.sums


def joined(one: Any, other: Any) -> Any:
    """One field of two halves: None where the model has no such thing."""
    if one is None or other is None:
        if one is not other:
            raise AttnscopeError("these two passes saw different kinds of models; merge passes of one model only")
        return None
    return widened_sum(one, other) if isinstance(one, Tensor) else one + other


def widened_sum(one: Tensor, other: Tensor) -> Tensor:
    """The sum of two tensors, each of which is zero beyond its own end.

    >>> import torch
    >>> widened_sum(torch.tensor([1, 2, 3]), torch.tensor([10]))
    tensor([11,  2,  3])
    """
    shape = [max(sizes) for sizes in zip(one.shape, other.shape, strict=True)]
    return widened(one, shape) + widened(other, shape).to(one.device)


def widened(values: Tensor, shape: list[int]) -> Tensor:
    """The same values in a larger shape, zero where there was nothing."""
    if list(values.shape) == shape:
        return values
    room = values.new_zeros(shape)
    room[tuple(slice(size) for size in values.shape)] = values
    return room


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
