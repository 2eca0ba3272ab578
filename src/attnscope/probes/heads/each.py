"""How is something gathered for each layer and head apart?"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.probes.accumulator import Accumulator

Heads = Float[Tensor, "layers heads"]
A = TypeVar("A", bound=Accumulator[Any])
T = TypeVar("T")


class EachHead(Generic[A]):
    """An accumulator for every layer and head; how many there are is seen when the first batch comes by."""

    def __init__(self, make: Callable[[], A]):
        self.make = make
        self.layers: list[list[A]] = []

    def beside(self, values: Iterable[Iterable[T]]) -> Iterator[tuple[A, T]]:
        """The accumulator of each head, and the value of that head."""
        given = [list(layer) for layer in values]
        self.layers = self.layers or [[self.make() for _ in layer] for layer in given]
        for mine, layer in zip(self.layers, given, strict=True):
            yield from zip(mine, layer, strict=True)

    def merge(self, other: "EachHead[A]") -> None:
        for mine, theirs in self.beside(other.layers) if other.layers else ():
            mine.merge(theirs)

    def numbers(self, number: Callable[[A], float]) -> Heads:
        return torch.tensor([[number(head) for head in layer] for layer in self.layers], dtype=torch.float64)
