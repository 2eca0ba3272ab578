"""`decompose()` on models of this package and of others."""

from dataclasses import replace
from functools import partial

import matplotlib as mpl
import pytest
import torch
from decomposition_examples import Tiny, random_batch

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models import PRESETS, EncoderDecoder, EncoderDecoderSettings
from attnscope.probes import PROBES
from attnscope.probes.decomposition import (
    ComponentAccumulator,
    Decomposition,
    MeasureAccumulator,
    decompose,
    plot_paths,
    readout_alignment,
    temporal_paths,
)
from attnscope.tasks import Batch, OneToOne

mpl.use("Agg")


def batches(seed: int = 0) -> list[Batch]:
    return [random_batch(8, seed=10 * seed + i) for i in range(3)]


def task_model(settings: EncoderDecoderSettings) -> tuple[OneToOne, EncoderDecoder]:
    torch.manual_seed(0)
    task = OneToOne(min_length=3, max_length=6, test_size=60)
    return task, EncoderDecoder(settings, len(task.source_vocabulary), len(task.target_vocabulary))


def test_decompose_runs_both_passes_in_sample_and_held_out() -> None:
    model = Tiny().eval()
    decomposition = decompose(model, batches(0), batches(1))
    fit = ComponentAccumulator()
    for batch in batches(0):
        fit.update(model(batch))
    for sample, stream in ((decomposition.in_sample, batches(0)), (decomposition.held_out, batches(1))):
        measure = MeasureAccumulator(fit.result())
        for batch in stream:
            measure.update(model(batch))
        torch.testing.assert_close(sample.attention.shares.absolute, measure.result().attention.shares.absolute)
    assert decomposition.offsets.expected[0] == 1  # the guide of these batches points one ahead
    assert list(decomposition.table().index) == [(s, f"head {h}") for s in ("in-sample", "held out") for h in (0, 1)]


def test_without_held_out_data_there_is_no_held_out_result() -> None:
    decomposition = decompose(Tiny(), batches())
    assert decomposition.held_out is None
    assert decomposition.bars().index.tolist() == ["in-sample, head 0", "in-sample, head 1"]


def test_batches_may_come_from_a_function_but_not_from_an_iterator() -> None:
    from_function = decompose(Tiny(), lambda: iter(batches()))
    from_list = decompose(Tiny(), batches())
    torch.testing.assert_close(from_function.encoder.input, from_list.encoder.input)
    with pytest.raises(BadSetting, match="exhausted after one pass"):
        decompose(Tiny(), iter(batches()))


def test_the_model_is_left_as_it_was() -> None:
    model = Tiny().train()
    model.encoder.eval()  # a mode of its own, as for a frozen part
    before = {name: values.clone() for name, values in model.state_dict().items()}
    decompose(model, batches())
    assert model.training
    assert model.dropout.training
    assert not model.encoder.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    assert torch.is_grad_enabled()


def test_the_model_is_left_as_it_was_when_it_fails() -> None:
    class Failing(Tiny):
        def forward(self, batch: Batch) -> None:
            raise RuntimeError("out of order")

    model = Failing().train()
    with pytest.raises(RuntimeError, match="out of order"):
        decompose(model, batches())
    assert model.training
    assert model.dropout.training


def test_dropout_is_off_during_the_passes() -> None:
    trained, evaluated = Tiny().train(), Tiny().eval()
    one, other = decompose(trained, batches()), decompose(evaluated, batches())
    torch.testing.assert_close(one.encoder.temporal, other.encoder.temporal)


def test_any_function_that_returns_a_trace_is_accepted() -> None:
    model = Tiny().eval()
    one, other = decompose(lambda batch: model(batch), batches()), decompose(model, batches())
    torch.testing.assert_close(one.in_sample.attention.shares.absolute, other.in_sample.attention.shares.absolute)


@pytest.mark.parametrize("preset", ["aed", "ao"])
def test_the_networks_of_the_paper_can_be_decomposed(preset: str) -> None:
    task, model = task_model(replace(PRESETS[preset], units=12))
    decomposition = decompose(model, partial(task.batches, size=16), decoding="greedy")
    assert decomposition.in_sample.attention.shares.absolute.sum().item() == pytest.approx(1)
    assert 0 <= decomposition.in_sample.attention.predictability.overall.item() <= 1
    assert decomposition.readout(model.context_readout).dictionary().keys() == {3, 4, 5}


def test_a_network_without_attention_has_a_decomposition_of_states_only() -> None:
    task, model = task_model(replace(PRESETS["ved"], units=12))
    decomposition = decompose(model, partial(task.batches, size=16), of="states")
    assert decomposition.offsets is None
    assert decomposition.decoder.temporal.shape == (1, 7, 12)
    assert decomposition.bars().empty
    with pytest.raises(AttnscopeError, match="no attention"):
        decompose(model, task.batches, of="attention")


def test_several_heads_with_learned_queries_and_keys_can_be_decomposed() -> None:
    settings = EncoderDecoderSettings(units=12, attention="query_key_value", heads=3, key_size=5)
    task, model = task_model(settings)
    decomposition = decompose(model, partial(task.batches, size=16))
    assert decomposition.encoder.temporal.shape == (3, 7, 5)
    torch.testing.assert_close(decomposition.in_sample.attention.shares.absolute.sum((1, 2)), torch.ones(3).double())


@pytest.mark.parametrize("attention", ["additive", "mlp"])
def test_attention_that_is_no_inner_product_is_refused_with_an_alternative(attention: str) -> None:
    task, model = task_model(EncoderDecoderSettings(units=12, attention=attention))
    with pytest.raises(AttnscopeError, match="of='states'"):
        decompose(model, task.batches, of="attention")
    assert decompose(model, task.batches).decoder is not None  # of its states
    assert PROBES["decompose"](model, task).decoder is not None


def test_an_unknown_kind_of_decomposition_is_refused() -> None:
    with pytest.raises(BadSetting, match="attention, states"):
        decompose(Tiny(), batches(), of="keys")


def test_a_classifier_has_one_decoder_class_and_its_states_no_decoder_at_all() -> None:
    model = Tiny().eval()

    def classify(batch: Batch):
        trace = model(
            replace(batch, target=batch.target[:, :1], target_mask=batch.target_mask[:, :1], gold_attention=None)
        )
        return replace(trace, decoder_input=None, decoder=None)

    decomposition = decompose(classify, batches())
    assert decomposition.decoder.counts.shape == (3, 1)
    assert decomposition.in_sample.decoder.geometry.length("delta").max() < 1e-12
    states = decompose(classify, batches(), of="states")
    assert states.decoder is None
    assert states.in_sample.decoder is None
    assert list(temporal_paths(states.encoder, states.decoder)) == ["encoder"]


@pytest.fixture
def decomposition() -> Decomposition:
    return decompose(Tiny(), batches(0), batches(1))


def test_every_result_has_a_figure(decomposition: Decomposition) -> None:
    measured = decomposition.in_sample
    answers = [
        decomposition, decomposition.offsets, decomposition.mean_attention, measured.attention.shares,
        measured.attention.predictability,
        measured.encoder.variance, measured.encoder.geometry, measured.encoder.principal[0],
        readout_alignment(torch.randn(7, 4).double(), decomposition.encoder),
    ]  # fmt: skip
    for answer in answers:
        assert answer.plot() is not None
        assert len(answer.table()) > 0
    mpl.pyplot.close("all")


def test_paths_are_drawn(decomposition: Decomposition) -> None:
    paths = temporal_paths(decomposition.encoder, decomposition.decoder)
    assert paths["encoder"].shape == (decomposition.encoder.temporal.shape[1], 2)
    assert plot_paths(decomposition.encoder, decomposition.decoder) is not None
    assert decompose(Tiny(), batches(), of="states").plot() is not None
    mpl.pyplot.close("all")
