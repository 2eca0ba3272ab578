"""What is left to chance in a forward pass, and whose chance is it?

Alone, a model draws from torch's global generator. As one of many replicas it draws from a generator of its own, seeded
as the global one would be, so that it sees what it would see alone.
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
    """In training, each number is zero with this chance, and otherwise raised so that its mean stays."""

    def __init__(self, chance: float):
        super().__init__()
        require(0 <= chance < 1, f"dropout must be from 0 to below 1, not {chance}")
        self.chance = chance

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.chance == 0:
            return values
        return values * (uniform_like(values) >= self.chance) / (1 - self.chance)


def uniform_like(values: Tensor) -> Tensor:
    """Numbers from 0 to 1 in the shape of `values`; under vmap, each replica's from its own generator."""
    drawn: Tensor = Draw.apply(values)
    return drawn


@contextmanager
def generators(each: Sequence[torch.Generator]) -> Iterator[None]:
    """One for each replica of what is mapped over inside the block."""
    token = GENERATORS.set(each)
    try:
        yield
    finally:
        GENERATORS.reset(token)


class Draw(torch.autograd.Function):
    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return torch.rand(values.shape, device=values.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, d_drawn: Tensor) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, ...], values: Tensor) -> tuple[Tensor, int]:
        shape = values.select(in_dims[0], 0).shape
        own = [torch.rand(shape, generator=generator, device=values.device) for generator in GENERATORS.get()]
        return torch.stack(own), 0


@dataclass(frozen=True)
class Passage:
    """One cell's way through a sequence, from which its gates follow. `order` is how it went, if not ahead."""

    name: str
    cell: Cell
    inputs: Tensor
    states: Tensor
    first: State
    order: Tensor | None = None

    def gates(self) -> dict[str, Tensor]:
        found = self.cell.gates(self.inputs, self.states, self.first)
        return {f"{self.name}{gate}": in_order(values, self.order) for gate, values in found.items()}


@dataclass(frozen=True)
class Read:
    """A sequence as layers of cells read it: the last layer's states, how each layer ended, and each cell's way."""

    states: Float[Tensor, "batch steps state"]
    final: tuple[State, ...]  # a layer; of two directions, their mean; empty states where they were not asked for
    passages: tuple[Passage, ...]

    def gates(self) -> dict[str, Tensor]:
        return {name: gate for passage in self.passages for name, gate in passage.gates().items()}


class Recurrent(nn.Module):
    """Layers of cells with dropout between them; with two directions, states are theirs side by side."""

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
        self.dropout = Dropout(dropout)  # between layers, as nn.LSTM has it

    def initial(self, batch: int) -> tuple[State, ...]:
        return tuple(cell.initial(batch) for cell in self.ahead)  # type: ignore[operator]

    def forward(
        self, inputs: Float[Tensor, "batch steps input"], first: Sequence[State]
    ) -> Float[Tensor, "batch steps state"]:
        """Ahead only, from given states: a decoder."""
        states = inputs
        for layer, cell in enumerate(self.ahead):
            states = cell(self.dropout(states) if layer else states, first[layer])
        return states

    def step(self, inputs: Float[Tensor, "batch input"], states: Sequence[State]) -> tuple[Tensor, tuple[State, ...]]:
        """One step: what the last layer shows, and the states to go on from."""
        shown, after = inputs, []
        for layer, cell in enumerate(self.ahead):
            shown, state = cell.step(self.dropout(shown) if layer else shown, states[layer])  # type: ignore[operator]
            after.append(state)
        return shown, tuple(after)

    def read(
        self, inputs: Float[Tensor, "batch steps input"], mask: Bool[Tensor, "batch steps"], ends: bool = True
    ) -> Read:
        """A whole sequence, from first states of its own; how it ends only if asked for, since that takes longer."""
        states, order = inputs, reversal(mask)
        final, passages = list[State](), list[Passage]()
        for layer, cells in enumerate(self._layers()):
            heard = self.dropout(states) if layer else states
            ways = (None, order)[: len(cells)]
            told, first = [in_order(heard, way) for way in ways], [cell.initial(len(heard)) for cell in cells]
            shown, last = zip(*read_each(cells, told, first, mask if ends else None), strict=True)
            for side, *way in zip(("ahead", "back"), cells, told, shown, first, ways, strict=False):
                passages.append(Passage(self._name(layer, side), *way))
            shown = tuple(in_order(states, way) for states, way in zip(shown, ways, strict=True))
            states = torch.cat(shown, -1) if self.back else shown[0]
            final.append(tuple(torch.stack(parts).mean(0) for parts in zip(*last, strict=True)))
        return Read(states, tuple(final), tuple(passages))

    def passages(self, inputs: Tensor, first: Sequence[State]) -> tuple[Passage, ...]:
        """Each cell's way ahead, for the gates of a decoder; in evaluation mode it is the way of the forward pass."""
        found, states = list[Passage](), inputs
        for layer, (cell, begin) in enumerate(zip(self.ahead, first, strict=True)):
            heard, states = states, cell(states, begin)
            found.append(Passage(self._name(layer, "ahead"), cell, heard, states, begin))  # type: ignore[arg-type]
        return tuple(found)

    def _layers(self) -> list[tuple[Cell, ...]]:
        sides = (self.ahead, self.back) if self.back else (self.ahead,)
        return list(zip(*sides, strict=True))

    def _name(self, layer: int, side: str) -> str:
        """What comes before the name of a gate: nothing where there is one cell only."""
        return ("" if len(self.ahead) == 1 else f"{layer + 1}.") + (f"{side}." if self.back else "")


def reversal(mask: Bool[Tensor, "batch steps"]) -> Int[Tensor, "batch steps"]:
    """Where to read at each step: the sentence from its end; padding stays where it is. Twice, it undoes itself.

    >>> reversal(torch.tensor([[True, True, True, False]]))
    tensor([[2, 1, 0, 3]])
    """
    steps = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - steps, steps)


def in_order(sequence: Float[Tensor, "batch steps size"], order: Int[Tensor, "batch steps"] | None) -> Tensor:
    return sequence if order is None else sequence.gather(1, order[..., None].expand_as(sequence))
