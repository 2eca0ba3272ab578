"""Examples from files, tables and lists: field names, sampling of rows, and validation.

A file or table has one text per row, in `text`, `tokens`, `sentence`, `source` or `review`, or a pair of texts, in
`text` and `text_pair` or under the names of GLUE (`PAIRS`). The output is in `label`, `binary_label` or `class` (a
classifier; empty, null or -1: no label), or in `target` or `translation` (a translator). Of a language model, they are
in `prompt` and `answer`, or in a chat (`messages` with role and content, of which a last one of the assistant is the
answer), and `parts` holds named parts of the prompt. `rationale` (one number from 0 to 1 per word) and `alignment`
("0-0 1p2", or pairs, counted from 0) are optional. `Columns` names other fields. Rows are read one by one, and only
those that are sampled are held in memory.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnscope.errors import BadSetting, InputWarning, check_kinds, require
from attnscope.models.adapters.readers import (
    INDEX,
    Labels,
    Source,
    Target,
    Text,
    TextPair,
    class_index,
    split_sides,
    split_words,
)
from attnscope.tasks.text.rows import HF_PREFIX, SPLIT, UNSPLIT, Row, stream_corpus

TEXTS = ("text", "tokens", "sentence", "source", "review", "prompt")
LABELS = ("binary_label", "label", "class")
TARGETS = ("target", "translation", "answer")
CHAT, ASSISTANT, PARTS = "messages", "assistant", "parts"
PAIRS = {
    "text": "text_pair", "sentence1": "sentence2", "premise": "hypothesis", "question1": "question2",
    "question": "sentence", "query": "passage",
}  # fmt: skip
NO_LABEL = ("-1", "-1.0")  # in the test sets of GLUE
WHOLE_FLOAT = re.compile(r"(-?[0-9]{1,9})\.0+")  # a whole number as pandas writes it in a column with missing values
LIST_NAME = "the given list"
MISSPELT = 0.8  # the least similarity (difflib) of a field that may be a misspelt one of ours
RATIONALES, ALIGNMENT, POSSIBLE = ("rationale", "rationales"), "alignment", "possible"
PREFERRED = ("test", "val", "dev", UNSPLIT, "train")  # the split that is used, by how its name begins
EXPECTED = (
    "JSON lines, JSON, CSV or TSV with a text ('text', 'tokens', 'sentence' or 'source') and its label ('label') or "
    "translation ('target'); of a language model, a 'prompt' and its 'answer'"
)
ACCEPTED_DATA = (
    "a list of texts, of (text, label) pairs or of dicts, a path (.jsonl, .json, .csv, .tsv, .parquet), a DataFrame, a "
    "Hugging Face Dataset, a Task, a Batch or Batches"
)
Links = frozenset[tuple[int, int]]  # (source word, target word), from 0
LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")


@runtime_checkable
class HuggingFaceDataset(Protocol):
    """One split of the `datasets` library, recognised without importing the library."""

    column_names: list[str]

    def __iter__(self) -> Iterator[Mapping[str, object]]: ...


Table = pd.DataFrame | HuggingFaceDataset | Mapping[str, HuggingFaceDataset]
TABLES = (pd.DataFrame, HuggingFaceDataset, Mapping)  # for `isinstance`


@dataclass(frozen=True)
class Example:
    """One text, with its label or translation and human annotations where there are any.

    Attributes:
        source: The text, its words, or a pair of texts.
        target: A class (name or number), or a translation; None: what the model predicts.
        rationale: For each word of the source, the fraction of annotators who marked it.
        alignment: Sure and possible links between source and target words.
        parts: Parts of a prompt by name, such as retrieved passages, as they stand in it.
    """

    source: Source
    target: Target | None = None
    rationale: Float[np.ndarray, " words"] | None = None
    alignment: tuple[Links, Links] | None = None
    parts: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Origin:
    """Where texts come from: a name, the split, and how many there were before sampling."""

    name: str
    split: str | None = None
    available: int | None = None


Rows = Callable[[], Iterator[Row]]  # all rows, as often as it is called


def read_examples(
    data: object, split: str | None, fields: "Fields", max_texts: int | None, seed: int | None
) -> tuple[list[Example], Origin]:
    """Return the examples of a file, a table or a list, sampled where there are more, and where they come from."""
    if isinstance(data, str | Path):
        return sample_rows(open_file(data), Path(data).name, split, fields, max_texts, seed)
    if isinstance(data, TABLES):
        return sample_rows(lambda: rows_of_table(data), type(data).__name__, split, fields, max_texts, seed)
    if not isinstance(data, Sequence) or isinstance(data, bytes):
        raise BadSetting(f"data is {ACCEPTED_DATA}, not {data!r:.60}")
    examples = [as_example(one, number, fields) for number, one in enumerate(data, 1)]
    require(bool(examples), "there is no text in the given texts")
    if fields.classes:
        labelled = ((number, one.target) for number, one in enumerate(examples, 1) if one.target is not None)
        fields.check_labels({str(label): Row(LIST_NAME, number, {}) for number, label in labelled})
    order = sampled_order(len(examples), max_texts, seed)
    return [examples[i] for i in order], Origin("given texts", available=len(examples))


def open_file(path: str | Path) -> Rows:
    """Return the rows of a file, or of the files of a folder, each time from the first one on."""
    name = str(path)
    if not Path(path).suffix and not os.path.exists(path) and not name.startswith(HF_PREFIX):
        raise BadSetting(f"there is no file {name!r:.60}; a single text is given as a list, [{name!r:.60}]")
    return lambda: stream_corpus(name, (), EXPECTED)


def sampled_order(count: int, max_texts: int | None, seed: int | None) -> list[int]:
    """Return the indices of the texts to use: the first ones, or with a seed, a sample in random order."""
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    return [int(i) for i in order[:max_texts]]


def sample_rows(
    rows: Rows, name: str, split: str | None, fields: "Fields", max_texts: int | None, seed: int | None
) -> tuple[list[Example], Origin]:
    """Return examples of one split.

    The rows are read twice, one by one: first to count them, then to read those that are sampled.
    """
    surveys: dict[str, Survey] = {}
    for row in rows():
        surveys.setdefault(row.split(SPLIT), Survey()).add(row, fields)
    require(bool(surveys), f"there is no text in {name}")
    split_name = min(surveys, key=preference) if split is None else split
    require(split_name in surveys, f"{name} has no split {split_name!r}; its splits are {', '.join(sorted(surveys))}")
    survey = surveys[split_name]
    fields.check_labels(survey.labels)
    only_labelled = survey.labelled > 0
    if only_labelled and survey.empty:
        warnings.warn(InputWarning(f"{survey.empty} texts of {name} have no label and are left out"), stacklevel=2)
    count = survey.labelled + survey.unnamed + (0 if only_labelled else survey.empty)
    order = sampled_order(count, max_texts, seed)
    sample: dict[int, Example | None] = dict.fromkeys(order)
    eligible = (
        row
        for row in rows()
        if row.split(SPLIT) == split_name and not (only_labelled and fields.label_state(row)[0] == "empty")
    )
    for number, row in enumerate(eligible):
        if number in sample:
            if number == order[0]:
                fields.warn_of_unused(row)
            sample[number] = fields.example(row)
    return [example for example in sample.values() if example is not None], Origin(
        name, None if split_name == UNSPLIT else split_name, count
    )


@dataclass
class Survey:
    """How many texts of a split have a label, an empty one, or no such field; and the first row of each label."""

    labelled: int = 0
    empty: int = 0
    unnamed: int = 0
    labels: dict[str, Row] = field(default_factory=dict)

    def add(self, row: Row, fields: "Fields") -> None:
        state, label = fields.label_state(row)
        setattr(self, state, getattr(self, state) + 1)
        if label is not None and label not in self.labels and len(self.labels) <= 2 * len(fields.classes):
            self.labels[label] = Row(row.file, row.line, {})


@dataclass(frozen=True)
class Columns:
    """The fields of a row, where they have other names than the usual ones."""

    text: str | None = None
    label: str | None = None
    pair: str | None = None
    rationale: str | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        names = [name for name in (self.text, self.label, self.pair, self.rationale) if name is not None]
        require(all(names), "the name of a column must not be empty")
        require(len(set(names)) == len(names), f"one column cannot be two things: {', '.join(names)}")


@dataclass(frozen=True)
class Fields:
    """From rows to Examples, for a classifier with these classes, or for a translator, which has none."""

    classes: tuple[str, ...]
    columns: Columns = Columns()
    needs_translation: bool = False
    labels: Labels = "read"  # whether those of a file or table are read

    def __post_init__(self) -> None:
        column = self.columns.pair or self.columns.rationale
        require(
            bool(self.classes) or column is None, f"a translator reads no pairs and no rationales, such as {column!r}"
        )

    def example(self, row: Row) -> Example:
        """Return a row of a file or table as an Example."""
        text_name, pair_name = self.text_names(row)
        if text_name == CHAT:
            return chat_example(row, self.translation(row))
        text = as_text(row.text(text_name))
        if not text and not self.classes:
            raise row.wrong(f"{text_name!r} is an empty text; leave it out")
        source = text if pair_name is None else TextPair(text, as_text(row.text(pair_name)))
        if self.classes:
            return Example(source, self.label_state(row)[1], self.rationale(row, source))
        target = self.translation(row)
        links = None if target is None else alignment_of(row, text, target)
        return Example(source, target, alignment=links, parts=parts_of(row))

    def text_names(self, row: Row) -> tuple[str, str | None]:
        """Return the fields of the text and, where there is one, of its pair."""
        columns, fields = self.columns, row.fields
        if columns.text is not None:
            return columns.text, columns.pair
        if CHAT in fields and not self.classes and not fields.keys() & {*TEXTS}:
            return CHAT, None
        if columns.pair is not None:
            return self.first_of(row, [text for text in (*TEXTS, *PAIRS) if text != columns.pair]), columns.pair
        pairs = [(text, pair) for text, pair in PAIRS.items() if text in fields and pair in fields]
        if pairs and self.classes and (pairs[0][0] == "text" or not {"text", "tokens"} & fields.keys()):
            return pairs[0]
        return self.first_of(row, TEXTS), None

    def first_of(self, row: Row, names: Sequence[str]) -> str:
        field_name = next((name for name in names if name in row.fields), None)
        if field_name is None:
            present = ", ".join(row.fields) or "none"
            raise row.wrong(f"there is no field with a text ({', '.join(names)}); this line has {present}")
        return field_name

    def label_state(self, row: Row) -> tuple[str, str | None]:
        """Return whether a row is "labelled", has an "empty" label or is "unnamed", without such a field; its label."""
        if not self.classes or self.labels == "not read":
            return "unnamed", None
        usual = LABELS if self.labels == "read" else self.classes[-1:]  # one of several labels has its own column
        name = self.columns.label or next((name for name in usual if name in row.fields), None)
        if name is None or (self.labels != "read" and name not in row.fields):
            return "unnamed", None
        value = row.field(name)
        if value is None or value == "" or (str(value) in NO_LABEL and "-1" not in self.classes):
            return "empty", None
        label = row.label(name)
        whole = WHOLE_FLOAT.fullmatch(label)
        return "labelled", whole[1] if whole and label not in self.classes else label

    def check_labels(self, labels: Mapping[str, Row]) -> None:
        """Raise an error for labels that are not classes of the model, and for numbers that may be names or indices."""
        for label, row in labels.items():
            try:
                class_index(label, self.classes)
            except BadSetting as error:
                raise row.wrong(str(error)) from error
        shifted = {name for i, name in enumerate(self.classes) if INDEX.fullmatch(name) and int(name) != i}
        names_only = labels.keys() <= set(self.classes) and not all(is_index(one, self.classes) for one in labels)
        require(
            not shifted & labels.keys() or names_only,
            f"the labels {', '.join(sorted(labels))} may be names or indices of the classes {', '.join(self.classes)}, "
            "which are not the same; give labels that are names, so that one of them is no index",
        )

    def translation(self, row: Row) -> Text | None:
        name = self.columns.label or next((name for name in TARGETS if name in row.fields), None)
        if name is None:
            require(not self.needs_translation, str(row.wrong(f"there is no translation ({', '.join(TARGETS)})")))
            label = next((label for label in LABELS if label in row.fields), None)
            if label and "prompt" in row.fields:
                raise row.wrong(f"a 'prompt' has an 'answer', not a {label!r}; rename it, or set label={label}")
            return None
        return as_text(row.text(name))

    def rationale(self, row: Row, source: Source) -> np.ndarray | None:
        name = self.columns.rationale or next((name for name in RATIONALES if row.fields.get(name) is not None), None)
        if name is None or row.field(name) in (None, ""):
            return None
        rationale, count = row.rationale(name), sum(len(words) for _, words in split_sides(source))
        if len(rationale) != count:
            raise row.wrong(f"{name!r} marks {len(rationale)} words, but the text has {count}")
        return rationale

    def warn_of_unused(self, row: Row) -> None:
        """Warn of fields that look like texts and are not used."""
        used = {*self.text_names(row), *LABELS, *TARGETS, *RATIONALES, ALIGNMENT, POSSIBLE, SPLIT, "tokens"}
        used |= {self.columns.label, self.columns.rationale}
        text_fields = {*TEXTS, *PAIRS, *PAIRS.values()}
        texts = [name for name, value in row.fields.items() if name in text_fields or len(str(value).split()) > 2]
        unused = [repr(name) for name in texts if name not in used and isinstance(row.fields[name], str)]
        if unused:
            names = " and ".join(repr(name) for name in self.text_names(row) if name is not None)
            message = f"{names} is read, but {', '.join(unused)} is not; name the columns with text= and pair="
            warnings.warn(InputWarning(f"{row.file}: {message}"), stacklevel=2)
        for name, meant in self.misspelt(row):
            message = f"the field {name!r} is not read; is it meant to be {meant!r}?"
            warnings.warn(InputWarning(f"{row.file}: {message}"), stacklevel=2)

    def misspelt(self, row: Row) -> Iterator[tuple[str, str]]:
        """Yield fields that are not read, and a field like it that this row lacks."""
        outputs, others = (LABELS, RATIONALES) if self.classes else (TARGETS, (ALIGNMENT, PARTS))
        present = row.fields.keys()
        has_output = self.columns.label is not None or present & {*outputs} or self.labels == "not read"
        missing = {*(() if has_output else outputs), *others} - present
        read = {*self.text_names(row), *vars(self.columns).values(), *outputs, *others, CHAT, SPLIT}
        for name in sorted(present - read):
            for meant in get_close_matches(name, missing, n=1, cutoff=MISSPELT):
                yield name, meant


def is_index(label: str, classes: Sequence[str]) -> bool:
    return bool(INDEX.fullmatch(label)) and int(label) < len(classes)


def as_example(item: object, number: int, fields: Fields) -> Example:
    """Return a text, a pair of texts, a (text, label) pair, a dict or an Example of a list as an Example."""
    match item:
        case Example():
            return item
        case Mapping():
            row = Row(LIST_NAME, number, dict(item))
            if number == 1:
                fields.warn_of_unused(row)
            return fields.example(row)
        case str() | TextPair():
            return Example(item)
        case (str() | list() | TextPair() as text, str() | int() | list() as target) if isinstance(item, tuple):
            return Example(text if isinstance(text, TextPair) else as_text(text), as_target(target))
        case [*words] if isinstance(item, list) and all(isinstance(word, str) for word in words):
            return Example(tuple(item))
        case [Mapping(), *_] if isinstance(item, list) and not fields.classes:
            return fields.example(Row(LIST_NAME, number, {CHAT: item}))
    raise BadSetting(f"text {number} is {item!r:.60}; give a string, a list of words, a (text, label) pair or a dict")


def as_target(target: Target) -> Target:
    return target if isinstance(target, int) else as_text(target)


def as_text(text: Target) -> Text:
    """Return a text or the words of one, hashable; a number is written out."""
    return tuple(text) if not isinstance(text, str | int) else str(text)


def rows_of_table(data: Table) -> Iterator[Row]:
    """Yield the rows of a DataFrame or of the splits of a Dataset."""
    if isinstance(data, Mapping):  # a DatasetDict
        for split, one in data.items():
            require(
                isinstance(one, TABLES), f"the split {split!r} is no table but {one!r:.40}: data is {ACCEPTED_DATA}"
            )
            for row in rows_of_table(one):
                yield Row(f"split {split}", row.line, {SPLIT: str(split)} | row.fields)
        return
    if isinstance(data, pd.DataFrame):
        names = [str(name) for name in data.columns]
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        require(not twice, f"the DataFrame has several columns {', '.join(map(repr, twice))}; name each column once")
        records = (dict(zip(names, row, strict=True)) for row in data.itertuples(index=False, name=None))
    else:
        records = (dict(row) for row in data)
    for number, record in enumerate(records, 1):
        yield Row(type(data).__name__, number, plain_values(record))


def plain_values(record: Mapping[str, object]) -> dict[str, object]:
    """Return a row with Python's own numbers and lists; NaN, which marks missing values, becomes None."""

    def plain(value: object) -> object:
        value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        return None if value is pd.NA or (isinstance(value, float) and np.isnan(value)) else value

    return {name: plain(value) for name, value in record.items()}


def preference(split: str) -> tuple[int, str]:
    """Return a sort key: the split to use comes first.

    >>> min(["train", "val", "test2017", "test2016"], key=preference)
    'test2016'
    """
    return next((place for place, name in enumerate(PREFERRED) if split.startswith(name)), len(PREFERRED)), split


def chat_example(row: Row, answer: Text | None) -> Example:
    """Return a chat; without `answer`, the answer is the last message, if it is the assistant's."""
    messages = row.fields[CHAT]
    if not isinstance(messages, list) or not messages or not all(map(is_message, messages)):
        raise row.wrong(f"{CHAT!r} must be a list of messages, each with a role and a content, both texts")
    if answer is None and messages[-1]["role"] == ASSISTANT:
        *messages, last = messages
        answer = last["content"]
        if not messages:
            raise row.wrong(f"{CHAT!r} has only an answer of the assistant, and nothing that it answers")
    return Example(tuple(messages), answer, parts=parts_of(row))


def is_message(item: object) -> bool:
    return isinstance(item, Mapping) and all(isinstance(item.get(name), str) for name in ("role", "content"))


def parts_of(row: Row) -> Mapping[str, str] | None:
    """Return the parts of a prompt by name: those of a list are numbered from 1."""
    parts = row.fields.get(PARTS)
    if parts is None:
        return None
    named = {f"part {i}": part for i, part in enumerate(parts, 1)} if isinstance(parts, list) else parts
    if not isinstance(named, dict) or not all(isinstance(part, str) for part in named.values()):
        raise row.wrong("'parts' must be a list of texts, or an object of texts by name")
    return {str(name): part for name, part in named.items()}


def alignment_of(row: Row, source: Text, target: Text) -> tuple[Links, Links] | None:
    """Return the sure and the possible links of a row, given as "0-0 1p2" or as pairs; all within the two texts."""
    alignment = row.fields.get(ALIGNMENT)
    if alignment is None:
        return None
    sides: list[object] = [alignment, row.fields.get(POSSIBLE) or ()]
    if isinstance(alignment, str):
        matches = [LINK.fullmatch(link) for link in alignment.split()]
        if not all(matches):
            raise row.wrong(f"{ALIGNMENT!r} is {alignment!r:.60}, not of the form 0-0 1p2")
        sides = [[(int(m[1]), int(m[3])) for m in matches if m and m[2] == mark] for mark in "-p"]
    lengths = [len(split_words(text)[1]) for text in (source, target)]
    sure, possible = (frozenset(checked_links(row, links, lengths)) for links in sides)
    return sure, possible


def checked_links(row: Row, links: object, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of word numbers, all within texts of these lengths."""
    if not isinstance(links, list | tuple) or not all(is_link(link) for link in links):
        raise row.wrong(f"{ALIGNMENT!r} holds no pairs of word numbers, but {links!r:.60}")
    for one, other in links:
        if one >= lengths[0] or other >= lengths[1]:
            raise row.wrong(
                f"{ALIGNMENT!r} links word {one} to word {other}, counted from 0, but source and target have "
                f"{lengths[0]} and {lengths[1]} words"
            )
        yield one, other


def is_link(link: object) -> bool:
    """Return whether this is a pair of whole numbers that are not negative."""
    return isinstance(link, list | tuple) and len(link) == 2 and all(type(i) is int and i >= 0 for i in link)
