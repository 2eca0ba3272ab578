"""Saturation of gates that are open and closed at known rates."""

import pytest
import torch
from lexical_examples import encoder_decoder, one_by_one, random_batch, wider

from attnscope import plots
from attnscope.errors import BadSetting
from attnscope.probes.gates import SaturationAccumulator, plot_saturations, saturation

BATCH = random_batch(5, seed=2, longest=5)


def everywhere(gate):
    return torch.ones(gate.shape[:2], dtype=torch.bool)


def test_a_constant_gate_is_saturated_on_its_side_or_not_at_all():
    gate = torch.tensor([0.0, 0.05, 0.5, 0.95, 1.0]).expand(2, 3, 5)
    result = saturation(gate, everywhere(gate))
    assert result.closed.tolist() == [1, 1, 0, 0, 0]
    assert result.open.tolist() == [0, 0, 0, 1, 1]
    assert result.steps == 6
    assert (result.from_axes, result.one_sided) == (0, 1)
    assert result.from_diagonal == pytest.approx(0.2)


def test_the_thresholds_themselves_are_not_saturated():
    gate = torch.tensor([[[0.1, 0.9]]], dtype=torch.float64)
    result = saturation(gate, everywhere(gate))
    assert result.closed.tolist() == result.open.tolist() == [0, 0]
    assert result.from_diagonal == 1
    assert result.one_sided != result.one_sided  # never saturated: there is no side


def test_a_gate_as_often_open_as_closed_lies_on_the_diagonal():
    gate = torch.tensor([0.0, 1.0, 0.0, 1.0]).view(1, 4, 1)
    result = saturation(gate, everywhere(gate))
    assert (result.from_axes, result.from_diagonal, result.one_sided) == (0.5, 0, 0)


@pytest.mark.parametrize("cell", ["gru", "lstm", "ugrnn"])
def test_a_stream_equals_its_sentences_one_by_one_and_padding_changes_nothing(cell):
    model = encoder_decoder(cell=cell)
    for parameter in model.parameters():
        parameter.data *= 4  # so that some gates saturate
    whole, single, merged = SaturationAccumulator(), SaturationAccumulator(), SaturationAccumulator()
    whole.update(model(wider(BATCH), gates=True))
    for i, batch in enumerate(one_by_one(BATCH)):
        single.update(model(batch, gates=True))
        half = SaturationAccumulator()
        half.update(model(batch, gates=True))
        merged.merge(half)
        assert i < len(BATCH)
    for other in (single, merged):
        for name, gate in whole.result().gates.items():
            torch.testing.assert_close(gate.closed, other.result().gates[name].closed)
            torch.testing.assert_close(gate.open, other.result().gates[name].open)
    assert whole.result().table()["closed"].max() > 0


def test_steps_are_those_of_their_own_side():
    gates = SaturationAccumulator()
    gates.update(encoder_decoder()(BATCH, gates=True))
    result = gates.result().gates
    assert result["encoder.keep"].steps == int(BATCH.source_mask.sum())
    assert result["decoder.keep"].steps == int(BATCH.target_mask.sum())


def test_the_update_gate_of_a_gru_keeps_what_it_does_not_write():
    """torch's update gate is `keep`; the paper's sentences are about `write`."""
    gates = SaturationAccumulator()
    gates.update(encoder_decoder(cell="gru")(BATCH, gates=True))
    side = gates.result().side("encoder")
    assert set(side) == {"keep", "write", "reset"}
    torch.testing.assert_close(side["keep"].closed, side["write"].open)


def test_two_models_share_a_table_and_a_figure():
    gates = SaturationAccumulator()
    gates.update(encoder_decoder()(BATCH, gates=True))
    answer = gates.result()
    assert list(answer.table()["gate"]) == list(answer.gates)
    keep = answer.gates["encoder.keep"]
    assert keep.table().shape == (8, 2)
    _, (one, two, three) = plots.panels(columns=3)
    assert plot_saturations({"baseline": keep, "guided": keep}, one).get_xlabel() == "fraction closed"
    assert keep.plot(two).get_ylabel() == "fraction open"
    answer.plot(three)


def test_invalid_input_is_refused():
    with pytest.raises(BadSetting, match="records no gates: it needs a recurrent cell"):
        SaturationAccumulator().update(encoder_decoder()(BATCH))
    with pytest.raises(BadSetting, match=r"not low=0\.9, high=0\.1"):
        SaturationAccumulator(0.9, 0.1)
    with pytest.raises(BadSetting, match="there are no traces yet"):
        SaturationAccumulator().result()
    with pytest.raises(BadSetting, match="different thresholds"):
        SaturationAccumulator().merge(SaturationAccumulator(0.2, 0.8))
    with pytest.raises(BadSetting, match="the mask leaves no step"):
        saturation(torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.bool))
