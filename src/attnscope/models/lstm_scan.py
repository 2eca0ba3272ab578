"""How does an LSTM run over a sequence, give its cell at every step, and do so for many replicas at once?

As for the GRU (`gru_scan`), one large product after the way back through time gives the recurrent matrix its gradient.
Tensors are (steps x) replicas x batch x units: what `torch.func.vmap` maps over makes the replica axis longer, and a
step is one product however long it is. On a GPU torch's fused cell does the rest of a step, and nothing waits for the
device, so that all of it can be captured in a CUDA graph.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from attnscope.models.gru_scan import tanh_

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
    """What is mapped over joins the replicas, third from the last axis of every tensor here, and leaves them again."""

    def joined(x: Tensor | None, dim: int | None) -> Tensor | None:
        if x is None:
            return None
        own = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        return own.movedim(0, -4).flatten(-4, -3).contiguous()

    outputs = function.apply(*map(joined, inputs, in_dims))
    return tuple(x.unflatten(-3, (size, -1)) for x in outputs), tuple(x.dim() - 3 for x in outputs)


def scan_in_place(from_inputs: Tensor, state: Tensor, cell: Tensor, recurrent: Tensor) -> Outputs:
    """The gates take the place of what comes from the inputs, which no one needs afterwards."""
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
    """The gates' gradients take their place, unless the gates are to be kept for another way back."""
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
    """As above on a GPU, where the fused cell takes (replicas batch) x units."""
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
    """As above; what comes from a later step is added to a step's own gradient by the product that makes it."""
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


Way = tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]  # inputs, first state and cell, weights


def lstm_scan(
    inputs: Float[Tensor, "batch steps input"], first: tuple[Tensor, ...], weights: tuple[Tensor, ...]
) -> tuple[Float[Tensor, "batch steps units"], Float[Tensor, "batch steps units"]]:
    """As nn.LSTM does, given its input and recurrent matrices and their biases: h and c at every step."""
    return lstm_scans([(inputs, first, weights)])[0]


def lstm_scans(ways: Sequence[Way]) -> list[tuple[Tensor, Tensor]]:
    """Several LSTMs of one size, each on its own way, step by step together, as if they were replicas."""
    projected = [from_inputs(inputs, weights) for inputs, _, weights in ways]
    state, cell = (torch.stack(parts) for parts in zip(*(first for _, first, _ in ways), strict=True))
    recurrent = torch.stack([weights[1] for *_, weights in ways])
    together = torch.cat(projected, 1) if len(ways) > 1 else projected[0]
    states, cells, _ = LSTMScan.apply(together, state, cell, recurrent)
    return [(states[:, i].transpose(0, 1), cells[:, i].transpose(0, 1)) for i in range(len(ways))]


def from_inputs(
    inputs: Float[Tensor, "batch steps input"], weights: tuple[Tensor, ...]
) -> Float[Tensor, "steps 1 batch gates"]:
    of_input, _, input_bias, state_bias = weights
    by_step = inputs.transpose(0, 1).flatten(0, 1)  # (steps batch) x input
    projected = linear(by_step, of_input, input_bias + state_bias)
    return projected.view(inputs.shape[1], 1, inputs.shape[0], -1)
