"""Totals over batches that merge: two halves of a data set give the totals of the whole."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from torch import Tensor

from attnscope.errors import AttnscopeError, BadSetting

S = TypeVar("S", bound="Sums")


@dataclass(frozen=True)
class Sums:
    """Totals over batches. Two of them add field by field, so two halves merged equal the whole.

    Late time steps and high token ids may be missing from either half: they count as zero there.
    """

    def __add__(self: S, other: S) -> S:
        return type(self)(**{f.name: add_fields(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


class Accumulator(Generic[S]):
    """The totals so far. Its memory does not depend on the number of sequences."""

    def __init__(self) -> None:
        self.sums: S | None = None

    def add(self, sums: S) -> None:
        self.sums = sums if self.sums is None else self.sums + sums

    def merge(self, other: "Accumulator[S]") -> None:
        """Add what another accumulator has gathered over other batches."""
        if other.sums is not None:
            self.add(other.sums)

    @property
    def total(self) -> S:
        if self.sums is None:
            raise AttnscopeError("there is no data yet; update with at least one batch before taking a result")
        return self.sums


F = TypeVar("F", Tensor, Sums, int)


def add_fields(one: F | None, other: F | None) -> F | None:
    """Return the sum of one field of two halves; None where the model does not have it."""
    if one is None or other is None:
        if one is not other:
            raise AttnscopeError("these are totals of different kinds of models; merge those of one model only")
        return None
    return padded_sum(one, other) if isinstance(one, Tensor) and isinstance(other, Tensor) else one + other


def padded_sum(one: Tensor, other: Tensor) -> Tensor:
    """Return the sum of two tensors, each of which is zero beyond its own end.

    >>> import torch
    >>> padded_sum(torch.tensor([1, 2, 3]), torch.tensor([10]))
    tensor([11,  2,  3])
    """
    shape = [max(sizes) for sizes in zip(one.shape, other.shape, strict=True)]
    return zero_padded(one, shape) + zero_padded(other, shape).to(one.device)


def zero_padded(values: Tensor, shape: list[int]) -> Tensor:
    """Return the same values in a larger shape, zero elsewhere."""
    if list(values.shape) == shape:
        return values
    padded = values.new_zeros(shape)
    padded[tuple(slice(size) for size in values.shape)] = values
    return padded


def check_reiterable(data: object, why: str = "") -> None:
    """Raise an error for an iterator, which allows only one pass, where two are needed."""
    if isinstance(data, Iterator):
        raise BadSetting(
            f"these batches are an iterator, which is exhausted after one pass, but two are needed{why}; give a list, "
            "or a function that returns a new iterator"
        )
