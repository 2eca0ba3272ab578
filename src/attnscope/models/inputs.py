"""Texts as a model reads them: lists, files, tables, Tasks and Batches, all of which every probe takes as `data`.

A file or table has one text per row, in `text`, `tokens`, `sentence`, `source` or `review`. The output is in `label`,
`binary_label` or `class` (a classifier), or in `target` or `translation` (a translator). Where given, `rationale` (one
number from 0 to 1 per word) and `alignment` ("0-0 1p2", or pairs, counted from 0) are passed on.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard, cast, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnscope.errors import BadSetting, require
from attnscope.files import Malformed
from attnscope.models.adapters.readers import NO_WORD, Reader, Target, Text, Texts, TokenizedText, Words
from attnscope.models.capabilities import ReadsTexts, WrapsModel
from attnscope.models.inference import Model, device_of, evaluating, module_of, with_predicted_target
from attnscope.models.trace import Trace
from attnscope.tasks.batch import SPECIALS, Batch, Vocabulary
from attnscope.tasks.finite import FiniteTask
from attnscope.tasks.task import Task
from attnscope.tasks.text.rows import UNSPLIT, Row, read_lines
from attnscope.tasks.text.sources import HF_PREFIX, find_corpus, read_corpus
from attnscope.tasks.text.tasks import TextTask

TEXTS = ("text", "tokens", "sentence", "source", "review")
LABELS = ("binary_label", "label", "class")
TARGETS = ("target", "translation")
RATIONALES, ALIGNMENT, POSSIBLE = ("rationale", "rationales"), "alignment", "possible"
PREFERRED = ("test", "val", "dev", UNSPLIT, "train")  # the split that is used, by how its name begins
MAX_SAMPLED = 1000  # texts of a corpus that a probe is run on
EXPECTED = (
    "JSON lines, JSON, CSV or TSV with a text ('text', 'tokens', 'sentence' or 'source') and its label ('label') or "
    "translation ('target')"
)
TAKEN = (
    "a list of texts, of (text, label) pairs or of dicts, a path (.jsonl, .json, .csv, .tsv), a DataFrame, a Hugging "
    "Face Dataset, a Task, a Batch or Batches"
)
Links = frozenset[tuple[int, int]]  # (source word, target word), from 0
LINK = re.compile(r"(\d+)([-p])(\d+)")


@runtime_checkable
class HuggingFaceDataset(Protocol):
    """One split of the `datasets` library, recognised without importing the library."""

    column_names: list[str]

    def __iter__(self) -> Iterator[Mapping[str, object]]: ...


Table = pd.DataFrame | HuggingFaceDataset | Mapping[str, HuggingFaceDataset]
if TYPE_CHECKING:
    Examples: TypeAlias = (
        "Sequence[Text] | Sequence[tuple[Text, Target]] | Sequence[Mapping[str, object]] | Sequence[Example]"
    )
    Batches: TypeAlias = Batch | Iterable[Batch] | Callable[[], Iterable[Batch]]
    Data: TypeAlias = "Examples | Batches | Task | Inputs | str | Path | Table | None"
else:
    Data = object  # what else is given is refused with a sentence


@dataclass(frozen=True)
class Example:
    """One text, with its label or translation and human annotations where there are any.

    Attributes:
        source: The text, or its words.
        target: A class (name or number), or a translation; None: what the model predicts.
        rationale: For each word of the source, the fraction of annotators who marked it.
        alignment: Sure and possible links between source and target words.
    """

    source: Text
    target: Target | None = None
    rationale: Float[np.ndarray, " words"] | None = None
    alignment: tuple[Links, Links] | None = None


@dataclass(frozen=True)
class Origin:
    """Where texts come from: a name, the split, and how many there were before sampling."""

    name: str
    split: str | None = None
    available: int | None = None


class Inputs(ABC):
    """Texts as one model reads them, in batches of any size, as often as needed.

    Attributes:
        origin: Where the texts come from.
        has_targets: Whether labels or translations were given; if not, targets are the model's own predictions.
        has_rationales: Whether annotators marked words in every text.
        alignments: Gold word alignments (sure, possible), where every text has one.
    """

    origin: Origin
    has_targets: bool = True
    has_rationales: bool = False
    alignments: tuple[tuple[Links, Links], ...] | None = None

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
    ) -> "Inputs":
        """Return the texts of `data` as this model reads them.

        Args:
            model: A LoadedModel, or a model with a `reader` (see capabilities.ReadsTexts).
            data: Texts, a path, a table, a Dataset, a Task, or None for the test set of a run's own task.
            split: Which split of a file, Dataset or Task; by default the test set, if there is one.
            max_texts: At most so many texts.
            seed: Texts are shuffled by this random seed before `max_texts` are taken; None: the first ones.
            needs_targets: Whether a text without a label or translation is refused.
        """
        if isinstance(data, Inputs):
            return data
        task = own_task(model) if data is None else data
        if isinstance(task, Task):
            return of_task(model, task, split or "test", max_texts, seed or 0)
        examples, origin = read_examples(task, split, bool(reader_of(model).classes), needs_targets)
        require(bool(examples), f"there is no text in {origin.name}")
        order = range(len(examples)) if seed is None else np.random.default_rng(seed).permutation(len(examples))
        chosen = [examples[i] for i in islice(order, max_texts)]
        return TextInputs(model, chosen, replace(origin, available=len(examples)))

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
            all(targets) or not any(targets), f"some texts of {origin.name} have a label or translation, others none"
        )
        self.has_targets = targets[0]
        self.has_rationales = all(example.rationale is not None for example in examples)
        alignments = tuple(example.alignment for example in examples if example.alignment is not None)
        self.alignments = alignments if len(alignments) == len(examples) else None

    def __len__(self) -> int:
        return len(self.examples)

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
    given = own_task(model) if data is None else data() if callable(data) else data
    if isinstance(given, Task) and not isinstance(given, TextTask):
        check_vocabulary(model, given)
        return given.batches("test", size)
    if isinstance(given, Task | str | Path) or is_table(given):
        return Inputs.of(model, given, max_texts=MAX_SAMPLED if isinstance(given, Task) else None).batches(size)
    if not isinstance(given, Iterable):
        raise BadSetting(f"data is {TAKEN}, not {given!r:.60}")
    remaining: Iterator[object] = iter(given)
    first = next(remaining, None)
    require(first is not None, "there is no text: the data are empty")
    everything = chain([first], remaining)
    if isinstance(first, Batch):
        return cast(Iterator[Batch], everything)
    return Inputs.of(model, cast(Data, list(everything))).batches(size)


def is_table(data: object) -> TypeGuard[Table]:
    """Return whether this is a DataFrame or a Dataset, of one or several splits."""
    return isinstance(data, pd.DataFrame | HuggingFaceDataset | Mapping)


# Models --------------------------------------------------------------------------------------------------------------


def reads_texts(model: Model) -> bool:
    return isinstance(model, WrapsModel | ReadsTexts)


def reader_of(model: Model) -> Reader:
    """Return what turns texts into Batches for this model."""
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
        raise BadSetting(f"{name} needs texts: give data ({TAKEN}); only a run has a test set of its own")
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
    """Return sentences of a task: sampled from a corpus, the first ones of a synthetic task, which has no order."""
    check_vocabulary(model, task)
    count = max_texts or sum(len(batch) for batch in task.batches(split))
    sentences = (
        task.sample_batch(split, count, seed) if isinstance(task, FiniteTask) else next(task.batches(split, count))
    )
    name = task.file if isinstance(task, TextTask) else type(task).__name__
    return TaskInputs(task, sentences, Origin(name, split))


def check_vocabulary(model: Model, task: Task) -> None:
    """Refuse a task for a model with a tokenizer of its own."""
    require(
        not reads_texts(model) or (isinstance(model, WrapsModel) and model.task is not None),
        f"a {type(task).__name__} has token ids of its own, which this model's reader does not know; give its texts",
    )


def words_of(
    token_ids: Int[Tensor, "batch positions"], mask: Bool[Tensor, "batch positions"], vocabulary: Vocabulary
) -> Words:
    """Return the words of token ids of which each is a word of its own, but for special ones."""
    rows = [row[there].tolist() for row, there in zip(token_ids.cpu(), mask.cpu(), strict=True)]
    return Words.of([one_word_per_token(row, tuple(vocabulary.decode(row))) for row in rows])


def one_word_per_token(token_ids: Sequence[int], words: tuple[str, ...]) -> TokenizedText:
    word_of = tuple(NO_WORD if i < len(SPECIALS) else place for place, i in enumerate(token_ids))
    return TokenizedText(words, words, word_of)


def rationale_of_tokens(source: Words, marks: Float[Tensor, "batch words"]) -> Float[Tensor, "batch positions"]:
    """Return the marks of words at each of their tokens; 0 on special tokens and padding."""
    places = source.places.gather(1, source.unit.clamp(min=0)).masked_fill(source.unit < 0, NO_WORD)
    inside = (places >= 0) & (places < marks.shape[1])
    found = marks.to(places.device).gather(1, places.clamp(0, marks.shape[1] - 1))
    return found.masked_fill(~inside, 0.0)


# Texts ---------------------------------------------------------------------------------------------------------------


def read_examples(
    data: object, split: str | None, classifier: bool, needs_targets: bool
) -> tuple[list[Example], Origin]:
    """Return the examples of a file, a table or a list, and where they come from."""
    if isinstance(data, str | Path):
        rows, origin = rows_of_split(read_file(data), split, Path(data).name)
    elif is_table(data):
        rows, origin = rows_of_split(rows_of_table(data), split, type(data).__name__)
    else:
        examples = [as_example(one, number, classifier) for number, one in enumerate(listed(data), 1)]
        require(
            not needs_targets or all(one.target is not None for one in examples),
            "each text needs its label or translation: give (text, label) pairs or dicts with 'text' and 'label'",
        )
        return examples, Origin("given texts")
    rows = [row for row in rows if not lacks_label(row, classifier)]
    if needs_targets and rows:
        names, what = (LABELS, "a class") if classifier else (TARGETS, "a translation")
        field_of(rows[0], names, what)
    return [example_of(row, classifier) for row in rows], origin


def read_file(path: str | Path) -> list[Row]:
    """Return the rows of a file, or of the files of a folder."""
    if not Path(path).suffix and not Path(path).exists() and not str(path).startswith(HF_PREFIX):
        raise BadSetting(f"there is no file {str(path)!r:.60}; a single text is given as a list, [{str(path)!r:.60}]")
    if ".json" in Path(path).suffixes[-2:]:
        return json_list(find_corpus(str(path), EXPECTED))
    return read_corpus(str(path), (), EXPECTED)


def json_list(path: Path) -> list[Row]:
    """Return the rows of a .json file that holds one list of objects."""
    try:
        content = json.loads("\n".join(line for _, line in read_lines(path)))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path} is not JSON: {error}") from error
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise Malformed(f"{path} should hold a list of JSON objects, one per text")
    return [Row(str(path), number, row) for number, row in enumerate(content, 1)]


def listed(data: object) -> Sequence[object]:
    if not isinstance(data, Sequence):
        raise BadSetting(f"data is {TAKEN}, not {data!r:.60}")
    return data


def as_example(given: object, number: int, classifier: bool) -> Example:
    """Return a text, a (text, label) pair, a dict or an Example of a list as an Example."""
    if isinstance(given, Example):
        return given
    if isinstance(given, Mapping):
        return example_of(Row("the given list", number, dict(given)), classifier)
    if isinstance(given, str):
        return Example(given)
    if isinstance(given, tuple) and len(given) == 2:
        return Example(as_text(given[0]), given[1] if isinstance(given[1], int) else as_text(given[1]))
    if isinstance(given, list) and all(isinstance(word, str) for word in given):
        return Example(tuple(given))
    raise BadSetting(f"text {number} is {given!r:.60}; give a string, a list of words, a (text, label) pair or a dict")


def as_text(given: Target) -> Text:
    """Return a text or the words of one, hashable; a number is written out."""
    return tuple(given) if not isinstance(given, str | int) else str(given)


def rows_of_table(data: Table) -> list[Row]:
    """Return the rows of a DataFrame or of the splits of a Dataset."""
    if isinstance(data, Mapping):  # a DatasetDict
        return [
            Row(f"split {split}", row.line, {"split": split} | row.fields)
            for split, one in data.items()
            for row in rows_of_table(one)
        ]
    records = cast(Iterable[Mapping[str, object]], data.to_dict("records") if isinstance(data, pd.DataFrame) else data)
    return [Row(type(data).__name__, number, plain_values(one)) for number, one in enumerate(records, 1)]


def plain_values(record: Mapping[str, object]) -> dict[str, object]:
    """Return a row with Python's own numbers and lists; NaN, by which tables mark what is missing, is None."""

    def plain(value: object) -> object:
        value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        return None if isinstance(value, float) and np.isnan(value) else value

    return {name: plain(value) for name, value in record.items()}


def rows_of_split(rows: list[Row], split: str | None, name: str) -> tuple[list[Row], Origin]:
    """Return the rows of the split that is named or, of all that there are, of the one to be tested on."""
    splits = {row.split("split") for row in rows}
    chosen = split or min(splits, key=preference)
    require(chosen in splits, f"{name} has no split {chosen!r}; its splits are {', '.join(sorted(splits))}")
    return [row for row in rows if row.split("split") == chosen], Origin(name, None if chosen == UNSPLIT else chosen)


def preference(split: str) -> tuple[int, str]:
    """
    >>> min(["train", "val", "test2017", "test2016"], key=preference)
    'test2016'
    """
    return next((place for place, name in enumerate(PREFERRED) if split.startswith(name)), len(PREFERRED)), split


def lacks_label(row: Row, classifier: bool) -> bool:
    """Return whether the field of the label is there but empty: such rows are passed over."""
    named = next((name for name in LABELS if name in row.fields), None)
    return classifier and named is not None and row.fields[named] is None


def example_of(row: Row, classifier: bool) -> Example:
    """Return a row of a file or table as an Example."""
    text = as_text(row.text(field_of(row, TEXTS, "a text")))
    return Example(
        text,
        target_of(row, classifier),
        rationale_of(row, text) if classifier else None,
        None if classifier else alignment_of(row),
    )


def target_of(row: Row, classifier: bool) -> Target | None:
    names = LABELS if classifier else TARGETS
    found = next((name for name in names if name in row.fields), None)
    if found is None:
        return None
    return row.label(found) if classifier else as_text(row.text(found))


def rationale_of(row: Row, text: Text) -> np.ndarray | None:
    name = next((name for name in RATIONALES if row.fields.get(name) is not None), None)
    if name is None:
        return None
    rationale, count = row.rationale(name), len(text.split() if isinstance(text, str) else text)
    if len(rationale) != count:
        raise row.wrong(f"{name!r} marks {len(rationale)} words, but the text has {count}")
    return rationale


def alignment_of(row: Row) -> tuple[Links, Links] | None:
    """Return the sure and the possible links of a row, given as "0-0 1p2" or as pairs."""
    given = row.fields.get(ALIGNMENT)
    if given is None:
        return None
    try:
        if isinstance(given, str):
            links = [LINK.fullmatch(link) for link in given.split()]
            sure, possible = ([(int(m[1]), int(m[3])) for m in links if m and m[2] == mark] for mark in "-p")
            require(all(links), f"{given!r} is not of the form 0-0 1p2")
        else:
            sides = cast(list[Iterable[tuple[int, int]]], [given, row.fields.get(POSSIBLE) or ()])
            sure, possible = ([(int(s), int(t)) for s, t in pairs] for pairs in sides)
    except (BadSetting, TypeError, ValueError) as error:
        raise row.wrong(f"{ALIGNMENT!r} holds no word alignment ({error})") from error
    return frozenset(sure), frozenset(possible)


def field_of(row: Row, names: Sequence[str], what: str) -> str:
    found = next((name for name in names if name in row.fields), None)
    if found is None:
        raise row.wrong(f"there is no field with {what} ({', '.join(names)}); this line has {', '.join(row.fields)}")
    return found
