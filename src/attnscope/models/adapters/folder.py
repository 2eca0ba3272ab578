"""Which adapter does a folder need? Models that `save_pretrained` left on a disk, with their tokenizer."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from attnscope.errors import AttnscopeError
from attnscope.models.adapters.hugging_face import CLASSIFIERS, ENCODER_DECODERS, HFClassifier, HFEncoderDecoder
from attnscope.models.adapters.readers import UNLIMITED, ClassReader, Numbering, TranslationReader
from attnscope.models.adapters.recording import transformers

TRANSLATES = ("ForConditionalGeneration", "MTModel")
CLASSIFIES = "ForSequenceClassification"
CONTINUES = ("ForCausalLM", "LMHeadModel")  # how the library names decoder-only language models
TOKENIZER_FILES = ("tokenizer*", "vocab*", "spiece.model", "*.spm", "sentencepiece*.model", "merges.txt")


HUB = "hf:"  # before a name on the hub


class NoModel(AttnscopeError):
    """A folder without a model that attnscope can ask."""


def load(
    folder: str | Path, source_language: str | None = None, target_language: str | None = None
) -> HFEncoderDecoder | HFClassifier:
    """The model of a folder, on the CPU, in single precision; where there is a network, hf:name is one on the hub.

    Tokenizers of several languages (mBART, M2M100, NLLB) are told which two to use, by the codes that they know.
    """
    library = transformers()
    with quiet(library):
        config = configuration(library, str(folder))
        kind = task(config, folder)
        tokenizer = tokenizer_of(library, str(folder))
        for name, language in {"src_lang": source_language, "tgt_lang": target_language}.items():
            if language is not None:
                setattr(tokenizer, name, language)
        return adapted(weights(library, str(folder), kind), tokenizer)


@contextmanager
def quiet(library: Any) -> Iterator[None]:
    """Without the library's bars and warnings: what matters is said in our own words."""
    logging = library.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*sacremoses")  # Marian's tokenizer does without
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def adapted(model: Any, tokenizer: Any) -> HFEncoderDecoder | HFClassifier:
    """A model that is in memory already, with its tokenizer."""
    name = type(model).__name__
    if task(model.config, name, name) == TRANSLATES[0]:
        source, target = model.get_encoder().get_input_embeddings(), model.get_output_embeddings()
        reader = TranslationReader(
            tokenizer, numbering(tokenizer, source.num_embeddings), longest(model.config, tokenizer),
            numbering(tokenizer, target.out_features, target=True),
        )  # fmt: skip
        return HFEncoderDecoder(model, reader)
    classes = tuple(str(model.config.id2label[i]) for i in range(model.config.num_labels))
    size = model.get_input_embeddings().num_embeddings
    return HFClassifier(
        model, ClassReader(tokenizer, numbering(tokenizer, size), longest(model.config, tokenizer), classes)
    )


def configuration(library: Any, folder: str) -> Any:
    path, on_hub = Path(folder), folder.startswith(HUB)
    if not on_hub and not path.is_dir():
        raise NoModel(f"there is no folder {folder}; a model on the hub is named {HUB}owner/name")
    if not on_hub and not (path / "config.json").is_file():
        raise NoModel(f"{folder} has no config.json, so it is no folder that save_pretrained wrote a model to")
    try:
        return library.AutoConfig.from_pretrained(folder.removeprefix(HUB))
    except (OSError, ValueError) as error:
        raise NoModel(f"the configuration of {folder} cannot be read: {first_line(error)}") from error


def task(config: Any, folder: str | Path, architecture: str | None = None) -> str:
    """What the model's head does: the ending of its class's name."""
    architecture = architecture or next(iter(config.architectures or ()), "")
    if architecture.endswith(CONTINUES):
        raise NoModel(
            f"{folder} holds a {architecture}: decoder-only language models have no source that they attend to apart "
            "from their own words, so they cannot be asked; give an encoder-decoder or a classifier"
        )
    if architecture.endswith(TRANSLATES):
        check_type(config, folder, architecture, "encoder-decoders", ENCODER_DECODERS)
        return TRANSLATES[0]
    if architecture.endswith(CLASSIFIES):
        check_type(config, folder, architecture, "classifiers", CLASSIFIERS)
        check_classes(config, folder)
        return CLASSIFIES
    raise NoModel(
        f"{folder} holds a {architecture or 'model of an unnamed architecture'}, whose head neither translates "
        f"(…{' or …'.join(TRANSLATES)}) nor classifies texts (…{CLASSIFIES})"
    )


def check_type(config: Any, folder: str | Path, architecture: str, what: str, known: dict[str, Any]) -> None:
    if config.model_type not in known:
        raise NoModel(
            f"{folder} holds a {architecture} of the type {config.model_type!r}; {what} of the types "
            f"{', '.join(known)} can be asked"
        )


def check_classes(config: Any, folder: str | Path) -> None:
    if config.num_labels < 2 or config.problem_type not in (None, "single_label_classification"):
        raise NoModel(
            f"{folder} holds a model that does not choose one of several classes (num_labels {config.num_labels}, "
            f"problem_type {config.problem_type}); only classifiers that do can be asked"
        )


def tokenizer_of(library: Any, folder: str) -> Any:
    path = Path(folder)
    if path.is_dir() and not any(found for pattern in TOKENIZER_FILES for found in path.glob(pattern)):
        raise NoModel(f"{folder} has a model but no tokenizer; save it there as well, with tokenizer.save_pretrained")
    try:
        return library.AutoTokenizer.from_pretrained(folder.removeprefix(HUB))
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise NoModel(f"the tokenizer of {folder} cannot be read: {first_line(error)}") from error


def weights(library: Any, folder: str, kind: str) -> Any:
    """Refused unless every weight is there: the library would draw those that are missing at random."""
    auto = library.AutoModelForSequenceClassification if kind == CLASSIFIES else library.AutoModelForSeq2SeqLM
    try:
        model, report = auto.from_pretrained(folder.removeprefix(HUB), dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise NoModel(f"the weights of {folder} cannot be read: {first_line(error)}") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise NoModel(f"{folder} lacks weights of its model, such as {missing[0]}, so that they would be random")
    return model.eval()


def numbering(tokenizer: Any, size: int, target: bool = False) -> Numbering:
    """Which tokens are padding, end and start: those that are put around an empty text, as far as any are."""
    side = {"text_target": ""} if target else {"text": ""}
    around: list[int] = tokenizer(**side)["input_ids"]
    end = first(tokenizer.eos_token_id, tokenizer.sep_token_id)
    if tokenizer.sep_token_id in around and tokenizer.eos_token_id not in around:
        end = tokenizer.sep_token_id
    begins = [i for i in around if i != end]
    start = begins[0] if begins else first(tokenizer.cls_token_id, tokenizer.bos_token_id)
    return Numbering(size, *(None if i is None or i >= size else i for i in (tokenizer.pad_token_id, end, start)))


def first(*ids: int | None) -> int | None:
    return next((i for i in ids if i is not None), None)


def longest(config: Any, tokenizer: Any) -> int:
    """Pieces that the model has positions for, as far as model and tokenizer say."""
    places = getattr(config, "max_position_embeddings", None) or UNLIMITED
    if config.model_type in ("roberta", "xlm-roberta"):
        places -= config.pad_token_id + 1  # its positions are counted from behind that of padding
    return min(int(min(tokenizer.model_max_length, UNLIMITED)), places)


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
