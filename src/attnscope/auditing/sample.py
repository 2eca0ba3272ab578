"""Which texts is a question asked about?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from attnscope.auditing.subject import Subject
from attnscope.models.adapters import Texts
from attnscope.tasks.batch import Batch


@dataclass(frozen=True)
class Sample:
    """The first texts of a subject, a batch at a time, from the beginning whenever asked."""

    subject: Subject
    most: int
    size: int = 32  # texts in a batch: how fast, and never what is found
    seed: int = 0
    quick: bool = False
    seen: Callable[[int], None] = lambda texts: None  # is told how many texts went by

    def __call__(self) -> Iterator[Texts]:
        for some in self.subject.texts(self.size, self.most):
            yield some
            self.seen(len(some.batch))

    def batches(self) -> Iterator[Batch]:
        return (texts.batch for texts in self())

    @property
    def texts(self) -> int:
        """How many the answer rests on."""
        return min(self.most, self.subject.count)
