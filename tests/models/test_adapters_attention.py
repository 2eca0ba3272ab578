"""Traces of Hugging Face models, against the library's own eager attention."""

from copy import deepcopy

import pytest
import torch
from adapter_examples import CLASSIFIERS, ENCODER_DECODERS, adapter, foreign, texts

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models import uniform
from attnscope.models.adapters import ablated, recording, rollout, up_to
from attnscope.models.adapters.recording import NAME, RECORDER
from attnscope.models.attention import masked_softmax
from attnscope.models.inference import with_predicted_target
from attnscope.tasks import END, START
from attnscope.testing import check_adapter

EVERY = (*ENCODER_DECODERS, "mt5", *CLASSIFIERS, "xlm-roberta")


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def eager_twin(model):
    twin = deepcopy(model.model)
    for part in twin.modules():
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation("eager")
    return twin


def eager(model, batch):
    """The library's own pass over the same ids: logits by id, and attentions."""
    twin = eager_twin(model)
    inputs = {"input_ids": batch.source, "attention_mask": batch.source_mask.long()}
    if twin.config.is_encoder_decoder:
        # Labels: the library itself shifts them to what the decoder hears.
        labels = model.reader.target.to_tokenizer(batch.target)
        output = twin(**inputs, labels=labels, output_attentions=True)
        return output.logits, output.cross_attentions, output.encoder_last_hidden_state
    output = twin(**inputs, output_attentions=True, output_hidden_states=True)
    return output.logits[:, None], [weights[:, :, :1] for weights in output.attentions], output.hidden_states[-1]


@pytest.fixture(params=EVERY)
def model(request):
    return adapter(request.param)


@torch.no_grad()
def test_logits_attention_and_states_are_those_of_eager_attention(model):
    batch = texts(model).batch
    trace, (logits, weights, encoder) = model(batch), eager(model, batch)
    close(trace.logits[batch.target_mask], model.by_target_id(logits)[batch.target_mask])
    assert len(trace.layers) == model.depth == len(weights) == 2
    for layer, expected in zip(trace.layers, weights, strict=True):
        close(layer.weights, expected)
        close(masked_softmax(layer.queries @ layer.keys.mT, batch.source_mask), expected)
    close(trace.encoder[batch.source_mask], encoder[batch.source_mask])


def test_the_contract_of_an_adapter_is_kept(model):
    check_adapter(model, [texts(model).batch])


def test_an_attention_implementation_that_is_not_recorded_raises(model, monkeypatch):
    batch = texts(model).batch
    monkeypatch.setattr(recording, "switch", lambda model, implementation: None)
    with pytest.raises(AttnscopeError, match="can be neither recorded nor changed"):
        model(batch)


@torch.no_grad()
def test_a_batch_without_padding_is_read_as_well(model):
    batch = texts(model).batch
    one = batch.source_mask.sum(1).argmax()
    alone = type(batch)(*(value[one : one + 1] for value in list(batch.tensors().values())[:4]))
    close(model(alone).logits[alone.target_mask], model.by_target_id(eager(model, alone)[0])[alone.target_mask])
    assert alone.source_mask.all()


@torch.no_grad()
def test_a_model_in_training_mode_runs_without_dropout_and_stays_in_training_mode(model):
    batch = texts(model).batch
    expected = model(batch).logits
    model.train()
    torch.testing.assert_close(model(batch).logits, expected)
    assert all(module.training for module in model.modules())


def test_configuration_and_attention_are_restored_after_an_exception():
    model = adapter("t5")  # its encoder and decoder have configurations of their own
    batch, before = texts(model).batch, deepcopy(model.model.config)
    model.model.decoder.set_attn_implementation("eager")

    def fails(weights, mask):
        assert model.model.decoder.config._attn_implementation == NAME
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        model(batch, attention=fails)
    assert str(model.model.config) == str(before)
    assert model.model.config._attn_implementation == before._attn_implementation
    assert model.model.decoder.config._attn_implementation == "eager"
    assert RECORDER.get() is None
    assert not any(module._forward_pre_hooks for module in model.modules())


@torch.no_grad()
@pytest.mark.parametrize("kind", ["marian", "bert"])
def test_ablating_a_head_equals_zeroing_its_part_of_the_projection(kind):
    model = adapter(kind)
    batch, twin = texts(model).batch, adapter(kind)
    last = model.depth - 1
    projection = {
        "marian": lambda m: m.model.model.decoder.layers[last].encoder_attn.out_proj,
        "bert": lambda m: m.model.bert.encoder.layer[last].attention.output.dense,
    }[kind](twin)
    projection.weight[:, 8:] = 0  # head 1 of 2, each of size 8
    close(model(batch, attention={(-1, 1): ablated}).logits, twin(batch).logits)
    assert not torch.allclose(model(batch).logits, twin(batch).logits)


@torch.no_grad()
def test_a_plain_intervention_acts_on_the_last_layer_and_a_dictionary_where_it_says():
    model = adapter("bart")
    batch = texts(model).batch
    plain, last = model(batch, attention=uniform), model(batch, attention={1: uniform})
    torch.testing.assert_close(plain.logits, last.logits)
    torch.testing.assert_close(plain.layers[0].weights, model(batch).layers[0].weights)
    weights = torch.rand(len(batch), batch.target.shape[1], batch.source.shape[1])
    trace = model(batch, attention={(0, 1): weights, 1: uniform})
    torch.testing.assert_close(trace.layers[0].weights[:, 1], weights)
    torch.testing.assert_close(trace.attention, uniform(trace.attention, batch.source_mask))


@torch.no_grad()
def test_any_layer_can_be_shown_as_the_last():
    model = adapter("marian")
    trace = model(texts(model).batch)
    assert up_to(trace, 0).attention is trace.layers[0].weights
    assert up_to(trace, -1).attention is trace.attention
    with pytest.raises(BadSetting, match="there is no layer 2; layers are numbered from 0 to 1"):
        up_to(trace, 2)


def test_a_layer_or_head_that_is_not_there_is_refused():
    model = adapter("bert")
    batch = texts(model).batch
    with pytest.raises(BadSetting, match="layer 2; this model's layers are numbered from 0 to 1"):
        model(batch, attention={2: uniform})
    with pytest.raises(BadSetting, match="head 7"):
        model(batch, attention={(0, 7): uniform})
    with pytest.raises(BadSetting, match="batch x heads x target x source"):
        model(batch, attention=torch.ones(1, 2, 3, 4))


@torch.no_grad()
def test_a_classifier_shows_and_changes_the_row_of_its_classification_token_only():
    model = adapter("bert")
    batch = texts(model).batch
    whole = model.self_attention(batch)
    for layer, weights in zip(model(batch).layers, whole, strict=True):
        torch.testing.assert_close(layer.weights, weights[:, :, :1])
    trace = model(batch, attention={0: uniform})
    assert not torch.allclose(trace.logits, model(batch).logits)
    assert trace.logits[:, :, :3].isinf().all()


@torch.no_grad()
@pytest.mark.parametrize("kind", ["distilbert", "t5"])
def test_all_self_attention_equals_eager_attention(kind):
    model = adapter(kind)
    batch, twin = texts(model).batch, eager_twin(model)
    encoder = twin.get_encoder() if kind == "t5" else twin.base_model
    inputs = {"input_ids": batch.source, "attention_mask": batch.source_mask.long()}
    expected = encoder(**inputs, output_attentions=True).attentions
    close(model.self_attention(batch), expected)


def test_rollout_follows_words_through_layers():
    # The second layer copies position 1 to 0; the first one position 2 to 1.
    first, second = torch.eye(3)[[0, 2, 2]], torch.eye(3)[[1, 1, 2]]
    result = rollout([first[None, None], second[None, None]], residual=0.0)
    torch.testing.assert_close(result[0, 0], torch.tensor([0.0, 0.0, 1.0]))
    model = adapter("bert")
    batch = texts(model).batch
    result = rollout(model.self_attention(batch)).detach()
    torch.testing.assert_close(result.sum(-1), torch.ones(result.shape[:2]))
    assert (result[:, 0] * ~batch.source_mask == 0).all()
    with pytest.raises(BadSetting, match="at least one layer"):
        rollout([])


@torch.no_grad()
@pytest.mark.parametrize("kind", ENCODER_DECODERS)
def test_generated_text_is_replayed_with_teacher_forcing(kind):
    model = adapter(kind)
    batch = texts(model).batch
    generated = model.generate(batch.source, batch.source_mask, max_length=6, forced_eos_token_id=None, do_sample=False)
    replayed = with_predicted_target(model, batch, max_length=6, forced_eos_token_id=None, do_sample=False)
    mask = replayed.target_mask
    assert torch.equal(replayed.target[mask], generated[:, : mask.shape[1]][mask])
    trace = model(replayed)
    assert torch.equal(trace.predictions[mask], replayed.target[mask])
    assert (trace.decoder_input[:, 0] == START).all()


@torch.no_grad()
def test_beams_need_no_special_case():
    model = adapter("marian")
    batch = texts(model).batch
    replayed = with_predicted_target(model, batch, max_length=6, num_beams=3)
    ids = batch.source
    result = model.model.generate(
        input_ids=ids, attention_mask=batch.source_mask.long(), max_new_tokens=6, num_beams=3
    )  # fmt: skip
    for row, target, mask in zip(result, replayed.target, replayed.target_mask, strict=True):
        assert model.reader.target.to_tokenizer(target[mask]).tolist() == row[1 : 1 + int(mask.sum())].tolist()
        assert END in target.tolist() or mask.all()


@torch.no_grad()
def test_without_teacher_forcing_the_decoder_is_fed_its_predictions():
    model = adapter("bart")
    batch = texts(model).batch
    trace = model(batch, teacher_forcing=0.0)
    assert torch.equal(trace.decoder_input[:, 1:], trace.predictions[:, :-1])
    again = model(type(batch)(batch.source, batch.source_mask, trace.predictions, batch.target_mask))
    torch.testing.assert_close(again.logits, trace.logits)


@torch.no_grad()
def test_a_model_with_eager_attention_gives_the_same_results(model):
    batch = texts(model).batch
    expected = model(batch).logits
    model.model.set_attn_implementation("eager")
    close(model(batch).logits, expected)
    assert model.model.config._attn_implementation == "eager"


def test_source_embeddings_are_those_that_the_encoder_receives():
    """Marian and Pegasus scale them on the way; BART's table does so itself."""
    for kind in ("marian", "pegasus", "mbart"):
        model = foreign(kind)
        assert model.config.scale_embedding
        wrapped = adapter(kind)
        batch = texts(wrapped).batch
        table = wrapped.model.get_encoder().embed_tokens.weight
        expected = table[batch.source] * 4.0  # the root of 16
        torch.testing.assert_close(wrapped(batch).embedded, expected)
