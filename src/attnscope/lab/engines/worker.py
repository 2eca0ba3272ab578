"""How is a worker process started, heard of, and dismissed?"""

import multiprocessing
import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from attnscope.lab.engines.environment import environment
from attnscope.lab.engines.outcome import Outcome
from attnscope.lab.engines.serve import serve

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PATIENCE = 5.0  # seconds for a process to leave by itself
PULSE = 1.0  # seconds between looks at processes that say nothing


@dataclass
class Worker:
    """A process, and the place of the item that it is at."""

    process: SpawnProcess
    connection: Connection
    place: int | None = None


def hire() -> Worker:
    """Start a process that serves, on one thread."""
    context = multiprocessing.get_context("spawn")  # a forked copy of a process that uses torch may hang
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    with environment(ONE_THREAD), _deaf_to_interrupts(), theirs:
        process.start()
    return Worker(process, ours)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started inside the block does not hear Ctrl-C: that is this process's to answer."""
    resource_tracker.ensure_running()  # else started along with the first process, and it opens our ears again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def heard_of(workers: list[Worker]) -> list[Worker]:
    """Those that have sent something or have ended, waiting a while for there to be any.

    The end of a process mostly shows as the end of its connection, but not where a child of its own holds that open.
    """
    ready = wait([worker.connection for worker in workers], timeout=PULSE)
    return [worker for worker in workers if worker.connection in ready or not worker.process.is_alive()]


def received(worker: Worker) -> Outcome[Any] | None:
    """What a worker that was heard of has sent; None if it died."""
    try:
        answer = worker.connection.recv_bytes() if worker.connection.poll() else None
    except (EOFError, OSError):
        return None
    return pickle.loads(answer) if answer else None


def dismiss(workers: list[Worker]) -> None:
    """End processes: an idle one leaves when its connection is closed, a busy one is stopped."""
    for worker in workers:
        worker.connection.close()
        if worker.place is not None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(PATIENCE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
