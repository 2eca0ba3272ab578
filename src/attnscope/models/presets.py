"""The papers' own networks, as settings."""

from attnscope.models.bag_of_words import BagOfWords, BagOfWordsSettings
from attnscope.models.classifier import Classifier, ClassifierSettings
from attnscope.models.encoder_decoder import EncoderDecoder, EncoderDecoderSettings
from attnscope.models.positions import Positions

PRESETS: dict[str, EncoderDecoderSettings] = {
    # aitken2021 §2: no attention; attention and recurrence; attention only. Sizes and positions: author's code.
    "ved": EncoderDecoderSettings(attention="none", readout="state"),
    "aed": EncoderDecoderSettings(),
    "ao": EncoderDecoderSettings(cell="feedforward", readout="context", input_size=50, positions=Positions()),
}

ModelSettings = EncoderDecoderSettings | ClassifierSettings | BagOfWordsSettings
Model = EncoderDecoder | Classifier | BagOfWords

# Every network that can be trained by name; the last two are those of snell2021 §2.4 and §2.3.
MODELS: dict[str, ModelSettings] = {
    **PRESETS,
    "classifier": ClassifierSettings(),
    "bag_of_words": BagOfWordsSettings(),
}
NETWORKS: dict[type, type[Model]] = {
    EncoderDecoderSettings: EncoderDecoder,
    ClassifierSettings: Classifier,
    BagOfWordsSettings: BagOfWords,
}


def build(settings: ModelSettings, source_words: int, target_words: int) -> Model:
    """The network that these settings describe, with fresh weights."""
    return NETWORKS[type(settings)](settings, source_words, target_words)  # type: ignore[arg-type]
