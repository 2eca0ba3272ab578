"""Text tasks: classification and translation. Settings name the file; nothing is read before it is needed."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from sys import intern
from typing import TypeVar

import numpy as np

from attnscope.errors import check_kinds, choose, require
from attnscope.files import Malformed
from attnscope.tasks.batch import END, SPECIALS, START, Vocabulary
from attnscope.tasks.task import FiniteTask
from attnscope.tasks.text.preparation import (
    PARTS,
    Corpus,
    Pair,
    Part,
    Preparation,
    SpecialTokens,
    SplitBuilder,
    Splits,
    TokenizedSplit,
    as_text,
    source_digest,
    split_rows,
)
from attnscope.tasks.text.rows import Row, corpus_fingerprint, format_name, stream_corpus
from attnscope.tasks.text.vocabularies import Coder, Subwords, TokenLists, WordPieces, Words

CACHED_CORPORA = 8  # corpora in memory
Text = TypeVar("Text", bound="TextTask")


@dataclass(frozen=True)
class TextTask(FiniteTask):
    """A corpus of pairs. `file` is an absolute path, one relative to ATTNSCOPE_DATA, or hf:name."""

    file: str
    columns: tuple[str, ...] = ()  # the column names of a CSV or TSV file without a header line
    splits: Splits = field(default_factory=Splits)
    preparation: Preparation = field(default_factory=Preparation)
    vocabulary: Words | Subwords | WordPieces = field(default_factory=Words)
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
        """Return source and target of a row, or None if the settings exclude it."""

    @abstractmethod
    def cut(self, pair: Pair) -> tuple[list[str], list[str]]:
        """Return the words of source and target."""

    @abstractmethod
    def coders(self, training: TokenizedSplit) -> tuple[Coder, Coder]:
        """Return the encoders of source and target words, built from the training split."""

    @property
    @abstractmethod
    def marks(self) -> tuple[SpecialTokens, SpecialTokens]:
        """The special tokens around source and target."""

    @property
    def expected(self) -> str:
        names = ", ".join(repr(name) for name in (*self.fields(), self.splits.field))
        return f"{format_name(self.file)}, with the fields {names} (the last one may be missing)"

    def resolved(self: Text) -> Text:
        words = self.vocabulary.resolved() if isinstance(self.vocabulary, WordPieces) else self.vocabulary
        own = corpus_fingerprint(self.file, self.expected, self.fingerprint)
        return replace(self, vocabulary=words, fingerprint=own)

    @property
    def corpus(self) -> Corpus:
        return load_corpus(self._resolved)  # no attribute, so that a named corpus does not stay in memory

    def part(self, split: str) -> Part:
        return self.corpus.parts[choose("split", split, PARTS)]

    @property
    def source_vocabulary(self) -> Vocabulary:
        return self.corpus.source.vocabulary

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.corpus.target.vocabulary


@lru_cache(maxsize=CACHED_CORPORA)
def load_corpus(task: TextTask) -> Corpus:
    """Return the corpus of these settings; equal settings share it.

    The file is read twice, row by row: first for the splits, then for the sentences of each part. Rows outside all
    parts are not held in memory.
    """
    count, published, sources = survey(task)
    if not published:
        raise Malformed(f"{task.file} has {count} rows, but the settings leave all of them out")
    rows = split_rows(published, sources, task.splits, task.file)
    membership = np.zeros((len(PARTS), len(published)), dtype=bool)  # parts x rows
    for number, part in enumerate(PARTS):
        membership[number, rows[part]] = True
    builders = [SplitBuilder(task.cut, task.preparation) for _ in PARTS]
    for pair, in_parts in zip(stream_pairs(task), membership.T, strict=True):
        for builder, in_part in zip(builders, in_parts, strict=True):
            if in_part:
                builder.add(pair)
    splits = {part: builder.split for part, builder in zip(PARTS, builders, strict=True)}
    for part, split in splits.items():
        require(
            bool(split.sources),
            f"the {part} split of {task.file} is empty: {split.lost.dropped} sentences were too long or too short",
        )
    source, target = task.coders(splits["training"])
    encoded = {part: encode_split(split, source, target, task.marks) for part, split in splits.items()}
    return Corpus(encoded, source, target, left_out=count - int(membership.any(0).sum()))


def stream_pairs(task: TextTask) -> Iterator[Pair]:
    rows = stream_corpus(task.file, task.columns, task.expected)
    return (pair for row in rows if (pair := task.pair(row)))


def survey(task: TextTask) -> tuple[int, list[str], list[str]]:
    """Return the number of rows, and the published split and source digest of each row that is not excluded.

    The digest keeps equal sources in one split; it is empty where no split is sampled from.
    """
    splits, count = task.splits, 0
    sampled = set() if splits.validation and splits.test else set(splits.training)
    published, sources = list[str](), list[str]()
    for row in stream_corpus(task.file, task.columns, task.expected):
        count += 1
        if pair := task.pair(row):
            published.append(intern(row.split(splits.field)))
            sources.append(source_digest(as_text(pair.source)) if published[-1] in sampled else "")
    return count, published, sources


def encode_split(
    split: TokenizedSplit, source: Coder, target: Coder, marks: tuple[SpecialTokens, SpecialTokens]
) -> Part:
    sources = marks[0].around(source.encode(split.sources))
    targets = marks[1].around(target.encode(split.targets))
    rationales = marks[0].pad_rationales(split.rationales)
    return Part(sources, targets, rationale=rationales, references=split.references, lost=split.lost)


SPECIAL_TOKENS = {
    "none": SpecialTokens(),
    "end": SpecialTokens(after=(END,)),
    "both": SpecialTokens(before=(START,), after=(END,)),
}


@dataclass(frozen=True)
class Classification(TextTask):
    """Texts of two or more classes.

    The target has length 1: the class, as a word of the target vocabulary. No end token follows it.
    """

    text: tuple[str, ...] = ("text",)  # fields of the source, concatenated; each is a string or a list of words
    label: str = "label"
    labels: tuple[str, ...] = ()  # the classes, in this order; if empty, all those of the training split
    exclude_labels: tuple[str, ...] = ()  # classes whose rows are excluded; 'null' for rows without a class
    special: str = "end"  # the special tokens of the source: none, end, or both start and end
    rationale: str | None = None  # a field of human annotations: one number per word, or one list per annotator

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("set of special words", self.special, SPECIAL_TOKENS)
        require(bool(self.text), "a classification needs at least one field of text")
        require(len(set(self.labels)) == len(self.labels), f"a class is named twice in {', '.join(self.labels)}")
        require(len(self.labels) != 1, f"a classification needs at least two classes, not only {self.labels}")
        both = set(self.labels) & set(self.exclude_labels)
        require(not both, f"{', '.join(sorted(both))} cannot be a class and left out as well")
        if self.rationale is not None:
            self._check_alignment()

    def _check_alignment(self) -> None:
        """A rationale annotates the words as published, so each of them must stay one word."""
        require(len(self.text) == 1, f"a rationale marks one field of text, not {', '.join(self.text)} together")
        require(
            isinstance(self.vocabulary, Words),
            f"rationale={self.rationale!r} marks whole words; with Subwords its marks would lose their places",
        )
        require(
            self.preparation.keeps_published_words,
            f"rationale={self.rationale!r} marks the words as published, which the preparation would change: use the "
            "tokeniser whitespace, spaces or trimmed, and strip or split nothing",
        )

    def fields(self) -> tuple[str, ...]:
        return (*self.text, self.label, *((self.rationale,) if self.rationale is not None else ()))

    @property
    def marks(self) -> tuple[SpecialTokens, SpecialTokens]:
        return SPECIAL_TOKENS[self.special], SpecialTokens()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; the token id of the first one is len(SPECIALS)."""
        return self.target_vocabulary.tokens[len(SPECIALS) :]

    def pair(self, row: Row) -> Pair | None:
        label = row.label(self.label)
        if label in self.exclude_labels:
            return None
        if self.labels and label not in self.labels:
            raise row.wrong(f"there is no class {label!r}; the classes are {', '.join(self.labels)}")
        rationale = None if self.rationale is None else row.rationale(self.rationale)
        return Pair(join_fields([row.text(name) for name in self.text], row), [label], row, rationale)

    def cut(self, pair: Pair) -> tuple[list[str], list[str]]:
        words = self.preparation.words(pair.source)
        if pair.rationale is not None and len(pair.rationale) != len(words):
            marks = len(pair.rationale)
            raise pair.row.wrong(f"{self.rationale!r} has marks for {marks} words, but the text has {len(words)}")
        return words, list(pair.target)

    def coders(self, training: TokenizedSplit) -> tuple[Coder, Coder]:
        labels = {label for (label,) in training.targets}
        missing = [label for label in self.labels if label not in labels]
        if missing:
            raise Malformed(f"no training sentence of {self.file} is of the class {', '.join(missing)}")
        if len(labels) < 2:
            raise Malformed(f"all training sentences of {self.file} are of one class, {', '.join(labels)}")
        names = self.labels or tuple(sorted(labels, key=lambda label: (len(label) if label.isdigit() else 0, label)))
        return self.vocabulary.coder(training.sources), LabelCoder(Vocabulary.of(names), self.file)


@dataclass(frozen=True)
class LabelCoder(Coder):
    """One token id per class."""

    file: str

    def encode(self, sentences: TokenLists) -> list[np.ndarray]:
        ids = self.vocabulary.ids
        unknown = {label for (label,) in sentences} - set(ids)
        if unknown:
            training = ", ".join(self.vocabulary.tokens[len(SPECIALS) :])
            raise Malformed(
                f"{self.file} is evaluated on classes that are not in the training split: {', '.join(unknown)}; "
                f"the training split has {training}"
            )
        return [np.array([ids[label]], dtype=np.int32) for (label,) in sentences]

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(self.vocabulary.decode(ids))


def join_fields(texts: Sequence[str | list[str]], row: Row) -> str | list[str]:
    """Return several fields as one text."""
    raw = [text for text in texts if isinstance(text, str)]
    if not raw:
        return [word for text in texts for word in text]
    if len(raw) < len(texts):
        raise row.wrong("the fields of text must be all strings, or all lists of words")
    return " ".join(raw)


WITH_END = SpecialTokens(after=(END,))


@dataclass(frozen=True)
class Translation(TextTask):
    """Pairs of sentences, each followed by END."""

    source: str = "source"
    target: str = "target"
    skip_numeric: bool = False  # leave out pairs without a letter in the source (snell2021 A.5, News Commentary)

    def fields(self) -> tuple[str, ...]:
        return self.source, self.target

    @property
    def marks(self) -> tuple[SpecialTokens, SpecialTokens]:
        return WITH_END, WITH_END

    def pair(self, row: Row) -> Pair | None:
        source, target = row.text(self.source), row.text(self.target)
        if self.skip_numeric and not any(map(str.isalpha, as_text(source))):
            return None
        return Pair(source, target, row)

    def cut(self, pair: Pair) -> tuple[list[str], list[str]]:
        return self.preparation.words(pair.source), self.preparation.words(pair.target)

    def coders(self, training: TokenizedSplit) -> tuple[Coder, Coder]:
        if self.vocabulary.shared:
            both = self.vocabulary.coder([*training.sources, *training.targets])
            return both, both
        return self.vocabulary.coder(training.sources), self.vocabulary.coder(training.targets)

    def references(self, split: str = "test") -> list[str]:
        """Return the target sentences as published, in the order of `batches`."""
        part = self.part(split)
        return [part.references[i] for i in part.order]

    def sentence(self, ids: list[int]) -> str:
        """Return target token ids as text, up to END and without special tokens, as for BLEU."""
        stop = ids.index(END) if END in ids else len(ids)
        return self.corpus.target.text(ids[:stop])
