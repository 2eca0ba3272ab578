"""Models: every forward pass returns a Trace."""

from attnscope.models.attention import ATTENTIONS, uniform
from attnscope.models.bag_of_words import BagOfWords, BagOfWordsSettings
from attnscope.models.cells import CELLS
from attnscope.models.classifier import Classifier, ClassifierSettings
from attnscope.models.encoder_decoder import EncoderDecoder, EncoderDecoderSettings, Positions
from attnscope.models.initialise import Pretrained, Start, restart_heads, start_words
from attnscope.models.presets import MODELS, PRESETS, Model, ModelSettings, build, start_copying, start_pretrained
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.models.transformer import (
    Transformer,
    TransformerClassifier,
    TransformerClassifierSettings,
    TransformerDecoder,
    TransformerDecoderSettings,
    TransformerSettings,
)

__all__ = [
    "ATTENTIONS", "CELLS", "MODELS", "PRESETS", "Attention", "BagOfWords", "BagOfWordsSettings", "Classifier",
    "ClassifierSettings", "EncoderDecoder", "EncoderDecoderSettings", "Intervention", "Model", "ModelSettings",
    "Positions", "Pretrained", "Start", "Trace", "Transformer", "TransformerClassifier",
    "TransformerClassifierSettings", "TransformerDecoder", "TransformerDecoderSettings", "TransformerSettings", "build",
    "restart_heads", "start_copying", "start_pretrained", "start_words", "uniform",
]  # fmt: skip
