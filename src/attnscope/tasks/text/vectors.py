"""Where may embeddings start? At published word vectors, where there are any for a word.

Text: a word and its numbers on each line, as GloVe (.txt) and fastText (.vec, whose first line gives the sizes) are
published, plain or packed with gzip. Or an .npz file with the array `vectors`, beside a `vocab.txt` with a word a line.
"""

import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.tasks.batch import PAD, SPECIALS, Vocabulary
from attnscope.tasks.text.rows import read_lines
from attnscope.tasks.text.sources import corpus_fingerprint, find_corpus
from attnscope.tasks.text.tasks import TextTask

EXPECTED = "word vectors as .txt or .vec, plain or packed with gzip, or as .npz with a vocab.txt beside it"


@dataclass(frozen=True)
class Vectors:
    """A file of published word vectors."""

    file: str
    fingerprint: str | None = None  # a checksum; if given, another file is refused

    def resolved(self) -> "Vectors":
        return replace(self, fingerprint=corpus_fingerprint(self.file, EXPECTED, self.fingerprint))


@dataclass(frozen=True)
class InitialEmbedding:
    """A first embedding for every word of a vocabulary, and which of them are published."""

    matrix: Float[Tensor, "words units"]
    found: Bool[Tensor, " words"]

    @property
    def coverage(self) -> float:
        """The share of the words of the vocabulary, special ones aside, that have a published vector."""
        return self.found[len(SPECIALS) :].float().mean().item()

    def running_coverage(self, task: TextTask, split: str = "training") -> float:
        """The share of running source words that have one; an unknown word has none."""
        words = torch.from_numpy(np.concatenate(task.part(split).source)).long()
        return self.found[words[words >= len(SPECIALS)]].float().mean().item()


@lru_cache(maxsize=4)
def initial_embedding(vocabulary: Vocabulary, file: str, seed: int = 0) -> InitialEmbedding:
    """Published vectors; for words without one, random ones as widely spread as those; zero for the padding.

    A word that is not found as it is written is looked for in lower case.
    """
    wanted = {form for word in vocabulary.tokens[len(SPECIALS) :] for form in (word, word.lower())}
    published = read_vectors(find_corpus(file, EXPECTED), wanted)
    rows = [published.get(word, published.get(word.lower())) for word in vocabulary.tokens]
    found = np.array([row is not None and i >= len(SPECIALS) for i, row in enumerate(rows)])
    if not found.any():
        raise BadSetting(f"{file} has no vector for any of the {len(vocabulary)} words of the vocabulary")
    known = np.stack([row for row, there in zip(rows, found, strict=True) if there and row is not None])
    matrix = np.random.default_rng(seed).normal(0, known.std(), (len(rows), known.shape[1])).astype(np.float32)
    matrix[found], matrix[PAD] = known, 0
    return InitialEmbedding(torch.from_numpy(matrix), torch.from_numpy(found))


def read_vectors(path: Path, wanted: Collection[str]) -> Mapping[str, np.ndarray]:
    """The vectors of the words that are wanted and there."""
    return from_npz(path, wanted) if path.suffix == ".npz" else from_text(path, wanted)


def from_npz(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            vectors = np.asarray(file["vectors"], dtype=np.float32)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise Malformed(f"{path} is no .npz file with an array 'vectors': {error}") from error
    words = [line for _, line in read_lines(find_corpus(str(path.with_name("vocab.txt")), EXPECTED))]
    if vectors.shape[:1] != (len(words),) or vectors.ndim != 2:
        shape = " x ".join(map(str, vectors.shape))
        raise Malformed(f"{path} holds {shape} numbers, but vocab.txt beside it has {len(words)} words")
    return {word: vectors[i] for i, word in enumerate(words) if word in wanted}


def from_text(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    vectors: dict[str, np.ndarray] = {}
    units = 0
    for number, line in read_lines(path):
        if number == 1 and is_size(line):
            continue
        units = units or len(line.split(" ")) - 1
        word, *numbers = line.rstrip(" ").rsplit(" ", units)  # from the right: a word may hold spaces
        if len(numbers) != units or units == 0:
            raise Malformed(f"{path}, line {number}: expected a word and {units or 'some'} numbers, not {line[:40]!r}")
        if word in wanted:
            vectors[word] = parsed(numbers, path, number)
    return vectors


def is_size(line: str) -> bool:
    """Is this the first line of a .vec file: how many words, how many numbers each?"""
    cells = line.split()
    return len(cells) == 2 and all(cell.isdigit() for cell in cells)


def parsed(numbers: list[str], path: Path, line: int) -> np.ndarray:
    try:
        return np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise Malformed(f"{path}, line {line}: a vector must be numbers ({error})") from error
