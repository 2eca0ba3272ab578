"""What is there to learn in real text? Corpora to classify and to translate."""

from attnscope.tasks.text.classification import Classification
from attnscope.tasks.text.corpora import CLASSIFICATIONS, CORPORA, TRANSLATIONS
from attnscope.tasks.text.places import ChangedCorpus, MissingCorpus
from attnscope.tasks.text.preparation import Preparation
from attnscope.tasks.text.splits import PARTS, Splits
from attnscope.tasks.text.statistics import statistics
from attnscope.tasks.text.subwords import MODELS, Subwords
from attnscope.tasks.text.task import TextTask
from attnscope.tasks.text.translation import Translation
from attnscope.tasks.text.vectors import InitialEmbedding, Vectors, initial_embedding
from attnscope.tasks.text.words import UNKNOWN, UNKNOWN_WORD, Words

# Every kind of settings that a corpus is described by, under the name that it has in JSON.
SETTINGS: dict[str, type] = {
    "classification": Classification,
    "translation": Translation,
    "preparation": Preparation,
    "splits": Splits,
    "words": Words,
    **dict.fromkeys(MODELS, Subwords),  # their own setting `kind` is what JSON knows them by
    "vectors": Vectors,
}

__all__ = [
    "CLASSIFICATIONS", "CORPORA", "PARTS", "SETTINGS", "TRANSLATIONS", "UNKNOWN", "UNKNOWN_WORD", "ChangedCorpus",
    "Classification", "InitialEmbedding", "MissingCorpus", "Preparation", "Splits", "Subwords", "TextTask",
    "Translation", "Vectors", "Words", "initial_embedding", "statistics",
]  # fmt: skip
