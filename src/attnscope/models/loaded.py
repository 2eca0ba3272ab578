"""A model together with its reader, its name, its classes and the task that it was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnscope.errors import BadSetting, require
from attnscope.models.adapters.readers import (
    NO_WORD,
    Reader,
    Source,
    Target,
    Text,
    Texts,
    TokenizedText,
    Words,
    check_pairs,
    class_index,
    split_words,
    warn_of_truncation,
)
from attnscope.models.capabilities import TEACHER_FORCING, Decoding, GivesTrace, PredictsNextToken, WrapsModel
from attnscope.models.examples import as_text
from attnscope.models.inference import check_device, device_of, evaluating
from attnscope.models.inputs import with_predictions, words_of
from attnscope.models.trace import Interventions, Trace
from attnscope.tasks.batch import END, SPECIALS, START, Batch, Vocabulary, pad
from attnscope.tasks.task import Task
from attnscope.tasks.text.preparation import Preparation, SpecialTokens
from attnscope.tasks.text.tasks import TextTask
from attnscope.tasks.text.vocabularies import Coder

CLASSIFIER, TRANSLATOR, LANGUAGE_MODEL = "classifier", "translator", "language model"


@dataclass(frozen=True, eq=False, repr=False)
class LoadedModel(WrapsModel):
    """What `attnscope.load` returns; every probe takes it.

    Attributes:
        module: The model itself, which gives Traces.
        reader: Turns texts into Batches.
        name: The name of the folder, run or function that it comes from.
        task: The task that a run was trained on; None for other models.
        fixed_attention: Whether it was trained with imposed attention, such as uniform weights.
    """

    module: nn.Module
    reader: Reader
    name: str
    task: Task | None = None
    fixed_attention: bool = False

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; none for a translator."""
        return self.reader.classes

    @property
    def kind(self) -> str:
        """Either "classifier", "translator" or "language model"."""
        if isinstance(self.module, PredictsNextToken):
            return LANGUAGE_MODEL
        return CLASSIFIER if self.classes else TRANSLATOR

    @property
    def decoding(self) -> Decoding:
        """The default decoding: "teacher_forced" or "greedy"."""
        return self.module.decoding if isinstance(self.module, GivesTrace) else "teacher_forced"

    def trace(
        self,
        texts: Sequence[Source],
        targets: Sequence[Target] | None = None,
        attention: Interventions | None = None,
        decoding: Decoding | None = None,
        rows: Sequence[int] | None = None,
        layers: Sequence[int] | None = None,
        generate: int = 0,
    ) -> Trace:
        """Return the Trace of a forward pass over these texts.

        Of a language model without targets, every token is a query over itself and the tokens before it.

        Args:
            texts: Strings, lists of words, pairs of texts, or chats (lists of messages with role and content).
            targets: Their classes, translations or answers; None: what the model predicts.
            attention: Weights, or a function of them, in place of the model's own.
            decoding: "teacher_forced" or "greedy"; None: the model's own setting.
            rows: Of a language model, the target positions that are recorded, from 0 or -1; None: all.
            layers: Of a language model, the layers that are recorded; None: all.
            generate: Of a language model, how many tokens are generated, then replayed in one pass as the answers.
        """
        if isinstance(self.module, PredictsNextToken):
            return self.module.trace_texts(texts, targets, attention, rows, layers, generate)
        require(not (rows or layers or generate), "rows=, layers= and generate= are for language models")
        inputs = self.read(texts, targets)
        teacher_forcing = None if decoding is None else TEACHER_FORCING[decoding]
        with evaluating(self):
            batch = inputs.batch.to(device_of(self))
            trace: Trace = self.module(batch, attention=attention, teacher_forcing=teacher_forcing)
        warn_of_truncation(inputs.cut, len(texts), self.reader)
        return inputs.label(trace)

    def read(self, texts: Sequence[Source], targets: Sequence[Target] | None = None) -> Texts:
        """Return the texts as a Batch, and the words of its tokens.

        Args:
            texts: Strings, lists of words, pairs of texts, or chats.
            targets: Their classes, translations or answers; None: what the model predicts.
        """
        check_pairs(texts, targets)
        inputs = self.reader.read(texts, targets)
        return with_predictions(self, inputs) if targets is None else inputs

    def predict(self, texts: Sequence[Source]) -> list[str]:
        """Return the predicted class of each text, or its translation.

        Args:
            texts: Strings, lists of words, pairs of texts, or chats.
        """
        batch = self.read(texts).batch
        return [self.reader.text(row[mask]) for row, mask in zip(batch.target, batch.target_mask, strict=True)]

    def to(self, device: str | torch.device) -> "LoadedModel":
        """Move the model to a device."""
        check_device(str(device))
        self.module.to(device)
        return self

    def __call__(
        self, batch: Batch, attention: Interventions | None = None, teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:  # fmt: skip
        """Return the Trace of a forward pass over a Batch, as the module does."""
        trace: Trace = self.module(batch, attention, teacher_forcing, gates)
        return trace

    def __repr__(self) -> str:
        classes = f" of {', '.join(self.classes)}" if self.classes else ""
        return f"<{self.name}: {self.kind}{classes}, {type(self.module).__name__}>"


class TaskReader(Reader):
    """Reads raw texts into the vocabularies of a task, so that a run of the store takes texts.

    A corpus prepares and encodes them as it did for training; words of a synthetic task stand between white space.
    Targets of one token are classes.
    """

    def __init__(self, task: Task):
        self.task = task
        self.example = next(task.batches("test", 1))  # shows the special tokens around a source
        one_token = self.example.target.shape[1] == 1
        self.classes = task.target_vocabulary.tokens[len(SPECIALS) :] if one_token else ()

    @property
    def source_vocabulary(self) -> Vocabulary:
        return self.task.source_vocabulary

    @property
    def target_vocabulary(self) -> Vocabulary:
        return self.task.target_vocabulary

    @property
    def longest(self) -> str:  # type: ignore[override]
        return f"{self.task.preparation.max_length} words" if isinstance(self.task, TextTask) else ""

    @cached_property
    def sides(self) -> "tuple[Side, Side]":
        source = self.example.source[0].tolist()
        around = SpecialTokens((START,) * (source[0] == START), (END,) * (source[-1] == END))
        if not isinstance(self.task, TextTask):
            return Side(self.source_vocabulary, around), Side(self.target_vocabulary, SpecialTokens(after=(END,)))
        corpus, preparation = self.task.corpus, self.task.preparation
        return (
            Side(self.source_vocabulary, around, corpus.source, preparation),
            Side(self.target_vocabulary, SpecialTokens(after=(END,)), corpus.target, preparation),
        )

    def read(self, sources: Sequence[Source], targets: Sequence[Target] | None = None) -> Texts:
        """Return one batch; without targets, they are the first class or empty."""
        check_pairs(sources, targets)
        source_side, target_side = self.sides
        source, mask, words, truncated = pad_texts([source_side.encode(text) for text in sources])
        labels = targets or [0 if self.classes else ""] * len(sources)
        rows = [self.encode_class(one) if self.classes else target_side.encode(as_text(one)) for one in labels]
        target, target_mask, target_words, _ = pad_texts(rows)
        return Texts(Batch(source, mask, target, target_mask), words, target_words, truncated)

    def encode_class(self, label: Target) -> "EncodedText":
        index = class_index(label, self.classes)
        name = (self.classes[index],)
        return EncodedText([index + len(SPECIALS)], TokenizedText(name, name, (0,)), truncated=False)

    def target_words(self, token_ids: Int[Tensor, "batch target"], mask: Bool[Tensor, "batch target"]) -> Words:
        return words_of(token_ids, mask, self.target_vocabulary)

    def text(self, token_ids: Tensor) -> str:
        return self.sides[1].text([i for i in token_ids.tolist() if i >= len(SPECIALS)])


class EncodedText(NamedTuple):
    """One text: its token ids, its words, and whether it was truncated."""

    token_ids: list[int]
    text: TokenizedText
    truncated: bool


@dataclass(frozen=True)
class Side:
    """How source or target texts of a task become token ids."""

    vocabulary: Vocabulary
    special: SpecialTokens  # the special tokens around a text
    coder: Coder | None = None  # of a corpus
    preparation: Preparation | None = None

    def encode(self, source: Source) -> EncodedText:
        """Return the token ids of a text, and the word between white space that each belongs to."""
        words = split_words(source)[1]
        text = cast(Text, source)
        parts = [self.token_ids(word if isinstance(text, str) else [word]) for word in words]
        token_ids = self.token_ids(text)
        word_of = [index for index, part in enumerate(parts) for _ in part][: len(token_ids)]
        joined = [i for part in parts for i in part]
        tokens = self.vocabulary.decode(token_ids)
        if token_ids != joined[: len(token_ids)]:  # where preparation does not go word by word, each token is a word
            words, word_of = tuple(tokens), list(range(len(tokens)))
        before, after = list(self.special.before), list(self.special.after)
        names = self.vocabulary.decode(before) + tokens + self.vocabulary.decode(after)
        places = [NO_WORD] * len(before) + word_of + [NO_WORD] * len(after)
        tokenized = TokenizedText(words, tuple(names), tuple(places))
        return EncodedText(before + token_ids + after, tokenized, len(token_ids) < len(joined))

    def token_ids(self, text: Text) -> list[int]:
        if self.coder is not None and self.preparation is not None:
            words = self.preparation.words(text)[: self.preparation.max_length]
            encoded: list[int] = self.coder.encode([words])[0].tolist()
            return encoded
        ids, words = self.vocabulary.ids, list(text.split() if isinstance(text, str) else text)
        unknown = [word for word in words if ids.get(word, 0) < len(SPECIALS)]
        if unknown:
            raise BadSetting(
                f"this run has no word {unknown[0]!r}; its words are {', '.join(self.vocabulary.tokens[3:23])}"
                + (", …" if len(self.vocabulary.tokens) > 23 else "")
            )
        return [ids[word] for word in words]

    def text(self, token_ids: Sequence[int]) -> str:
        return " ".join(self.vocabulary.decode(token_ids)) if self.coder is None else self.coder.text(token_ids)


def pad_texts(rows: Sequence[EncodedText]) -> tuple[Tensor, Tensor, Words, int]:
    """Return padded token ids, their mask, their words, and how many texts were truncated."""
    require(all(row.token_ids for row in rows), "a text without any word cannot be read; leave empty texts out")
    token_ids, mask = pad([np.array(row.token_ids) for row in rows])
    return token_ids, mask, Words.of([row.text for row in rows]), sum(row.truncated for row in rows)
