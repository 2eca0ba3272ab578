"""Models from folders written by save_pretrained, and one error message for each that is not supported."""

import json
import subprocess
import sys

import language_examples
import pytest
import torch
import transformers
from adapter_examples import (
    SMALL,
    SOURCES,
    TARGETS,
    adapter,
    configuration,
    foreign,
    sentencepiece_like,
    texts,
    tokenizer_for,
)

from attnscope.errors import AttnscopeError
from attnscope.models.adapters import HFClassifier, HFEncoderDecoder, HFLanguageModel, NoModel, load
from attnscope.models.inference import with_predicted_target
from attnscope.tasks import START
from attnscope.testing import check_adapter


@pytest.fixture(autouse=True)
def _quiet():
    transformers.utils.logging.disable_progress_bar()
    yield
    transformers.utils.logging.enable_progress_bar()


def saved(folder, model, tokenizer=None):
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "expected"), [("marian", HFEncoderDecoder), ("t5", HFEncoderDecoder), ("roberta", HFClassifier)]
)
def test_a_folder_gives_the_adapter_that_its_configuration_needs(tmp_path, capfd, kind, expected):
    folder = saved(tmp_path, foreign(kind), tokenizer_for(kind))
    capfd.readouterr()
    model, same = load(folder), adapter(kind)
    assert isinstance(model, expected)
    assert capfd.readouterr() == ("", "")
    batch = texts(model).batch
    assert torch.equal(batch.source, texts(same).batch.source)
    torch.testing.assert_close(model(batch).logits, same(batch).logits)
    assert load(str(folder)).reader.max_length == same.reader.max_length


def test_weights_in_half_precision_are_read_in_single(tmp_path):
    model = load(saved(tmp_path, foreign("bert").half(), tokenizer_for("bert")))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def refused(folder, sentence):
    with pytest.raises(NoModel, match=sentence) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_or_one_without_a_model_is_refused(tmp_path):
    refused(tmp_path / "nowhere", "there is no folder .*nowhere; a model on the hub is named hf:owner/name")
    refused(tmp_path, "has no config.json")
    (tmp_path / "config.json").write_text("{")
    refused(tmp_path, "the configuration of .* cannot be read")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_causal_language_model_is_loaded_from_its_folder(tmp_path, kind):
    folder = saved(tmp_path, language_examples.foreign(kind), language_examples.tokenizer())
    model = load(folder)
    assert isinstance(model, HFLanguageModel)
    batch = model.reader.read(["the old cat"]).batch
    torch.testing.assert_close(model(batch).logits, language_examples.language_model(kind)(batch).logits)


def test_quantised_weights_are_refused(tmp_path):
    folder = saved(tmp_path, language_examples.foreign("llama"), language_examples.tokenizer())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    refused(folder, "quantised weights")


def test_a_missing_tokenizer_is_named(tmp_path):
    refused(saved(tmp_path, foreign("bert")), "has a model but no tokenizer")
    (tmp_path / "tokenizer.json").write_text("{}")
    refused(tmp_path, "the tokenizer of .* cannot be read")


def test_other_heads_are_refused(tmp_path):
    bert = foreign("bert")
    refused(saved(tmp_path / "bare", bert.bert, tokenizer_for("bert")), "holds a BertModel, whose head neither")
    reads = transformers.MBartForSequenceClassification(configuration("mbart"))
    refused(saved(tmp_path / "mbart", reads), "of the type 'mbart'; classifiers of the types bert, roberta")
    numbers = foreign("bert", problem_type="regression")
    refused(saved(tmp_path / "numbers", numbers, tokenizer_for("bert")), "predicts 3 numbers; regression models of one")
    labels = foreign("bert", problem_type="multi_label_classification")
    refused(saved(tmp_path / "labels", labels, tokenizer_for("bert")), "every label is read by itself; choose one")


def test_missing_or_damaged_weights_are_not_initialised_randomly(tmp_path):
    saved(tmp_path, foreign("bert").bert, tokenizer_for("bert"))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForSequenceClassification"]}))
    refused(tmp_path, "lacks weights of its model, such as classifier")
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    refused(tmp_path, "the weights of .* cannot be read")
    (tmp_path / "model.safetensors").unlink()
    refused(tmp_path, "the weights of .* cannot be read")


@pytest.mark.parametrize("missing", ["transformers", "transformers.masking_utils"])  # an old version lacks the second
def test_without_transformers_the_error_names_the_extra_to_install(missing, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(AttnscopeError, match=r"needs the library transformers, .*--upgrade .attnscope\[hf\]"):
        load(tmp_path)


def test_nothing_is_imported_before_a_model_is_loaded():
    imported = "attnscope, attnscope.cli, attnscope.models.adapters, attnscope.testing"
    program = f"import sys, {imported}; print('transformers' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


@torch.no_grad()
def test_the_slow_tokenizer_of_marian_is_supported(tmp_path):
    spm = pytest.importorskip("sentencepiece")
    (tmp_path / "texts").write_text("\n".join(SOURCES + TARGETS))
    prefix = tmp_path / "pieces"
    spm.SentencePieceTrainer.train(
        input=str(tmp_path / "texts"), model_prefix=str(prefix), vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    processor = spm.SentencePieceProcessor(model_file=f"{prefix}.model")
    pieces = [processor.id_to_piece(i) for i in range(3, len(processor))]
    numbers = {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(numbers))
    with pytest.warns(UserWarning, match="sacremoses"):
        tokenizer = transformers.MarianTokenizer(f"{prefix}.model", f"{prefix}.model", str(tmp_path / "vocab.json"))
    ids = {"vocab_size": len(numbers), "eos_token_id": 0}
    ids |= {name: len(numbers) - 1 for name in ("pad_token_id", "decoder_start_token_id")}
    model = transformers.MarianMTModel(transformers.MarianConfig(**SMALL | ids))
    model = load(saved(tmp_path / "model", model, tokenizer))
    assert not model.reader.tokenizer.is_fast
    read = model.reader.read(SOURCES, TARGETS)
    assert [names[:-1] for names in read.source.names] == [tuple(text.split()) for text in SOURCES]
    assert [names[:-1] for names in read.target.names] == [tuple(text.split()) for text in TARGETS]
    assert {names[-1] for names in read.source.names} == {"</s>"}
    check_adapter(model, [read.batch])


@torch.no_grad()
def test_a_multilingual_tokenizer_is_set_to_the_language(tmp_path):
    cut = json.loads(sentencepiece_like("bart").backend_tokenizer.to_str())["model"]
    tokenizer = transformers.NllbTokenizer(
        vocab=cut["vocab"], merges=[tuple(pair) for pair in cut["merges"]],
        extra_special_tokens=["eng_Latn", "deu_Latn"], src_lang="eng_Latn", tgt_lang="deu_Latn",
    )  # fmt: skip
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**SMALL | ids))
    model = load(saved(tmp_path, model, tokenizer), source_language="deu_Latn", target_language="eng_Latn")
    read = model.reader.read(TARGETS, SOURCES)
    assert {names[0] for names in read.source.names} == {"deu_Latn"}
    assert {names[0] for names in read.target.names} == {"eng_Latn"}
    assert read.batch.source_special[:, 0].all()
    assert (read.batch.target[:, 0] == START).all()
    batch = with_predicted_target(model, read.batch, max_length=4)
    assert {names[0] for names in model.reader.target_words(batch.target, batch.target_mask).names} == {"eng_Latn"}


@torch.no_grad()
def test_tokens_behind_the_end_are_never_predicted(tmp_path):
    """mBART's first version: pieces, </s>, language; the decoder input starts with the language."""
    letters = sorted(set("".join(SOURCES + TARGETS)) - {" "})
    scores = [(mark + letter, -2.0) for mark in ("▁", "") for letter in letters]
    vocabulary = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scores]
    tokenizer = transformers.MBartTokenizer(vocab=vocabulary, src_lang="en_XX", tgt_lang="de_DE")
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": None}
    config = transformers.MBartConfig(**SMALL | ids)
    model = load(saved(tmp_path, transformers.MBartForConditionalGeneration(config), tokenizer))
    read = model.reader.read(SOURCES, TARGETS)
    assert {names[-2:] for names in read.source.names} == {("</s>", "en_XX")}
    assert {names[-1] for names in read.target.names} == {"</s>"}
    decoder_input = model.decoder_input_ids(model(read.batch).decoder_input)
    assert set(tokenizer.convert_ids_to_tokens(decoder_input[:, 0].tolist())) == {"de_DE"}
    check_adapter(model, [read.batch])
