"""How do a tokenizer's ids become our numbers of words, and back?

In a Batch, 0 is padding, 1 the end and 2 the start of a sentence, and every probe counts on it. A tokenizer has its own
places for these. So they trade places: the numbers of all tokens are their ids, but for padding, end and start and the
tokens that lay at 0, 1 and 2. Where a tokenizer has no such token (T5 and Marian start no sentence), that number stands
for nothing: it never occurs, its logit is -inf, and the token that lay there has the first number after the last id.
"""

import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.functional import pad as extend
from torch.nn.utils.rnn import pad_sequence

from attnscope.errors import BadSetting, require
from attnscope.tasks.batch import END, PAD, SPECIALS, Batch, Vocabulary, pad

NONE = -1  # in a table of ids: no token has this number


class Numbering(nn.Module):
    """Both tables, as buffers, so that they lie where the model does.

    >>> bert = Numbering(6, padding=0, end=4, start=3)
    >>> bert.ids_of(torch.arange(6))
    tensor([0, 4, 3, 2, 1, 5])
    """

    ids: Tensor
    numbers: Tensor

    def __init__(self, size: int, padding: int | None, end: int | None, start: int | None):
        super().__init__()
        ids = table(size, (padding, end, start))
        self.size = size  # ids that the model knows
        self.register_buffer("ids", ids, persistent=False)
        self.register_buffer("numbers", inverse(ids, size), persistent=False)
        moved = (ids[:size] != torch.arange(size)).nonzero().flatten()
        self.register_buffer("moved", torch.cat([moved, torch.arange(size, len(ids))]), persistent=False)
        self.moved: Tensor

    def __len__(self) -> int:
        """How many numbers there are."""
        return len(self.ids)

    def ids_of(self, numbers: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """The model's ids; those of numbers without a token do not matter, since they never occur."""
        return self.ids[numbers].clamp(min=0)

    def numbers_of(self, ids: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        return self.numbers[ids.to(self.numbers.device)]

    def renumbered(self, logits: Float[Tensor, "*any ids"]) -> Float[Tensor, "*any words"]:
        """Logits by number. All but a few stay where they are."""
        wanted = self.ids[self.moved]
        columns = logits[..., wanted.clamp(min=0)].masked_fill(wanted == NONE, -math.inf)
        return extend(logits, (0, len(self) - self.size)).index_copy_(-1, self.moved, columns)  # pad has made a copy


def table(size: int, specials: tuple[int | None, ...]) -> Int[Tensor, " numbers"]:
    """The id of each number."""
    ids, placed = list(range(size)), set[int]()
    for number, special in zip(range(len(SPECIALS)), specials, strict=True):
        if special is None or special in placed:  # one token that is two things is the first of them
            ids.append(ids[number])
            ids[number] = NONE
        else:
            other = ids.index(special)
            ids[number], ids[other] = ids[other], ids[number]
            placed.add(special)
    return torch.tensor(ids)


def inverse(ids: Int[Tensor, " numbers"], size: int) -> Int[Tensor, " ids"]:
    taken = (ids != NONE).nonzero().flatten()
    return torch.empty(size, dtype=torch.long).index_copy(0, ids[taken], taken)


NO_WORD = -1


@dataclass(frozen=True)
class Pieced:
    """One text: its words, and the word of each piece, from 0, or NO_WORD for special tokens."""

    words: tuple[str, ...]
    pieces: tuple[str, ...]
    word_of: tuple[int, ...]

    def units(self) -> "tuple[list[int], list[int]]":
        """The unit of each piece, and of each unit its word, or NO_WORD: units are words and special tokens, in order.

        >>> Pieced(("an", "isle"), ("[CLS]", "an", "is", "##le", "[SEP]"), (-1, 0, 1, 1, -1)).units()
        ([0, 1, 2, 2, 3], [-1, 0, 1, -1])
        """
        numbers, words, known = list[int](), list[int](), dict[int, int]()
        for word in self.word_of:
            if word == NO_WORD or word not in known:
                known[word] = len(words)
                words.append(word)
            numbers.append(known[word])
        return numbers, words


@dataclass(frozen=True)
class Words:
    """The words and special tokens of a batch of texts."""

    names: tuple[tuple[str, ...], ...]  # of each text: words, and special tokens by their own name
    pieces: tuple[tuple[str, ...], ...]  # of each text: the name of the piece at each position
    places: Int[Tensor, "batch units"]  # which word of the text, from 0; NO_WORD for special tokens and padding
    unit: Int[Tensor, "batch positions"]  # which of the names a position belongs to; NO_WORD on padding
    mask: Bool[Tensor, "batch units"]  # what is no padding

    @classmethod
    def of(cls, texts: Sequence[Pieced]) -> "Words":
        units, places = zip(*(text.units() for text in texts), strict=True)
        names = tuple(
            tuple(
                text.pieces[numbers.index(i)] if word == NO_WORD else text.words[word] for i, word in enumerate(words)
            )
            for text, numbers, words in zip(texts, units, places, strict=True)
        )
        counts = torch.tensor([len(words) for words in places])
        mask = torch.arange(int(counts.max())) < counts[:, None]
        return cls(names, tuple(text.pieces for text in texts), padded(places), padded(units), mask)

    @property
    def real(self) -> Bool[Tensor, "batch units"]:
        """Words of the text, and no special tokens."""
        return self.places != NO_WORD


def padded(rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch longest"]:
    return pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], True, NO_WORD)


def by_word(
    values: Float[Tensor, "batch *heads target source"], source: Words, target: Words | None = None
) -> Float[Tensor, "batch *heads target_units source_units"]:
    """Attention, or another score, of words: summed over a source word's pieces, averaged over a target word's pieces.

    Padding is NaN. Without `target`, as for a classifier, rows stay as they are.
    """
    to_words = belonging(source, values)  # batch x source x units
    summed = torch.einsum("b...ts,bsu->b...tu", values.nan_to_num(), to_words)
    mask = source.mask.to(values.device)[:, None]  # batch x 1 x units
    if target is not None:
        from_words = belonging(target, values)  # batch x target x units
        share = from_words / from_words.sum(1, keepdim=True).clamp(min=1)
        summed = torch.einsum("b...ts,btu->b...us", summed, share)
        mask = mask & target.mask.to(values.device)[:, :, None]
    between = mask.view(len(mask), *(1,) * (values.dim() - 3), *mask.shape[1:])
    return summed.masked_fill(~between, torch.nan)


def belonging(words: Words, values: Tensor) -> Float[Tensor, "batch positions units"]:
    """1 where a position belongs to a unit."""
    unit = words.unit.to(values.device)
    return one_hot(unit + 1, words.mask.shape[1] + 1)[..., 1:].to(values.dtype)


def spans(text: str) -> list[tuple[int, int]]:
    """Where each word of a text begins and ends."""
    return [found.span() for found in re.finditer(r"\S+", text)]


def by_offsets(text: str, offsets: Sequence[tuple[int, int]], special: Sequence[int]) -> list[int]:
    """The word of each piece, from the characters of the text that it covers.

    >>> by_offsets("an isle", [(0, 0), (0, 2), (2, 3), (3, 5), (5, 7), (0, 0)], special=[1, 0, 0, 0, 0, 1])
    [-1, 0, 1, 1, 1, -1]
    """
    begins = [begin for begin, _ in spans(text)]
    # A piece that is only a space, or a mark of one, goes with the word that it begins.
    lies = [end - 1 if text[begin:end].strip() else end for begin, end in offsets]
    return [
        NO_WORD if is_special or not begins else max(0, bisect_right(begins, place) - 1)
        for place, is_special in zip(lies, special, strict=True)
    ]


def by_prefixes(prefixes: Sequence[str], special: Sequence[bool]) -> list[int]:
    """The word of each piece, from the text that all pieces up to it make: for what was generated, or slow tokenizers.

    >>> by_prefixes(["an", "an ", "an is", "an isle", "an isle"], special=[False, False, False, False, True])
    [0, 1, 1, 1, -1]
    """
    words = [max(len(prefix.split()) - 1, 0) for prefix in prefixes]
    for i in reversed(range(len(words) - 1)):
        before = prefixes[i - 1] if i else ""
        if prefixes[i].rstrip() == before.rstrip() and not special[i + 1]:  # a space goes with the word that it begins
            words[i] = words[i + 1]
    return [NO_WORD if is_special else word for word, is_special in zip(words, special, strict=True)]


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


Numbered = tuple[list[int], tuple[str, ...]]  # the numbers of words, and the words


@dataclass(frozen=True)
class WordReader:
    """Word i of `words` has the number i + 3, as the contract of adapters has it; words not among them are `unknown`.

    With `classes`, targets are classes; with `targets`, they are texts of those words.

    >>> reader = WordReader(("a", "dog", "<unk>"), classes=("no", "yes"))
    >>> reader.read(["a cat"], ["yes"]).batch.source
    tensor([[3, 5]])
    """

    words: tuple[str, ...]
    classes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    unknown: str = "<unk>"
    end: bool = False  # whether the end token follows a source text; it follows every target text

    def __post_init__(self) -> None:
        require(bool(self.classes) != bool(self.targets), "a reader of words needs either classes or target words")

    def read(self, sources: Sequence[Text], targets: Sequence[Any] | None = None) -> Texts:
        """Targets are classes, by name or number, or texts; without them, the first class or empty texts."""
        check_pairs(sources, targets)
        source, mask, names = together([self.numbered(text, self.known, self.end) for text in sources])
        given = targets or [0 if self.classes else ""] * len(sources)
        target, target_mask, target_names = together([self.said(one) for one in given])
        return Texts(Batch(source, mask, target, target_mask), names, target_names, cut=0)

    def said(self, target: Any) -> Numbered:
        if not self.classes:
            return self.numbered(target, self.known_targets, True)
        number = class_number(target, self.classes)
        return [number + len(SPECIALS)], (self.classes[number],)

    def numbered(self, text: Text, known: dict[str, int], end: bool) -> Numbered:
        words = plain(text)[1]
        lost = [word for word in words if word not in known]
        if lost and self.unknown not in known:
            raise BadSetting(f"the model has no word {lost[0]!r}, and no {self.unknown!r} that could stand for it")
        numbers = [known.get(word, known.get(self.unknown, PAD)) for word in words]
        return ([*numbers, END], (*words, SPECIALS[END])) if end else (numbers, words)

    @cached_property
    def known(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, len(SPECIALS))}

    @cached_property
    def known_targets(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.targets, len(SPECIALS))}


def together(rows: Sequence[Numbered]) -> tuple[Tensor, Tensor, Words]:
    """Padded numbers, their mask, and their words."""
    require(all(numbers for numbers, _ in rows), "a text without any word cannot be read; leave empty texts out")
    padded, mask = pad([np.array(numbers) for numbers, _ in rows])
    places = [tuple(NO_WORD if i < len(SPECIALS) else p for p, i in enumerate(numbers)) for numbers, _ in rows]
    words = Words.of([Pieced(names, names, place) for (_, names), place in zip(rows, places, strict=True)])
    return padded, mask, words
