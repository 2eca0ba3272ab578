"""Progress bars for the terminal; silent elsewhere."""

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
def run_progress(title: str) -> Iterator[Callable[[str, int, int, str], None]]:
    """Show how many jobs of training and of measuring are done, and print failures at once."""
    with bar(f"{title}, trained") as (progress, trained):
        tasks = {"trained": trained, "measured": progress.add_task(f"{title}, measured", total=None)}

        def report(stage: str, done: int, total: int, failure: str) -> None:
            progress.update(tasks[stage], completed=done, total=total)
            if failure:
                progress.console.print(f"a run failed: {failure}", markup=False)

        yield report


@contextmanager
def training_progress(title: str) -> Iterator[ReportProgress]:
    """Show how many steps are done, and the last word accuracy."""
    with bar(title) as (progress, task):

        def report(step: int, steps: int, row: Mapping[str, float]) -> None:
            description = f"{title}: word accuracy {row['word_accuracy']:.3f}"
            progress.update(task, completed=step, total=steps, description=description)

        yield report


@contextmanager
def text_progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show how many texts are done, and the current measurement."""
    with bar(title) as (progress, task):

        def report(done: int, total: int, measurement: str) -> None:
            progress.update(task, completed=done, total=total, description=f"{title}: {measurement}")

        yield report
