"""How does a corpus become a Task? Settings say which file and how; nothing is read before it is asked for."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from attnscope.errors import choose, require
from attnscope.files import Malformed
from attnscope.kinds import check_kinds
from attnscope.tasks.batch import Vocabulary
from attnscope.tasks.finite import FiniteTask
from attnscope.tasks.text import origins
from attnscope.tasks.text.coder import Coder
from attnscope.tasks.text.corpus import Corpus, Marks, Pair, Part, Prepared, plain, prepared
from attnscope.tasks.text.preparation import Preparation
from attnscope.tasks.text.rows import Row, described
from attnscope.tasks.text.splits import PARTS, Splits, split
from attnscope.tasks.text.subwords import Subwords
from attnscope.tasks.text.words import Words

REMEMBERED = 8  # corpora in memory
Text = TypeVar("Text", bound="TextTask")


@dataclass(frozen=True)
class TextTask(FiniteTask):
    """A corpus of pairs. `file` is a complete path, or one below the folder that ATTNSCOPE_DATA names, or hf:name."""

    file: str
    columns: tuple[str, ...] = ()  # the names of the columns of a CSV or TSV file whose first line does not give them
    splits: Splits = field(default_factory=Splits)
    preparation: Preparation = field(default_factory=Preparation)
    vocabulary: Words | Subwords = field(default_factory=Words)
    fingerprint: str | None = None  # a checksum of the data; if given, other data are refused

    def __post_init__(self) -> None:
        check_kinds(self)
        require(bool(self.file), "a corpus needs a file")
        require(
            isinstance(self.vocabulary, Words) or not self.preparation.unknown_integers,
            "unknown_integers needs a vocabulary of Words: Subwords know every integer by its digits",
        )

    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The fields that a row must have."""

    @abstractmethod
    def pair(self, row: Row) -> Pair | None:
        """Source and target of a row, or None if the settings leave it out."""

    @abstractmethod
    def cut(self, pair: Pair) -> tuple[list[str], list[str]]:
        """The words of source and target."""

    @abstractmethod
    def coders(self, training: Prepared) -> tuple[Coder, Coder]:
        """What turns the words of source and target into numbers."""

    @property
    @abstractmethod
    def marks(self) -> tuple[Marks, Marks]:
        """The special words around source and target."""

    @property
    def expected(self) -> str:
        names = ", ".join(repr(name) for name in (*self.fields(), self.splits.field))
        return f"{described(self.file)}, with the fields {names} (the last one may be missing)"

    def resolved(self: Text) -> Text:
        return replace(self, fingerprint=origins.fingerprint(self.file, self.expected, self.fingerprint))

    @property
    def corpus(self) -> Corpus:
        return loaded(self._resolved)  # not kept here, so that a named corpus does not stay in memory for ever

    def part(self, split: str) -> Part:
        return self.corpus.parts[choose("split", split, PARTS)]

    @property
    def source_vocabulary(self) -> Vocabulary:
        return self.corpus.source.vocabulary

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.corpus.target.vocabulary


@lru_cache(maxsize=REMEMBERED)
def loaded(task: TextTask) -> Corpus:
    """The corpus of these settings; equal settings share it."""
    rows = origins.read(task.file, task.columns, task.expected)
    pairs = [pair for row in rows if (pair := task.pair(row))]
    if not pairs:
        raise Malformed(f"{task.file} has {len(rows)} rows, but the settings leave all of them out")
    published = [pair.row.split(task.splits.field) for pair in pairs]
    chosen = split(published, [plain(pair.source) for pair in pairs], task.splits, task.file)
    sentences = {part: prepared((pairs[i] for i in chosen[part]), task.cut, task.preparation) for part in PARTS}
    for part, kept in sentences.items():
        require(
            bool(kept.sources),
            f"the {part} split of {task.file} is empty: {kept.lost.dropped} sentences were too long or too short",
        )
    source, target = task.coders(sentences["training"])
    parts = {part: numbered(kept, source, target, task.marks) for part, kept in sentences.items()}
    used = len(np.unique(np.concatenate(list(chosen.values()))))
    return Corpus(parts, source, target, left_out=len(rows) - used)


def numbered(kept: Prepared, source: Coder, target: Coder, marks: tuple[Marks, Marks]) -> Part:
    sources = marks[0].around(source.encode(kept.sources))
    targets = marks[1].around(target.encode(kept.targets))
    rationales = marks[0].unmarked(kept.rationales)
    return Part(sources, targets, rationale=rationales, references=kept.references, lost=kept.lost)
