"""Which pieces are words made of? SentencePiece, trained on the training split and kept (snell2021 A.8)."""

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnscope.errors import AttnscopeError, choose, require
from attnscope.files import write_atomically
from attnscope.tasks.batch import END, PAD, SPECIALS, START, Vocabulary
from attnscope.tasks.text.coder import Coder, Sentences
from attnscope.tasks.text.extras import optional
from attnscope.tasks.text.places import cache_folder
from attnscope.tasks.text.words import UNKNOWN, UNKNOWN_WORD

MODELS = ("unigram", "bpe")  # of SentencePiece
LONGEST_SENTENCE = 1 << 20  # bytes; SentencePiece would silently leave out sentences of more than 4192
ERRORS_ONLY = 2  # its level of logging


@dataclass(frozen=True)
class Subwords:
    """A vocabulary of pieces of words, which joins the words of a sentence with spaces before it cuts them."""

    size: int = 8000  # of the vocabulary, special words included; snell2021 A.8
    kind: str = "unigram"
    shared: bool = True  # one vocabulary for both sides of a translation; snell2021 A.8

    def __post_init__(self) -> None:
        choose("kind of subwords", self.kind, MODELS)
        require(self.size > UNKNOWN + 1, f"size must be more than {UNKNOWN + 1}, not {self.size}")

    def coder(self, training: Iterable[Sequence[str]]) -> "PieceCoder":
        return PieceCoder.of(trained([" ".join(words) for words in training], self))


@dataclass(frozen=True)
class PieceCoder(Coder):
    """The pieces of a trained model; their numbers are those of the vocabulary."""

    processor: Any

    @classmethod
    def of(cls, model: bytes) -> "PieceCoder":
        processor = library().SentencePieceProcessor(model_proto=model)
        return cls(Vocabulary(tuple(processor.id_to_piece(i) for i in range(processor.get_piece_size()))), processor)

    def encode(self, sentences: Sentences) -> list[np.ndarray]:
        numbers = self.processor.encode([" ".join(words) for words in sentences], num_threads=1)
        return [np.array(row, dtype=np.int32) for row in numbers]

    def text(self, numbers: Sequence[int]) -> str:
        pieces = [int(i) for i in numbers if i not in (PAD, END, START)]
        return str(self.processor.decode(pieces))


def library() -> Any:
    return optional("sentencepiece", "a vocabulary of subwords")


def trained(sentences: list[str], settings: Subwords) -> bytes:
    """The model for these sentences: from the cache if it was made before, trained and kept otherwise."""
    path = cached_at(sentences, settings)
    if path.is_file() and is_model(model := path.read_bytes()):
        return model
    model = train(sentences, settings)
    write_atomically(path, model)
    return model


def is_model(content: bytes) -> bool:
    """A file in the cache may have been spoilt; it can always be made again."""
    try:
        return bool(library().SentencePieceProcessor(model_proto=content).get_piece_size())
    except RuntimeError:
        return False


def cached_at(sentences: list[str], settings: Subwords) -> Path:
    """A file named by everything that the model follows from."""
    content = hashlib.sha256(repr((library().__version__, sorted(asdict(settings).items()))).encode())
    for sentence in sentences:
        content.update(sentence.encode() + b"\n")
    return cache_folder() / "sentencepiece" / f"{content.hexdigest()[:32]}.model"


def train(sentences: list[str], settings: Subwords) -> bytes:
    model = io.BytesIO()
    pad, end, start = SPECIALS
    try:
        library().SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=model, vocab_size=settings.size, model_type=settings.kind,
            pad_id=PAD, eos_id=END, bos_id=START, unk_id=UNKNOWN,
            pad_piece=pad, eos_piece=end, bos_piece=start, unk_piece=UNKNOWN_WORD,
            max_sentence_length=LONGEST_SENTENCE, num_threads=1, minloglevel=ERRORS_ONLY,
        )  # fmt: skip
    except (RuntimeError, OSError) as error:
        raise AttnscopeError(
            f"SentencePiece cannot make {settings.size} pieces of {len(sentences)} sentences: {error}; "
            "a smaller size may do"
        ) from error
    return model.getvalue()
