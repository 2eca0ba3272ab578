"""The attention of any module, recorded and changed: torch's own layers, and models that call torch's functions."""

import pytest
import torch
import transformers
from torch import nn

from attnscope.errors import BadSetting
from attnscope.watching import watch

BATCH, LENGTH, WIDTH, HEADS = 2, 5, 16, 4


def inputs(length=LENGTH, seed=0):
    return torch.randn(BATCH, length, WIDTH, generator=torch.Generator().manual_seed(seed))


def to_first(weights, allowed):
    """All weight on the first key."""
    return torch.zeros_like(weights).index_fill(-1, torch.tensor([0]), 1.0)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def transformer():
    return nn.Transformer(WIDTH, HEADS, 2, 2, 32, dropout=0.0, batch_first=True).eval()


def test_a_recording_is_printed_as_modules_and_shapes(transformer):
    with watch(transformer) as recording:
        transformer(inputs(), inputs())
    assert repr(recording[0]) == "encoder.layers.0.self_attn (2 × 4 × 5 × 5)"
    recording.calls *= 2
    assert repr(recording).startswith("<12 computations of attention: encoder.layers.0.self_attn (2 × 4 × 5 × 5), ")
    assert repr(recording).endswith("decoder.layers.1.multihead_attn (2 × 4 × 5 × 5), …>")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # of torch's own fast path
def test_every_layer_of_a_transformer_is_recorded_with_unchanged_output(transformer):
    source, target = inputs(), inputs(3, seed=1)
    padding = torch.tensor([[False] * LENGTH, [False, False, False, True, True]])
    options = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding,
               "tgt_mask": nn.Transformer.generate_square_subsequent_mask(3)}  # fmt: skip
    with torch.no_grad():
        expected = transformer(source, target, **options)
        with watch(transformer) as recording:
            output = transformer(source, target, **options)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)
    kinds = [f"encoder.layers.{i}.self_attn" for i in range(2)]
    kinds += [f"decoder.layers.{i}.{kind}" for i in range(2) for kind in ("self_attn", "multihead_attn")]
    assert recording.names == kinds
    cross = recording["decoder.layers.1.multihead_attn"]
    assert cross.shape == (BATCH, HEADS, 3, LENGTH)
    torch.testing.assert_close(cross.sum(-1), torch.ones(BATCH, HEADS, 3))
    assert not cross[1, ..., 3:].any()
    assert not recording["decoder.layers.0.self_attn"].triu(1).any()
    assert not recording.unrecorded


def test_a_fused_encoder_layer_is_recorded_and_its_fast_path_restored(transformer):
    encoder = transformer.encoder
    with torch.inference_mode(), watch(encoder) as recording:
        encoder(inputs())
    assert len(recording) == 2
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())
    with pytest.raises(ZeroDivisionError), watch(encoder):
        raise ZeroDivisionError
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())


@pytest.mark.parametrize("options", [
    {}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 7}, {"batch_first": True},
])  # fmt: skip
def test_changed_weights_mix_the_values_as_the_layer_itself_does(options):
    """With weights changed to what they are, the output is the layer's own."""
    layer = nn.MultiheadAttention(WIDTH, HEADS, **options).eval()
    query = inputs()
    key, value = (torch.randn(BATCH, LENGTH, options.get(name, WIDTH)) for name in ("kdim", "vdim"))
    with torch.no_grad():
        expected, weights = layer(query, key, value)
        with watch(layer, lambda weights, allowed: weights.clone()) as recording:
            output, shown = layer(query, key, value)
        with watch(layer, to_first):
            moved, _ = layer(query, key, value)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(shown, weights, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(recording[0].weights.mean(1), weights, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(moved, expected, atol=1e-3)


def test_a_single_head_is_changed_and_the_others_are_not(transformer):
    encoder, name = transformer.encoder, "layers.1.self_attn"
    with torch.no_grad():
        with watch(encoder) as before:
            encoder(inputs())
        with watch(encoder, {(name, 2): to_first}) as after:
            encoder(inputs())
    others = [head for head in range(HEADS) if head != 2]
    assert torch.equal(after[name][:, others], before[name][:, others])
    assert after[name][:, 2, :, 0].eq(1).all()


def tiny(config, kind, **options):
    torch.manual_seed(0)
    return kind._from_config(config, **options).eval()


def vision_transformer(implementation):
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=32, image_size=8,
        patch_size=4, num_labels=3,
    )  # fmt: skip
    model = tiny(config, transformers.ViTForImageClassification, attn_implementation=implementation)
    return model, {"pixel_values": torch.randn(BATCH, 3, 8, 8)}


def whisper(implementation):
    config = transformers.WhisperConfig(
        vocab_size=30, d_model=WIDTH, encoder_layers=1, decoder_layers=1, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8,
        max_source_positions=10, max_target_positions=10, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, begin_suppress_tokens=None, suppress_tokens=None,
    )  # fmt: skip
    model = tiny(config, transformers.WhisperForConditionalGeneration, attn_implementation=implementation)
    return model, {"input_features": torch.randn(BATCH, 8, 20), "decoder_input_ids": torch.randint(3, 30, (BATCH, 4))}


def falcon(implementation):
    """A family that does not go through the library's attention interface."""
    config = transformers.FalconConfig(vocab_size=30, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS)
    model = tiny(config, transformers.FalconForCausalLM, attn_implementation=implementation)
    return model, {"input_ids": torch.randint(3, 30, (BATCH, LENGTH))}


@pytest.mark.parametrize("make", [vision_transformer, whisper, falcon])
def test_models_that_call_sdpa_show_the_weights_that_eager_attention_has(make):
    model, inputs = make("sdpa")
    eager, _ = make("eager")
    with torch.no_grad():
        expected = model(**inputs).logits
        with watch(model) as recording:
            logits = model(**inputs).logits
        reference = eager(**inputs, output_attentions=True)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    kinds = ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions")
    weights = [layer for kind in kinds for layer in getattr(reference, kind, None) or ()]
    assert len(recording) == len(weights)
    for call, layer in zip(recording, weights, strict=True):
        torch.testing.assert_close(call.weights, layer, atol=1e-5, rtol=0)


def test_changing_cross_attention_of_whisper_changes_its_output_alone_there():
    model, inputs = whisper("sdpa")
    name = "model.decoder.layers.0.encoder_attn"
    with torch.no_grad():
        with watch(model) as before:
            expected = model(**inputs).logits
        with watch(model, {name: to_first}) as after:
            logits = model(**inputs).logits
    assert not torch.allclose(logits, expected, atol=1e-4)
    assert after[name][..., 0].eq(1).all()
    assert torch.equal(after["model.encoder.layers.0.self_attn"], before["model.encoder.layers.0.self_attn"])


def test_attention_that_cannot_be_recorded_is_named():
    model, inputs = vision_transformer("eager")
    with torch.no_grad(), watch(model) as recording:
        model(**inputs)
    assert len(recording) == 0
    assert any("attention" in name for name in recording.unrecorded)
    with pytest.raises(BadSetting, match="no attention was recorded"):
        recording.plot()


def test_recordings_keep_the_chosen_rows_and_tables_have_a_row_per_head(transformer):
    with torch.no_grad(), watch(transformer.encoder, rows=slice(0, 1)) as recording:
        transformer.encoder(inputs())
    assert recording[0].weights.shape == (BATCH, HEADS, 1, LENGTH)
    table = recording.table()
    assert len(table) == 2 * HEADS
    assert table["largest"].between(1 / LENGTH, 1).all()
    assert recording.plot(head=3).get_title() == "layers.1.self_attn, head 3"


def test_gradients_flow_to_the_recorded_weights_if_asked(transformer):
    with watch(transformer.encoder, gradients=True) as recording:
        output = transformer.encoder(inputs())
    (gradient,) = torch.autograd.grad(output.sum(), recording[0].weights)
    assert gradient.abs().sum() > 0


def test_mistakes_are_named(transformer):
    encoder = transformer.encoder
    mistakes = {
        "there is no module with attention 'sixth'": {"sixth": to_first},
        "4 heads, so there is no head 9": {("layers.0.self_attn", 9): to_first},
        "batch x heads x queries x keys": torch.ones(3, 3),
    }
    for message, attention in mistakes.items():
        with pytest.raises(BadSetting, match=message), watch(encoder, attention):
            encoder(inputs())
