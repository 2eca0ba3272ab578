"""Tasks: synthetic ones, SCAN, lookup tables, and text corpora for classification and translation."""

from typing import Any

from attnscope.tasks.batch import END, NOWHERE, PAD, SPECIALS, START, Batch, Vocabulary, pad
from attnscope.tasks.lookup_tables import LookupTables, PublishedLookupTables
from attnscope.tasks.scan import ExtendedSCAN, Scan
from attnscope.tasks.synthetic import (
    Copying,
    Keyword,
    NextTokens,
    OneToOne,
    RepeatedSequences,
    ReversedOneToOne,
    Sorting,
)
from attnscope.tasks.task import SPLITS, SyntheticTask, Task
from attnscope.tasks.text import (
    CORPORA,
    Classification,
    MissingCorpus,
    Preparation,
    Splits,
    Subwords,
    TextTask,
    Translation,
    Words,
    initial_embedding,
    statistics,
)

TASKS: dict[str, type[Any]] = {  # of Tasks, each with settings of its own
    "one_to_one": OneToOne,
    "reversed_one_to_one": ReversedOneToOne,
    "sorting": Sorting,
    "escan": ExtendedSCAN,
    "copying": Copying,
    "keyword": Keyword,
    "lookup_tables": LookupTables,
}

__all__ = [
    "CORPORA", "END", "NOWHERE", "PAD", "SPECIALS", "SPLITS", "START", "TASKS", "Batch", "Classification", "Copying",
    "ExtendedSCAN", "Keyword", "LookupTables", "MissingCorpus", "NextTokens", "OneToOne", "Preparation",
    "PublishedLookupTables", "RepeatedSequences", "ReversedOneToOne", "Scan", "Sorting", "Splits", "Subwords",
    "SyntheticTask", "Task", "TextTask", "Translation", "Vocabulary", "Words", "initial_embedding", "pad",
    "statistics",
]  # fmt: skip
