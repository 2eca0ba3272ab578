"""Synthetic tasks that sample fresh sentences: letters (aitken2021 §2), copying (snell2021 §3.3), keyword (§6.1), and
next-token prediction, for decoder-only models, on random and on real text.

In next-token prediction every target token is predicted from one of the last source positions, as `PredictsNextToken`
says: the last target token from the last position. A source begins with START, which may serve as an attention sink. A
target has no END.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from string import ascii_uppercase
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attnscope.errors import check_kinds, choose, require
from attnscope.tasks.batch import END, NOWHERE, PAD, SPECIALS, START, Batch, Vocabulary
from attnscope.tasks.task import FiniteTask, Sentences, SyntheticTask, check_lengths
from attnscope.tasks.text import Classification, Translation


@dataclass(frozen=True)
class OneToOne(SyntheticTask):
    """Each letter becomes its number in the alphabet: B A C A becomes 2 1 3 1."""

    num_words: int = 3
    min_length: int = 15
    max_length: int = 20  # "variable length ranging from 15 to 20"; the author's code stops at 19

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = len(ascii_uppercase)
        require(1 <= self.num_words <= limit, f"num_words must be from 1 to {limit}, not {self.num_words}")
        check_lengths(self.min_length, self.max_length)

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(ascii_uppercase[: self.num_words])

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([str(i + 1) for i in range(self.num_words)])

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        lengths = torch.from_numpy(random.integers(self.min_length, self.max_length + 1, size))
        letters = torch.from_numpy(random.integers(0, self.num_words, (size, int(lengths.max()))))
        order = self.order(letters, lengths)  # size x longest: which source position each target word comes from
        return assemble(letters, order, lengths)

    def order(self, letters: Tensor, lengths: Tensor) -> Tensor:
        return torch.arange(letters.shape[1]).expand_as(letters)


@dataclass(frozen=True)
class ReversedOneToOne(OneToOne):
    """The same, last letter first: B A C A becomes 1 3 1 2."""

    def order(self, letters: Tensor, lengths: Tensor) -> Tensor:
        return (lengths[:, None] - 1 - torch.arange(letters.shape[1])).clamp(min=0)


@dataclass(frozen=True)
class Sorting(OneToOne):
    """The letters in alphabetical order: B C A D becomes A B C D."""

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return self.source_vocabulary

    def order(self, letters: Tensor, lengths: Tensor) -> Tensor:
        beyond = torch.arange(letters.shape[1]) >= lengths[:, None]
        return torch.argsort(letters.masked_fill(beyond, self.num_words), dim=1, stable=True)


def assemble(letters: Tensor, order: Tensor, lengths: Tensor) -> Batch:
    """Return a batch of letters; `order` has the source position of each target token, and END is aligned with END."""
    size, width = letters.shape
    steps = torch.arange(width + 1)
    mask = steps < lengths[:, None] + 1  # the end token counts
    ends = steps == lengths[:, None]

    def append_end(ids: Tensor) -> Tensor:
        row = torch.cat([ids + len(SPECIALS), torch.zeros(size, 1, dtype=ids.dtype)], 1)
        return row.masked_fill(~mask, PAD).masked_fill(ends, END)

    gold = torch.cat([order, torch.zeros(size, 1, dtype=order.dtype)], 1)
    gold = torch.where(ends, lengths[:, None], gold).masked_fill(~mask, NOWHERE)
    return Batch(append_end(letters), mask, append_end(letters.gather(1, order)), mask.clone(), gold)


Distribution = Callable[[np.random.Generator, int, int, int], np.ndarray]  # size, length, words -> size x length


def distinct_words(random: np.random.Generator, size: int, length: int, words: int) -> np.ndarray:
    """Words sampled without replacement."""
    return random.permuted(np.tile(np.arange(words), (size, 1)), axis=1)[:, :length]


def permutations(random: np.random.Generator, size: int, length: int, words: int) -> np.ndarray:
    """The first `length` words of the vocabulary in random order."""
    return distinct_words(random, size, length, length)


def mixture(random: np.random.Generator, size: int, length: int, words: int) -> np.ndarray:
    """A permutation of the first `length` words, or of the next `length`: two disjoint vocabularies."""
    second = random.integers(0, 2, (size, 1))
    return permutations(random, size, length, words) + length * second


def independent_words(random: np.random.Generator, size: int, length: int, words: int) -> np.ndarray:
    """Words sampled with replacement."""
    return random.integers(0, words, (size, length))


DISTRIBUTIONS: dict[str, Distribution] = {
    "permutations": permutations,
    "sampled": distinct_words,
    "mixture": mixture,
    "repeated": independent_words,
}


class NumberedWords(SyntheticTask):
    """A task whose words are numbers, on both sides unless it says otherwise."""

    num_words: int

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary.of([str(i + 1) for i in range(self.num_words)])

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.source_vocabulary


@dataclass(frozen=True)
class Copying(NumberedWords):
    """The target is the source; with a `reordering`, its words in another order, the same for every sentence."""

    distribution: str = "permutations"
    num_words: int = 40  # snell2021 §3.3: 40, 60 for the control; A.3: 80 for the mixture
    length: int = 40
    evaluation_distribution: str | None = None  # None: that of training
    permutation_seed: int | None = None  # of the fixed permutation π of positions (snell2021 §6.2); None: in order

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length >= 1, f"a sentence needs at least one word: length is {self.length}")
        require(
            self.permutation_seed is None or self.permutation_seed >= 0,
            f"permutation_seed must be a seed, not {self.permutation_seed}",
        )
        for distribution in (self.distribution, self._evaluation_distribution):
            self._check(choose("distribution", distribution, DISTRIBUTIONS))

    def _check(self, distribution: str) -> None:
        min_words = {"mixture": 2 * self.length, "repeated": 1}.get(distribution, self.length)
        require(
            self.num_words >= min_words,
            f"sentences of length {self.length} from the distribution {distribution!r} need at least {min_words} "
            f"words; num_words is {self.num_words}",
        )

    @property
    def _evaluation_distribution(self) -> str:
        return self.distribution if self.evaluation_distribution is None else self.evaluation_distribution

    @cached_property
    def order(self) -> np.ndarray:
        """π: the source position that each target word comes from."""
        if self.permutation_seed is None:
            return np.arange(self.length)
        return np.random.default_rng(self.permutation_seed).permutation(self.length)

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        words = DISTRIBUTIONS[self.distribution](random, size, self.length, self.num_words) + len(SPECIALS)
        source = np.pad(words, ((0, 0), (0, 1)), constant_values=END)  # size x (length + 1)
        order = np.append(self.order, self.length)  # END is aligned with END
        mask = torch.ones(source.shape, dtype=torch.bool)
        gold = torch.from_numpy(np.tile(order, (size, 1)))
        return Batch(torch.from_numpy(source), mask, torch.from_numpy(source[:, order]), mask.clone(), gold)

    def batches(self, split: str = "test", size: int = 128) -> Iterator[Batch]:
        return SyntheticTask.batches(replace(self, distribution=self._evaluation_distribution), split, size)


KEYWORD = 0  # the index of the first word, "1"


@dataclass(frozen=True)
class Keyword(NumberedWords):
    """A classification: the target is one word, `absent` or `present`, and has no end token.

    The keyword "1" stands exactly once in a positive sentence, anywhere, and never in a negative one; all other words
    are sampled uniformly. Half of the sentences are positive. Gold attention is on the keyword where there is one.
    """

    num_words: int = 40
    length: int = 40
    end: bool = True  # does an end token follow the words? Without it, the last position is a word, as in the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length >= 1, f"a sentence needs at least one word: length is {self.length}")
        require(self.num_words >= 2, f"num_words must be at least 2, the keyword and another, not {self.num_words}")

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(["absent", "present"])

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        present = balanced(random, size)
        place = random.integers(0, self.length, size)
        # Uniform, given the number of keywords: the paper's distribution, which it samples by rejection.
        words = random.integers(KEYWORD + 1, self.num_words, (size, self.length))
        words[present, place[present]] = KEYWORD
        source = torch.from_numpy(words + len(SPECIALS))
        if self.end:
            source = torch.nn.functional.pad(source, (0, 1), value=END)
        target = torch.from_numpy(present[:, None] + len(SPECIALS))
        gold = torch.from_numpy(np.where(present, place, NOWHERE)[:, None])
        return Batch(source, torch.ones_like(source, dtype=torch.bool), target, torch.ones_like(target) > 0, gold)


def balanced(random: np.random.Generator, size: int) -> np.ndarray:
    """Return true and false equally often, in random order; for an odd size, one of them at random once more."""
    return random.permuted((np.arange(size) + random.integers(2)) % 2 == 1)


# Next-token prediction -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RepeatedSequences(NumberedWords):
    """Sequences of distinct random tokens, repeated periodically: A D B A D B A predicts D, B.

    The period differs between sequences, so that no fixed distance predicts the next token. Targets are the tokens from
    which on every sequence has repeated itself. With a `permutation_seed`, the target is not the next token but its
    image under a fixed permutation of the vocabulary, so that a token has to be translated and cannot be copied.
    """

    num_words: int = 64
    length: int = 48  # of a sequence, without START
    min_period: int = 12
    max_period: int = 24
    permutation_seed: int | None = None
    end: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            1 < self.min_period <= self.max_period < self.length - 1,
            f"periods of {self.min_period} to {self.max_period} tokens must fit into sequences of {self.length}, with "
            "two tokens or more that repeat",
        )
        require(
            self.num_words >= self.max_period,
            f"sequences of period {self.max_period} need as many words; num_words is {self.num_words}",
        )

    @cached_property
    def output_ids(self) -> np.ndarray:
        """By token id, the id that is predicted in its place."""
        words = np.arange(self.num_words)
        if self.permutation_seed is not None:
            words = np.random.default_rng(self.permutation_seed).permutation(self.num_words)
        return np.concatenate([np.arange(len(SPECIALS)), words + len(SPECIALS)])

    def sample(self, random: np.random.Generator, size: int) -> Batch:
        period = random.integers(self.min_period, self.max_period + 1, (size, 1))
        tokens = distinct_words(random, size, self.max_period, self.num_words) + len(SPECIALS)
        place = np.arange(self.length + 1)
        whole = np.take_along_axis(tokens, place % period, 1)  # size x (length + 1)
        source = np.pad(whole[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        first = self.max_period + 1  # from here on, the token after each position has occurred before
        target = self.output_ids[whole[:, first:]]
        gold = place[None, first:] - period + 1  # + 1 for START
        mask = torch.ones(source.shape, dtype=torch.bool)
        return Batch(
            torch.from_numpy(source), mask, torch.from_numpy(target),
            torch.ones(target.shape, dtype=torch.bool), torch.from_numpy(gold),
        )  # fmt: skip


@dataclass(frozen=True)
class NextTokens(FiniteTask):
    """The source texts of a corpus, one after the other, cut into windows of equal length."""

    corpus: Classification | Translation
    length: int = 64
    max_test: int = 200  # windows of the validation and of the test split
    end: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.length > 1, f"a window needs at least two tokens, not {self.length}")
        require(self.max_test > 0, f"max_test must be positive, not {self.max_test}")

    def resolved(self) -> "NextTokens":
        return replace(self, corpus=self.corpus.resolved())

    @property
    def source_vocabulary(self) -> Vocabulary:
        return self.corpus.source_vocabulary

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.corpus.source_vocabulary

    def part(self, split: str) -> Sentences:
        return self.windows[split]

    @cached_property
    def windows(self) -> dict[str, Sentences]:
        """The windows of each split; START separates texts, and begins every window."""
        limits = {"training": None, "validation": self.max_test, "test": self.max_test}
        return {split: self.cut(self.corpus.part(split).source, limit) for split, limit in limits.items()}

    def cut(self, texts: Sequence[np.ndarray], limit: int | None) -> Sentences:
        words = np.concatenate([np.insert(text[(text != START) & (text != END)], 0, START) for text in texts])
        rows = words[: len(words) // self.length * self.length].reshape(-1, self.length)[:limit].astype(np.int64)
        require(len(rows) > 0, f"the texts of {self.corpus.file} have fewer than {self.length} tokens")
        return Sentences([np.insert(row[:-1], 0, START) for row in rows], list(rows))
