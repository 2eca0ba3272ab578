"""Texts as a model reads them: lists, files, tables, Tasks and Batches, all of which every probe takes as `data`."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnscope.errors import BadSetting, InputWarning, require
from attnscope.models.adapters.readers import (
    NO_WORD,
    Reader,
    Target,
    Text,
    Texts,
    TokenizedText,
    Words,
    warn_of_truncation,
)
from attnscope.models.capabilities import PredictsNextToken, ReadsTexts, WrapsModel
from attnscope.models.examples import (
    ACCEPTED_DATA,
    TABLES,
    Columns,
    Example,
    Fields,
    Links,
    Origin,
    Table,
    read_examples,
)
from attnscope.models.inference import Model, device_of, evaluating, module_of, with_predicted_target
from attnscope.models.trace import Trace
from attnscope.tasks.batch import SPECIALS, Batch, Vocabulary
from attnscope.tasks.task import FiniteTask, Task
from attnscope.tasks.text.tasks import TextTask

MAX_SAMPLED = 1000  # texts of a corpus that a probe is run on

if TYPE_CHECKING:
    Examples: TypeAlias = (
        "Sequence[Text] | Sequence[tuple[Text, Target]] | Sequence[Mapping[str, object]] | Sequence[Example]"
    )
    Batches: TypeAlias = Batch | Iterable[Batch] | Callable[[], Iterable[Batch]]
    Data: TypeAlias = "Examples | Batches | Task | Inputs | str | Path | Table | None"
else:
    Data = object  # checked where it is read


class Inputs(ABC):
    """Texts as one model reads them, in batches of any size, as often as needed.

    Attributes:
        origin: Where the texts come from.
        has_targets: Whether labels or translations were given; if not, targets are the model's own predictions.
        has_rationales: Whether annotators marked words in every text.
        alignments: Gold word alignments (sure, possible), where every text has one.
        parts: The parts of each prompt by name, where any are named.
    """

    origin: Origin
    has_targets: bool = True
    has_rationales: bool = False
    alignments: tuple[tuple[Links, Links], ...] | None = None
    parts: tuple[Mapping[str, str], ...] | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        data: Data,
        *,
        split: str | None = None,
        max_texts: int | None = None,
        seed: int | None = None,
        needs_targets: bool = False,
        columns: "Columns | None" = None,
    ) -> "Inputs":
        """Return the texts of `data` as this model reads them.

        Args:
            model: A LoadedModel, or a model with a `reader` (see capabilities.ReadsTexts).
            data: Texts, a path, a table, a Dataset, a Task, or None for the test set of a run's own task.
            split: Which split of a file, Dataset or Task; by default the test set, if there is one.
            max_texts: Maximum number of texts.
            seed: Texts are shuffled by this random seed before `max_texts` are taken; None: the first ones.
            needs_targets: Whether a text without a translation is refused; labels and answers are optional.
            columns: Names of the fields of a file or table, where they are not the usual ones.
        """
        if isinstance(data, Inputs):
            return data
        task = own_task(model) if data is None else data
        if isinstance(task, Task):
            return of_task(model, task, split or "test", max_texts, seed or 0)
        needs_targets = needs_targets and not isinstance(module_of(model), PredictsNextToken)
        reader = reader_of(model)
        fields = Fields(reader.classes, columns or Columns(), needs_targets, reader.labels)
        return TextInputs(model, *read_examples(task, split, fields, max_texts, seed))

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of texts."""

    @abstractmethod
    def read(self, rows: slice) -> Texts:
        """Return some of the texts, in their order."""

    def texts(self, size: int = 32, max_texts: int | None = None) -> Iterator[Texts]:
        """Yield the first `max_texts` texts, or all, `size` at a time."""
        end = len(self) if max_texts is None else min(max_texts, len(self))
        for start in range(0, end, size):
            yield self.read(slice(start, min(start + size, end)))

    def batches(self, size: int = 32, max_texts: int | None = None) -> Iterator[Batch]:
        """Yield the same texts as Batches."""
        return (texts.batch for texts in self.texts(size, max_texts))

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()


class TextInputs(Inputs):
    """Examples, read batch by batch with the model's own reader."""

    def __init__(self, model: Model, examples: Sequence[Example], origin: Origin):
        self.model, self.examples, self.origin = model, examples, origin
        self.reader = reader_of(model)
        targets = [example.target is not None for example in examples]
        require(
            all(targets) or not any(targets),
            f"some texts of {origin.name} have a label, translation or answer, others none",
        )
        self.has_targets = targets[0]
        self.has_rationales = all(example.rationale is not None for example in examples)
        alignments = tuple(example.alignment for example in examples if example.alignment is not None)
        self.alignments = alignments if len(alignments) == len(examples) else None
        if self.alignments and looks_one_based(self.alignments):
            message = f"no alignment of {origin.name} has a word 0: are words counted from 1? They count from 0"
            warnings.warn(InputWarning(message), stacklevel=2)
        if any(example.parts for example in examples):
            self.parts = tuple(example.parts or {} for example in examples)

    def __len__(self) -> int:
        return len(self.examples)

    def texts(self, size: int = 32, max_texts: int | None = None) -> Iterator[Texts]:
        """Yield texts as every Inputs does; at the end, warn of those that were truncated."""
        cut = count = 0
        for texts in super().texts(size, max_texts):
            cut, count = cut + texts.cut, count + len(texts.batch)
            yield texts
        warn_of_truncation(cut, count, self.reader, self.origin.name)

    def read(self, rows: slice) -> Texts:
        some = self.examples[rows]
        targets = [example.target for example in some if example.target is not None] if self.has_targets else None
        texts = self.reader.read([example.source for example in some], targets)
        if not self.has_targets:
            texts = with_predictions(self.model, texts)
        if not self.has_rationales:
            return texts
        marks = pad_sequence([torch.from_numpy(np.asarray(e.rationale, dtype=np.float32)) for e in some], True)
        return replace(texts, batch=replace(texts.batch, rationale=rationale_of_tokens(texts.source, marks)))


def looks_one_based(alignments: Sequence[tuple[Links, Links]]) -> bool:
    """Return whether there are several links, and none of the first word of either side."""
    links = [link for sides in alignments for side in sides for link in side]
    return len(links) > 1 and all(source and target for source, target in links)


class TaskInputs(Inputs):
    """Sentences of a task, in its own vocabulary: each position is one word."""

    def __init__(self, task: Task, sentences: Batch, origin: Origin):
        self.task, self.sentences, self.origin = task, sentences, origin
        self.has_rationales = sentences.rationale is not None

    def __len__(self) -> int:
        return len(self.sentences)

    def read(self, rows: slice) -> Texts:
        batch = self.sentences.rows(rows)
        source = words_of(batch.source, batch.source_mask, self.task.source_vocabulary)
        return Texts(batch, source, words_of(batch.target, batch.target_mask, self.task.target_vocabulary), cut=0)


def as_batches(model: Model, data: Data, size: int = 32) -> Iterator[Batch]:
    """Yield `data` as Batches that this model reads.

    Args:
        model: A LoadedModel, or a bare model; without a `reader` it takes Batches and Tasks only.
        data: As of `Inputs.of`; besides, a Batch, an iterable of Batches, or a function that returns one. Of a corpus,
            at most 1000 texts of the test set are sampled; of texts without a label or translation, the target is what
            the model predicts.
        size: Texts per batch, where `data` does not come in Batches.
    """
    if isinstance(data, Batch):
        return iter([data])
    if isinstance(data, Inputs):
        return data.batches(size)
    try:
        source = own_task(model) if data is None else data() if callable(data) else data
    except TypeError as error:
        raise BadSetting(f"a function passed as data takes no arguments and returns Batches ({error})") from error
    if isinstance(source, Task) and not isinstance(source, TextTask):
        check_vocabulary(model, source)
        return source.batches("test", size)
    if isinstance(source, (Task, str, Path, *TABLES)):
        return Inputs.of(model, source, max_texts=MAX_SAMPLED if isinstance(source, Task) else None).batches(size)
    if not isinstance(source, Iterable):
        raise BadSetting(f"data is {ACCEPTED_DATA}, not {source!r:.60}")
    remaining: Iterator[object] = iter(source)
    first = next(remaining, None)
    require(first is not None, "there is no text: the data are empty")
    everything = chain([first], remaining)
    if isinstance(first, Batch):
        return only_batches(everything)
    return Inputs.of(model, cast(Data, list(everything))).batches(size)


def only_batches(items: Iterable[object]) -> Iterator[Batch]:
    for item in items:
        if not isinstance(item, Batch):
            raise BadSetting(f"there is {item!r:.60} among Batches; give Batches only, or texts only")
        yield item


# Models --------------------------------------------------------------------------------------------------------------


def reads_texts(model: Model) -> bool:
    return isinstance(model, WrapsModel | ReadsTexts)


def reader_of(model: Model) -> Reader:
    """Return the reader of this model, which turns texts into Batches."""
    if isinstance(model, WrapsModel | ReadsTexts):
        return model.reader
    raise BadSetting(
        f"{type(model).__name__} has no reader, so it takes Batches but no texts: give it one, such as "
        "attnscope.WordReader, or load it with attnscope.load"
    )


def own_task(model: Model) -> Task:
    """Return the task of a run; other models have none."""
    if not isinstance(model, WrapsModel) or model.task is None:
        name = model.name if isinstance(model, WrapsModel) else type(model).__name__
        raise BadSetting(f"{name} needs texts: give data ({ACCEPTED_DATA}); only a run has a test set of its own")
    return model.task


def with_predictions(model: Model, texts: Texts) -> Texts:
    """Return the texts with the model's own output as the target."""
    batch, reader = texts.batch.to(device_of(model)), reader_of(model)
    if reader.classes:
        with evaluating(model):
            batch = replace(batch, target=module_of(model)(batch).predictions)
    else:
        batch = with_predicted_target(model, batch)
    return replace(texts, batch=batch, target=reader.target_words(batch.target, batch.target_mask))


def with_tokens(model: Model, trace: Trace) -> Trace:
    """Return the trace with its tokens as strings, where the model has a reader."""
    if not reads_texts(model):
        return trace
    reader = reader_of(model)
    return trace.with_tokens(reader.source_vocabulary, reader.target_vocabulary)


# Tasks ---------------------------------------------------------------------------------------------------------------


def of_task(model: Model, task: Task, split: str, max_texts: int | None, seed: int) -> Inputs:
    """Return sentences of a task: sampled from a corpus, or the first ones of a synthetic task."""
    check_vocabulary(model, task)
    count = max_texts or sum(len(batch) for batch in task.batches(split))
    sentences = (
        task.sample_batch(split, count, seed) if isinstance(task, FiniteTask) else next(task.batches(split, count))
    )
    name = task.file if isinstance(task, TextTask) else type(task).__name__
    return TaskInputs(task, sentences, Origin(name, split))


def check_vocabulary(model: Model, task: Task) -> None:
    """Raise an error for a task if the model has its own tokenizer."""
    require(
        not reads_texts(model) or (isinstance(model, WrapsModel) and model.task is not None),
        f"a {type(task).__name__} has its own token ids, which are not those of this model's reader; give its texts",
    )


def words_of(
    token_ids: Int[Tensor, "batch positions"], mask: Bool[Tensor, "batch positions"], vocabulary: Vocabulary
) -> Words:
    """Return the words of token ids, one per token, special ones aside."""
    rows = [row[keep].tolist() for row, keep in zip(token_ids.cpu(), mask.cpu(), strict=True)]
    return Words.of([one_word_per_token(row, tuple(vocabulary.decode(row))) for row in rows])


def one_word_per_token(token_ids: Sequence[int], words: tuple[str, ...]) -> TokenizedText:
    word_of = tuple(NO_WORD if i < len(SPECIALS) else place for place, i in enumerate(token_ids))
    return TokenizedText(words, words, word_of)


def rationale_of_tokens(source: Words, marks: Float[Tensor, "batch words"]) -> Float[Tensor, "batch positions"]:
    """Return the marks of words at each of their tokens; 0 on special tokens and padding."""
    places = source.places.gather(1, source.unit.clamp(min=0)).masked_fill(source.unit < 0, NO_WORD)
    inside = (places >= 0) & (places < marks.shape[1])
    values = marks.to(places.device).gather(1, places.clamp(0, marks.shape[1] - 1))
    return values.masked_fill(~inside, 0.0)
