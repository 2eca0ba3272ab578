"""Recurrent cells (LSTM, GRU, UGRNN) and cells without recurrence.

Sequences run through the fused kernels. Gates are never recorded on the way: they follow from inputs and recorded
states, so `gates` computes them afterwards for all steps at once. Their names say what an open gate does:
`keep` the old state, `write` the new one, `reset` (open: the old state is seen), `expose` the cell.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.nn.functional import linear

from attnscope.models.scans import gru_scan, lstm_scan, lstm_scans

LONG = 64  # steps from which on cuDNN's LSTM, whose start is slow, beats a scan of our own
State = tuple[Tensor, ...]  # (h,) or, for the LSTM, (h, c); () without recurrence


class Cell(nn.Module, ABC):
    """A step from `inputs` input units to `units` state units."""

    recurrent = True
    parts = 1  # tensors in a state

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__()
        self.inputs, self.units = inputs, units
        # aitken2021, author's code: the first state is trained and starts at zero; in snell2021 it stays there.
        trained = self.parts if trained_first else 0
        self.first = nn.ParameterList([nn.Parameter(torch.zeros(units)) for _ in range(trained)])

    def initial(self, batch: int) -> State:
        if len(self.first) < self.parts:
            zeros = next(self.parameters()).new_zeros(batch, self.units)
            return (zeros,) * self.parts
        return tuple(part.expand(batch, -1) for part in self.first)

    @abstractmethod
    def forward(self, inputs: Float[Tensor, "batch steps input"], state: State) -> Float[Tensor, "batch steps units"]:
        """Return the output of every step."""

    def steps(self, inputs: Float[Tensor, "batch steps input"], state: State) -> State:
        """Return all parts of the state at every step, the output first."""
        return (self(inputs, state),)

    @abstractmethod
    def step(self, inputs: Float[Tensor, "batch input"], state: State) -> tuple[Tensor, State]:
        """Return the output of one step, and the state to go on from."""

    @abstractmethod
    def gates(self, inputs: Tensor, states: Tensor, state: State) -> dict[str, Tensor]:
        """Return name to batch x steps x units, from the inputs, states and first state of a forward pass."""

    def read(
        self, inputs: Float[Tensor, "batch steps input"], state: State, mask: Bool[Tensor, "batch steps"]
    ) -> tuple[Tensor, State]:
        """Return the output of every step, and the state after each sequence's own last step."""
        steps = self.steps(inputs, state)
        return steps[0], tuple(at_last(part, mask) for part in steps[: self.parts])


class GRU(Cell):
    """Cho et al. 2014, as torch has it: the reset gate acts after the recurrent matrix."""

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.rnn = nn.GRU(inputs, units, batch_first=True)

    def forward(self, inputs: Tensor, state: State) -> Tensor:
        if inputs.is_cuda:
            return self.rnn(inputs, state[0][None].contiguous())[0]  # type: ignore[no-any-return]
        return gru_scan(inputs, state[0], weights_of(self.rnn))

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        h = torch.gru_cell(inputs, state[0], *weights_of(self.rnn))
        return h, (h,)

    def gates(self, inputs: Tensor, states: Tensor, state: State) -> dict[str, Tensor]:
        w_input, w_state, b_input, b_state = weights_of(self.rnn)
        reset, keep, _ = linear(inputs, w_input, b_input).chunk(3, -1)
        reset_h, keep_h, _ = linear(previous(states, state[0]), w_state, b_state).chunk(3, -1)
        keep = torch.sigmoid(keep + keep_h)  # torch: h' = (1 - z) n + z h
        return {"keep": keep, "write": 1 - keep, "reset": torch.sigmoid(reset + reset_h)}


class LSTM(Cell):
    """Hochreiter and Schmidhuber 1997."""

    parts = 2

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.rnn = nn.LSTM(inputs, units, batch_first=True)

    def forward(self, inputs: Tensor, state: State) -> Tensor:
        return self.steps(inputs, state)[0] if self.scanned(inputs) else self._fused(inputs, state)[0]

    def steps(self, inputs: Tensor, state: State) -> State:
        h, c = state
        return lstm_scan(inputs, (h, c), weights_of(self.rnn))

    def read(self, inputs: Tensor, state: State, mask: Tensor) -> tuple[Tensor, State]:
        return super().read(inputs, state, mask) if self.scanned(inputs, mask) else self._fused(inputs, state)

    def scanned(self, inputs: Tensor, mask: Tensor | None = None) -> bool:
        """Return whether to use our scan: torch's fused kernel has no vmap, and returns only the last cell state."""
        if is_batchedtensor(inputs):
            return True
        if mask is not None:
            return inputs.is_cuda or not bool(mask.all())
        return inputs.is_cuda and inputs.shape[1] < LONG

    def _fused(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        states, last = self.rnn(inputs, tuple(part[None].contiguous() for part in state))
        return states, tuple(part[0] for part in last)

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        if is_batchedtensor(inputs):  # torch cannot map its cell over replicas
            h, c = (part[:, 0] for part in self.steps(inputs[:, None], state))
        else:
            h, c = torch.lstm_cell(inputs, state, *weights_of(self.rnn))
        return h, (h, c)

    def gates(self, inputs: Tensor, states: Tensor, state: State) -> dict[str, Tensor]:
        w_input, w_state, b_input, b_state = weights_of(self.rnn)
        both = linear(inputs, w_input, b_input) + linear(previous(states, state[0]), w_state, b_state)
        write, keep, _, expose = both.chunk(4, -1)
        return {"write": torch.sigmoid(write), "keep": torch.sigmoid(keep), "expose": torch.sigmoid(expose)}


class UGRNN(Cell):
    """Collins et al. 2016: one gate decides between the old state and a new one."""

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.of_input = nn.Linear(inputs, 2 * units)
        self.of_state = nn.Linear(units, 2 * units, bias=False)

    def forward(self, inputs: Tensor, state: State) -> Tensor:
        h, states = state[0], []
        for projected in self.of_input(inputs).unbind(1):
            h = self._update(projected, h)
            states.append(h)
        return torch.stack(states, 1)

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        h = self._update(self.of_input(inputs), state[0])
        return h, (h,)

    def _update(self, projected: Tensor, h: Tensor) -> Tensor:
        keep, new = (projected + self.of_state(h)).chunk(2, -1)
        return torch.lerp(torch.tanh(new), h, torch.sigmoid(keep))  # u h + (1 - u) c

    def gates(self, inputs: Tensor, states: Tensor, state: State) -> dict[str, Tensor]:
        both = self.of_input(inputs) + self.of_state(previous(states, state[0]))
        keep = torch.sigmoid(both.chunk(2, -1)[0])
        return {"keep": keep, "write": 1 - keep}


class FeedForward(Cell):
    """A GRU whose state is always zero (aitken2021, author's code): (1 - z) n, and nothing is carried over."""

    recurrent = False
    parts = 0

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.of_input = nn.Linear(inputs, 2 * units)

    def forward(self, inputs: Tensor, state: State) -> Tensor:
        keep, new = self.of_input(inputs).chunk(2, -1)
        return torch.sigmoid(-keep) * torch.tanh(new)

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        return self(inputs, state), ()

    def gates(self, inputs: Tensor, states: Tensor, state: State) -> dict[str, Tensor]:
        return {"write": torch.sigmoid(-self.of_input(inputs).chunk(2, -1)[0])}


class UngatedFeedForward(FeedForward):
    """One layer and a tanh (aitken2021 footnote 2)."""

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.of_input = nn.Linear(inputs, units)

    def forward(self, inputs: Tensor, state: State) -> Tensor:
        return torch.tanh(self.of_input(inputs))

    def gates(self, inputs: Tensor, states: Tensor, state: State) -> dict[str, Tensor]:
        return {}


CELLS: dict[str, type[Cell]] = {
    "lstm": LSTM,
    "gru": GRU,
    "ugrnn": UGRNN,
    "feedforward": FeedForward,
    "ungated_feedforward": UngatedFeedForward,
}


def read_each(
    cells: Sequence[Cell], inputs: Sequence[Tensor], first: Sequence[State], mask: Tensor | None
) -> list[tuple[Tensor, State]]:
    """Run several cells of one kind, each on its own inputs; LSTMs step together. Without mask: no final states."""
    lstms = [cell for cell in cells if isinstance(cell, LSTM) and cell.scanned(inputs[0], mask)]
    if lstms:
        weights = [weights_of(cell.rnn) for cell in lstms]
        steps = lstm_scans(list(zip(inputs, first, weights, strict=True)))
        return [(h, (at_last(h, mask), at_last(c, mask)) if mask is not None else ()) for h, c in steps]
    each = list(zip(cells, inputs, first, strict=True))
    if mask is None:
        return [(cell(given, state), ()) for cell, given, state in each]
    return [cell.read(given, state, mask) for cell, given, state in each]


def weights_of(rnn: nn.RNNBase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0  # type: ignore[return-value]


def previous(states: Tensor, first: Tensor) -> Tensor:
    """Return the state before each step."""
    return torch.cat([first[:, None], states[:, :-1]], 1)


def at_last(states: Tensor, mask: Tensor) -> Tensor:
    """Return each sequence's state at its last unmasked step."""
    last = mask.sum(1) - 1
    return states[torch.arange(len(states), device=states.device), last]
