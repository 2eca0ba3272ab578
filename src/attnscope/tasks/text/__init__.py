"""What is there to learn in real text? Corpora to classify and to translate."""

from attnscope.tasks.text.corpora import (
    CLASSIFICATIONS,
    CORPORA,
    TRANSLATIONS,
    InitialEmbedding,
    Vectors,
    initial_embedding,
    statistics,
)
from attnscope.tasks.text.preparation import PARTS, Preparation, Splits
from attnscope.tasks.text.rows import ChangedCorpus, MissingCorpus
from attnscope.tasks.text.tasks import Classification, TextTask, Translation
from attnscope.tasks.text.vocabularies import SUBWORD_MODELS, UNKNOWN, UNKNOWN_WORD, Subwords, Words

# Every kind of settings that a corpus is described by, under the name that it has in JSON.
SETTINGS: dict[str, type] = {
    "classification": Classification,
    "translation": Translation,
    "preparation": Preparation,
    "splits": Splits,
    "words": Words,
    **dict.fromkeys(SUBWORD_MODELS, Subwords),  # their own setting `kind` is what JSON knows them by
    "vectors": Vectors,
}

__all__ = [
    "CLASSIFICATIONS", "CORPORA", "PARTS", "SETTINGS", "TRANSLATIONS", "UNKNOWN", "UNKNOWN_WORD", "ChangedCorpus",
    "Classification", "InitialEmbedding", "MissingCorpus", "Preparation", "Splits", "Subwords", "TextTask",
    "Translation", "Vectors", "Words", "initial_embedding", "statistics",
]  # fmt: skip
