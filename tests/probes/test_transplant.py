"""Component transplant and pruning: transplanted parts stay unchanged, removed units stay removed."""

import pytest
import torch
from lexical_examples import encoder_decoder

from attnscope.errors import BadSetting
from attnscope.models import EncoderDecoder, EncoderDecoderSettings
from attnscope.probes.transplant import (
    COMPONENTS,
    freezing,
    keep_neurons,
    parameters_of,
    prune_to_strongest,
    retrain,
    transplant_component,
)
from attnscope.probes.weights import strongest_units, unit_strengths
from attnscope.tasks import Copying
from attnscope.training import L2, CrossEntropy, TrainingSettings

TASK = Copying(test_size=8, distribution="sampled", num_words=6, length=3)
SHORT = TrainingSettings(steps=4, batch_size=4, evaluate_every=4)
BATCH = next(TASK.batches("test", 8))


def network(seed=0, **settings):
    torch.manual_seed(seed)
    chosen = {"units": 20, "inputs": "learned", "input_size": 5, "attention": "mlp", "context": "input",
              "focus": True, "readout": "state"} | settings  # fmt: skip
    words = len(TASK.source_vocabulary)
    model = EncoderDecoder(EncoderDecoderSettings(**chosen), words, words)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)  # biases and first states too: two models have no weight in common
    return model


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(one, other):
    return [name for name in one if torch.equal(one[name], other[name])]


@pytest.mark.parametrize("component", COMPONENTS)
def test_substituting_twice_back_restores_the_model_to_the_bit(component):
    receiver, donor = network(0), network(1)
    before = weights(receiver), weights(donor)
    once = transplant_component(receiver, donor, component).model
    assert set(same(weights(once), before[1])) == set(parameters_of(receiver, component))
    twice = transplant_component(once, receiver, component).model
    assert len(same(weights(twice), before[0])) == len(before[0])
    for model, own in zip((receiver, donor), before, strict=True):
        assert len(same(weights(model), own)) == len(own)


def test_encoder_and_decoder_partition_the_parameters():
    model = network()
    encoder, decoder = (set(parameters_of(model, side)) for side in ("encoder", "decoder"))
    assert encoder | decoder == set(weights(model))
    assert not encoder & decoder
    assert {"output.weight", "attend.key.weight", "focus.weight", "target_inputs.table"} <= decoder
    assert set(parameters_of(model, "decoder_wih")) == {"decoder.ahead.0.rnn.weight_ih_l0"}


@pytest.mark.parametrize("component", COMPONENTS)
def test_retrained_the_donors_part_is_frozen_and_all_else_learns(component):
    receiver, donor = network(0), network(1)
    operated = transplant_component(receiver, donor, component)
    before = weights(operated.model)
    retrained, progress = retrain(operated, TASK, CrossEntropy() + L2(0.1), SHORT)
    assert progress.step == 4
    assert set(same(weights(retrained), before)) == set(parameters_of(donor, component))
    assert len(same(weights(operated.model), before)) == len(before)  # a copy was trained


def test_only_what_is_trained_counts_when_gradients_are_clipped():
    """With all but the output held, training is that of the output layer alone, clipped by its own norm."""
    one, other = network(0), network(0)
    held = {name: torch.ones_like(p, dtype=torch.bool) for name, p in one.named_parameters() if name != "output.weight"}
    with freezing(one, held):
        loss = CrossEntropy()(one, BATCH, one(BATCH))
        loss.backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in one.parameters()])
    loss = CrossEntropy()(other, BATCH, other(BATCH))
    loss.backward()
    assert norm == pytest.approx(other.output.weight.grad.norm().item())


def test_parameters_are_trainable_again_after_the_block():
    model = network()
    with freezing(model, {"output.weight": torch.ones_like(model.output.weight, dtype=torch.bool)}):
        pass
    model(BATCH).logits.sum().backward()
    assert model.output.weight.grad.abs().sum() > 0


def test_pruning_keeps_the_strongest_neurons_of_each_side():
    model = network(units=40)
    before = weights(model)
    operated = prune_to_strongest(model)
    assert len(same(weights(model), before)) == len(before)
    for side in ("encoder", "decoder"):
        strongest = strongest_units(unit_strengths(model, side))
        assert len(strongest) == 2
        rows = getattr(operated.model, side).ahead[0].rnn.weight_hh_l0.unflatten(0, (3, 40))
        assert set(rows.abs().sum((0, 2)).nonzero().flatten().tolist()) == set(strongest)
        assert set(rows.abs().sum((0, 1)).nonzero().flatten().tolist()) == set(strongest)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_removed_encoder_neurons_are_zero_and_removed_decoder_neurons_are_not_read(cell):
    model = network(cell=cell)
    neurons = {"encoder": (1, 2, 3), "decoder": (4, 5)}
    small = keep_neurons(model, neurons).model
    trace = small(BATCH)
    assert trace.encoder.abs().sum((0, 1)).nonzero().flatten().tolist() == [1, 2, 3]
    disturbed = trace.decoder + torch.ones(20).index_fill(0, torch.tensor(neurons["decoder"]), 0.0)
    torch.testing.assert_close(small.readout(trace.context, disturbed), trace.logits)
    memory = small.attend.memorise(trace.encoder, BATCH.source_mask)
    calm, moved = (small.attend(states, memory)[0].weights for states in (trace.decoder, disturbed))
    torch.testing.assert_close(calm, moved)


def test_keeping_all_neurons_changes_nothing():
    model = network()
    everyone = tuple(range(20))
    operated = keep_neurons(model, {"encoder": everyone, "decoder": everyone})
    assert len(same(weights(operated.model), weights(model))) == len(weights(model))


def test_pruned_zeros_stay_zero_through_retraining_and_come_back_when_left_free():
    operated = prune_to_strongest(network(), share=0.2)
    held, free = (weights(retrain(operated, TASK, None, SHORT, free=free)[0]) for free in (False, True))
    for name, where in operated.frozen.items():
        assert not held[name][where].any()
    learned = [name for name, where in operated.frozen.items() if (held[name] != weights(operated.model)[name]).any()]
    assert "encoder.ahead.0.rnn.weight_ih_l0" in learned
    assert any(free[name][where].any() for name, where in operated.frozen.items())


def test_invalid_input_is_refused():
    with pytest.raises(BadSetting, match="there is no component 'brain'; choose one of encoder"):
        transplant_component(network(), network(), "brain")
    with pytest.raises(BadSetting, match="differ in architecture: "):
        transplant_component(network(), network(units=8), "encoder")
    with pytest.raises(BadSetting, match="one-hot tokens have no embedding"):
        transplant_component(encoder_decoder(), encoder_decoder(1), "encoder_embedding")
    with pytest.raises(BadSetting, match="belongs to both encoder and decoder"):
        transplant_component(network(shared_inputs=True), network(shared_inputs=True), "encoder")
    with pytest.raises(BadSetting, match=r"there are no neurons \[20\]"):
        keep_neurons(network(), {"encoder": (20,), "decoder": ()})
    with pytest.raises(BadSetting, match="name the neurons"):
        keep_neurons(network(), {"encoder": (1,)})
    with pytest.raises(BadSetting, match="read the decoder's neurons without weights"):
        prune_to_strongest(encoder_decoder())
    with pytest.raises(BadSetting, match="one layer"):
        prune_to_strongest(network(layers=2))
    with (
        pytest.raises(BadSetting, match="no parameter 'x' to freeze"),
        freezing(network(), {"x": torch.ones(1).bool()}),
    ):
        pass
