"""Each cell must equal a plain step-by-step twin, written here from its equations."""

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import linear

from attnscope.errors import BadSetting
from attnscope.models.cells import CELLS, GRU, LSTM, UGRNN, Cell, weights_of


def gru_twin(cell, inputs, state):
    w_input, w_state, b_input, b_state = weights_of(cell.rnn)
    h, states, gates = state[0], [], []
    for x in inputs.unbind(1):
        ri, zi, ni = linear(x, w_input, b_input).chunk(3, -1)
        rh, zh, nh = linear(h, w_state, b_state).chunk(3, -1)
        r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
        h = (1 - z) * torch.tanh(ni + r * nh) + z * h
        states.append(h)
        gates.append({"keep": z, "write": 1 - z, "reset": r})
    return states, gates


def lstm_twin(cell, inputs, state):
    w_input, w_state, b_input, b_state = weights_of(cell.rnn)
    (h, c), states, gates = state, [], []
    for x in inputs.unbind(1):
        i, f, g, o = (linear(x, w_input, b_input) + linear(h, w_state, b_state)).chunk(4, -1)
        i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
        c = f * c + i * torch.tanh(g)
        h = o * torch.tanh(c)
        states.append(h)
        gates.append({"write": i, "keep": f, "expose": o})
    return states, gates


def ugrnn_twin(cell, inputs, state):
    h, states, gates = state[0], [], []
    for x in inputs.unbind(1):
        u, c = (cell.of_input(x) + cell.of_state(h)).chunk(2, -1)
        u = torch.sigmoid(u)
        h = u * h + (1 - u) * torch.tanh(c)
        states.append(h)
        gates.append({"keep": u, "write": 1 - u})
    return states, gates


def feedforward_twin(cell, inputs, state):
    """A GRU whose state is zero: the new state, as far as the update gate lets it in."""
    states, gates = [], []
    for x in inputs.unbind(1):
        z, n = cell.of_input(x).chunk(2, -1)
        states.append((1 - torch.sigmoid(z)) * torch.tanh(n))
        gates.append({"write": 1 - torch.sigmoid(z)})
    return states, gates


def ungated_twin(cell, inputs, state):
    return [torch.tanh(cell.of_input(x)) for x in inputs.unbind(1)], [{} for _ in inputs.unbind(1)]


TWINS = {
    "gru": gru_twin,
    "lstm": lstm_twin,
    "ugrnn": ugrnn_twin,
    "feedforward": feedforward_twin,
    "ungated_feedforward": ungated_twin,
}


@pytest.fixture(params=CELLS)
def case(request):
    torch.manual_seed(0)
    cell = CELLS[request.param](5, 7)
    for part in cell.first:
        torch.nn.init.normal_(part)
    inputs = torch.randn(3, 11, 5)
    states, gates = TWINS[request.param](cell, inputs, cell.initial(3))
    return cell, inputs, states, gates


def test_the_scan_equals_the_step_by_step_sequence(case):
    cell, inputs, states, _ = case
    torch.testing.assert_close(cell(inputs, cell.initial(3)), torch.stack(states, 1))


def test_single_steps_equal_the_sequence(case):
    cell, inputs, states, _ = case
    state = cell.initial(3)
    for x, expected in zip(inputs.unbind(1), states, strict=True):
        shown, state = cell.step(x, state)
        torch.testing.assert_close(shown, expected)


def test_gates_recomputed_from_states_equal_recorded_ones(case):
    cell, inputs, states, gates = case
    result = cell.gates(inputs, torch.stack(states, 1), cell.initial(3))
    assert result.keys() == gates[0].keys()
    for name, values in result.items():
        torch.testing.assert_close(values, torch.stack([step[name] for step in gates], 1))


def test_the_final_state_is_the_one_before_padding(case):
    cell, inputs, _, _ = case
    lengths = torch.tensor([11, 4, 1])
    mask = torch.arange(11) < lengths[:, None]
    shown, final = cell.read(inputs, cell.initial(3), mask)
    torch.testing.assert_close(shown, cell(inputs, cell.initial(3)))
    for row, length in enumerate(lengths.tolist()):
        for ours, expected in zip(final, stepped(cell, inputs[row : row + 1, :length]), strict=True):
            torch.testing.assert_close(ours[row], expected[0])


def stepped(cell, inputs):
    state = cell.initial(1)
    for x in inputs.unbind(1):
        _, state = cell.step(x, state)
    return state


@pytest.mark.parametrize(("cell", "fused"), [(GRU, torch.nn.GRU), (LSTM, torch.nn.LSTM)])
@pytest.mark.parametrize("size", [5, 20])  # of inputs: few, or more
def test_fused_cells_equal_torchs_own_layer_gradients_included(cell, fused, size):
    ours, theirs = cell(size, 7), fused(size, 7, batch_first=True)
    theirs.load_state_dict(ours.rnn.state_dict())
    inputs, weights = torch.randn(3, 11, size), torch.randn(3, 11, 7)
    outputs = ours(inputs, ours.initial(3)), theirs(inputs)[0]
    torch.testing.assert_close(*outputs)
    for states in outputs:
        (states * weights).sum().backward()
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(getattr(ours.rnn, name).grad, parameter.grad)


def test_the_final_state_without_padding_is_the_last_one(case):
    cell, inputs, _, _ = case
    _, final = cell.read(inputs, cell.initial(3), torch.ones(3, 11, dtype=torch.bool))
    for row in range(3):
        for ours, expected in zip(final, stepped(cell, inputs[row : row + 1]), strict=True):
            torch.testing.assert_close(ours[row], expected[0])


def test_lstm_cells_equal_the_step_by_step_ones():
    cell, inputs = LSTM(5, 7), torch.randn(3, 11, 5)
    state, cells = cell.initial(3), []
    for x in inputs.unbind(1):
        _, state = cell.step(x, state)
        cells.append(state[1])
    torch.testing.assert_close(cell.steps(inputs, cell.initial(3))[1], torch.stack(cells, 1))


class Both(torch.nn.Module):
    """A cell's states over a sequence, and those of a first step alone."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, inputs):
        first = self.cell.initial(len(inputs))
        return self.cell(inputs, first), self.cell.step(inputs[:, 0], first)[0]


@pytest.mark.parametrize("mapped", [(0, 0), (0, None), (None, 0)])  # weights, inputs
@pytest.mark.parametrize("name", CELLS)
def test_cells_mapped_over_seeds_equal_single_ones_gradients_included(name, mapped):
    assert CELLS[name].supports_vmap
    torch.manual_seed(0)
    cells, inputs = [Both(CELLS[name](5, 7)) for _ in range(3)], torch.randn(3, 2, 4, 5)
    weights = stack_module_state(cells)[0] if mapped[0] == 0 else dict(cells[0].named_parameters())
    inputs = inputs if mapped[1] == 0 else inputs[0]

    def run(weights, inputs):
        return functional_call(cells[0], weights, (inputs,))

    def one(i):
        own = {name: weight if mapped[0] is None else weight[i] for name, weight in weights.items()}
        return run(own, inputs if mapped[1] is None else inputs[i])

    together = vmap(run, mapped)(weights, inputs)
    alone = tuple(map(torch.stack, zip(*map(one, range(3)), strict=True)))
    torch.testing.assert_close(together, alone)
    losses = (sum(part.sin().sum() for part in parts) for parts in (together, alone))
    torch.testing.assert_close(*(torch.autograd.grad(loss, [*weights.values()]) for loss in losses))


@pytest.mark.parametrize("cell", [Cell, *CELLS.values()])
def test_a_subclass_does_not_inherit_that_vmap_can_map_over_it(cell):
    assert not type("Own", (cell,), {}).supports_vmap
    assert type("Own", (cell,), {"supports_vmap": True}).supports_vmap


class TwoParts(CELLS["ugrnn"]):
    """A cell that keeps its previous state as well, by `step` alone."""

    parts = 2
    steps = Cell.steps

    def step(self, inputs, state):
        h, _ = super().step(inputs, state[:1])
        return h, (h, state[0])


def test_a_cell_needs_only_a_step():
    cell, inputs = TwoParts(5, 7), torch.randn(3, 4, 5)
    states, previous = cell.steps(inputs, cell.initial(3))
    torch.testing.assert_close(states, UGRNN.steps(cell, inputs, cell.initial(3)[:1])[0])
    assert torch.equal(previous[:, 1:], states[:, :-1])
    assert torch.equal(cell(inputs, cell.initial(3)), states)


@pytest.mark.parametrize("result", [lambda h: h, lambda h: (h, h), lambda h: (h, (h,)), lambda h: (h, (h, h[:, 1:]))])
def test_a_step_with_a_wrong_state_says_what_it_should_be(result):
    cell = TwoParts(5, 7)
    cell.step = lambda inputs, before: result(before[0])
    with pytest.raises(BadSetting, match=r"TwoParts.step must .* a tuple of 2 tensor\(s\) of batch x units, \(3, 7\)"):
        cell(torch.randn(3, 1, 5), cell.initial(3))
