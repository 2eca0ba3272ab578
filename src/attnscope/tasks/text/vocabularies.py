"""Vocabularies of text: whole words, or subwords of SentencePiece trained on the training split (snell2021 A.8)."""

import hashlib
import io
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from attnscope.errors import AttnscopeError, check_kinds, choose, import_optional, require
from attnscope.files import read_checked, write_checked
from attnscope.tasks.batch import END, PAD, SPECIALS, START, Vocabulary
from attnscope.tasks.text.rows import cache_folder

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
