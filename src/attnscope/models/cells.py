"""Recurrent cells (LSTM, GRU, UGRNN) and cells without recurrence.

Sequences run through the fused kernels. Gates are never recorded on the way: they follow from inputs and recorded
states, so `gates` computes them afterwards for all steps at once. Their names say what an open gate does:
`keep` the old state, `write` the new one, `reset` (open: the new state depends on the old one), `expose` the cell.

The scans of GRU and LSTM have a backward pass that is faster than torch's on a CPU. In backpropagation through time,
torch accumulates the gradient of the recurrent matrix step by step, in small products. Here the gates' gradients are
stored, and one large product at the end gives the same sum. In the GRU each is the state's gradient times a local
derivative; these are computed for all steps at once, so that three operations per step remain.

vmap can map over the scan of the LSTM; in place of the GRU's, an ensemble of seeds runs a loop of plain operations.
LSTM tensors are (steps x) replicas x batch x units: `torch.func.vmap` makes the replica axis longer, and a step is one
product however long it is. On a GPU torch's fused cell does the rest of a step, and nothing waits for the device, so
that all of it can be captured in a CUDA graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad

from attnscope.errors import BadSetting

FEW_INPUTS = 16  # below this, torch is slow to compute the gradient of a transposed matrix


class GRUScan(torch.autograd.Function):
    """A GRU whose gates are in the order new, reset, keep; in `recurrent` the new one is last, as in torch.

    `bias` is added to `candidate`, the old state's part of the new one before the reset gate acts on it.
    """

    @staticmethod
    def forward(
        from_inputs: Float[Tensor, "steps batch gates"],
        first: Float[Tensor, "batch units"],
        recurrent: Float[Tensor, "gates units"],
        bias: Float[Tensor, " units"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        gates = from_inputs.detach()  # gates overwrite the projected inputs, which are not needed afterwards
        states = first.repeat(len(gates) + 1, 1, 1)  # the first state and all that follow
        candidate = torch.empty_like(states[1:])
        sizes = (len(bias), 2 * len(bias))
        news, both = gates.split(sizes, -1)  # new; reset and keep
        of_both, of_new = recurrent.t().split(sizes[::-1], -1)
        for old, after, gate, new, part in by_step(states[:-1], states[1:], both, news, candidate):
            reset, keep = gate.addmm_(old, of_both).sigmoid_().chunk(2, -1)
            torch.addmm(bias, old, of_new, out=part)
            torch.lerp(tanh_(new.addcmul_(reset, part)), old, keep, out=after)
        return states, gates, candidate

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(inputs[2], *output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # no gradients made of zeros for those

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, *_: None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        recurrent, states, gates, candidate = ctx.saved_tensors
        before, units = states[:-1], states.shape[-1]
        d_gates, keeps = derivatives(before, gates, candidate), gates[..., 2 * units :]
        d_state = d_states[-1]
        for d_here, d_gate, keep in reversed([*by_step(d_states[:-1], d_gates, keeps)]):
            d_gate.mul_(d_state[:, None])
            d_state = torch.addcmul(d_here, d_state, keep).addmm_(d_gate[:, 1:].flatten(1), recurrent)
        d_recurrent = d_gates[:, :, 1:].flatten(2).flatten(0, 1).t() @ before.flatten(0, 1)
        return d_gates[:, :, :3].flatten(2), d_state, d_recurrent, d_gates[:, :, 3].sum((0, 1))


def derivatives(
    before: Float[Tensor, "steps batch units"],
    gates: Float[Tensor, "steps batch gates"],
    candidate: Float[Tensor, "steps batch units"],
) -> Float[Tensor, "steps batch 4 units"]:
    """Return the derivatives of the next state by the inputs of new, reset and keep, and by the candidate.

    The first three depend on the inputs, the last three on the old state.
    """
    new, reset, keep = gates.chunk(3, -1)
    result = gates.new_empty(*gates.shape[:-1], 4, before.shape[-1])
    of_new, of_reset, of_keep, of_candidate = result.unbind(-2)
    write = 1 - keep
    torch.addcmul(write, write * new, new, value=-1, out=of_new)
    torch.mul(of_new, reset, out=of_candidate)
    torch.mul(torch.addcmul(of_candidate, of_candidate, reset, value=-1), candidate, out=of_reset)
    torch.mul((before - new).mul_(keep), write, out=of_keep)
    return result


def by_step(*parts: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield each step of all parts."""
    return zip(*(part.unbind(0) for part in parts), strict=True)


def tanh_(x: Tensor) -> Tensor:
    """Apply tanh in place by way of the sigmoid, which is several times faster on a CPU."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


def gru_scan(
    inputs: Float[Tensor, "batch steps input"], first: Float[Tensor, "batch units"], weights: tuple[Tensor, ...]
) -> Float[Tensor, "batch steps units"]:
    """Return the states of nn.GRU, given its input and recurrent matrices and their biases."""
    of_input, of_state, input_bias, state_bias = weights
    units = first.shape[-1]
    of_both, of_candidate = state_bias.split((2 * units, units))
    rows = inputs.transpose(0, 1).flatten(0, 1)  # (steps batch) x input
    matrix = of_input.roll(units, 0).t()  # the new gate first
    matrix = matrix.contiguous() if len(matrix) < FEW_INPUTS else matrix
    from_inputs = torch.addmm(input_bias.roll(units, 0) + pad(of_both, (units, 0)), rows, matrix)
    by_gate = from_inputs.unflatten(0, (inputs.shape[1], inputs.shape[0]))  # steps x batch x gates
    states: Tensor = GRUScan.apply(by_gate, first, of_state, of_candidate)[0]
    return states[1:].transpose(0, 1)


def gru_loop(
    inputs: Float[Tensor, "batch steps input"], first: Float[Tensor, "batch units"], weights: tuple[Tensor, ...]
) -> Float[Tensor, "batch steps units"]:
    """Return the same states through operations that vmap can map over, unlike `gru_scan` and torch's fused cell."""
    of_input, of_state, input_bias, state_bias = weights
    sizes = (2 * first.shape[-1], first.shape[-1])  # reset and keep; new
    of_both, of_candidate = state_bias.split(sizes)
    projected = linear(inputs, of_input, input_bias + pad(of_both, (0, sizes[1])))
    h, states = first, []
    for both, new in by_step(*projected.transpose(0, 1).split(sizes, -1)):
        both_h, candidate = linear(h, of_state).split(sizes, -1)
        reset, keep = torch.sigmoid(both + both_h).chunk(2, -1)
        h = torch.lerp(torch.tanh(torch.addcmul(new, reset, candidate + of_candidate)), h, keep)
        states.append(h)
    return torch.stack(states, 1)


aten = torch.ops.aten
sigmoid_back, tanh_back = aten.sigmoid_backward.grad_input, aten.tanh_backward.grad_input
Outputs = tuple[Tensor, ...]


class LSTMScan(torch.autograd.Function):
    """States, cells and gates of all steps. Gates are in torch's order: write (i), keep (f), new (g), expose (o)."""

    @staticmethod
    def forward(
        from_inputs: Float[Tensor, "steps replicas batch gates"],
        state: Float[Tensor, "replicas batch units"],
        cell: Float[Tensor, "replicas batch units"],
        recurrent: Float[Tensor, "replicas gates units"],
    ) -> Outputs:
        scan = fused_scan if from_inputs.is_cuda else scan_in_place
        return scan(from_inputs, state, cell, recurrent)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Outputs) -> None:
        ctx.save_for_backward(*inputs[1:], *output)
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)  # no gradient made of zeros for the gates

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor | None, d_cells: Tensor | None, _: None) -> Outputs:
        if d_states is None:
            d_states = torch.zeros_like(ctx.saved_tensors[3])
        return BackwardScan.apply(d_states, d_cells, *ctx.saved_tensors)  # type: ignore[no-any-return]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Outputs, tuple[int, ...]]:
        return over_replicas(LSTMScan, info.batch_size, in_dims, inputs)


class BackwardScan(torch.autograd.Function):
    """From the gradients of states and cells to those of LSTMScan's inputs; a function for vmap's sake."""

    @staticmethod
    def forward(
        d_states: Tensor, d_cells: Tensor | None, state: Tensor, cell: Tensor, recurrent: Tensor, *output: Tensor
    ) -> Outputs:
        states, cells, gates = output
        back = fused_back if states.is_cuda else back_in_place
        d_gates, d_state, d_cell = back(d_states, d_cells, cell, recurrent, cells, gates)
        d_recurrent = rows(states[:-1]).mT @ rows(d_gates[1:])
        d_recurrent.baddbmm_(state.mT, d_gates[0])
        return d_gates, d_state, d_cell, d_recurrent.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor | None, ...], output: Outputs) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor | None) -> tuple[Outputs, tuple[int, ...]]:
        return over_replicas(BackwardScan, info.batch_size, in_dims, inputs)


def over_replicas(
    function: type[torch.autograd.Function],
    size: int,
    in_dims: tuple[int | None, ...],
    inputs: tuple[Tensor | None, ...],
) -> tuple[Outputs, tuple[int, ...]]:
    """Apply a function with the mapped axis joined to the replicas, the third axis from the last of every tensor."""

    def join(x: Tensor | None, dim: int | None) -> Tensor | None:
        if x is None:
            return None
        expanded = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        return expanded.movedim(0, -4).flatten(-4, -3).contiguous()

    outputs = function.apply(*map(join, inputs, in_dims))
    return tuple(x.unflatten(-3, (size, -1)) for x in outputs), tuple(x.dim() - 3 for x in outputs)


def scan_in_place(from_inputs: Tensor, state: Tensor, cell: Tensor, recurrent: Tensor) -> Outputs:
    """Run an LSTM; gates overwrite the projected inputs, which are not needed afterwards."""
    gates = from_inputs.detach()
    states, cells = (gates.new_empty(*gates.shape[:-1], state.shape[-1]) for _ in range(2))
    for i, gate in enumerate(gates.unbind(0)):
        gate.baddbmm_(state, recurrent.mT)
        write, keep, new, expose = gate.chunk(4, -1)
        new.mul_(2)
        gate.sigmoid_()
        new.mul_(2).sub_(1)  # the tanh, as in `tanh_`
        cell = torch.mul(keep, cell, out=cells[i]).addcmul_(write, new)
        state = tanh_(states[i].copy_(cell)).mul_(expose)
    return states, cells, gates


def back_in_place(
    d_states: Tensor, d_cells: Tensor | None, first: Tensor, recurrent: Tensor, cells: Tensor, gates: Tensor
) -> Outputs:
    """Backpropagate; the gates' gradients overwrite the gates, unless these are kept for another backward pass."""
    d_gates = torch.empty_like(gates) if torch._C._autograd._get_current_graph_task_keep_graph() else gates
    d_state, d_cell = gates.new_zeros(first.shape), gates.new_zeros(first.shape)
    for i in reversed(range(len(gates))):
        write, keep, new, expose = gates[i].chunk(4, -1)
        d_write, d_keep, d_new, d_expose = d_gates[i].chunk(4, -1)
        activated = tanh_(cells[i].clone())
        d_state += d_states[i]
        if d_cells is not None:
            d_cell += d_cells[i]
        d_activated = d_state * expose
        d_cell += tanh_back(d_activated, activated, grad_input=d_activated)
        d_before, d_addition = d_cell * keep, d_cell * write
        sigmoid_back(d_state.mul_(activated), expose, grad_input=d_expose)
        sigmoid_back(d_cell * (cells[i - 1] if i else first), keep, grad_input=d_keep)
        sigmoid_back(d_cell.mul_(new), write, grad_input=d_write)
        tanh_back(d_addition, new, grad_input=d_new)
        d_cell = d_before
        torch.bmm(d_gates[i], recurrent, out=d_state)
    return d_gates, d_state, d_cell


def fused_scan(from_inputs: Tensor, state: Tensor, cell: Tensor, recurrent: Tensor) -> Outputs:
    """Run an LSTM on a GPU, where the fused cell takes (replicas batch) x units."""
    replicas, batch, _ = state.shape
    cell, steps = cell.flatten(0, 1).contiguous(), []
    for from_input in from_inputs.flatten(1, 2).unbind(0):
        from_state = torch.bmm(state, recurrent.mT).flatten(0, 1)
        h, cell, gates = aten._thnn_fused_lstm_cell(from_input, from_state, cell)
        state = h.unflatten(0, (replicas, batch))
        steps.append((h, cell, gates))
    return tuple(torch.stack(part).unflatten(1, (replicas, batch)) for part in zip(*steps, strict=True))


def fused_back(
    d_states: Tensor, d_cells: Tensor | None, first: Tensor, recurrent: Tensor, cells: Tensor, gates: Tensor
) -> Outputs:
    """Backpropagate on a GPU; a later step's gradient is added by the product that computes it."""
    d_state, d_cell = d_states[-1], gates.new_zeros(first.shape)
    d_gates: list[Tensor] = []  # last step first
    for i in reversed(range(len(gates))):
        d_here = d_cell if d_cells is None else d_cell + d_cells[i]
        flat = (x.flatten(0, 1) for x in (d_state, d_here, cells[i - 1] if i else first, cells[i], gates[i]))
        d_gate, d_cell, *_ = aten._thnn_fused_lstm_cell_backward_impl(*flat, False)
        d_gate, d_cell = d_gate.view_as(gates[i]), d_cell.view_as(first)
        d_state = torch.baddbmm(d_states[i - 1], d_gate, recurrent) if i else torch.bmm(d_gate, recurrent)
        d_gates.append(d_gate)
    return torch.stack(d_gates[::-1]), d_state, d_cell


def rows(x: Float[Tensor, "steps replicas batch width"]) -> Float[Tensor, "replicas steps_batch width"]:
    return x.transpose(0, 1).flatten(1, 2)


Run = tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]  # inputs, first state and cell, weights


def lstm_scan(
    inputs: Float[Tensor, "batch steps input"], first: tuple[Tensor, ...], weights: tuple[Tensor, ...]
) -> tuple[Float[Tensor, "batch steps units"], Float[Tensor, "batch steps units"]]:
    """Return h and c of nn.LSTM at every step, given its input and recurrent matrices and their biases."""
    return lstm_scans([(inputs, first, weights)])[0]


def lstm_scans(runs: Sequence[Run]) -> list[tuple[Tensor, Tensor]]:
    """Return h and c of several LSTMs of one size, each on its own inputs, stepping together as replicas."""
    projected = [from_inputs(inputs, weights) for inputs, _, weights in runs]
    state, cell = (torch.stack(parts) for parts in zip(*(first for _, first, _ in runs), strict=True))
    recurrent = torch.stack([weights[1] for *_, weights in runs])
    together = torch.cat(projected, 1) if len(runs) > 1 else projected[0]
    states, cells, _ = LSTMScan.apply(together, state, cell, recurrent)
    return [(states[:, i].transpose(0, 1), cells[:, i].transpose(0, 1)) for i in range(len(runs))]


def from_inputs(
    inputs: Float[Tensor, "batch steps input"], weights: tuple[Tensor, ...]
) -> Float[Tensor, "steps 1 batch gates"]:
    of_input, _, input_bias, state_bias = weights
    by_step = inputs.transpose(0, 1).flatten(0, 1)  # (steps batch) x input
    projected = linear(by_step, of_input, input_bias + state_bias)
    return projected.view(inputs.shape[1], 1, inputs.shape[0], -1)


# Cells ---------------------------------------------------------------------------------------------------------------


LONG = 64  # steps from which on cuDNN's LSTM, which starts slowly, is faster than our scan
State = tuple[Tensor, ...]  # (h,) or, for the LSTM, (h, c); () without recurrence


class Cell(nn.Module, ABC):
    """A step from `inputs` input units to `units` state units."""

    recurrent = True
    parts = 1  # tensors in a state
    supports_vmap = False  # can vmap map it over an ensemble of seeds? Not inherited: a subclass runs other code

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.supports_vmap = vars(cls).get("supports_vmap", False)

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
    def step(self, inputs: Float[Tensor, "batch input"], state: State) -> tuple[Tensor, State]:
        """Return the output of one step, and the state to go on from, which begins with the output."""

    def steps(self, inputs: Float[Tensor, "batch steps input"], state: State) -> State:
        """Return all parts of the state at every step, the output first."""
        states, size = [], (len(inputs), self.units)
        for one in inputs.unbind(1):
            match self.step(one, state):
                case (_, tuple(state)) if [part.shape for part in state] == [size] * self.parts:
                    states.append(state)
                case _:
                    name = type(self).__name__
                    shapes = f"a tuple of {self.parts} tensor(s) of batch x units, {size}"
                    raise BadSetting(f"{name}.step must return its output and its state, {shapes}")
        return tuple(torch.stack(part, 1) for part in zip(*states, strict=True))

    def forward(self, inputs: Float[Tensor, "batch steps input"], state: State) -> Float[Tensor, "batch steps units"]:
        """Return the output of every step."""
        return self.steps(inputs, state)[0]

    def gates(self, inputs: Tensor, states: Tensor, state: State) -> dict[str, Tensor]:
        """Return name to batch x steps x units, from the inputs, states and first state of a forward pass."""
        return {}

    def read(
        self, inputs: Float[Tensor, "batch steps input"], state: State, mask: Bool[Tensor, "batch steps"]
    ) -> tuple[Tensor, State]:
        """Return the output of every step, and the state after each sequence's own last step."""
        steps = self.steps(inputs, state)
        return steps[0], tuple(at_last(part, mask) for part in steps[: self.parts])


class GRU(Cell):
    """Cho et al. 2014, as in torch: the reset gate acts after the recurrent matrix."""

    supports_vmap = True

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.rnn = nn.GRU(inputs, units, batch_first=True)

    def steps(self, inputs: Tensor, state: State) -> State:
        weights = weights_of(self.rnn)
        if is_mapped(inputs, *state, *weights):
            return (gru_loop(inputs, state[0], weights),)
        if inputs.is_cuda:
            return (self.rnn(inputs, state[0][None].contiguous())[0],)
        return (gru_scan(inputs, state[0], weights),)

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        weights = weights_of(self.rnn)
        if is_mapped(inputs, *state, *weights):
            h = gru_loop(inputs[:, None], state[0], weights)[:, 0]
        else:
            h = torch.gru_cell(inputs, state[0], *weights)
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
    supports_vmap = True

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.rnn = nn.LSTM(inputs, units, batch_first=True)

    def forward(self, inputs: Tensor, state: State) -> Tensor:
        return self.steps(inputs, state)[0] if self.uses_scan(inputs) else self._fused(inputs, state)[0]

    def steps(self, inputs: Tensor, state: State) -> State:
        h, c = state
        return lstm_scan(inputs, (h, c), weights_of(self.rnn))

    def read(self, inputs: Tensor, state: State, mask: Tensor) -> tuple[Tensor, State]:
        return super().read(inputs, state, mask) if self.uses_scan(inputs, mask) else self._fused(inputs, state)

    def uses_scan(self, inputs: Tensor, mask: Tensor | None = None) -> bool:
        """Return whether to use our scan: torch's fused kernel has no vmap, and returns only the last cell state."""
        if is_mapped(inputs, *weights_of(self.rnn)):
            return True
        if mask is not None:
            return inputs.is_cuda or not bool(mask.all())
        return inputs.is_cuda and inputs.shape[1] < LONG

    def _fused(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        states, last = self.rnn(inputs, tuple(part[None].contiguous() for part in state))
        return states, tuple(part[0] for part in last)

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        if is_mapped(inputs, *weights_of(self.rnn)):  # torch cannot map its cell over replicas
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

    supports_vmap = True

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.of_input = nn.Linear(inputs, 2 * units)
        self.of_state = nn.Linear(units, 2 * units, bias=False)

    def steps(self, inputs: Tensor, state: State) -> State:
        h, states = state[0], []
        for projected in self.of_input(inputs).unbind(1):
            h = self._update(projected, h)
            states.append(h)
        return (torch.stack(states, 1),)

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
    supports_vmap = True

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.of_input = nn.Linear(inputs, 2 * units)

    def steps(self, inputs: Tensor, state: State) -> State:
        keep, new = self.of_input(inputs).chunk(2, -1)
        return (torch.sigmoid(-keep) * torch.tanh(new),)

    def step(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        return self.steps(inputs, state)[0], ()

    def gates(self, inputs: Tensor, states: Tensor, state: State) -> dict[str, Tensor]:
        return {"write": torch.sigmoid(-self.of_input(inputs).chunk(2, -1)[0])}


class UngatedFeedForward(FeedForward):
    """One layer and a tanh (aitken2021 footnote 2)."""

    supports_vmap = True

    def __init__(self, inputs: int, units: int, trained_first: bool = True):
        super().__init__(inputs, units, trained_first)
        self.of_input = nn.Linear(inputs, units)

    def steps(self, inputs: Tensor, state: State) -> State:
        return (torch.tanh(self.of_input(inputs)),)

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
    lstms = [cell for cell in cells if isinstance(cell, LSTM) and cell.uses_scan(inputs[0], mask)]
    if lstms:
        weights = [weights_of(cell.rnn) for cell in lstms]
        steps = lstm_scans(list(zip(inputs, first, weights, strict=True)))
        return [(h, (at_last(h, mask), at_last(c, mask)) if mask is not None else ()) for h, c in steps]
    each = list(zip(cells, inputs, first, strict=True))
    if mask is None:
        return [(cell(sequence, state), ()) for cell, sequence, state in each]
    return [cell.read(sequence, state, mask) for cell, sequence, state in each]


def is_mapped(*tensors: Tensor) -> bool:
    """Return whether vmap maps over any of these tensors."""
    return any(map(is_batchedtensor, tensors))


def weights_of(rnn: nn.RNNBase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0  # type: ignore[return-value]


def previous(states: Tensor, first: Tensor) -> Tensor:
    """Return the state before each step."""
    return torch.cat([first[:, None], states[:, :-1]], 1)


def at_last(states: Tensor, mask: Tensor) -> Tensor:
    """Return each sequence's state at its last unmasked step."""
    last = mask.sum(1) - 1
    return states[torch.arange(len(states), device=states.device), last]
