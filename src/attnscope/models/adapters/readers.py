"""Texts as Batches, for a Hugging Face tokenizer or a plain list of words; tokens and the words that they belong to.

Source token ids are the model's own; `Batch.source_special` marks special tokens such as [CLS]. On the target side
padding, end and start have the ids 0, 1 and 2, as in every Batch: `TargetIds` maps them to the tokenizer's.
"""

import codecs
import math
import re
import warnings
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.functional import pad as extend
from torch.nn.utils.rnn import pad_sequence

from attnscope.errors import BadSetting, InputWarning, require
from attnscope.models.inference import device_of
from attnscope.models.trace import Trace
from attnscope.tasks.batch import END, PAD, SPECIALS, Batch, Vocabulary, pad

Text = str | Sequence[str]  # a text, or its words
Chat = Sequence[Mapping[str, str]]  # messages to a language model, with a role and a content each


@dataclass(frozen=True)
class TextPair:
    """Two texts that a model reads as one input, such as premise and hypothesis; its tokenizer puts them together."""

    text: Text
    pair: Text


Source = Text | TextPair | Chat
Label = str | int  # the name of a class, or its index from 0
Target = Label | Text
Labels = Literal["read", "read if there are any", "not read"]
HFTokenizer: TypeAlias = Any  # a transformers.PreTrainedTokenizerBase, which is imported only where it is used
HFEncoded: TypeAlias = Any  # a transformers.BatchEncoding
Sides = Sequence[tuple[str, tuple[str, ...]]]  # a text and its words, or two of them

INDEX = re.compile(r"[0-9]{1,9}")  # of a class
SURROGATE = re.compile("[\ud800-\udfff]")
BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a token of one byte, as SentencePiece writes it
UNKNOWN_CHARACTER = "\ufffd"  # in decoded text, for bytes that are no whole character
NO_WORD = -1  # the word of a special token, or of padding
NO_TOKEN = -1  # the tokenizer's id where it has no such token


@dataclass(frozen=True)
class TokenizedText:
    """One text: its words, its tokens, and the word of each token, from 0, or NO_WORD for special tokens."""

    words: tuple[str, ...]
    tokens: tuple[str, ...]
    word_of: tuple[int, ...]

    def units(self) -> "tuple[list[int], list[int]]":
        """Return the unit of each token, and the word of each unit: units are words and special tokens, in order.

        >>> TokenizedText(("an", "isle"), ("[CLS]", "an", "is", "##le", "[SEP]"), (-1, 0, 1, 1, -1)).units()
        ([0, 1, 2, 2, 3], [-1, 0, 1, -1])
        """
        units, words, index_of = list[int](), list[int](), dict[int, int]()
        for word in self.word_of:
            if word == NO_WORD or word not in index_of:
                index_of[word] = len(words)
                words.append(word)
            units.append(index_of[word])
        return units, words

    def until(self, end: int | None) -> "TokenizedText":
        """Return the text without the tokens from `end` on."""
        return TokenizedText(self.words, self.tokens[:end], self.word_of[:end])


@dataclass(frozen=True)
class Words:
    """The words and special tokens (units) of a batch of texts, and the tokens that belong to each."""

    names: tuple[tuple[str, ...], ...]  # of each text: words, and special tokens by their own name
    tokens: tuple[tuple[str, ...], ...]  # of each text: the token at each position
    places: Int[Tensor, "batch units"]  # which word of the text, from 0; NO_WORD for special tokens and padding
    unit: Int[Tensor, "batch positions"]  # the unit of each position; NO_WORD on padding
    mask: Bool[Tensor, "batch units"]  # false on padding

    @classmethod
    def of(cls, texts: Sequence[TokenizedText]) -> "Words":
        units, places = zip(*(text.units() for text in texts), strict=True)
        names = tuple(
            tuple(text.tokens[of.index(i)] if word == NO_WORD else text.words[word] for i, word in enumerate(words))
            for text, of, words in zip(texts, units, places, strict=True)
        )
        counts = torch.tensor([len(words) for words in places])
        mask = torch.arange(int(counts.max())) < counts[:, None]
        return cls(names, tuple(text.tokens for text in texts), pad_indices(places), pad_indices(units), mask)

    @property
    def is_word(self) -> Bool[Tensor, "batch units"]:
        """Units that are words of the text, and no special tokens."""
        return self.places != NO_WORD


def pad_indices(rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch longest"]:
    return pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], True, NO_WORD)


def by_word(
    values: Float[Tensor, "batch *heads target source"], source: Words, target: Words | None = None
) -> Float[Tensor, "batch *heads target_units source_units"]:
    """Return attention, or another score, by word: summed over source tokens, averaged over target tokens.

    Args:
        values: One score per target token and source token.
        source: The words of the source.
        target: The words of the target; None, as for a classifier: rows stay as they are.

    Returns:
        One score per target word and source word; NaN on padding.
    """
    to_words = membership(source, values)  # batch x source x units
    summed = torch.einsum("b...ts,bsu->b...tu", values.nan_to_num(), to_words)
    mask = source.mask.to(values.device)[:, None]  # batch x 1 x units
    if target is not None:
        from_words = membership(target, values)  # batch x target x units
        share = from_words / from_words.sum(1, keepdim=True).clamp(min=1)
        summed = torch.einsum("b...ts,btu->b...us", summed, share)
        mask = mask & target.mask.to(values.device)[:, :, None]
    between = mask.view(len(mask), *(1,) * (values.dim() - 3), *mask.shape[1:])
    return summed.masked_fill(~between, torch.nan)


def membership(words: Words, values: Tensor) -> Float[Tensor, "batch positions units"]:
    """Return 1 where a position belongs to a unit, else 0."""
    unit = words.unit.to(values.device)
    return one_hot(unit + 1, words.mask.shape[1] + 1)[..., 1:].to(values.dtype)


def words_by_offset(text: str, offsets: Sequence[tuple[int, int]], special: Sequence[int]) -> list[int]:
    """Return the word of each token, from the characters of the text that it covers.

    >>> words_by_offset("an isle", [(0, 0), (0, 2), (2, 3), (3, 5), (5, 7), (0, 0)], special=[1, 0, 0, 0, 0, 1])
    [-1, 0, 1, 1, 1, -1]
    """
    begins = [word.start() for word in re.finditer(r"\S+", text)]
    # A token that is only a space, or a mark of one, belongs to the word that it begins.
    lies = [end - 1 if text[begin:end].strip() else end for begin, end in offsets]
    return [
        NO_WORD if is_special or not begins else max(0, bisect_right(begins, place) - 1)
        for place, is_special in zip(lies, special, strict=True)
    ]


def words_by_prefix(prefixes: Sequence[str], special: Sequence[bool]) -> list[int]:
    """Return the word of each token, from the decoded text up to it: for generated text, or slow tokenizers.

    >>> words_by_prefix(["an", "an ", "an is", "an isle", "an isle"], special=[False, False, False, False, True])
    [0, 1, 1, 1, -1]
    """
    words = [max(len(prefix.split()) - 1, 0) for prefix in prefixes]
    for i in reversed(range(len(words) - 1)):
        before = prefixes[i - 1] if i else ""
        if prefixes[i].rstrip() == before.rstrip() and not special[i + 1]:  # a space belongs to the word that it begins
            words[i] = words[i + 1]
    return [NO_WORD if is_special else word for word, is_special in zip(words, special, strict=True)]


@dataclass(frozen=True)
class Texts:
    """Texts as a Batch, and the words that its positions belong to."""

    batch: Batch
    source: Words
    target: Words
    cut: int  # how many texts were too long for the model and were truncated

    def label(self, trace: Trace) -> Trace:
        """Return the trace of a pass over the batch with its tokens as strings."""
        return trace.with_tokens(self.source.tokens, self.target.tokens)


def warn_of_truncation(cut: int, count: int, reader: "Reader", name: str = "the given texts") -> None:
    """Warn that `cut` of `count` texts were truncated, if any were; the same warning is shown once."""
    if cut:
        message = f"{cut} of {count} texts ({name}) are longer than the model can read: truncated to {reader.longest}"
        warnings.warn(InputWarning(message), stacklevel=1)


class Reader(ABC):
    """Turns texts into Batches for one model, and target token ids back into texts."""

    classes: tuple[str, ...] = ()  # of a classifier
    labels: Labels = "read"  # whether the labels of data are read
    longest: str = ""  # what longer texts are truncated to, in words, where they are

    @abstractmethod
    def read(self, sources: Sequence[Source], targets: Sequence[Target] | None = None) -> Texts:
        """Return the texts as one batch.

        Args:
            sources: Texts, their words, or pairs of texts.
            targets: Classes, by name or index, or texts; None: a placeholder (the first class, an empty text).
        """

    @property
    @abstractmethod
    def source_vocabulary(self) -> Vocabulary:
        """The source tokens by their ids in a Batch."""

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        """The target tokens by their ids in a Batch; here, classes."""
        return Vocabulary.of(self.classes)

    def target_words(self, token_ids: Int[Tensor, "batch target"], mask: Bool[Tensor, "batch target"]) -> Words:
        """Return the words of targets, such as generated ones; here, the names of classes."""
        names = [(self.classes[i],) for i in (token_ids[:, 0] - len(SPECIALS)).tolist()]
        return Words.of([TokenizedText(name, name, (0,)) for name in names])

    def text(self, token_ids: Int[Tensor, " target"]) -> str:
        """Return a target as text, without special tokens; here, the name of a class."""
        return self.classes[int(token_ids[0]) - len(SPECIALS)]

    def encode_classes(self, labels: Sequence[Target]) -> tuple[Tensor, Tensor, Words]:
        """Return token ids, mask and words of classes."""
        indices = []
        for number, label in enumerate(labels, 1):
            try:
                indices.append(class_index(label, self.classes))
            except BadSetting as error:
                raise BadSetting(f"text {number}: {error}") from error
        ids = torch.tensor(indices)[:, None] + len(SPECIALS)
        mask = torch.ones_like(ids, dtype=torch.bool)
        return ids, mask, Reader.target_words(self, ids, mask)

    def batches(
        self, sources: Sequence[Source], targets: Sequence[Target] | None = None, size: int = 32
    ) -> Iterator[Texts]:
        """Yield the texts in batches.

        Args:
            sources: Texts, their words, or pairs of texts.
            targets: Classes or texts; None: placeholders.
            size: Texts per batch.
        """
        require(size > 0, f"a batch needs at least one text, not {size}")
        check_pairs(sources, targets)
        for start in range(0, len(sources), size):
            rows = slice(start, start + size)
            yield self.read(sources[rows], None if targets is None else targets[rows])


@dataclass(frozen=True)
class Encoding:
    """One text as a tokenizer encodes it."""

    token_ids: list[int]
    special: list[bool]  # which tokens are special
    text: TokenizedText
    ends: tuple[int, ...] = ()  # the characters of the text up to the end of each token; 0 for those that were added

    def until(self, end: int) -> "Encoding":
        """Return the text without the tokens from `end` on."""
        return Encoding(self.token_ids[:end], self.special[:end], self.text.until(end), self.ends[:end])

    def last(self, count: int, kept: int = 0) -> "Encoding":
        """Return `count` tokens of the text: the first `kept` and the last ones."""
        keep = [i for i in range(len(self.token_ids)) if i < kept or i >= len(self.token_ids) - count + kept]
        text = TokenizedText(
            self.text.words, tuple(self.text.tokens[i] for i in keep), tuple(self.text.word_of[i] for i in keep)
        )
        token_ids, special = [self.token_ids[i] for i in keep], [self.special[i] for i in keep]
        return Encoding(token_ids, special, text, tuple(self.ends[i] for i in keep))


@dataclass(frozen=True)
class TokenizerReader(Reader):
    """Reads texts by a Hugging Face tokenizer."""

    tokenizer: HFTokenizer
    model: nn.Module  # batches are put on its device
    vocab_size: int  # source token ids that the model knows
    max_length: int  # tokens that the model can read, special ones included

    def read(self, sources: Sequence[Source], targets: Sequence[Target] | None = None) -> Texts:
        check_pairs(sources, targets)
        encoded, cut = self.encode(sources)
        padding = self.tokenizer.pad_token_id
        source, mask = pad([np.array(row.token_ids) for row in encoded], PAD if padding is None else padding)
        special, _ = pad([np.array(row.special) for row in encoded], True, bool)
        self.check_ids(source, self.vocab_size)
        target, target_mask, target_words = self.encode_targets(targets, len(sources))
        batch = Batch(source, mask, target, target_mask, source_special=special).to(device_of(self.model))
        return Texts(batch, Words.of([row.text for row in encoded]), target_words, cut)

    @abstractmethod
    def encode_targets(self, targets: Sequence[Target] | None, count: int) -> tuple[Tensor, Tensor, Words]:
        """Return token ids, mask and words of `count` targets."""

    def check_ids(self, token_ids: Int[Tensor, "batch positions"], vocab_size: int) -> None:
        """Refuse token ids that the model has no embedding for."""
        largest = int(token_ids.max())
        require(
            largest < vocab_size,
            f"the tokenizer gives {self.tokens([largest])[0]!r} the id {largest}, but the model has {vocab_size} "
            "tokens: it is the tokenizer of another model",
        )

    def encode(self, texts: Sequence[Source], target: bool = False) -> tuple[list[Encoding], int]:
        """Return the texts as token ids, and how many of them were truncated."""
        split = [split_sides(text) for text in texts]
        require(len({len(sides) for sides in split}) == 1, "some texts come in pairs, others do not")
        encoding = self.tokenize(split, target)
        cut = sum(len(row) > self.max_length for row in encoding["input_ids"])
        if cut:
            encoding = self.tokenize(split, target, truncation=True, max_length=self.max_length)
        require(all(encoding["input_ids"]), "a text without any token cannot be read; leave empty texts out")
        return [self.encode_one(sides, encoding, row) for row, sides in enumerate(split)], cut

    def encode_one(self, sides: "Sides", encoding: HFEncoded, row: int) -> Encoding:
        """Return one text or pair, from the tokenizer's ids, special-token mask and offsets."""
        token_ids, added = encoding["input_ids"][row], encoding["special_tokens_mask"][row]
        special = [bool(flag) or i in self.special_ids for i, flag in zip(token_ids, added, strict=True)]
        words = tuple(word for _, some in sides for word in some)
        if not self.tokenizer.is_fast:  # only fast tokenizers return offsets
            word_of = self.words_by_decoding(token_ids, len(words))
            ends = tuple(0 if added[i] else len(self.decode(token_ids[: i + 1])) for i in range(len(added)))
        else:
            word_of, before = [NO_WORD] * len(token_ids), 0
            ends = tuple(end for _, end in encoding["offset_mapping"][row])
            for side, (text, some) in enumerate(sides):
                places = [i for i, of in enumerate(encoding.sequence_ids(row)) if of == side]
                offsets = [encoding["offset_mapping"][row][i] for i in places]
                for i, word in zip(places, words_by_offset(text, offsets, [special[i] for i in places]), strict=True):
                    word_of[i] = word if word == NO_WORD else word + before
                before += len(some)
        return Encoding(token_ids, special, TokenizedText(words, self.tokens(token_ids), tuple(word_of)), ends)

    def tokenize(self, split: Sequence["Sides"], target: bool, **options: object) -> HFEncoded:
        names = ("text_target", "") if target else ("text", "text_pair")
        sides = {name: [text for text, _ in side] for name, side in zip(names, zip(*split, strict=True), strict=False)}
        return self.tokenizer(
            **sides, return_special_tokens_mask=True, verbose=False,
            return_offsets_mapping=bool(self.tokenizer.is_fast), **options,
        )  # fmt: skip

    def retokenise(self, token_ids: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Return texts that are decoded and tokenised again, padded, and their mask."""
        decoded = self.tokenizer.batch_decode(token_ids)
        encoding = self.tokenizer(decoded, truncation=True, max_length=self.max_length)
        return pad([np.array(row, dtype=np.int64) for row in encoding["input_ids"]])

    def tokens(self, token_ids: Sequence[int]) -> tuple[str, ...]:
        """Return the tokens as readable text."""
        tokens = self.tokenizer.convert_ids_to_tokens(token_ids)
        return tuple(
            token if i in self.added_ids else readable(token, self.has_byte_tokens)
            for i, token in zip(token_ids, tokens, strict=True)
        )

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """The ids of tokens that are written as they are."""
        return frozenset(self.tokenizer.added_tokens_decoder)

    @cached_property
    def has_byte_tokens(self) -> bool:
        """Whether tokens are sequences of bytes, as in GPT-2 and Llama 3."""
        return self.tokenizer.is_fast and "ByteLevel" in str(self.tokenizer.backend_tokenizer.decoder)

    @property
    def longest(self) -> str:  # type: ignore[override]
        return f"{self.max_length} tokens"

    def words_by_decoding(self, token_ids: list[int], num_words: int) -> list[int]:
        special = [i in self.special_ids for i in token_ids]
        words = words_by_prefix([self.decode(token_ids[: i + 1]) for i in range(len(token_ids))], special)
        return [min(word, num_words - 1) for word in words]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of the tokenizer's ids, with a space for special tokens between others."""
        runs = [list(run) for special, run in groupby(token_ids, self.special_ids.__contains__) if not special]
        return " ".join(self.tokenizer.decode(run, clean_up_tokenization_spaces=False) for run in runs)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The tokenizer's special ids, such as of the roles in a chat; an unknown word is a word."""
        added = [i for i, token in self.tokenizer.added_tokens_decoder.items() if token.special]
        return frozenset([*added, *self.tokenizer.all_special_ids]) - {self.tokenizer.unk_token_id}

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary(self.names(self.vocab_size))

    def names(self, vocab_size: int) -> tuple[str, ...]:
        """Return the token of each id that the model knows."""
        tokens = self.tokens(range(min(vocab_size, len(self.tokenizer))))
        unused = [f"<unused {i}>" for i in range(vocab_size)]
        return tuple(token or unused[i] for i, token in enumerate((*tokens, *unused[len(tokens) :])))


@dataclass(frozen=True)
class TranslationReader(TokenizerReader):
    """Source and target are texts."""

    target: "TargetIds"

    def encode_targets(self, targets: Sequence[Target] | None, count: int) -> tuple[Tensor, Tensor, Words]:
        if targets is None:
            end = torch.full((count, 1), END)
            mask = torch.ones_like(end, dtype=torch.bool)
            return end, mask, self.target_words(end, mask)
        encoded, _ = self.encode([str(text) if isinstance(text, int) else text for text in targets], target=True)
        last = int(self.target.token_ids[END])
        # What follows the end, such as the language in mBART's first version, is never predicted.
        ends = [row.token_ids.index(last) + 1 if last in row.token_ids else None for row in encoded]
        rows, mask = pad([np.array(row.token_ids[:end]) for row, end in zip(encoded, ends, strict=True)])
        self.check_ids(rows, self.target.vocab_size)
        ids = self.target.from_tokenizer(rows)
        mask = mask.to(ids.device)
        words = Words.of([row.text.until(end) for row, end in zip(encoded, ends, strict=True)])
        return ids.masked_fill(~mask, PAD), mask, words

    def target_words(self, token_ids: Int[Tensor, "batch target"], mask: Bool[Tensor, "batch target"]) -> Words:
        rows = zip(self.target.token_ids[token_ids].cpu(), mask.cpu(), strict=True)
        return Words.of([self.split(row[keep].tolist()) for row, keep in rows])

    def split(self, token_ids: list[int]) -> TokenizedText:
        words = tuple(self.written(token_ids).split()) or ("",)
        return TokenizedText(words, self.tokens(token_ids), tuple(self.words_by_decoding(token_ids, len(words))))

    def text(self, token_ids: Int[Tensor, " target"]) -> str:
        return self.written(self.target.token_ids[token_ids].tolist())

    def written(self, token_ids: list[int]) -> str:
        """Return tokens as text; if they are no whole characters, token by token."""
        text = self.decode(token_ids)
        return "".join(self.tokens(token_ids)) if UNKNOWN_CHARACTER in text else text

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        names, ids = self.names(self.target.vocab_size), self.target.token_ids.tolist()
        return Vocabulary(tuple(SPECIALS[i] if id_ == NO_TOKEN else names[id_] for i, id_ in enumerate(ids)))


class ClassOutputs(nn.Module):
    """What the numbers of a classification head mean: the logits of classes, unless it is of another kind.

    Of a multi-label head, one label is read: whether it is predicted or not. A regression head has one number, read as
    below or above its mean: TVD is then the absolute change in units of 2 · SPAN standard deviations.

    >>> ClassOutputs(label=1)(torch.tensor([0.0, 2.0, 5.0])).softmax(-1)[1] == torch.tensor(2.0).sigmoid()
    tensor(True)
    """

    SPAN = 4.0  # standard deviations on either side of the mean; values beyond are clipped

    def __init__(self, label: int | None = None, regression: bool = False):
        super().__init__()
        self.label, self.regression = label, regression
        self.mean, self.sd = 0.0, 1.0
        self.raw_outputs: list[Tensor] | None = None  # outputs, while they are standardised

    def forward(self, outputs: Float[Tensor, "*any labels"]) -> Float[Tensor, "*any classes"]:
        if self.label is not None:
            return torch.stack([-outputs[..., self.label], outputs[..., self.label]], -1) / 2
        if not self.regression:
            return outputs
        if self.raw_outputs is not None:
            self.raw_outputs.append(outputs.detach().flatten().double().cpu())
        share = 0.5 + (outputs[..., 0].double() - self.mean) / (2 * self.SPAN * self.sd)
        return torch.stack([1 - share, share], -1).clamp(min=1e-6).log().to(outputs)

    def standardise(self, passes: Iterable[object]) -> None:
        """Take mean and standard deviation from the outputs of these passes."""
        self.raw_outputs = []
        for _ in passes:
            pass
        numbers, self.raw_outputs = torch.cat(self.raw_outputs), None
        self.mean, self.sd = float(numbers.mean()), float(numbers.std())
        require(self.sd > 0, "this regression model has the same output for all texts, so that nothing can explain it")


@dataclass(frozen=True)
class ClassReader(TokenizerReader):
    """The target is one token: the class."""

    classes: tuple[str, ...]
    outputs: ClassOutputs = field(default_factory=ClassOutputs)

    @property
    def labels(self) -> Labels:  # type: ignore[override]
        if self.outputs.regression:
            return "not read"
        return "read" if self.outputs.label is None else "read if there are any"

    def class_logits(self, outputs: Float[Tensor, "*any labels"]) -> Float[Tensor, "*any words"]:
        """Return class logits behind those of special tokens, which are never predicted."""
        return extend(self.outputs(outputs), (len(SPECIALS), 0), value=-math.inf)

    def read(self, sources: Sequence[Source], targets: Sequence[Target] | None = None) -> Texts:
        texts = super().read(sources, targets)
        if self.separator is not None and not isinstance(sources[0], TextPair):
            require(
                not self.segments(texts.batch.source)[texts.batch.source_mask].any(),
                f"a text holds the token {self.tokens([self.separator])[0]}, which separates the texts of a pair",
            )
        return texts

    @cached_property
    def separator(self) -> int | None:
        """The token behind which the second text of a pair has segment 1, where tokenizer and model have segments."""
        encoding = self.tokenizer("a", "b")
        segments = encoding.get("token_type_ids", [0])
        num_types: int = getattr(getattr(self.model, "config", None), "type_vocab_size", 0)
        last = encoding["input_ids"][segments.index(1) - 1] if 1 in segments and num_types > 1 else None
        return last if last in self.special_ids else None

    def segments(self, source: Int[Tensor, "batch source"]) -> Int[Tensor, "batch source"]:
        """Return the segment (token type) of each position: 1 behind the first separator, as in BERT."""
        separators = source.eq(-1 if self.separator is None else self.separator).long()
        return (separators.cumsum(1) - separators).clamp(max=1)

    def encode_targets(self, targets: Sequence[Target] | None, count: int) -> tuple[Tensor, Tensor, Words]:
        return self.encode_classes([0] * count if targets is None else targets)


class TargetIds(nn.Module):
    """The tokenizer's ids of target tokens, by their ids in a Batch, and back.

    Padding, end and start change places with the tokens that have the tokenizer's ids 0, 1 and 2; all other ids are the
    tokenizer's. Where a tokenizer has no such token (T5 and Marian have no start), that id stands for nothing: it never
    occurs, its logit is -inf, and the token that the tokenizer has there gets the first id after the last.

    >>> bert = TargetIds(6, padding=0, end=4, start=3)
    >>> bert.to_tokenizer(torch.arange(6))
    tensor([0, 4, 3, 2, 1, 5])
    """

    token_ids: Tensor  # the tokenizer's, by ours
    inverse: Tensor  # ours, by the tokenizer's
    moved: Tensor  # ours that are others than the tokenizer's

    def __init__(self, vocab_size: int, padding: int | None, end: int | None, start: int | None):
        super().__init__()
        self.vocab_size = vocab_size
        token_ids = torch.tensor(swap_ids(vocab_size, (padding, end, start)))
        used = (token_ids != NO_TOKEN).nonzero().flatten()
        inverse = torch.empty(vocab_size, dtype=torch.long).index_copy(0, token_ids[used], used)
        moved = (token_ids[:vocab_size] != torch.arange(vocab_size)).nonzero().flatten()
        self.register_buffer("token_ids", token_ids, persistent=False)
        self.register_buffer("inverse", inverse, persistent=False)
        self.register_buffer("moved", torch.cat([moved, torch.arange(vocab_size, len(token_ids))]), persistent=False)

    def __len__(self) -> int:
        """Return how many ids there are in a Batch."""
        return len(self.token_ids)

    def to_tokenizer(self, ids: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        return self.token_ids[ids].clamp(min=0)  # an id without a token never occurs

    def from_tokenizer(self, token_ids: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        return self.inverse[token_ids.to(self.inverse.device)]

    def reorder(self, logits: Float[Tensor, "*any tokens"]) -> Float[Tensor, "*any words"]:
        """Return the tokenizer's logits in the order of ids in a Batch. All but a few stay where they are."""
        sources = self.token_ids[self.moved]
        columns = logits[..., sources.clamp(min=0)].masked_fill(sources == NO_TOKEN, -math.inf)
        copy = extend(logits, (0, len(self) - self.vocab_size))
        return copy.index_copy_(-1, self.moved, columns)


def swap_ids(vocab_size: int, specials: Sequence[int | None]) -> list[int]:
    """Return the tokenizer's id for each id in a Batch."""
    ids, placed = list(range(vocab_size)), set[int]()
    for i, special in enumerate(specials):
        if special is None or special in placed:  # one token with two roles has the first of them
            ids.append(ids[i])
            ids[i] = NO_TOKEN
        else:
            other = ids.index(special)
            ids[i], ids[other] = ids[other], ids[i]
            placed.add(special)
    return ids


@dataclass(frozen=True)
class WordReader(Reader):
    """Splits texts at white space, for your own model: word i of `words` has the token id i.

    Attributes:
        words: The model's source vocabulary, in the order of its embedding.
        classes: The names of classes, where targets are classes.
        targets: The target vocabulary, where targets are texts; word i has the id i + 3 in a Batch.
        unknown: The word that replaces those that are not in the vocabulary.
        end: The word of `words`, such as "</s>", that is put after every source text as a special token; None: none.

    >>> reader = WordReader(("a", "dog", "<unk>"), classes=("no", "yes"))
    >>> reader.read(["a cat"], ["yes"]).batch.source
    tensor([[0, 2]])
    """

    words: tuple[str, ...]
    classes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    unknown: str = "<unk>"
    end: str | None = None

    def __post_init__(self) -> None:
        require(bool(self.classes) != bool(self.targets), "a reader of words needs either classes or target words")
        for what, names in {"words": self.words, "classes": self.classes, "targets": self.targets}.items():
            empty = [name for name in names if not name.strip()]
            require(not empty and len(set(names)) == len(names), f"{what} of a reader are different and not empty")
        require(self.end is None or self.end in self.words, f"the end {self.end!r} is not among the model's words")

    def read(self, sources: Sequence[Source], targets: Sequence[Target] | None = None) -> Texts:
        check_pairs(sources, targets)
        rows = [self.encode(text, self.source_vocabulary, self.end) for text in sources]
        source, mask = pad([np.array(ids) for ids, _ in rows])
        special, _ = pad([np.array(text.word_of) == NO_WORD for _, text in rows], True, bool)
        target, target_mask, target_words = self.encode_targets(targets or [0 if self.classes else ""] * len(sources))
        batch = Batch(source, mask, target, target_mask, source_special=special)
        return Texts(batch, Words.of([text for _, text in rows]), target_words, cut=0)

    def encode_targets(self, targets: Sequence[Target]) -> tuple[Tensor, Tensor, Words]:
        if self.classes:
            return self.encode_classes(targets)
        texts = [str(text) if isinstance(text, int) else text for text in targets]
        rows = [self.encode(text, self.target_vocabulary, SPECIALS[END]) for text in texts]
        return *pad([np.array(ids) for ids, _ in rows]), Words.of([text for _, text in rows])

    def encode(self, text: Source, vocabulary: Vocabulary, end: str | None) -> tuple[list[int], TokenizedText]:
        words, ids_of = split_words(text)[1], vocabulary.ids
        missing = [word for word in words if word not in ids_of]
        if missing and self.unknown not in ids_of:
            raise BadSetting(f"the model has no word {missing[0]!r}, and no {self.unknown!r} that could stand for it")
        after = () if end is None else (end,)
        require(bool((*words, *after)), "a text without any word cannot be read; leave empty texts out")
        ids = [ids_of[word if word in ids_of else self.unknown] for word in (*words, *after)]
        return ids, TokenizedText(words, (*words, *after), (*range(len(words)), *(NO_WORD for _ in after)))

    def target_words(self, token_ids: Int[Tensor, "batch target"], mask: Bool[Tensor, "batch target"]) -> Words:
        if self.classes:
            return super().target_words(token_ids, mask)
        rows = [row[keep].tolist() for row, keep in zip(token_ids.cpu(), mask.cpu(), strict=True)]
        tokens = [tuple(self.target_vocabulary.decode(row)) for row in rows]
        words_of = [tuple(NO_WORD if i < len(SPECIALS) else place for place, i in enumerate(row)) for row in rows]
        return Words.of([TokenizedText(words, words, of) for words, of in zip(tokens, words_of, strict=True)])

    def text(self, token_ids: Int[Tensor, " target"]) -> str:
        return " ".join(self.target_vocabulary.decode([i for i in token_ids.tolist() if i >= len(SPECIALS)]))

    @cached_property
    def source_vocabulary(self) -> Vocabulary:
        return Vocabulary(self.words)

    @cached_property
    def target_vocabulary(self) -> Vocabulary:
        return Vocabulary.of(self.classes or self.targets)


def readable(token: str | None, of_bytes: bool) -> str:
    """Return a token with its bytes as characters; those that are no whole character in hexadecimal, in brackets.

    White space stays as GPT-2 writes it: Ġ is a space, Ċ the end of a line.

    Args:
        token: As the tokenizer writes it; None for an id that it does not use.
        of_bytes: Whether each character stands for a byte.

    >>> readable("ĠcafÃ©", True), readable("Ġå®", True), readable("<0xE5>", False), readable("▁café", False)
    ('Ġcafé', 'Ġ⟨E5 AE⟩', '⟨E5⟩', '▁café')
    """
    if token is None or not (of_bytes or token.startswith("<0x")):
        return token or ""
    match = BYTE.fullmatch(token)
    if match is None and (not of_bytes or token.isascii() or not BYTES.keys() >= set(token)):
        return token
    data = bytes.fromhex(match[1]) if match else bytes(BYTES[character] for character in token)
    return data.decode(errors=IN_BRACKETS).translate(WHITE_SPACE).replace("⟩⟨", " ")


def bytes_of_characters() -> dict[str, int]:
    """Return the byte that each character of a byte-level token stands for (GPT-2): printable ones for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTES = bytes_of_characters()
WHITE_SPACE = {byte: character for character, byte in BYTES.items() if byte <= ord(" ")}  # and control characters


def in_brackets(error: UnicodeError) -> tuple[str, int]:
    """Write bytes that are no character in hexadecimal, while decoding."""
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"⟨{byte:02X}⟩" for byte in error.object[error.start : error.end]), error.end


IN_BRACKETS = "attnscope.in_brackets"
codecs.register_error(IN_BRACKETS, in_brackets)


def class_index(label: Target, classes: Sequence[str]) -> int:
    """Return the index of a class, given by its name or, as in many corpora, by its index.

    >>> class_index("yes", ("no", "yes")), class_index("1", ("no", "yes"))
    (1, 1)
    """
    name = str(label) if isinstance(label, str | int) and not isinstance(label, bool) else ""
    if name in classes:
        return classes.index(name)
    if INDEX.fullmatch(name) and int(name) < len(classes):
        return int(name)
    raise BadSetting(f"there is no class {label!r:.60}; this model knows {', '.join(classes)}")


def split_sides(text: Source) -> Sides:
    """Return each side of a text or pair: the text and its words."""
    return [split_words(side) for side in ((text.text, text.pair) if isinstance(text, TextPair) else (text,))]


def is_word(text: str) -> bool:
    return len(text.split()) == 1


def split_words(text: Source) -> tuple[str, tuple[str, ...]]:
    """Return a text and its words."""
    if isinstance(text, TextPair):
        raise BadSetting("this model reads single texts, not pairs of texts")
    if not isinstance(text, Sequence) or isinstance(text, bytes):
        raise BadSetting(f"a text is a string or a list of words, not {text!r:.60}")
    words = text.split() if isinstance(text, str) else [word for word in text if isinstance(word, str)]
    wrong = [word for word in ([] if isinstance(text, str) else text) if not isinstance(word, str) or not is_word(word)]
    require(not wrong, f"a text given as words has {wrong[0]!r} among them, which is not one word" if wrong else "")
    whole = text if isinstance(text, str) else " ".join(words)
    require(not SURROGATE.search(whole), f"the text {whole!r:.60} has half of a character (a lone surrogate)")
    return whole, tuple(words)


def check_pairs(sources: Sequence[object], targets: Sequence[object] | None) -> None:
    for values, what in ((sources, "texts"), (targets, "targets")):
        if values is None and what == "targets":
            continue
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            raise BadSetting(f"give a list of {what}, not {values!r:.60}")
    require(len(sources) > 0, "there is no text to read")
    count = len(sources) if targets is None else len(targets)
    require(count == len(sources), f"there are {len(sources)} texts, but {count} targets")
