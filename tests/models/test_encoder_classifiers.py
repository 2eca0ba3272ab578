"""Classifiers of any encoder that uses the attention interface: what is recorded, changed, and refused."""

from copy import deepcopy
from functools import cache

import pytest
import torch
import transformers
from adapter_examples import SOURCES, sentencepiece_like, tokenizer_for, wordpiece

from attnscope.models import adapters
from attnscope.models.adapters.folder import OWN_ATTENTION
from attnscope.models.attention import uniform
from attnscope.models.inference import by_length
from attnscope.probes.erasure import erasure
from attnscope.probes.heads.formation import head_formation
from attnscope.probes.saliency import METHODS
from attnscope.testing import check_adapter

FLAT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 60, "num_labels": 3,
}  # fmt: skip
SIDES = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 60,
    "num_labels": 3, "decoder_start_token_id": 2, "scale_embedding": True,
}  # fmt: skip
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "num_labels": 3,
      "decoder_start_token_id": 0}  # fmt: skip
ROTARY = FLAT | {"local_attention": 4, "global_attn_every_n_layers": 2, "num_key_value_heads": 2}
FAMILIES = {
    "albert": FLAT | {"embedding_size": 12, "num_hidden_layers": 3},  # whose layers share their weights
    "electra": FLAT | {"embedding_size": 12},
    "camembert": FLAT,
    "data2vec-text": FLAT,
    "ernie": FLAT,
    "modernbert": ROTARY | {"classifier_pooling": "cls"},
    "modernbert, mean": ROTARY | {"classifier_pooling": "mean"},
    "eurobert": ROTARY | {"classifier_pooling": "bos"},
    "eurobert, mean": ROTARY | {"classifier_pooling": "mean"},
    "eurobert, late": ROTARY | {"classifier_pooling": "late"},
    "bart": SIDES,
    "t5": T5,
    "mt5": T5,
}
TEXTS, LABELS = [*SOURCES[:2], SOURCES[3]], [1, 0, 2]


@cache
def tokenizer(kind):
    if kind in ("bart", "t5", "mt5"):
        return sentencepiece_like("bart" if kind == "bart" else "t5")
    return tokenizer_for("roberta") if kind in ("camembert", "data2vec-text") else wordpiece()


@cache
def foreign(name):
    """The library's own model, with weights large enough for attention to be anything but uniform."""
    torch.manual_seed(3)
    kind = name.split(",")[0]
    reads = tokenizer(kind)
    ids = {f"{part}_token_id": getattr(reads, f"{part}_token_id") for part in ("pad", "eos", "bos", "cls", "sep")}
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(reads), **ids | FAMILIES[name])
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.2 if "t5" in kind else 0.4)
    return model.eval()


def adapter(name, dtype=torch.float32):
    return adapters.adapt(deepcopy(foreign(name)).to(dtype), tokenizer(name.split(",")[0]))


def batch_of(model):
    return model.reader.read(TEXTS, LABELS).batch


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


@torch.no_grad()
def eager(name, batch):
    """The library's own logits and attentions."""
    model = deepcopy(foreign(name))
    model.set_attn_implementation("eager")
    source = batch.source.masked_fill(~batch.source_mask, tokenizer(name.split(",")[0]).pad_token_id)
    return model(input_ids=source, attention_mask=batch.source_mask.long(), output_attentions=True)


def expected_rows(name, batch, output):
    """The rows that the classifier reads, by hand."""
    if name in ("bart", "t5", "mt5"):
        ends = batch.source_mask.sum(1) - 1
        return [torch.stack([w[i, :, end] for i, end in enumerate(ends)])[:, :, None] for w in output.cross_attentions]
    if not name.endswith(("mean", "late")):
        return [weights[:, :, :1] for weights in output.attentions]
    lengths = batch.source_mask.sum(1).tolist()
    return [
        torch.stack([w[i, :, :length].mean(1, keepdim=True) for i, length in enumerate(lengths)])
        for w in output.attentions
    ]


def test_attention_and_logits_are_those_of_the_library(name):
    model = adapter(name)
    assert isinstance(model, adapters.HFEncoderClassifier)
    batch = batch_of(model)
    output = eager(name, batch)
    with torch.no_grad():
        trace, logits = model(batch), model.logits(batch)
    torch.testing.assert_close(trace.logits[:, 0, 3:], output.logits, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(logits, trace.logits, atol=1e-5, rtol=1e-4)
    assert len(trace.layers) == model.depth == len(expected_rows(name, batch, output))
    for layer, weights in zip(trace.layers, expected_rows(name, batch, output), strict=True):
        torch.testing.assert_close(layer.weights, weights, atol=1e-5, rtol=1e-4)
        assert not torch.allclose(weights, uniform(weights, batch.source_mask), atol=0.02)


@torch.no_grad()
def test_interventions_take_effect_and_leave_no_hooks(name):
    model = adapter(name)
    batch = batch_of(model)
    before, implementation = model(batch), model.model.config._attn_implementation
    same = model(batch, attention=before.attention)
    torch.testing.assert_close(same.logits, before.logits, atol=1e-5, rtol=1e-4)
    for where in (-1, (0, 1)):
        changed = model(batch, attention={where: lambda weights, mask: adapters.ablated(weights, mask)})
        shown = changed.layers[where if isinstance(where, int) else where[0]].weights
        assert float(shown[:, :: 2 if where == -1 else 1][:, -1].abs().max()) == 0
        assert not torch.allclose(changed.logits[:, 0, 3:], before.logits[:, 0, 3:], atol=1e-3)
    spread = model(batch, attention=uniform).attention
    torch.testing.assert_close(spread.sum(-1), torch.ones_like(spread[..., 0]))
    torch.testing.assert_close(model(batch).logits, before.logits, atol=0, rtol=0)
    assert model.model.config._attn_implementation == implementation


@torch.no_grad()
def test_weights_are_replaced_before_values_are_mixed():
    """With attention of the last layer on one token alone, only that token's value reaches the first token's state."""
    model = adapter("electra")
    batch = model.reader.read(TEXTS[:1], LABELS[:1]).batch
    layer = model.model.base_model.encoder.layer[-1]
    one = torch.zeros_like(model(batch).attention)
    one[..., 2] = 1
    trace = model(batch, attention=one)
    context = trace.last.values[:, :, 2].flatten(1)[:, None]
    states = []
    handle = layer.attention.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    model(batch)
    handle.remove()
    state = layer.feed_forward_chunk(layer.attention.output(context, states[0][:, :1]))
    torch.testing.assert_close(model.model.classifier(state), trace.logits[:, 0, 3:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["albert", "modernbert", "modernbert, mean", "eurobert, late", "bart", "t5"])
def test_they_keep_the_contract_of_adapters(kind):
    model = adapter(kind)
    check_adapter(model, [batch_of(model)])


@pytest.mark.parametrize("kind", ["albert", "modernbert, mean", "bart"])
def test_the_formation_of_every_layer_and_head_is_described(kind):
    model = adapter(kind)
    table = head_formation(model, [batch_of(model)]).table()
    assert table.index.tolist() == [(layer, head) for layer in range(model.depth) for head in range(2)]
    assert table[["time", "word", "rest"]].sum(axis=1).tolist() == pytest.approx([1.0] * len(table))


@pytest.mark.parametrize("kind", ["albert", "modernbert, mean", "bart"])
@pytest.mark.parametrize("method", METHODS)
def test_saliency_of_padded_texts_is_that_of_each_alone(kind, method):
    model = adapter(kind, torch.float64)
    batch = batch_of(model)
    whole = METHODS[method](model, batch).values
    for i in range(len(batch)):
        one = METHODS[method](model, batch.rows(slice(i, i + 1))).values
        torch.testing.assert_close(whole[i, :, : one.shape[2]], one[0], atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["albert", "modernbert", "bart", "t5", "distilbert"])
def test_weights_of_half_precision_work(kind, dtype):
    if kind == "distilbert":
        from adapter_examples import adapter as exact

        model = exact(kind).to(dtype)
    else:
        model = adapter(kind, dtype)
    with torch.no_grad():
        trace = model(batch_of(model))
    assert trace.logits.dtype == dtype
    torch.testing.assert_close(trace.attention.sum(-1).float(), torch.ones(3, 2, 1), atol=0.02, rtol=0)
    assert erasure(model, TEXTS, draws=1).table().notna().all(None)


def test_long_texts_are_truncated_and_counted():
    model = adapter("electra")
    read = model.reader.read([" ".join(["dog"] * 100), "a dog"])
    assert (read.cut, read.batch.source.shape[1]) == (1, 40)


@pytest.mark.parametrize("kind", ["deberta-v2", "mpnet", "longformer"])
def test_an_unsupported_attention_implementation_is_refused_with_a_remedy(kind):
    assert kind in OWN_ATTENTION
    sizes = FLAT | {"vocab_size": 60, "attention_window": 4}
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with pytest.raises(adapters.NoModel, match=r"wrap the model in an adapter of your own \(docs/own-model.md\)"):
        adapters.adapt(model, wordpiece())


def test_rows_of_one_length_are_read_together_unless_they_are_few():
    model = adapter("electra")
    model.tokens_at_once = 64
    lengths = torch.tensor([8] * 10 + [5] + [4] * 3)
    groups = [lengths[some].tolist() for some in by_length(model, lengths)]
    assert groups == [[8] * 8, [8] * 2, [5, 4, 4, 4]]
    assert sorted(torch.cat(list(by_length(model, lengths))).tolist()) == list(range(len(lengths)))
