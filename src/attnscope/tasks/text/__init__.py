"""Text corpora for classification and translation."""

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
from attnscope.tasks.text.rows import ChangedCorpus, MissingCorpus, PublishedFile
from attnscope.tasks.text.tasks import Classification, TextTask, Translation
from attnscope.tasks.text.vocabularies import (
    BERT_NAMES,
    SUBWORD_MODELS,
    UNKNOWN,
    UNKNOWN_WORD,
    Subwords,
    WordPieces,
    Words,
)

# Every class of settings of a corpus, under its name in JSON.
SETTINGS: dict[str, type] = {
    "classification": Classification,
    "translation": Translation,
    "preparation": Preparation,
    "splits": Splits,
    "words": Words,
    **dict.fromkeys(SUBWORD_MODELS, Subwords),  # JSON names them by their setting `kind`
    "word_pieces": WordPieces,
    "vectors": Vectors,
}

__all__ = [
    "BERT_NAMES", "CLASSIFICATIONS", "CORPORA", "PARTS", "SETTINGS", "TRANSLATIONS", "UNKNOWN", "UNKNOWN_WORD",
    "ChangedCorpus", "Classification", "InitialEmbedding", "MissingCorpus", "Preparation", "PublishedFile", "Splits",
    "Subwords", "TextTask", "Translation", "Vectors", "WordPieces", "Words", "initial_embedding", "statistics",
]  # fmt: skip
