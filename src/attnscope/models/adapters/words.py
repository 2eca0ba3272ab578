"""Which pieces make up a word, and how much does a word attend to a word?

Tokenizers cut words into pieces, and a person reads words. Words are what whitespace separates, or the words given. A
piece belongs to the word that its last character lies in. Special tokens belong to no word: each stands for itself,
under its own name. Following Clark et al. (2019, §4.1), attention to a word is the sum over its pieces, and attention
from a word the mean over its pieces, so that the attention of each word still sums to one.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot
from torch.nn.utils.rnn import pad_sequence

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
