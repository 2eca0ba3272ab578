"""GRU and LSTM over a sequence, with a backward pass that is faster than torch's on a CPU and that vmap can map over.

In backpropagation through time, torch accumulates the gradient of the recurrent matrix step by step, in small products.
Here the gates' gradients are kept, and one large product at the end gives the same sum. In the GRU each is the state's
gradient times a local derivative, which are computed for all steps at once, so that three operations per step remain.

LSTM tensors are (steps x) replicas x batch x units: `torch.func.vmap` makes the replica axis longer, and a step is one
product however long it is. On a GPU torch's fused cell does the rest of a step, and nothing waits for the device, so
that all of it can be captured in a CUDA graph.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad

FEW_INPUTS = 16  # fewer of them, and torch is slow to find the gradient of a matrix that is laid out as it is kept


class GRUScan(torch.autograd.Function):
    """Here gates come in the order new, reset, keep; in `recurrent` the new one is last, as torch has it.

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

    def joined(x: Tensor | None, dim: int | None) -> Tensor | None:
        if x is None:
            return None
        own = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        return own.movedim(0, -4).flatten(-4, -3).contiguous()

    outputs = function.apply(*map(joined, inputs, in_dims))
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
        shown = tanh_(cells[i].clone())
        d_state += d_states[i]
        if d_cells is not None:
            d_cell += d_cells[i]
        d_shown = d_state * expose
        d_cell += tanh_back(d_shown, shown, grad_input=d_shown)
        d_before, d_addition = d_cell * keep, d_cell * write
        sigmoid_back(d_state.mul_(shown), expose, grad_input=d_expose)
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
