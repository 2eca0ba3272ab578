"""What is left of a corpus once it is read, split, cut into words and numbered?"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnscope.tasks.finite import Sentences, by_length
from attnscope.tasks.text.preparation import Preparation
from attnscope.tasks.text.rows import Row
from attnscope.tasks.text.vocabularies import Coder

Tokens = list[str]


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and a target as published, and the row that they are from."""

    source: str | list[str]
    target: str | list[str]
    row: Row
    rationale: np.ndarray | None = None  # of each word of the source, the share of people who marked it


def as_text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else " ".join(text)


@dataclass(frozen=True)
class DropCounts:
    """How many sentences of a split were left without a word, dropped as too long or too short, or cut."""

    empty: int = 0
    dropped: int = 0
    truncated: int = 0


@dataclass(frozen=True)
class TokenizedSplit:
    """The sentences of one split in words."""

    sources: list[Tokens]
    targets: list[Tokens]
    references: list[str]  # the targets as published
    lost: DropCounts
    rationales: list[np.ndarray]  # of each source; none at all where the corpus has none


def tokenize_split(
    pairs: Iterable[Pair], cut: Callable[[Pair], tuple[Tokens, Tokens]], preparation: Preparation
) -> TokenizedSplit:
    sources: list[Tokens] = []
    targets: list[Tokens] = []
    references: list[str] = []
    rationales: list[np.ndarray] = []
    empty = dropped = truncated = 0
    for pair in pairs:
        source, target = cut(pair)
        if not source or not target:
            empty += 1
        elif preparation.drops(source, target):
            dropped += 1
        else:
            truncated += preparation.exceeded(source, target)
            sources.append(source[: preparation.max_length])
            targets.append(target[: preparation.max_length])
            references.append(as_text(pair.target))
            if pair.rationale is not None:
                rationales.append(pair.rationale[: preparation.max_length])
    return TokenizedSplit(sources, targets, references, DropCounts(empty, dropped, truncated), rationales)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Part(Sentences):
    """The sentences of one split of a corpus, and what became of the rest of it."""

    references: list[str]  # the targets as published
    lost: DropCounts

    @cached_property
    def order(self) -> np.ndarray:
        """The shortest first, so that little of a batch is padding."""
        return by_length(self.lengths)


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """All splits, and what turns words into numbers on either side."""

    parts: Mapping[str, Part]
    source: Coder
    target: Coder
    left_out: int  # rows that the settings do not ask for, by their label or their split


@dataclass(frozen=True)
class SpecialTokens:
    """The special words before and after each sentence."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, numbers: list[np.ndarray]) -> list[np.ndarray]:
        before, after = np.array(self.before, dtype=np.int32), np.array(self.after, dtype=np.int32)
        return [np.concatenate([before, row, after]) for row in numbers]

    def unmarked(self, rationales: list[np.ndarray]) -> list[np.ndarray]:
        """With nothing on the special words: nobody could mark these."""
        return [np.pad(row, (len(self.before), len(self.after))) for row in rationales]
