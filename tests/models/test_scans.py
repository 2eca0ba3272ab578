"""The scan equals nn.LSTM, alone and for many replicas at once."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from attnscope.models.cells import lstm_scan, weights_of

SIZES = [(3, 5), (1, 5), (3, 1), (1, 1)]  # batch, steps

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU for the fused cell to run on")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])


class Scan(nn.LSTM):
    """nn.LSTM's weights, run by the scan."""

    def forward(self, inputs, state, cell):
        return lstm_scan(inputs, (state, cell), weights_of(self))


def case(batch=3, steps=5, seed=0, dtype=torch.float64, device="cpu"):
    """A layer, and inputs, first state and first cell for it."""
    torch.manual_seed(seed)
    shapes = (batch, steps, 2), (batch, 3), (batch, 3)
    arguments = tuple(torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for shape in shapes)
    return Scan(2, 3, batch_first=True, dtype=dtype, device=device), arguments


def loss(states, cells):
    return states.sin().sum() + cells.cos().sum()


def close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def equals_torch(layer, inputs, state, cell):
    states, cells = layer(inputs, state, cell)
    expected, (_, last) = nn.LSTM.forward(layer, inputs, (state[None].contiguous(), cell[None].contiguous()))
    close((states, cells[:, -1]), (expected, last[0]))
    leaves = (inputs, state, cell, *layer.parameters())
    gradients = torch.autograd.grad(loss(states, cells[:, -1]), leaves)
    close(gradients, torch.autograd.grad(loss(expected, last[0]), leaves))


@on_each_device
@pytest.mark.parametrize(("batch", "steps"), SIZES)
def test_states_last_cell_and_gradients_are_those_of_torch(batch, steps, device):
    layer, arguments = case(batch, steps, device=device)
    equals_torch(layer, *arguments)


def test_single_precision_is_accurate_enough():
    layer, arguments = case(dtype=torch.float32)
    equals_torch(layer, *arguments)


@on_each_device
@pytest.mark.parametrize(("batch", "steps"), SIZES)
def test_gradients_through_states_and_cells_of_all_steps_are_right(batch, steps, device):
    layer, arguments = case(batch, steps, device=device)
    leaves = (*arguments, *weights_of(layer))
    assert torch.autograd.gradcheck(lambda x, h, c, *weights: lstm_scan(x, (h, c), weights), leaves)


@on_each_device
@pytest.mark.parametrize("used", [0, 1])
def test_gradients_are_right_if_states_or_cells_are_unused(used, device):
    layer, arguments = case(device=device)
    assert torch.autograd.gradcheck(lambda *arguments: layer(*arguments)[used], arguments)


def test_a_decoder_may_start_from_the_cell_at_each_sentences_own_last_step():
    layer, arguments = case()
    rows, last = torch.arange(3), torch.tensor([4, 0, 2])
    assert torch.autograd.gradcheck(lambda *arguments: layer(*arguments)[1][rows, last], arguments)


@on_each_device
def test_the_first_state_may_be_one_for_all_sentences(device):
    layer, (inputs, state, cell) = case(device=device)
    equals_torch(layer, inputs, state[:1].expand(3, -1), cell[:1].expand(3, -1))


@on_each_device
def test_backward_can_run_twice(device):
    layer, arguments = case(device=device)
    total = loss(*layer(*arguments))
    once = torch.autograd.grad(total, arguments, retain_graph=True)
    close(torch.autograd.grad(total, arguments), once)


def test_outputs_are_the_same_without_gradients():
    layer, arguments = case()
    expected = layer(*arguments)
    with torch.no_grad():
        close(layer(*arguments), expected)


def replicas(mapped, device):
    """What three layers give at once, the same one by one, and all that this depends on.

    `mapped` is as in vmap: 0 for inputs, first states, first cells that each replica has of its own, None where all
    share one.
    """
    layers, tensors = zip(*(case(seed=seed, device=device) for seed in range(3)), strict=True)
    arguments = [
        each[0] if dim is None else torch.stack(each).detach().requires_grad_()
        for each, dim in zip(zip(*tensors, strict=True), mapped, strict=True)
    ]
    weights, _ = stack_module_state(layers)

    def run(weights, *arguments):
        return functional_call(layers[0], weights, arguments)

    def one(i):
        own = (x if dim is None else x[i] for x, dim in zip(arguments, mapped, strict=True))
        return run({name: weight[i] for name, weight in weights.items()}, *own)

    together = vmap(run, (0, *mapped))(weights, *arguments)
    alone = tuple(map(torch.stack, zip(*map(one, range(3)), strict=True)))
    return together, alone, (*weights.values(), *arguments)


@on_each_device
@pytest.mark.parametrize("mapped", [(None, None, None), (0, None, None), (None, 0, None), (0, 0, 0)])
def test_each_replica_equals_a_single_model(mapped, device):
    together, alone, leaves = replicas(mapped, device)
    close(together, alone)
    close(torch.autograd.grad(loss(*together), leaves), torch.autograd.grad(loss(*alone), leaves))


def test_replicas_may_differ_in_their_recurrent_matrix_only():
    layer, (inputs, *first) = case()
    of_input, of_state, *biases = weights_of(layer)

    def run(of_state):
        return lstm_scan(inputs, tuple(first), (of_input, of_state, *biases))

    together = vmap(run)(torch.stack([of_state, -of_state]))
    close(together, tuple(map(torch.stack, zip(run(of_state), run(-of_state), strict=True))))


def test_gradients_may_be_taken_inside_of_vmap():
    layer, (inputs, *first) = case()
    weights = {name: weight.detach() for name, weight in layer.named_parameters()}
    gradient = grad(lambda weights, inputs: loss(*functional_call(layer, weights, (inputs, *first))))
    together = vmap(gradient, (None, 0))(weights, torch.stack([inputs, -inputs]))
    alone = gradient(weights, inputs), gradient(weights, -inputs)
    close(together, {name: torch.stack([each[name] for each in alone]) for name in weights})


@needs_gpu
def test_a_step_can_be_captured_in_a_cuda_graph():
    layer, arguments = case(device="cuda")

    def step():
        return torch.autograd.grad(loss(*layer(*arguments)), (*arguments, *layer.parameters()))

    expected = step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = step()
    graph.replay()
    close(actual, expected)
