"""What is to be learned."""

from attnscope.tasks.batch import END, NOWHERE, PAD, SPECIALS, START, Batch, Vocabulary, pad
from attnscope.tasks.escan import ExtendedSCAN
from attnscope.tasks.letters import OneToOne, ReversedOneToOne, Sorting
from attnscope.tasks.task import SPLITS, SyntheticTask, Task

TASKS: dict[str, type[SyntheticTask]] = {
    "one_to_one": OneToOne,
    "reversed_one_to_one": ReversedOneToOne,
    "sorting": Sorting,
    "escan": ExtendedSCAN,
}

__all__ = [
    "END", "NOWHERE", "PAD", "SPECIALS", "SPLITS", "START", "TASKS", "Batch", "ExtendedSCAN", "OneToOne",
    "ReversedOneToOne", "Sorting", "SyntheticTask", "Task", "Vocabulary", "pad",
]  # fmt: skip
