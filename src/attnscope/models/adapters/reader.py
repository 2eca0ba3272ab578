"""How do texts become Batches in the pieces of a model's own tokenizer?"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnscope.errors import BadSetting, require
from attnscope.models.adapters.numbering import NONE, Numbering
from attnscope.models.adapters.words import Pieced, Words, by_offsets, by_prefixes
from attnscope.tasks.batch import END, PAD, SPECIALS, Batch, Vocabulary, pad

Text = str | Sequence[str]  # a text, or its words
Label = str | int  # the name of a class, or its number from 0
UNLIMITED = 10**9  # tokenizers that know no longest text name a larger number


@dataclass(frozen=True)
class Texts:
    """Texts as a Batch, and the words that its positions belong to."""

    batch: Batch
    source: Words
    target: Words
    cut: int  # texts that were too long for the model and lost their end


@dataclass(frozen=True)
class Reader(ABC):
    """A tokenizer, with the numbers that its tokens have in a Batch."""

    tokenizer: Any
    source: Numbering
    longest: int  # pieces that the model can read, special tokens included

    def batches(self, sources: Sequence[Text], targets: Sequence[Any] | None = None, size: int = 32) -> Iterator[Texts]:
        require(size > 0, f"a batch needs at least one text, not {size}")
        check_pairs(sources, targets)
        for start in range(0, len(sources), size):
            rows = slice(start, start + size)
            yield self.read(sources[rows], None if targets is None else targets[rows])

    def read(self, sources: Sequence[Text], targets: Sequence[Any] | None = None) -> Texts:
        """One batch. Without targets, the target is a placeholder, for the model's own words to be put there."""
        check_pairs(sources, targets)
        ids, source, cut = self.encoded(sources)
        numbers, mask = numbered(ids, self.source)
        target, target_mask, target_words = self.targets(targets, len(sources))
        batch = Batch(numbers, mask, target, target_mask).to(numbers.device)
        return Texts(batch, Words.of(source), target_words, cut)

    @abstractmethod
    def targets(self, targets: Sequence[Any] | None, count: int) -> tuple[Tensor, Tensor, Words]:
        """Numbers, mask and words of so many targets."""

    def encoded(self, texts: Sequence[Text], target: bool = False) -> tuple[list[list[int]], list[Pieced], int]:
        """Ids, words of pieces, and how many texts were cut."""
        joined, words = zip(*(plain(text) for text in texts), strict=True)
        found = self.tokenized(joined, target)
        cut = sum(len(row) > self.longest for row in found["input_ids"])
        if cut:
            found = self.tokenized(joined, target, truncation=True, max_length=self.longest)
        require(all(found["input_ids"]), "a text without any piece cannot be read; leave empty texts out")
        return found["input_ids"], [self.pieced(joined[i], words[i], found, i) for i in range(len(joined))], cut

    def tokenized(self, texts: Sequence[str], target: bool, **more: Any) -> Any:
        return self.tokenizer(
            **{"text_target" if target else "text": list(texts)}, return_special_tokens_mask=True, verbose=False,
            return_offsets_mapping=bool(self.tokenizer.is_fast), **more,
        )  # fmt: skip

    def pieced(self, text: str, words: tuple[str, ...], found: Any, i: int) -> Pieced:
        """Text i of what the tokenizer found. Only fast tokenizers tell where in the text a piece lies."""
        ids: list[int] = found["input_ids"][i]
        if self.tokenizer.is_fast:
            word_of = by_offsets(text, found["offset_mapping"][i], found["special_tokens_mask"][i])
        else:
            word_of = self.by_decoding(ids, len(words))
        return Pieced(words, tuple(self.tokenizer.convert_ids_to_tokens(ids)), tuple(word_of))

    def by_decoding(self, ids: list[int], words: int | None = None) -> list[int]:
        special = [self.is_special(i) for i in ids]
        found = by_prefixes([self.decoded(ids[: i + 1]) for i in range(len(ids))], special)
        return found if words is None else [min(word, words - 1) for word in found]

    def decoded(self, ids: Sequence[int]) -> str:
        kept = [i for i in ids if not self.is_special(i)]
        return str(self.tokenizer.decode(kept, clean_up_tokenization_spaces=False))

    def is_special(self, token: int) -> bool:
        return token in self.special_ids

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """An unknown word is a word."""
        return frozenset(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return self.named(self.source)

    def named(self, numbering: Numbering) -> Vocabulary:
        """Every number by the name of its token."""
        names = self.tokenizer.convert_ids_to_tokens(list(range(min(numbering.size, len(self.tokenizer)))))
        known = dict(enumerate(names))
        words = [known.get(i) or f"<unused {i}>" for i in numbering.ids.tolist()]
        for number, i in enumerate(numbering.ids[: len(SPECIALS)].tolist()):
            words[number] = SPECIALS[number] if i == NONE else words[number]
        return Vocabulary(tuple(words))


@dataclass(frozen=True)
class TranslationReader(Reader):
    """Both sides are texts."""

    target: Numbering

    def targets(self, targets: Sequence[Text] | None, count: int) -> tuple[Tensor, Tensor, Words]:
        if targets is None:
            end = torch.full((count, 1), END)
            return end, torch.ones_like(end, dtype=torch.bool), self.said(end, torch.ones_like(end, dtype=torch.bool))
        ids, pieced, _ = self.encoded(targets, target=True)
        ends = [len(row) if self.end not in row else row.index(self.end) + 1 for row in ids]
        # What follows the end, such as the language in mBART's first version, is never said.
        cut = [
            Pieced(text.words, text.pieces[:end], text.word_of[:end]) for text, end in zip(pieced, ends, strict=True)
        ]
        numbers, mask = numbered([row[:end] for row, end in zip(ids, ends, strict=True)], self.target)
        return numbers, mask, Words.of(cut)

    @property
    def end(self) -> int:
        return int(self.target.ids[END])

    def said(self, numbers: Int[Tensor, "batch target"], mask: Bool[Tensor, "batch target"]) -> Words:
        """The words of a target that was generated."""
        rows = [row[kept].tolist() for row, kept in zip(self.target.ids[numbers].cpu(), mask.cpu(), strict=True)]
        return Words.of([self.generated(row) for row in rows])

    def generated(self, ids: list[int]) -> Pieced:
        text = self.decoded(ids)
        pieces = tuple(self.tokenizer.convert_ids_to_tokens(ids))
        return Pieced(tuple(text.split()) or ("",), pieces, tuple(self.by_decoding(ids, max(1, len(text.split())))))

    def text(self, numbers: Int[Tensor, " target"]) -> str:
        """What these numbers say."""
        return self.decoded(self.target.ids[numbers].tolist())

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return self.named(self.target)


@dataclass(frozen=True)
class ClassReader(Reader):
    """The target is one word: the class."""

    classes: tuple[str, ...]

    def targets(self, targets: Sequence[Label] | None, count: int) -> tuple[Tensor, Tensor, Words]:
        chosen = [0] * count if targets is None else [class_number(label, self.classes) for label in targets]
        numbers = torch.tensor(chosen)[:, None] + len(SPECIALS)
        names = [(self.classes[i],) for i in chosen]
        return numbers, torch.ones_like(numbers, dtype=torch.bool), Words.of([Pieced(n, n, (0,)) for n in names])

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(self.classes)


def class_number(label: Label, classes: Sequence[str]) -> int:
    """The number of a class, by its name or, as in many corpora, by its number.

    >>> class_number("yes", ("no", "yes")), class_number("1", ("no", "yes"))
    (1, 1)
    """
    if label in classes:
        return classes.index(str(label))
    if str(label).isdigit() and int(label) < len(classes):
        return int(label)
    raise BadSetting(f"there is no class {label!r}; this model knows {', '.join(classes)}")


def numbered(ids: Sequence[Sequence[int]], numbering: Numbering) -> tuple[Tensor, Tensor]:
    """Ids as padded numbers, and the mask of what is no padding, where the model is."""
    padded, mask = pad([np.array(row) for row in ids])
    numbers = numbering.numbers_of(padded)
    mask = mask.to(numbers.device)
    return numbers.masked_fill(~mask, PAD), mask


def plain(text: Text) -> tuple[str, tuple[str, ...]]:
    """A text and its words."""
    if isinstance(text, str):
        return text, tuple(text.split())
    wrong = [word for word in text if len(word.split()) != 1]
    require(not wrong, f"a text given as words has {wrong[0]!r} among them, which is not one word" if wrong else "")
    return " ".join(text), tuple(text)


def check_pairs(sources: Sequence[Any], targets: Sequence[Any] | None) -> None:
    require(len(sources) > 0, "there is no text to read")
    count = len(sources) if targets is None else len(targets)
    require(count == len(sources), f"there are {len(sources)} texts, but {count} targets")
