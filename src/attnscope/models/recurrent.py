"""Layers of recurrent cells, in one direction or in both, with dropout between them.

Sequences are padded, never packed: on a CPU packing costs several times the work. The backward direction reads each
sentence reversed within its own length, so that padding always comes last, and no real state depends on it.

Random numbers of a single model come from torch's global generator. In an ensemble of seeds, each has its own
generator, seeded as the global one would be, so that it gets the same numbers as if it were trained alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import require
from attnscope.models.cells import Cell, State, read_each

GENERATORS: ContextVar[Sequence[torch.Generator]] = ContextVar("generators", default=())


class Dropout(nn.Module):
    """Dropout from the generators of this module."""

    def __init__(self, probability: float):
        super().__init__()
        require(0 <= probability < 1, f"dropout must be from 0 to below 1, not {probability}")
        self.probability = probability

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return values
        return values * (uniform_like(values) >= self.probability) / (1 - self.probability)


def uniform_like(values: Tensor) -> Tensor:
    """Return uniform random numbers in the shape of `values`; under vmap, each replica's from its own generator."""
    numbers: Tensor = Uniform.apply(values)
    return numbers


@contextmanager
def generators(each: Sequence[torch.Generator]) -> Iterator[None]:
    """Use one generator per replica that vmap maps over inside the block."""
    token = GENERATORS.set(each)
    try:
        yield
    finally:
        GENERATORS.reset(token)


class Uniform(torch.autograd.Function):
    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return torch.rand(values.shape, device=values.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, ...], values: Tensor) -> tuple[Tensor, int]:
        shape = values.select(in_dims[0], 0).shape
        own = [torch.rand(shape, generator=generator, device=values.device) for generator in GENERATORS.get()]
        return torch.stack(own), 0


@dataclass(frozen=True)
class Passage:
    """The inputs and states of one cell over a sequence, from which its gates follow. `order`: if not forward."""

    name: str
    cell: Cell
    inputs: Tensor
    states: Tensor
    first: State
    order: Tensor | None = None

    def gates(self) -> dict[str, Tensor]:
        gates = self.cell.gates(self.inputs, self.states, self.first)
        return {f"{self.name}{gate}": in_order(values, self.order) for gate, values in gates.items()}


@dataclass(frozen=True)
class EncodedSequence:
    """An encoded sequence: the last layer's states, each layer's final state, and each cell's passage."""

    states: Float[Tensor, "batch steps state"]
    final: tuple[State, ...]  # one per layer; of two directions, their mean; empty with ends=False
    passages: tuple[Passage, ...]

    def gates(self) -> dict[str, Tensor]:
        return {name: gate for passage in self.passages for name, gate in passage.gates().items()}


class Recurrent(nn.Module):
    """Layers of cells with dropout between them; states of two directions are concatenated."""

    def __init__(
        self,
        cell: type[Cell],
        inputs: int,
        units: int,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        trained_first: bool = True,
    ):
        super().__init__()
        require(layers > 0, f"layers must be positive, not {layers}")
        self.state_size = units * (2 if bidirectional else 1)
        sizes = [inputs] + [self.state_size] * (layers - 1)
        self.ahead = nn.ModuleList([cell(size, units, trained_first) for size in sizes])
        self.back = nn.ModuleList([cell(size, units, trained_first) for size in sizes] if bidirectional else [])
        self.dropout = Dropout(dropout)  # between layers, as in nn.LSTM

    def initial(self, batch: int) -> tuple[State, ...]:
        return tuple(cell.initial(batch) for cell in self.ahead)  # type: ignore[operator]

    def forward(
        self, inputs: Float[Tensor, "batch steps input"], first: Sequence[State]
    ) -> Float[Tensor, "batch steps state"]:
        """Return the states of a forward direction from given first states, as a decoder."""
        states = inputs
        for layer, cell in enumerate(self.ahead):
            states = cell(self.dropout(states) if layer else states, first[layer])
        return states

    def step(self, inputs: Float[Tensor, "batch input"], states: Sequence[State]) -> tuple[Tensor, tuple[State, ...]]:
        """Return the last layer's output of one step, and the states to go on from."""
        output, after = inputs, []
        for layer, cell in enumerate(self.ahead):
            output, state = cell.step(self.dropout(output) if layer else output, states[layer])  # type: ignore[operator]
            after.append(state)
        return output, tuple(after)

    def read(
        self, inputs: Float[Tensor, "batch steps input"], mask: Bool[Tensor, "batch steps"], ends: bool = True
    ) -> EncodedSequence:
        """Return a sequence as encoded from the cells' first states; final states only with `ends`, since they cost."""
        states, order = inputs, reversal(mask)
        final, passages = list[State](), list[Passage]()
        for layer, cells in enumerate(self._layers()):
            inputs = self.dropout(states) if layer else states
            ways = (None, order)[: len(cells)]
            ordered, first = [in_order(inputs, way) for way in ways], [cell.initial(len(inputs)) for cell in cells]
            outputs, last = zip(*read_each(cells, ordered, first, mask if ends else None), strict=True)
            for side, *way in zip(("ahead", "back"), cells, ordered, outputs, first, ways, strict=False):
                passages.append(Passage(self._name(layer, side), *way))
            outputs = tuple(in_order(output, way) for output, way in zip(outputs, ways, strict=True))
            states = torch.cat(outputs, -1) if self.back else outputs[0]
            final.append(tuple(torch.stack(parts).mean(0) for parts in zip(*last, strict=True)))
        return EncodedSequence(states, tuple(final), tuple(passages))

    def passages(self, inputs: Tensor, first: Sequence[State]) -> tuple[Passage, ...]:
        """Return each cell's passage in the forward direction, for the gates of a decoder; in evaluation mode only."""
        passages, states = list[Passage](), inputs
        for layer, (cell, begin) in enumerate(zip(self.ahead, first, strict=True)):
            before, states = states, cell(states, begin)
            passages.append(Passage(self._name(layer, "ahead"), cell, before, states, begin))  # type: ignore[arg-type]
        return tuple(passages)

    def _layers(self) -> list[tuple[Cell, ...]]:
        sides = (self.ahead, self.back) if self.back else (self.ahead,)
        return list(zip(*sides, strict=True))

    def _name(self, layer: int, side: str) -> str:
        """Return what precedes the name of a gate: nothing where there is one cell only."""
        return ("" if len(self.ahead) == 1 else f"{layer + 1}.") + (f"{side}." if self.back else "")


def reversal(mask: Bool[Tensor, "batch steps"]) -> Int[Tensor, "batch steps"]:
    """Return the order of reading backwards: the sentence from its end, padding in its place. It is its own inverse.

    >>> reversal(torch.tensor([[True, True, True, False]]))
    tensor([[2, 1, 0, 3]])
    """
    steps = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - steps, steps)


def in_order(sequence: Float[Tensor, "batch steps size"], order: Int[Tensor, "batch steps"] | None) -> Tensor:
    return sequence if order is None else sequence.gather(1, order[..., None].expand_as(sequence))
