"""Tokenisation of raw text, and training, validation and test splits of published rows (snell2021 A.8)."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from sys import intern

import numpy as np

from attnscope.errors import BadSetting, check_kinds, check_seed, choose, require
from attnscope.tasks.task import Sentences, by_length
from attnscope.tasks.text.rows import SPLIT, UNSPLIT, Row
from attnscope.tasks.text.vocabularies import UNKNOWN_WORD, Coder

NOT = re.compile(r"(n't|N'T)\b")
WORD = re.compile(r"(?:n't|N'T)\b|(?<=\w)'(?:s|re|ve|ll|d|m|S|RE|VE|LL|D|M)\b|\w+|[^\w\s]")
EDGES = re.compile(r"^[^\w]+|[^\w]+$")
TAG = re.compile(r"<[/!]?[a-zA-Z][^<>]*>")
LONG_INTEGER = re.compile(r"\d\d+")
QUOTED = re.compile(r"^\s*[>|:]|^In article|\b(?:writes|wrote|says|said)\s*:\s*$")


def by_words(text: str) -> list[str]:
    """Return runs of letters, digits and '_', and every other character that is not white space, as words.

    English endings with an apostrophe are separate words, as in most word vectors.

    >>> by_words("It's odd: he didn't pay $3.50!")
    ['It', "'s", 'odd', ':', 'he', 'did', "n't", 'pay', '$', '3', '.', '50', '!']
    """
    if "'" in text:
        text = NOT.sub(r" \1", text)
    return WORD.findall(text)


def by_spaces(text: str) -> list[str]:
    """Split at spaces only: for text that its publisher tokenised, whose tokens may contain other white space."""
    return [word for word in text.split(" ") if word]


def by_white_space(text: str) -> list[str]:
    """Split at white space of any kind: for published tokens on several lines."""
    return text.split()


def trimmed_words(text: str) -> list[str]:
    """Split at white space and strip punctuation from the edges of words; a word of punctuation alone stays.

    For rationales on the words of raw text: each word stays one word, but 'great!' is 'great'.

    >>> trimmed_words("It's great! - (we'll be back...)")
    ["It's", 'great', '-', "we'll", 'be', 'back']
    """
    return [EDGES.sub("", word) or word for word in text.split()]


TOKENISERS: dict[str, Callable[[str], list[str]]] = {
    "words": by_words,
    "spaces": by_spaces,
    "whitespace": by_white_space,
    "trimmed": trimmed_words,
}
TOO_LONG = ("drop", "truncate")


@dataclass(frozen=True)
class Preparation:
    """From raw text to words. A list of words is not tokenised again, but all other settings apply to it."""

    tokeniser: str = "words"
    lower: bool = True
    strip_headers: bool = False  # what comes before the first empty line: the headers of a message
    strip_quotes: bool = False  # lines quoted from another message, and the line that names its author
    strip_tags: bool = False  # <br /> and other tags
    split_underscores: bool = False
    unknown_integers: bool = False  # integers of more than one digit become the unknown word
    min_length: int = 1  # words in a source; shorter ones are dropped
    max_length: int | None = None  # words in a sentence, on either side; the end token is not counted
    too_long: str = "drop"  # or "truncate": what happens to longer ones, in every split

    def __post_init__(self) -> None:
        check_kinds(self)
        choose("tokeniser", self.tokeniser, TOKENISERS)
        choose("too_long", self.too_long, TOO_LONG)
        require(self.min_length > 0, f"min_length must be positive, not {self.min_length}")
        require(
            self.max_length is None or self.max_length > 0,
            f"max_length must be positive or None, not {self.max_length}",
        )

    def words(self, text: str | Sequence[str]) -> list[str]:
        """Return the words of a text."""
        words = TOKENISERS[self.tokeniser](self._clean(text)) if isinstance(text, str) else self._clean_words(text)
        if self.unknown_integers:
            words = [UNKNOWN_WORD if LONG_INTEGER.fullmatch(word) else word for word in words]
        return list(map(intern, words))  # one copy of each word in memory, however often it occurs

    def _clean(self, text: str) -> str:
        text = without_headers(text) if self.strip_headers else text
        text = without_quotes(text) if self.strip_quotes else text
        text = TAG.sub(" ", text) if self.strip_tags else text
        text = text.replace("_", " ") if self.split_underscores else text
        return text.lower() if self.lower else text

    def _clean_words(self, words: Sequence[str]) -> list[str]:
        if self.split_underscores:
            words = [part for word in words for part in word.split("_") if part]
        return [word.lower() for word in words] if self.lower else list(words)

    @property
    def keeps_published_words(self) -> bool:
        """Whether each published word, between spaces, stays one word, so that rationales keep their positions."""
        cleans = self.strip_headers or self.strip_quotes or self.strip_tags or self.split_underscores
        return self.tokeniser != "words" and not cleans

    def drops(self, source: Sequence[str], target: Sequence[str]) -> bool:
        return len(source) < self.min_length or (self.too_long == "drop" and self.exceeded(source, target))

    def exceeded(self, *sides: Sequence[str]) -> bool:
        return self.max_length is not None and any(len(words) > self.max_length for words in sides)


def without_quotes(message: str) -> str:
    """Return a message without what it quotes.

    >>> without_quotes("In article <1@x> she writes:\\n> Who won?\\nWe did.")
    'We did.'
    """
    return "\n".join(line for line in message.splitlines() if not QUOTED.search(line))


def without_headers(message: str) -> str:
    """Return a message without its headers, which end at the first empty line.

    >>> without_headers("From: someone\\nSubject: hockey\\n\\nWho won?")
    'Who won?'
    """
    _, blank, rest = message.partition("\n\n")
    return rest if blank else message


DIGEST = re.compile("#[0-9a-f]{24}")
PARTS = ("training", "validation", "test")


@dataclass(frozen=True)
class Splits:
    """The names of the published splits; validation or test without a name is sampled from the training split.

    Sampled splits are disjoint: sentences whose sources are equal up to case and spacing stay in one split. One
    published split may serve as two parts, as where a paper validates on a sample of the test set.
    """

    training: tuple[str, ...] = (UNSPLIT,)
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    field: str = SPLIT
    validation_share: float = 0.1  # of the distinct sources of the training split, where validation has no name
    test_share: float = 0.1
    max_validation: int | None = None  # sentences, sampled from the validation split; None: all of them
    max_test: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_kinds(self)
        require(bool(self.training), "splits must name the published split to train on, such as 'train' or 'all'")
        for name in ("validation_share", "test_share"):
            share = getattr(self, name)
            require(0 < share < 1, f"{name} must be between 0 and 1, not {share}")
        require(self.validation_share + self.test_share < 1, "the two shares leave nothing to train on")
        for name in ("max_validation", "max_test"):
            limit = getattr(self, name)
            require(limit is None or limit > 0, f"{name} must be positive or None, not {limit}")
        check_seed("the seed of a split", self.seed)
        shared = set(self.training) & {*self.validation, *self.test}
        require(not shared, f"{', '.join(sorted(shared))} cannot be trained on and measured on as well")


def split_rows(published: Sequence[str], sources: Sequence[str], splits: Splits, file: str) -> dict[str, np.ndarray]:
    """Return the indices of the rows of each part, in the order of the file.

    `published` is the split that each row names, `sources` its source sentence.
    """
    rows = {
        part: rows_of_splits(published, getattr(splits, part), part, file) for part in PARTS if getattr(splits, part)
    }
    rows |= sampled_splits(rows["training"], sources, splits)
    for number, part in enumerate(("validation", "test")):
        limit = getattr(splits, f"max_{part}")
        if limit is not None and len(rows[part]) > limit:
            random = np.random.default_rng((splits.seed, 1 + number))
            rows[part] = np.sort(random.choice(rows[part], limit, replace=False))
    for part in PARTS:
        require(len(rows[part]) > 0, f"the {part} split of {file} is empty: there are too few sentences to sample from")
    return rows


def rows_of_splits(published: Sequence[str], names: tuple[str, ...], part: str, file: str) -> np.ndarray:
    counts = Counter(published)
    for name in names:
        if name not in counts:
            valid = ", ".join(f"{split} ({count} rows)" for split, count in counts.items()) or "none"
            raise BadSetting(
                f"{file} has no split {name!r} for {part}; its splits are {valid}. Name them in Splits, or leave "
                "validation or test empty to have them sampled"
            )
    return np.flatnonzero(np.isin(np.array(published), names))


def sampled_splits(pool: np.ndarray, sources: Sequence[str], splits: Splits) -> dict[str, np.ndarray]:
    """Return the splits without a name, sampled from the training rows, and the remaining training rows."""
    shares = {part: getattr(splits, f"{part}_share") for part in ("validation", "test") if not getattr(splits, part)}
    if not shares:
        return {}
    group = group_duplicates([sources[i] for i in pool])
    order = np.random.default_rng((splits.seed, 0)).permutation(group.max() + 1)
    parts, start = {}, 0
    for part, share in shares.items():
        stop = start + round(share * len(order))
        parts[part] = pool[np.isin(group, order[start:stop])]
        start = stop
    return parts | {"training": pool[np.isin(group, order[start:])]}


def group_duplicates(sources: Sequence[str]) -> np.ndarray:
    """Return the index of each source among the distinct ones.

    >>> group_duplicates(["Hi.", "Run!", "hi. "]).tolist()
    [0, 1, 0]
    """
    indices: dict[str, int] = {}
    return np.array([indices.setdefault(source_digest(source), len(indices)) for source in sources])


def source_digest(source: str) -> str:
    """Return a digest that ignores case and spacing; that of a digest is itself."""
    text = " ".join(source.split()).casefold()
    return text if DIGEST.fullmatch(text) else f"#{blake2b(text.encode(errors='replace'), digest_size=12).hexdigest()}"


# Splits as words, and as token ids -----------------------------------------------------------------------------------


Tokens = list[str]


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and a target as published, and the row that they are from."""

    source: str | list[str]
    target: str | list[str]
    row: Row
    rationale: np.ndarray | None = None  # per source word, the fraction of annotators who marked it


def as_text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else " ".join(text)


@dataclass(frozen=True)
class DropCounts:
    """Counts of the sentences of a split that were empty, dropped as too long or too short, or truncated."""

    empty: int = 0
    dropped: int = 0
    truncated: int = 0


@dataclass(frozen=True)
class TokenizedSplit:
    """The sentences of one split as words."""

    sources: list[Tokens]
    targets: list[Tokens]
    references: list[str]  # the targets as published
    lost: DropCounts
    rationales: list[np.ndarray]  # one per source; empty where the corpus has none


class SplitBuilder:
    """Collects the sentences of one split as words, pair by pair."""

    def __init__(self, cut: Callable[[Pair], tuple[Tokens, Tokens]], preparation: Preparation):
        self.cut, self.preparation = cut, preparation
        self.split = TokenizedSplit([], [], [], DropCounts(), [])

    def add(self, pair: Pair) -> None:
        (source, target), lost, max_length = self.cut(pair), self.split.lost, self.preparation.max_length
        if not source or not target:
            lost = replace(lost, empty=lost.empty + 1)
        elif self.preparation.drops(source, target):
            lost = replace(lost, dropped=lost.dropped + 1)
        else:
            lost = replace(lost, truncated=lost.truncated + self.preparation.exceeded(source, target))
            self.split.sources.append(source[:max_length])
            self.split.targets.append(target[:max_length])
            self.split.references.append(as_text(pair.target))
            if pair.rationale is not None:
                self.split.rationales.append(pair.rationale[:max_length])
        self.split = replace(self.split, lost=lost)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Part(Sentences):
    """The sentences of one split of a corpus, with counts of those dropped."""

    references: list[str]  # the targets as published
    lost: DropCounts

    @cached_property
    def order(self) -> np.ndarray:
        """The shortest first, to keep padding small."""
        return by_length(self.lengths)


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """All splits, and the encoders of source and target words."""

    parts: Mapping[str, Part]
    source: Coder
    target: Coder
    left_out: int  # rows whose label or split the settings exclude


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens before and after each sentence."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, ids: list[np.ndarray]) -> list[np.ndarray]:
        before, after = np.array(self.before, dtype=np.int32), np.array(self.after, dtype=np.int32)
        return [np.concatenate([before, row, after]) for row in ids]

    def pad_rationales(self, rationales: list[np.ndarray]) -> list[np.ndarray]:
        """Return rationales with zeros on the special tokens."""
        return [np.pad(row, (len(self.before), len(self.after))) for row in rationales]
