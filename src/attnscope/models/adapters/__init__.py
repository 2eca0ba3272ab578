"""Adapters: Hugging Face translators, classifiers and language models, and your own models, as models with Traces.

    model = adapters.load("folder")                    a folder that save_pretrained wrote, with its tokenizer
    texts = model.reader.read(["ein Hund"], ["a dog"])  texts.batch goes to the model and to every probe
    trace = model(texts.batch, attention={(0, 3): ablated})
    by_word(trace.attention, texts.source, texts.target)

`Adapter` is the base class for your own model. The library transformers (the extra `hf`) is imported only when a model
is loaded.
"""

from attnscope.models.adapters.causal import HFDecoderClassifier, HFLanguageModel, LanguageReader
from attnscope.models.adapters.encoder_classifier import HFEncoderClassifier
from attnscope.models.adapters.folder import NoModel, adapt, load
from attnscope.models.adapters.hugging_face import HFClassifier, HFEncoderDecoder
from attnscope.models.adapters.readers import (
    ClassReader,
    Reader,
    TargetIds,
    Texts,
    TranslationReader,
    WordReader,
    Words,
    by_word,
)
from attnscope.models.attention import ablated, rollout, up_to
from attnscope.models.capabilities import Adapter
from attnscope.models.trace import Interventions

__all__ = [
    "Adapter", "ClassReader", "HFClassifier", "HFDecoderClassifier", "HFEncoderClassifier", "HFEncoderDecoder",
    "HFLanguageModel", "Interventions", "LanguageReader", "NoModel", "Reader", "TargetIds", "Texts",
    "TranslationReader", "WordReader", "Words", "ablated", "adapt", "by_word", "load", "rollout", "up_to",
]  # fmt: skip
