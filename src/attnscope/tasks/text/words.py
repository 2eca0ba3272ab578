"""Which words are known? Those seen often enough in training; all others are one unknown word (snell2021 A.8)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import numpy as np

from attnscope.errors import require
from attnscope.tasks.batch import SPECIALS, Vocabulary
from attnscope.tasks.text.coder import Coder, Sentences

UNKNOWN_WORD = "<unknown>"
UNKNOWN = len(SPECIALS)  # in vocabularies of text, the first word after the three special ones


@dataclass(frozen=True)
class Words:
    """A vocabulary of whole words."""

    min_count: int = 3  # words seen fewer times in the training split are unknown; snell2021 A.8
    max_size: int | None = None  # only the most frequent words; the special ones and the unknown one are not counted
    shared: bool = False  # one vocabulary for both sides of a translation

    def __post_init__(self) -> None:
        require(self.min_count >= 1, f"min_count must be at least 1, not {self.min_count}")
        require(self.max_size is None or self.max_size > 0, f"max_size must be positive or None, not {self.max_size}")

    def coder(self, training: Iterable[Sequence[str]]) -> "WordCoder":
        """The most frequent word first; of equally frequent ones, the first in alphabetical order."""
        counts: Counter[str] = Counter()
        for words in training:
            counts.update(words)
        known = [word for word in counts if counts[word] >= self.min_count and word not in (*SPECIALS, UNKNOWN_WORD)]
        known.sort(key=lambda word: (-counts[word], word))
        return WordCoder(Vocabulary.of([UNKNOWN_WORD, *known[: self.max_size]]))


@dataclass(frozen=True)
class WordCoder(Coder):
    """One number a word."""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.vocabulary.tokens) if i >= UNKNOWN}

    def encode(self, sentences: Sentences) -> list[np.ndarray]:
        number = self._numbers.get  # a word such as <pad> in the text itself is unknown, like any other
        return [np.fromiter(map(number, words, repeat(UNKNOWN)), np.int32, len(words)) for words in sentences]

    def text(self, numbers: Sequence[int]) -> str:
        return " ".join(self.vocabulary.decode([i for i in numbers if i >= UNKNOWN]))
