"""How far is long work? Shown on a terminal; silent elsewhere."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from attnscope.training.fit import ReportProgress


@contextmanager
def bar(title: str) -> Iterator[tuple[Progress, TaskID]]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        yield progress, progress.add_task(title, total=None)


@contextmanager
def counting(title: str) -> Iterator["Count"]:
    """Runs done of runs in all; a failure is told at once."""
    with bar(title) as (progress, task):
        yield Count(progress, task)


class Count:
    def __init__(self, progress: Progress, task: TaskID):
        self.progress, self.task = progress, task

    def __call__(self, done: int, total: int, failure: str) -> None:
        self.progress.update(self.task, completed=done, total=total)
        if failure:
            self.progress.console.print(f"a run failed: {failure}", markup=False)


@contextmanager
def training(title: str) -> Iterator[ReportProgress]:
    """Steps done, with the last word accuracy."""
    with bar(title) as (progress, task):

        def report(step: int, steps: int, row: Mapping[str, float]) -> None:
            description = f"{title}: word accuracy {row['word_accuracy']:.3f}"
            progress.update(task, completed=step, total=steps, description=description)

        yield report


@contextmanager
def asking(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Texts done of texts in all, and what they are being asked."""
    with bar(title) as (progress, task):

        def seen(done: int, of: int, asks: str) -> None:
            progress.update(task, completed=done, total=of, description=f"{title}: {asks}")

        yield seen
