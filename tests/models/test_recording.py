"""The attention of decoder-only families as it is recorded, against the library's own eager attention."""

from copy import deepcopy

import pytest
import torch
from language_examples import FAMILIES, REFUSED, foreign

from attnscope.models.adapters.recording import Recorder, UnsupportedAttention, attention_modules, recording
from attnscope.models.attention import ablated, changes_by_layer

IDS = torch.tensor([[5, 9, 9, 30, 7, 12, 5, 9, 44], [8, 3, 20, 21, 8, 3, 0, 0, 0]])
MASK = torch.tensor([[1] * 9, [1] * 6 + [0] * 3])


def inputs(**changed):
    return {"input_ids": IDS, "attention_mask": MASK, "use_cache": False} | changed


def eager(model):
    """Return the library's own logits and the attention of its layers that have any."""
    twin = deepcopy(model)
    twin.set_attn_implementation("eager")
    output = twin(**inputs(), output_attentions=True)
    return output.logits, [weights for weights in output.attentions if weights is not None and weights.dim() == 4]


def recorded(model, changes=None, **options):
    modules = attention_modules(model, use_cache=False)
    heads = model.config.num_attention_heads
    recorder = Recorder(modules, MASK.bool(), changes_by_layer(changes, len(modules), heads), **options)
    with recording(model, recorder):
        logits = model(**inputs()).logits
    return logits, recorder


def valid(values):
    """Rows of padding are left out: no decision rests on them."""
    return values.transpose(1, 2)[MASK.bool()] if values.dim() == 4 else values[MASK.bool()]


@torch.no_grad()
@pytest.mark.parametrize("kind", FAMILIES)
def test_recorded_attention_and_logits_are_those_of_eager_attention(kind):
    model = foreign(kind)
    expected_logits, expected = eager(model)
    logits, recorder = recorded(model)
    torch.testing.assert_close(valid(logits), valid(expected_logits), rtol=1e-5, atol=1e-5)
    assert len(expected) == len(recorder.attentions()) >= 1
    for layer, weights in zip(recorder.attentions(), expected, strict=True):
        torch.testing.assert_close(valid(layer.weights), valid(weights), rtol=1e-5, atol=1e-5)
        assert (layer.weights.sum(-1) <= 1 + 1e-5).all()
        assert layer.weights[0].triu(1).max() == 0


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2", "gpt_oss", "mistral", "deepseek_v3"])
def test_some_rows_of_some_layers_are_those_of_the_whole_record(kind):
    model = foreign(kind)
    own, whole = model(**inputs()).logits, recorded(model)[1]
    rows = torch.tensor([[8, 2], [5, 0]])
    logits, recorder = recorded(model, rows=rows, recorded_layers={1})
    torch.testing.assert_close(valid(logits), valid(own), rtol=1e-5, atol=1e-5)
    (layer,) = recorder.attentions()
    for name in ("weights", "scores") if kind == "gemma2" else ("weights", "scores", "queries"):
        expected = getattr(whole.records[1], name).take_along_dim(rows[:, None, :, None], 2)
        torch.testing.assert_close(getattr(layer, name), expected, rtol=1e-4, atol=1e-5)
    assert set(recorder.records) == {1}


@torch.no_grad()
@pytest.mark.parametrize("kind", FAMILIES)
def test_weights_are_changed_before_values_are_mixed(kind):
    """Doubled weights double what a head mixes; without weights it mixes nothing, in rows that are asked for only."""
    model = foreign(kind)
    _, own = recorded(model)
    _, doubled = recorded(model, {(0, 1): lambda weights, mask: 2 * weights})
    torch.testing.assert_close(doubled.mixed[0][:, 1], 2 * own.mixed[0][:, 1])
    torch.testing.assert_close(doubled.mixed[0][:, 0], own.mixed[0][:, 0])
    rows = torch.tensor([[8], [5]])
    logits, some = recorded(model, {(-1, 1): ablated}, rows=rows)
    assert some.mixed[len(some.layers) - 1][:, 1].abs().max() == 0
    unchanged = model(**inputs()).logits
    assert not torch.allclose(logits[0, 8], unchanged[0, 8], atol=1e-4)
    torch.testing.assert_close(logits[0, :8], unchanged[0, :8], rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2", "gpt_oss", "qwen3"])
def test_in_bfloat16_the_record_is_as_close_to_single_precision_as_eager_is(kind):
    """The control is eager's own error; a factor of 1.5 leaves room for roundings that fall otherwise."""
    _, exact = eager(foreign(kind))
    rounded = deepcopy(foreign(kind)).to(torch.bfloat16)
    (_, theirs), (_, ours) = eager(rounded), recorded(rounded)
    for layer, weights, right in zip(ours.attentions(), theirs, exact, strict=True):
        error = (valid(weights).float() - valid(right)).abs().mean()
        assert (valid(layer.weights).float() - valid(right)).abs().mean() <= 1.5 * error
        assert layer.weights.dtype == torch.bfloat16


@torch.no_grad()
def test_rows_of_a_family_with_sinks_sum_to_less_than_one():
    _, recorder = recorded(foreign("gpt_oss"))
    totals = recorder.records[0].weights.sum(-1)
    assert (totals < 0.99).any()
    assert (totals > 0).all()


@pytest.mark.parametrize("kind", REFUSED)
def test_families_that_ignore_the_interface_are_refused(kind):
    with pytest.raises(UnsupportedAttention, match="neither recorded nor changed; wrap the model in an adapter"):
        attention_modules(foreign(kind), use_cache=False)


def test_a_model_with_a_term_that_is_not_recorded_is_refused(monkeypatch):
    from attnscope.models.adapters.recording import Call

    monkeypatch.setattr(Call, "scores", lambda call: 2 * call.queries @ call.keys.mT * call.scaling)
    with pytest.raises(UnsupportedAttention):
        attention_modules(foreign("llama"), use_cache=False)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gemma2", "gpt_oss", "llama"])
def test_layers_that_are_not_recorded_use_the_models_own_attention(kind):
    model = foreign(kind)
    for implementation in {"eager", model.config._attn_implementation}:
        twin = deepcopy(model)
        twin.set_attn_implementation(implementation)
        logits, _ = recorded(twin, recorded_layers={1}, rows=torch.zeros(2, 1, dtype=torch.long))
        torch.testing.assert_close(valid(logits), valid(twin(**inputs()).logits), rtol=1e-6, atol=1e-6)
        assert twin.config._attn_implementation == implementation
