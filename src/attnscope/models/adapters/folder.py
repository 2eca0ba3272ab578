"""Loading models that `save_pretrained` wrote to a folder, with their tokenizer, and adapting models in memory."""

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from attnscope.errors import AttnscopeError
from attnscope.models.adapters.hugging_face import (
    CLASSIFIERS,
    ENCODER_DECODERS,
    HFClassifier,
    HFEncoderDecoder,
    HFModel,
)
from attnscope.models.adapters.readers import ClassReader, HFTokenizer, TargetIds, TranslationReader
from attnscope.models.adapters.recording import transformers

HUB = "hf:"  # before a name on the hub
TRANSLATION_HEADS = ("ForConditionalGeneration", "MTModel")
CLASSIFICATION_HEAD = "ForSequenceClassification"
CAUSAL_HEADS = ("ForCausalLM", "LMHeadModel")  # how the library names decoder-only language models
TOKENIZER_FILES = ("tokenizer*", "vocab*", "spiece.model", "*.spm", "sentencepiece*.model", "merges.txt")
UNLIMITED = 10**9  # tokenizers without a maximum length have a larger one
SAFE = {"trust_remote_code": False}  # no code of a folder is ever run


class NoModel(AttnscopeError):
    """A folder without a model that attnscope can load."""


def load(
    folder: str | Path, source_language: str | None = None, target_language: str | None = None
) -> HFEncoderDecoder | HFClassifier:
    """Return the model of a folder, on the CPU, in single precision.

    Args:
        folder: Where `save_pretrained` wrote model and tokenizer, or "hf:owner/name" on the hub.
        source_language: Language code of the source, for tokenizers of several languages (mBART, M2M100, NLLB).
        target_language: Language code of the target.
    """
    library = transformers()
    with quiet(library):
        config = load_configuration(library, str(folder))
        classifies = is_classifier(config, str(folder))
        tokenizer = load_tokenizer(library, str(folder))
        for name, language in {"src_lang": source_language, "tgt_lang": target_language}.items():
            if language is not None:
                setattr(tokenizer, name, language)
        return adapted(load_weights(library, str(folder), classifies), tokenizer)


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


def adapted(model: HFModel, tokenizer: HFTokenizer) -> HFEncoderDecoder | HFClassifier:
    """Return a Hugging Face model in memory as one that gives Traces and reads texts by this tokenizer."""
    name, length = type(model).__name__, max_length(model.config, tokenizer)
    if is_classifier(model.config, name, name):
        classes = tuple(str(model.config.id2label[i]) for i in range(model.config.num_labels))
        vocab_size = model.get_input_embeddings().num_embeddings
        return HFClassifier(model, ClassReader(tokenizer, model, vocab_size, length, classes))
    vocab_size = model.get_encoder().get_input_embeddings().num_embeddings
    target = target_ids(tokenizer, model.get_output_embeddings().out_features)
    return HFEncoderDecoder(model, TranslationReader(tokenizer, model, vocab_size, length, target))


def load_configuration(library: Any, folder: str) -> Any:
    path, on_hub = Path(folder), folder.startswith(HUB)
    if not on_hub and not path.is_dir():
        raise NoModel(f"there is no folder {folder}; a model on the hub is named {HUB}owner/name")
    if not on_hub and not (path / "config.json").is_file():
        raise NoModel(f"{folder} has no config.json, so it is no folder that save_pretrained wrote a model to")
    try:
        return library.AutoConfig.from_pretrained(folder.removeprefix(HUB), **SAFE)
    except (OSError, ValueError) as error:
        raise NoModel(f"the configuration of {folder} cannot be read: {first_line(error)}") from error


def is_classifier(config: Any, folder: str, architecture: str | None = None) -> bool:
    """Return whether the model classifies or translates, by its head; other models are refused."""
    architecture = architecture or next(iter(config.architectures or ()), "")
    if architecture.endswith(CAUSAL_HEADS):
        raise NoModel(
            f"{folder} holds a {architecture}: decoder-only language models have no source apart from their own output "
            "that they attend to; give an encoder-decoder or a classifier"
        )
    if architecture.endswith(TRANSLATION_HEADS):
        check_type(config, folder, architecture, "encoder-decoders", ENCODER_DECODERS)
        return False
    if architecture.endswith(CLASSIFICATION_HEAD):
        check_type(config, folder, architecture, "classifiers", CLASSIFIERS)
        if config.num_labels < 2 or config.problem_type not in (None, "single_label_classification"):
            raise NoModel(
                f"{folder} holds a model that does not choose one of several classes (num_labels {config.num_labels}, "
                f"problem_type {config.problem_type}); only classifiers that do are supported"
            )
        return True
    raise NoModel(
        f"{folder} holds a {architecture or 'model of an unnamed architecture'}, whose head neither translates "
        f"(…{' or …'.join(TRANSLATION_HEADS)}) nor classifies texts (…{CLASSIFICATION_HEAD})"
    )


def check_type(config: Any, folder: str, architecture: str, models: str, known: Collection[str]) -> None:
    if config.model_type not in known:
        raise NoModel(
            f"{folder} holds a {architecture} of the type {config.model_type!r}; {models} of the types "
            f"{', '.join(known)} are supported"
        )


def load_tokenizer(library: Any, folder: str) -> HFTokenizer:
    path = Path(folder)
    if path.is_dir() and not any(file for pattern in TOKENIZER_FILES for file in path.glob(pattern)):
        raise NoModel(f"{folder} has a model but no tokenizer; save it there as well, with tokenizer.save_pretrained")
    try:
        return library.AutoTokenizer.from_pretrained(folder.removeprefix(HUB), **SAFE)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise NoModel(f"the tokenizer of {folder} cannot be read: {first_line(error)}") from error


def load_weights(library: Any, folder: str, classifies: bool) -> HFModel:
    """Return the model, unless a weight is missing, which the library would initialise at random."""
    auto = library.AutoModelForSequenceClassification if classifies else library.AutoModelForSeq2SeqLM
    try:
        model, report = auto.from_pretrained(
            folder.removeprefix(HUB), dtype=torch.float32, output_loading_info=True, **SAFE
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise NoModel(f"the weights of {folder} cannot be read: {first_line(error)}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise NoModel(f"{folder} lacks weights of its model, such as {missing[0]}, so that they would be random")
    return model.eval()


def target_ids(tokenizer: HFTokenizer, vocab_size: int) -> TargetIds:
    """Return the map of target ids: padding, and the end and start that are put around an empty target."""
    around: list[int] = tokenizer(text_target="")["input_ids"]
    eos, sep, cls, bos = (getattr(tokenizer, f"{name}_token_id") for name in ("eos", "sep", "cls", "bos"))
    end = sep if eos is None or (sep in around and eos not in around) else eos
    begins = [i for i in around if i != end]
    start = begins[0] if begins else bos if cls is None else cls
    known = (None if i is None or i >= vocab_size else i for i in (tokenizer.pad_token_id, end, start))
    return TargetIds(vocab_size, *known)


def max_length(config: Any, tokenizer: HFTokenizer) -> int:
    """Return how many tokens the model has positions for, as far as model and tokenizer say."""
    places = getattr(config, "max_position_embeddings", None) or UNLIMITED
    if config.model_type in ("roberta", "xlm-roberta"):
        places -= config.pad_token_id + 1  # its positions are counted from behind that of padding
    return min(int(min(tokenizer.model_max_length, UNLIMITED)), places)


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
