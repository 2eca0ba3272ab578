"""Tiny Hugging Face models with random weights, and tokenizers for them, as save_pretrained would write them."""

from functools import cache

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from attnscope.models import adapters

AutoClassifier = transformers.AutoModelForSequenceClassification
SOURCES = ["the old films were charming", "a dog sleeps", "unwatchable", "small dogs see the old house"]
TARGETS = ["die alten filme waren reizend", "ein hund", "unansehnlich hier", "hunde"]
LABELS = [1, 0, 1, 1]
SMALL = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
         "max_position_embeddings": 40}  # fmt: skip
FLAT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
        "max_position_embeddings": 40, "num_labels": 3}  # fmt: skip
ENCODER_DECODERS = ("bart", "mbart", "marian", "m2m_100", "pegasus", "t5")
CLASSIFIERS = ("bert", "distilbert", "roberta")


def trained(tokenizer, trainer):
    tokenizer.train_from_iterator(SOURCES + TARGETS, trainer)
    return tokenizer


@cache
def sentencepiece_like(kind):
    """As Marian's and T5's: a piece that begins a word carries a mark, and </s> ends a text."""
    specials = {"marian": ["</s>", "<unk>", "<pad>"], "bart": ["<s>", "<pad>", "</s>", "<unk>"]}.get(
        kind, ["<pad>", "</s>", "<unk>"]
    )
    if kind in ("mbart", "m2m_100"):
        specials = ["<s>", "<pad>", "</s>", "<unk>", "de_DE", "en_XX"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trained(tokenizer, trainers.BpeTrainer(vocab_size=70, special_tokens=specials, show_progress=False))
    around = {"bart": "<s> $A </s>", "mbart": "en_XX $A </s>", "m2m_100": "en_XX $A </s>"}.get(kind, "$A </s>")
    named = [(name, tokenizer.token_to_id(name)) for name in specials if name in around]
    tokenizer.post_processor = processors.TemplateProcessing(single=around, special_tokens=named)
    more = {"bos_token": "<s>"} if "<s>" in specials else {}
    if "de_DE" in specials:
        more["extra_special_tokens"] = ["de_DE", "en_XX"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", **more
    )


@cache
def wordpiece():
    """As BERT's: [CLS] pieces [SEP], lower case."""
    letters = sorted(set("".join(SOURCES)) - {" "})
    pieces = ["the", "old", "film", "dog", *letters, *(f"##{letter}" for letter in letters)]
    numbers = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces])}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=40,
    )  # fmt: skip


@cache
def byte_level():
    """As RoBERTa's: pieces of bytes between <s> and </s>."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trained(tokenizer, trainers.BpeTrainer(vocab_size=90, special_tokens=specials, show_progress=False))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip


def tokenizer_for(kind):
    return {"bert": wordpiece, "distilbert": wordpiece, "roberta": byte_level, "xlm-roberta": byte_level}.get(
        kind, lambda: sentencepiece_like(kind)
    )()


def configuration(kind, **changed):
    tokenizer = tokenizer_for(kind)
    ids = {
        "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
    }  # fmt: skip
    if kind in (*CLASSIFIERS, "xlm-roberta"):
        sizes = {
            "dim": 16,
            "hidden_dim": 24,
            "n_layers": 2,
            "n_heads": 2,
            "max_position_embeddings": 40,
            "num_labels": 3,
        }
        make = {"distilbert": lambda: transformers.DistilBertConfig(**ids | sizes | changed)}.get(
            kind, lambda: transformers.AutoConfig.for_model(kind, **ids | FLAT | changed)
        )
        return make()
    start = {"decoder_start_token_id": {"bart": 2, "mbart": 2, "m2m_100": 2}.get(kind, tokenizer.pad_token_id)}
    if kind in ("t5", "mt5"):
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
        return transformers.AutoConfig.for_model(kind, **ids | start | sizes | changed)
    scaled = {"scale_embedding": kind != "bart"}
    return transformers.AutoConfig.for_model(kind, **ids | start | SMALL | scaled | changed)


def foreign(kind, **changed):
    """The library's own model, with weights large enough for attention to be anything but uniform."""
    torch.manual_seed(3)
    config = configuration(kind, **changed)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoClassifier
    model = auto.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed_positions" not in name:
                parameter.normal_(0, 0.2 if kind.endswith("t5") else 0.4)  # T5 does not scale its products
    return model.eval()


def adapter(kind, **changed):
    return adapters.adapt(foreign(kind, **changed), tokenizer_for(kind))


def texts(model):
    targets = LABELS if isinstance(model, adapters.HFClassifier) else TARGETS
    return model.reader.read(SOURCES, targets)
