"""Loading models that `save_pretrained` wrote to a folder, with their tokenizer, and adapting models in memory."""

import json
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from attnscope.errors import AttnscopeError, first_line
from attnscope.models.adapters.causal import HFDecoderClassifier, HFLanguageModel, LanguageReader
from attnscope.models.adapters.encoder_classifier import POOLINGS, HFEncoderClassifier
from attnscope.models.adapters.hugging_face import (
    CLASSIFIERS,
    ENCODER_DECODERS,
    HFClassifier,
    HFEncoderDecoder,
    HFModel,
)
from attnscope.models.adapters.readers import ClassOutputs, ClassReader, HFTokenizer, TargetIds, TranslationReader
from attnscope.models.adapters.recording import transformers

HUB = "hf:"  # before a name on the hub
TRANSLATION_HEADS = ("ForConditionalGeneration", "MTModel")
CLASSIFICATION_HEAD = "ForSequenceClassification"
CAUSAL_HEADS = ("ForCausalLM", "LMHeadModel")  # of decoder-only language models
AUTO = {  # the library's classes
    "translation": "AutoModelForSeq2SeqLM",
    "classification": "AutoModelForSequenceClassification",
    "causal": "AutoModelForCausalLM",
}
HuggingFaceAdapter = HFEncoderDecoder | HFClassifier | HFEncoderClassifier | HFDecoderClassifier | HFLanguageModel
# Encoders that do not use the attention interface, so that their attention can be neither recorded nor changed.
OWN_ATTENTION = ("deberta", "deberta-v2", "mpnet", "longformer", "funnel", "luke")
TOKENIZER_FILES = ("tokenizer*", "vocab*", "spiece.model", "*.spm", "sentencepiece*.model", "merges.txt")
UNLIMITED = 10**9  # tokenizers without a maximum length have a larger one
SAFE = {"trust_remote_code": False}  # no code of a folder is ever run
SIZES = ("num_attention_heads", "num_hidden_layers", "hidden_size", "vocab_size")
NUMBERED = re.compile(r"\.\d+\.")  # in the name of a tensor that belongs to one of several layers
REGRESSION_CLASSES = ("below the mean", "above the mean")  # of the outputs for the texts given
LANGUAGE = r"(__)?[a-z]{2,3}([_-]\w+)?(__)?"  # the token of a language, such as de_DE, deu_Latn or __de__
FLOATS = ("F64", "F32", "F16", "BF16")  # safetensors' names


class NoModel(AttnscopeError):
    """A folder without a model that attnscope can load."""


def load(
    folder: str | Path,
    source_language: str | None = None,
    target_language: str | None = None,
    label: str | None = None,
) -> HuggingFaceAdapter:
    """Return the model of a folder, on the CPU, in single precision.

    Args:
        folder: Where `save_pretrained` wrote model and tokenizer, or "hf:owner/name" on the hub.
        source_language: Language code of the source, for tokenizers of several languages (mBART, M2M100, NLLB).
        target_language: Language code of the target.
        label: Of a multi-label classifier, the label whose prediction is read.
    """
    library = transformers()
    with quiet(library):
        config = load_configuration(library, str(folder))
        head = head_of(config, str(folder))
        tokenizer = load_tokenizer(library, str(folder))
        for name, language in {"src_lang": source_language, "tgt_lang": target_language}.items():
            if language is not None:
                check_language(tokenizer, name, language)
                setattr(tokenizer, name, language)
        return adapt(load_weights(library, str(folder), head), tokenizer, label)


@contextmanager
def quiet(library: Any) -> Iterator[None]:
    """Silence the library's progress bars and warnings."""
    logging = library.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*sacremoses")  # Marian's tokenizer works without
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def adapt(model: HFModel, tokenizer: HFTokenizer, label: str | None = None) -> HuggingFaceAdapter:
    """Return a Hugging Face model in memory as one that gives Traces and reads texts by this tokenizer.

    Args:
        model: A transformers.PreTrainedModel.
        tokenizer: Its tokenizer.
        label: Of a multi-label classifier, the label whose prediction is read.
    """
    name, length = type(model).__name__, max_length(model.config, tokenizer)
    check_values(model, name)
    head = head_of(model.config, name, name)
    vocab_size = (model.get_encoder() if head == "translation" else model).get_input_embeddings().num_embeddings
    if head == "classification":
        reader = ClassReader(tokenizer, model, vocab_size, length, *outputs_of(model.config, name, label))
        if model.config.model_type in POOLINGS:
            return HFEncoderClassifier(model, reader)
        return HFClassifier(model, reader) if model.config.model_type in CLASSIFIERS else decoder(model, reader)
    target = target_ids(tokenizer, model.get_output_embeddings().out_features)
    if head == "causal":
        return language_model(model, LanguageReader(tokenizer, model, vocab_size, length, target))
    return HFEncoderDecoder(model, TranslationReader(tokenizer, model, vocab_size, length, target))


def language_model(model: HFModel, reader: LanguageReader) -> HFLanguageModel:
    """Return a language model, whose attention is causal; others are refused."""
    adapter = HFLanguageModel(model, reader)
    if not adapter.is_causal():
        raise NoModel(
            f"a token of {type(model).__name__} attends to those behind it, so that it is no causal language model; "
            "where the family has both, set is_decoder in its config.json to true"
        )
    return adapter


def decoder(model: HFModel, reader: ClassReader) -> HFDecoderClassifier:
    """Return a decoder-only classifier, whose attention is causal; others are refused."""
    adapter = HFDecoderClassifier(model, reader)
    if not adapter.is_causal():
        check_type(model.config, type(model).__name__, type(model).__name__, "classifiers", (*CLASSIFIERS, *POOLINGS))
    return adapter


def load_configuration(library: Any, folder: str) -> Any:
    path, on_hub = Path(folder), folder.startswith(HUB)
    if not on_hub and not path.is_dir():
        raise NoModel(f"there is no folder {folder}; a model on the hub is named {HUB}owner/name")
    if not on_hub and not (path / "config.json").is_file():
        raise NoModel(f"{folder} has no config.json, so it is no folder that save_pretrained wrote a model to")
    with reading(f"the configuration of {folder}"):
        if not on_hub and not isinstance(json.loads((path / "config.json").read_bytes()), dict):
            raise NoModel(f"{folder}/config.json should hold one JSON object")
        config = library.AutoConfig.from_pretrained(folder.removeprefix(HUB), **SAFE)
    for name in SIZES:
        size = getattr(config, name, 1)
        if isinstance(size, int) and size < 1:
            raise NoModel(f"{name} in the config.json of {folder} should be positive, not {size}")
    return config


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise NoModel for any error of the library, whose errors on broken files have no common class."""
    try:
        yield
    except NoModel:
        raise
    except Exception as error:
        raise NoModel(f"{what} cannot be read: {type(error).__name__}: {first_line(error)}") from error


def head_of(config: Any, folder: str, architecture: str | None = None) -> str:
    """Return what the model does, by its head: "translation", "classification" or "causal"; others are refused."""
    architecture = architecture or architecture_of(config, folder)
    if getattr(config, "quantization_config", None) is not None:
        raise NoModel(
            f"{folder} holds quantised weights, through which no gradients pass, so that some probes would fail; give "
            "the model in its original precision"
        )
    if architecture.endswith(CAUSAL_HEADS):
        return "causal"
    if architecture.endswith(TRANSLATION_HEADS):
        check_type(config, folder, architecture, "encoder-decoders", ENCODER_DECODERS)
        return "translation"
    if architecture.endswith(CLASSIFICATION_HEAD):
        if config.is_encoder_decoder or config.model_type in OWN_ATTENTION:
            check_type(config, folder, architecture, "classifiers", (*CLASSIFIERS, *POOLINGS))
        return "classification"
    if architecture.endswith("ForTokenClassification"):
        raise NoModel(
            f"{folder} holds a {architecture}, which classifies every token; only models with one output per text, or "
            "an output text, are supported"
        )
    raise NoModel(
        f"{folder} holds a {architecture}, whose head neither translates "
        f"(…{' or …'.join(TRANSLATION_HEADS)}) nor classifies texts (…{CLASSIFICATION_HEAD}) nor continues them "
        f"(…{' or …'.join(CAUSAL_HEADS)})"
    )


def architecture_of(config: Any, folder: str) -> str:
    """Return the name of the class of the model, which the configuration has to name."""
    match config.architectures:
        case [str() as architecture, *_]:
            return architecture
    raise NoModel(f"the config.json of {folder} names no architecture, such as ['BertForSequenceClassification']")


def head_kind(config: Any) -> str:
    """Return what the head of a ...ForSequenceClassification predicts, in the library's words for `problem_type`."""
    return str(config.problem_type or ("regression" if config.num_labels == 1 else "single_label_classification"))


def outputs_of(config: Any, name: str, label: str | None) -> tuple[tuple[str, ...], ClassOutputs]:
    """Return the names of the classes, and what the numbers of the head mean.

    Args:
        config: The configuration.
        name: The name of the model.
        label: Of a multi-label head, the label that is read.
    """
    kind, names = head_kind(config), class_names(config, name)
    if kind == "multi_label_classification":
        if label not in names:
            other = "" if label is None else f", but not {label!r}"
            raise NoModel(
                f"{name} is a multi-label classifier, of {', '.join(names)}{other}: every label is read by itself; "
                f"choose one with label=, such as {names[0]!r} (on the command line, --label)"
            )
        return (f"not {label}", label), ClassOutputs(label=names.index(label))
    if kind == "regression":
        if config.num_labels != 1:
            raise NoModel(f"{name} predicts {config.num_labels} numbers; regression models of one number are supported")
        return REGRESSION_CLASSES, ClassOutputs(regression=True)
    if kind != "single_label_classification":
        raise NoModel(f"{name} has the problem_type {kind!r}, which is none of the library's")
    return names, ClassOutputs()


def class_names(config: Any, name: str) -> tuple[str, ...]:
    """Return the names of the classes, by their index; gaps, equal and empty names are refused."""
    labels: Mapping[int, object] = config.id2label
    if set(labels) != set(range(len(labels))):
        raise NoModel(f"the classes of {name} (id2label) should be numbered 0 to {len(labels) - 1}, not {list(labels)}")
    names = tuple(str(labels[i]) for i in range(len(labels)))
    if not all(isinstance(label, str) and label.strip() for label in labels.values()) or len(set(names)) < len(names):
        raise NoModel(f"the classes of {name} (id2label) should have names, all different, not {list(names)}")
    return names


def check_values(model: HFModel, name: str) -> None:
    """Refuse weights that hold no trained model: NaN, infinite, or all zero."""
    parameters = (
        (key, tensor) for key, tensor in model.named_parameters() if tensor.device.type != "meta"
    )  # not offloaded
    broken = [key for key, tensor in parameters if not tensor.isfinite().all()]
    if broken:
        raise NoModel(f"{name} has weights that are NaN or infinite, in {join_names(broken)}")
    if not any(tensor.any() for tensor in model.parameters()):
        raise NoModel(f"all weights of {name} are zero")
    for key in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
        token, count = getattr(model.config, key, None), model.get_input_embeddings().num_embeddings
        if isinstance(token, int) and not 0 <= token < count:
            raise NoModel(f"{key} of {name} is {token}, but the model has embeddings of the ids 0 to {count - 1}")


def check_language(tokenizer: HFTokenizer, name: str, language: str) -> None:
    """Refuse a language code that the tokenizer has no token for."""
    languages = sorted({code.strip("_") for code in tokenizer.all_special_tokens if re.fullmatch(LANGUAGE, code)})
    if not hasattr(tokenizer, name):
        raise NoModel(f"a {type(tokenizer).__name__} reads one language, so {language!r} cannot be chosen")
    if language not in languages:
        raise NoModel(f"the tokenizer knows no language {language!r}; it knows {join_names(languages, 12)}")


def join_names(names: Collection[str], limit: int = 3) -> str:
    """Return the first names, and how many there are beyond them.

    >>> join_names(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    rest = len(names) - limit
    return ", ".join(list(names)[:limit]) + (f" and {rest} more" if rest > 0 else "")


def check_type(config: Any, folder: str, architecture: str, models: str, supported: Collection[str]) -> None:
    if config.model_type not in supported:
        raise NoModel(
            f"{folder} holds a {architecture} of the type {config.model_type!r}; {models} of the types "
            f"{', '.join(supported)} are supported; wrap the model in an adapter of your own (docs/own-model.md)"
        )


def load_tokenizer(library: Any, folder: str) -> HFTokenizer:
    path = Path(folder)
    if path.is_dir() and not any(file for pattern in TOKENIZER_FILES for file in path.glob(pattern)):
        raise NoModel(f"{folder} has a model but no tokenizer; save it there as well, with tokenizer.save_pretrained")
    with reading(f"the tokenizer of {folder}"):
        tokenizer = library.AutoTokenizer.from_pretrained(folder.removeprefix(HUB), **SAFE)
        if not isinstance(tokenizer, library.PreTrainedTokenizerBase):
            raise NoModel(f"the tokenizer_config.json of {folder} names a {type(tokenizer).__name__}, no tokenizer")
        return tokenizer


def load_weights(library: Any, folder: str, head: str) -> HFModel:
    """Return the model, unless weights do not fit it: the library would initialise some at random, or leave some out.

    Weights in safetensors files are preferred; of others, which are pickles, only tensors are read.
    """
    with reading(f"the weights of {folder}"):
        check_index(Path(folder))
        model, report = getattr(library, AUTO[head]).from_pretrained(
            folder.removeprefix(HUB), dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True,
            weights_only=True, **SAFE,
        )  # fmt: skip
        check_stored_types(Path(folder), model)
    sizes = [f"{key} {list(stored)} for {list(own)}" for key, stored, own in sorted(report["mismatched_keys"])]
    if sizes:
        raise NoModel(f"weights of {folder} have other sizes than its config.json says: {join_names(sizes)}")
    missing = sorted(report["missing_keys"])
    if missing:
        raise NoModel(f"{folder} lacks weights of its model, such as {missing[0]}, so that they would be random")
    layers = sorted(key for key in report["unexpected_keys"] if NUMBERED.search(key))
    if layers:
        raise NoModel(f"{folder} has weights of layers that its config.json does not have: {join_names(layers)}")
    return model.eval()


def check_index(folder: Path) -> None:
    """Refuse an index of weights that names files outside of its folder."""
    for path in folder.glob("*.index.json"):
        names = set(json.loads(path.read_bytes())["weight_map"].values())
        outside = [name for name in names if Path(name).name != name]
        if outside:
            raise NoModel(f"{path} names {outside[0]}, which is not a file of its folder")


def check_stored_types(folder: Path, model: nn.Module) -> None:
    """Refuse weights that are stored as whole numbers, such as quantised ones, which would be read as floats."""
    parameters = {name for name, _ in model.named_parameters()}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in parameters.intersection(file.keys()):
                stored = file.get_slice(name).get_dtype()
                if stored not in FLOATS:
                    raise NoModel(f"{name} in {path} is stored as {stored}; weights are floating-point numbers")


def target_ids(tokenizer: HFTokenizer, vocab_size: int) -> TargetIds:
    """Return the map of target ids: padding, and the end and start that are put around an empty target."""
    around: list[int] = tokenizer(text_target="")["input_ids"]
    eos, sep, cls, bos = (getattr(tokenizer, f"{name}_token_id") for name in ("eos", "sep", "cls", "bos"))
    end = sep if eos is None or (sep in around and eos not in around) else eos
    begins = [i for i in around if i != end]
    start = begins[0] if begins else bos if cls is None else cls
    padding = None if tokenizer.pad_token_id == end else tokenizer.pad_token_id
    ids = (None if i is None or i >= vocab_size else i for i in (padding, end, start))
    return TargetIds(vocab_size, *ids)


def max_length(config: Any, tokenizer: HFTokenizer) -> int:
    """Return how many tokens the model has positions for, as far as model and tokenizer say."""
    positions = getattr(config, "max_position_embeddings", None) or UNLIMITED
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "data2vec-text"):
        positions -= config.pad_token_id + 1  # its positions are counted from behind that of padding
    length, special = tokenizer.model_max_length, tokenizer.num_special_tokens_to_add()
    if isinstance(length, bool) or not isinstance(length, int | float) or not min(length, positions) > special:
        raise NoModel(
            f"model_max_length {length!r} and {positions} positions leave no room beside {special} special tokens"
        )
    return min(int(min(length, UNLIMITED)), positions)
