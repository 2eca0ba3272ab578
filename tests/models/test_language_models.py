"""Traces of causal language models and decoder-only classifiers, against the library's eager attention."""

import json
from copy import deepcopy

import adapter_examples
import numpy as np
import pytest
import torch
import transformers
from language_examples import FAMILIES, REFUSED, SMALL, foreign, language_model, tokenizer, with_start
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import attnscope
from attnscope.errors import AttnscopeError, BadSetting, InputWarning
from attnscope.models import uniform
from attnscope.models.adapters import HFDecoderClassifier, NoModel, ablated
from attnscope.models.adapters.recording import UnsupportedAttention
from attnscope.models.examples import Columns
from attnscope.models.inputs import Inputs
from attnscope.probes.positions import last_tokens, movable_words
from attnscope.tasks.batch import SPECIALS
from attnscope.testing import check_adapter

TEXTS = ["the cat sat on the mat", "a dog sleeps"]


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def eager(model, batch):
    twin = deepcopy(model.module.model)
    twin.set_attn_implementation("eager")
    mask = batch.source_mask.long()
    output = twin(input_ids=batch.source, attention_mask=mask, output_attentions=True, use_cache=False)
    return output.logits, [weights for weights in output.attentions if weights is not None and weights.dim() == 4]


@torch.no_grad()
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_trace_equals_eager_attention_and_logits_at_every_token(kind):
    model = language_model(kind)
    trace = model.trace(TEXTS)
    logits, weights = eager(model, trace.batch)
    close(trace.logits[trace.target_mask], model.module.by_target_id(logits)[trace.target_mask])
    assert len(trace.layers) == model.module.depth == len(weights)
    for layer, expected in zip(trace.layers, weights, strict=True):
        close(layer.weights.transpose(1, 2)[trace.target_mask], expected.transpose(1, 2)[trace.target_mask])
    batch = trace.batch
    close(model.module.logits(batch)[batch.target_mask], trace.logits[batch.target_mask])
    assert torch.equal(trace.target[0, :-1], model.reader.target.from_tokenizer(trace.source[0, 1:]))
    assert trace.target[0, -1] == trace.predictions[0, -1]


@torch.no_grad()
@pytest.mark.parametrize("kind", [kind for kind in FAMILIES if kind != "lfm2"])
def test_the_readout_of_a_traces_own_context_gives_its_logits(kind):
    model = language_model(kind)
    trace = model.trace(TEXTS)
    there = trace.target_mask
    close(model.module.readout(trace.context, trace.decoder)[there], trace.logits[there])
    elsewhere = model.module.readout(trace.context + 1, trace.decoder)[there]
    assert not torch.allclose(elsewhere, trace.logits[there], atol=1e-2)
    assert list(model.module.family.blocks) == list(model.module.model.get_submodule(model.module.family.path))


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_oss", "gemma2", "qwen3_next"])
def test_the_contract_of_an_adapter_is_kept(kind):
    model = language_model(kind)
    check_adapter(model.module, [model.read(TEXTS).batch])
    check_adapter(model.module, [model.read(TEXTS, ["and sleeps", "on the mat"]).batch])


@pytest.mark.parametrize("kind", REFUSED)
def test_families_without_the_interface_are_refused(kind):
    with pytest.raises(UnsupportedAttention, match="wrap the model in an adapter of your own"):
        attnscope.load(foreign(kind), tokenizer=tokenizer())


@torch.no_grad()
def test_rows_and_layers_that_are_asked_for_are_those_of_the_whole_trace():
    model = language_model("llama")
    whole, some = model.trace(TEXTS), model.trace(TEXTS, rows=[-1, 0], layers=[0])
    assert len(some.layers) == 1
    for b, length in enumerate(whole.target_mask.sum(1).tolist()):
        rows = [length - 1, 0]
        close(some.layers[0].weights[b], whole.layers[0].weights[b][:, rows])
        close(some.logits[b], whole.logits[b, rows])
        assert some.target[b].tolist() == whole.target[b, rows].tolist()
        assert some.rows[b].tolist() == rows
    assert some.target_tokens[0][1] == whole.target_tokens[0][0]
    with pytest.raises(BadSetting, match="rows= names a row that a text lacks; the shortest has rows 0 to 3"):
        model.trace(TEXTS, rows=[7])
    with pytest.raises(BadSetting, match="there is no layer"):
        model.trace(TEXTS, layers=[2])


@torch.no_grad()
def test_an_answer_is_predicted_from_the_positions_before_it():
    model = language_model("gpt2")
    trace = model.trace(["the cat", "a dog"], ["sat on the mat", "sleeps"])
    whole = model.trace(["the cat sat on the mat", "a dog sleeps"])
    for b, (prompt, answer) in enumerate(((3, 4), (2, 2))):  # tokens
        assert trace.target_mask[b].sum() == answer
        rows = slice(prompt - 1, prompt + answer - 1)
        close(trace.logits[b, :answer], whole.logits[b, rows])
        close(trace.attention[b, :, :answer, : prompt + answer - 1], whole.attention[b, :, rows, : prompt + answer - 1])
        assert trace.batch.word_mask[b].sum() == prompt  # the answer does not explain itself
    assert trace.target_tokens[0] == ("Ġsat", "Ġon", "Ġthe", "Ġmat")


@torch.no_grad()
def test_generated_text_is_replayed_in_one_pass():
    model = language_model("mistral")  # with a KV cache, its layers show their window of 4 tokens only
    trace = model.trace(["the old cat", "a dog"], generate=5)
    assert torch.equal(trace.predictions[trace.target_mask], trace.target[trace.target_mask])
    assert trace.source.shape[1] == 4 + 5 - 1
    assert trace.target_tokens is not None


@torch.no_grad()
def test_chats_are_read_by_the_tokenizers_template():
    model = language_model("qwen2", chat=True)
    trace = model.trace([[{"role": "user", "content": "the cat"}]], ["sat"])
    assert trace.source_tokens == (("<s>", "the", "Ġc", "at", "</s>", "s", "at")[:6],)
    assert trace.target_tokens == (("s", "at"),)
    with pytest.raises(BadSetting, match="no chat template"):
        language_model("qwen2").trace([[{"role": "user", "content": "the cat"}]])
    with pytest.raises(BadSetting, match="one kind at a time"):
        model.trace([[{"role": "user", "content": "the cat"}], "the cat"])


def words_of(read):
    """The words and special tokens of the first text, and its tokens by the unit that they belong to."""
    units = range(len(read.source.names[0]))
    tokens = ["".join(np.array(read.source.tokens[0])[read.source.unit[0] == unit]) for unit in units]
    return read.source.names[0], [token.replace("Ġ", "") for token in tokens]


@torch.no_grad()
def test_words_of_a_chat_end_at_special_tokens():
    model = language_model("qwen2", chat=True)
    chat = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "a dog"}]
    read = model.reader.read([chat])
    names, tokens = words_of(read)
    assert list(names) == tokens == ["<s>", "the", "cat", "<s>", "a", "dog", "</s>"]
    assert read.source.is_word.tolist() == [[name not in ("<s>", "</s>") for name in names]]
    assert torch.equal(read.batch.word_mask, read.source.is_word.gather(1, read.source.unit))
    answered = model.reader.append_answers(read, torch.full((1, 3), len(SPECIALS)))
    assert answered.source.names[0][:7] == names


def test_special_tokens_without_a_name_in_the_tokenizer_are_no_words():
    reading = deepcopy(tokenizer())
    reading.add_tokens(["<|user|>"], special_tokens=True)
    network = deepcopy(foreign("gpt2"))
    network.resize_token_embeddings(len(reading))
    names, tokens = words_of(attnscope.load(network, tokenizer=reading).reader.read(["<|user|>the cat <|user|> sat"]))
    assert list(names) == tokens == ["<|user|>", "the", "cat", "<|user|>", "sat"]


def test_fields_of_prompts_are_checked():
    model = language_model("gpt2")
    with pytest.warns(InputWarning, match="the field 'anwser' is not read; is it meant to be 'answer'"):
        attnscope.run_probe("entropy", model, [{"prompt": "the cat", "anwser": "sat"}])
    labelled = [{"prompt": "the cat", "label": "sat"}]
    with pytest.raises(AttnscopeError, match="line 1: a 'prompt' has an 'answer', not a 'label'"):
        attnscope.run_probe("entropy", model, labelled)
    assert Inputs.of(model, labelled, columns=Columns(label="label")).has_targets
    with pytest.raises(AttnscopeError, match="line 2: 'prompt' is an empty text"):
        attnscope.run_probe("entropy", model, [{"prompt": "the cat"}, {"prompt": ""}])


@torch.no_grad()
def test_a_prediction_that_is_a_special_token_or_a_space_is_named():
    reader = language_model("gpt2").reader
    end, space = (reader.target.from_tokenizer(torch.tensor(ids)) for ids in ([2], reader.tokenizer(" ")["input_ids"]))
    assert reader.text(end) == "</s>"
    assert reader.text(space) == "Ġ"


@torch.no_grad()
def test_an_explanation_has_no_scores_of_tokens_behind_the_one_that_predicts():
    model = language_model("llama")
    explanation = attnscope.explain(model, "the cat", target="sat on")
    later = model.trace(["the cat"], ["sat on"]).pairs[0].logical_not()
    assert later.any()
    for scores in explanation.scores.values():
        assert torch.equal(scores.isnan(), later)


def test_position_shares_keep_the_token_that_a_classifier_reads():
    classifier = attnscope.load(adapter_examples.foreign("bert"), tokenizer=adapter_examples.tokenizer_for("bert"))
    text = classifier.read(["the old films were charming"]).batch
    kept = last_tokens(text, 4)
    assert kept.source[0].tolist() == [text.source[0, 0].item(), *text.source[0, -3:].tolist()]
    starting = attnscope.load(deepcopy(foreign("llama")), tokenizer=with_start())
    assert last_tokens(starting.read(["the cat sat on"]).batch, 3).source[0, 0] == 1


def test_the_last_token_of_a_decoder_only_classifier_is_not_permuted():
    config = transformers.AutoConfig.for_model("llama", **SMALL, num_labels=3)
    decoder = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    model = attnscope.load(decoder, tokenizer=tokenizer())
    text = model.read(["the cat sat on"]).batch
    assert movable_words(model, text).tolist() == [False, *[True] * (text.source.shape[1] - 2), False]


def test_scores_of_answers_are_drawn_by_the_token_that_they_are_of():
    model = language_model("llama")
    scores = attnscope.run_probe("saliency", model, [("the cat", "sat on the")])
    drawn = scores.plot().collections[0].get_array()
    table = scores.table().pivot(index="target_position", columns="position", values="score").to_numpy()
    assert drawn.shape == table.shape == (3, 5)
    assert np.ma.allclose(drawn, np.ma.masked_invalid(table))
    assert (drawn.mask == np.isnan(table)).all()
    assert np.isnan(table).sum() == 3


def test_scores_in_bfloat16_have_tables_and_figures():
    model = attnscope.load(deepcopy(foreign("llama")), tokenizer=tokenizer(), dtype="bfloat16")
    exact = language_model("llama")
    scores = attnscope.run_probe("saliency", model, ["the cat sat"])
    expected = attnscope.run_probe("saliency", exact, ["the cat sat"]).table()
    assert scores.table()["score"].to_numpy() == pytest.approx(expected["score"].to_numpy(), abs=0.1)
    scores.plot()
    trace = model.trace(["the cat sat"])
    weights = trace.table()["weight"].to_numpy()
    assert weights == pytest.approx(exact.trace(["the cat sat"]).table()["weight"].to_numpy(), abs=0.02)
    trace.plot()


LONG = "the cat sat on the mat " * 20
MISTAKES = {
    "a list of texts, not 'the cat'": {"texts": "the cat"},
    "there is no text": {"texts": []},
    "without any token": {"texts": [""]},
    "needs a role and a content": {"texts": [[{"role": "user"}]]},
    "leave empty answers out": {"texts": ["the cat"], "targets": [""]},
    "nothing is left of its prompt": {"texts": ["the cat"], "targets": [LONG]},
    "an answer needs a prompt": {"texts": [""], "targets": ["sat"]},
    "3 tokens and 100 generated ones are more than the 64": {"texts": ["the cat"], "generate": 100},
    "64 tokens and 5 generated": {"texts": [LONG], "generate": 5},
    "a number of tokens, not -1": {"texts": ["the cat"], "generate": -1},
    "names no layer to record": {"texts": ["the cat"], "layers": []},
}


@pytest.mark.parametrize("sentence", MISTAKES)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_mistake_gives_one_error_message(kind, sentence):
    with pytest.raises(BadSetting, match=sentence):
        language_model(kind, chat=True).trace(**MISTAKES[sentence])


def test_a_model_generates_as_many_tokens_as_it_has_positions():
    trace = language_model("gpt2").trace(["the cat"], generate=62)  # 3 tokens; the last one is not read again
    assert trace.source.shape[1] <= 64


def test_tokens_that_the_model_does_not_embed_are_named_but_padding_may_be_such_a_token():
    larger, padded = deepcopy(tokenizer()), deepcopy(tokenizer())
    larger.add_tokens(["zebra"])
    padded.add_special_tokens({"pad_token": "[NEW]"})
    with pytest.raises(BadSetting, match="gives 'zebra' the id 60, but the model has 60"):
        attnscope.load(deepcopy(foreign("gpt2")), tokenizer=larger).trace(["the zebra"])
    trace = attnscope.load(deepcopy(foreign("gpt2")), tokenizer=padded).trace(TEXTS)
    close(trace.attention, language_model("gpt2").trace(TEXTS).attention)


@torch.no_grad()
def test_fields_without_a_meaning_are_absent():
    model = language_model("gpt2")
    trace = model.trace(TEXTS)
    assert model.kind == "language model"
    assert model.classes == ()
    assert trace.decoder_input is None
    assert trace.gates == {}
    assert trace.source_tokens[0][:3] == ("the", "Ġc", "at")
    table = trace.table(0)
    assert (table["source"] <= table["target"]).all()
    assert list(table.columns[-3:]) == ["target_token", "source_token", "weight"]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "gemma2", "phi"])
def test_interventions_change_the_rows_of_the_target(kind):
    model = language_model(kind)
    batch = model.reader.read_whole(TEXTS).batch
    trace = model(batch, attention={0: uniform})
    allowed = torch.ones(6, 6).tril()
    if kind == "gemma2":  # its first layer has a window of 4 tokens
        allowed = allowed.triu(-3)
    close(trace.layers[0].weights[0, 0, :6, :6], allowed / allowed.sum(1, keepdim=True))
    silent, own = model(batch, attention={(0, 1): ablated, 1: ablated}), model(batch)
    assert silent.context.abs().max() == 0
    assert not torch.allclose(silent.logits[0, 3], own.logits[0, 3], atol=1e-3)
    close(own.logits, model(batch, attention=own.attention).logits)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2", "mistral", "gemma"])
def test_decoder_only_classifiers_are_classifiers(kind):
    torch.manual_seed(0)
    sizes = SMALL | FAMILIES[kind] | {"num_labels": 3}
    config = transformers.AutoConfig.for_model(kind, **sizes)
    theirs = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    model = attnscope.load(theirs, tokenizer=tokenizer())
    assert model.kind == "classifier"
    assert isinstance(model.module, HFDecoderClassifier)
    with torch.no_grad():
        trace = model.trace(TEXTS, [0, 2])
        batch = trace.batch
        expected = theirs(input_ids=batch.source, attention_mask=batch.source_mask.long()).logits
        close(trace.logits[:, 0, 3:], expected)
        close(model.module.logits(batch), trace.logits)
        close(model.module.readout(trace.context, trace.decoder), trace.logits)
        assert trace.attention.shape == (2, 4, 1, batch.source.shape[1])
    check_adapter(model.module, [batch])


@pytest.mark.parametrize("is_decoder", [False, True])
def test_an_encoder_with_the_head_of_a_language_model_is_read_only_if_it_is_causal(is_decoder):
    config = transformers.BertConfig(**SMALL, is_decoder=is_decoder)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    if is_decoder:
        trace = attnscope.load(model, tokenizer=tokenizer()).trace(["the cat sat"])
        assert not trace.last.weights.triu(1).any()
    else:
        with pytest.raises(NoModel, match="attends to those behind it"):
            attnscope.load(model, tokenizer=tokenizer())


def test_quantised_models_are_refused_with_a_sentence():
    model = deepcopy(foreign("llama"))
    model.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(NoModel, match="quantised weights"):
        attnscope.load(model, tokenizer=tokenizer())


def test_the_end_token_of_a_tokenizer_is_removed_from_a_prompt():
    from tokenizers import processors

    ending = deepcopy(tokenizer())
    ending._tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    model = attnscope.load(deepcopy(foreign("llama")), tokenizer=ending)
    read = model.reader.read(["the mat"], ["sat"])
    assert read.source.tokens == (("<s>", "the", "Ġmat"),)
    assert read.target.tokens == (("Ġsat",),)
    assert read.batch.word_mask.tolist() == [[False, True, True]]


def test_a_long_prompt_loses_its_beginning():
    model = language_model("gpt2")
    read = model.reader.read(["dog " * 100 + "sleeps"], ["on"])
    assert read.cut == 1
    assert read.batch.source.shape[1] == 63  # and one answer token
    assert read.source.tokens[0][-2:] == ("Ġslee", "ps")


def test_a_long_prompt_keeps_its_start_token():
    model = attnscope.load(deepcopy(foreign("llama")), tokenizer=with_start(chat=True))
    long = "dog " * 100 + "sleeps"
    whole, chat = model.reader.read_whole([long]), model.reader.read([[{"role": "user", "content": long}]])
    answered = model.reader.read([long], ["on"])
    assert whole.cut == chat.cut == answered.cut == 1
    for read, length, last in ((whole, 64, "ps"), (chat, 64, "</s>"), (answered, 63, "ps")):
        assert read.batch.source.shape[1] == length
        assert (read.source.tokens[0][0], read.source.tokens[0][-1]) == ("<s>", last)
        assert "<s>" not in read.source.tokens[0][1:]
        assert not read.batch.word_mask[0, 0]
    assert whole.source.places[0, -1] == 100  # the word that the last token belongs to
    ids = model.reader.tokenizer(long)["input_ids"]
    assert whole.batch.source[0].tolist() == [ids[0], *ids[-63:]]
    with pytest.raises(BadSetting, match="nothing is left of its prompt"):
        model.trace(["the cat"], [long])


def test_truncation_warns_once_with_the_number_of_texts_and_tokens(tmp_path):
    model = language_model("gpt2")
    texts = ["the cat sat on the mat", "dog " * 100] * 20
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for probe in ("head_statistics", "entropy"):  # text by text, and in batches
        with pytest.warns(InputWarning, match=r"20 of 40 texts \(texts.jsonl\) .* truncated to 64 tokens") as warned:
            attnscope.run_probe(probe, model, tmp_path / "texts.jsonl")
        assert len(warned) == 1
    with pytest.warns(InputWarning, match=r"1 of 2 texts \(the given texts\)") as warned:
        model.trace(texts[:2])
    assert len(warned) == 1
    model.trace(texts[:1])  # a warning is an error here


@torch.no_grad()
def test_tokens_of_bytes_are_shown_as_characters():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=270, special_tokens=["</s>", "é"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(["café 完", "café"], trainer)
    bytewise = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    sizes = SMALL | {"vocab_size": len(bytewise)}
    gpt2 = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("gpt2", **sizes))
    model = attnscope.load(gpt2.eval(), tokenizer=bytewise)
    text = "ça 完\n🙂"
    trace = model.trace([text])
    shown = trace.source_tokens[0]
    assert shown[:2] == ("⟨C3⟩", "⟨A7⟩")
    assert "Ċ" in shown
    raw = [bytes.fromhex(token.strip("⟨⟩")) if "⟨" in token else token.encode() for token in shown]
    joined = b"".join(raw).decode().replace("Ġ", " ").replace("Ċ", "\n")
    assert joined == text
    assert model.reader.tokens(bytewise("é</s>")["input_ids"]) == ("é", "</s>")
    names = model.reader.target_vocabulary.tokens
    assert trace.target_tokens[0][:-1] == shown[1:]
    assert all(name in names for name in shown)
    partial = bytewise("完", add_special_tokens=False)["input_ids"][:1]
    target = model.reader.target.from_tokenizer(torch.tensor(partial))
    assert model.reader.text(target) == model.reader.tokens(partial)[0] != "\ufffd"


@torch.no_grad()
def test_a_model_spread_over_devices_gives_the_same_trace(tmp_path):
    """Its last layer lies on the disk, and is loaded when it runs."""
    pytest.importorskip("accelerate")
    foreign("llama").save_pretrained(tmp_path)
    places = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu",
              "model.rotary_emb": "cpu", "lm_head": "cpu"}  # fmt: skip
    spread = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map=places, offload_folder=tmp_path / "offload"
    )
    model, plain = attnscope.load(spread, tokenizer=tokenizer()), language_model("llama")
    trace, expected = model.trace(TEXTS), plain.trace(TEXTS)
    close(trace.logits, expected.logits)
    close(trace.attention, expected.attention)
    close(model.module.readout(trace.context, trace.decoder)[trace.target_mask], trace.logits[trace.target_mask])
