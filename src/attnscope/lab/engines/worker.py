"""Worker processes: how they are started, what they do, and what comes back from them.

A worker waits for work on its connection, does it, and sends back the outcome, until the connection is closed. It must
not outlive the process that started it, however that one ends.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from attnscope.errors import AttnscopeError, BadSetting

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 3  # at an item whose process dies under it
PR_SET_PDEATHSIG = 1  # linux/prctl.h
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
STOP_TIMEOUT = 5.0  # seconds for a process to leave by itself
POLL_SECONDS = 1.0  # seconds between checks of processes that send nothing


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for what is started inside the block; afterwards they are as they were."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What came of one item: a value, or the sentence that says why there is none."""

    value: R | None = None
    failure: str | None = None


OnDone = Callable[[int, Outcome[R]], None]


@runtime_checkable
class Engine(Protocol):
    """Applies a function to items, in other processes, and returns the outcomes in order.

    The function is one that another process can import; items and values are small plain data. An error in it is the
    failure of that item alone. An item whose process dies is tried again, up to three times in all. `done` is called
    with each outcome as it comes, and with the item's place in the order.
    """

    def map(
        self, function: Callable[[T], R], items: Sequence[T], done: OnDone[R] | None = None
    ) -> list[Outcome[R]]: ...


def run_item(function: Callable[[T], R], item: T) -> Outcome[R]:
    """Return the function's value for an item, or its error as a sentence.

    >>> run_item(len, "abc")
    Outcome(value=3, failure=None)
    """
    try:
        return Outcome(value=function(item))
    except (Exception, SystemExit) as error:
        return Outcome(failure=error_message(error))


def error_message(error: BaseException) -> str:
    """Return an error as a sentence; one that was not meant for users also says its type and where it arose."""
    if isinstance(error, AttnscopeError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def serve(connection: Connection) -> None:
    """Do the work that comes in, until the connection is closed."""
    _end_with_parent()
    try:
        while True:
            connection.send_bytes(_outcome_bytes(connection.recv_bytes()))
    except (EOFError, ConnectionError):  # nobody is waiting for an answer any more
        return


def _outcome_bytes(work: bytes) -> bytes:
    outcome = run_item(unpack_and_run, work)
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        return pickle.dumps(Outcome[object](failure=f"its result cannot be sent back: {error_message(error)}"))


def pack(function: Callable[[T], R], item: T, dumps: Callable[[object], bytes] = pickle.dumps) -> bytes:
    """Return work to be sent to another process, with the folders in which this one finds modules."""
    folders = [folder or os.getcwd() for folder in sys.path]
    try:
        return pickle.dumps((folders, dumps((function, item))))
    except Exception as error:
        raise BadSetting(f"{function!r} of {item!r} cannot be sent to another process: {error}") from error


def unpack_and_run(work: bytes) -> object:
    """Call the function of packed work, which may be in a module that only the sender found so far."""
    folders, call = pickle.loads(work)
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    function, item = pickle.loads(call)
    return function(item)


def _end_with_parent() -> None:
    """The kernel's signal reaches a process that is deep in a computation; the thread serves where there is none."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch_parent, daemon=True).start()


def _watch_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@dataclass
class Worker:
    """A process, and the place of the item that it works on."""

    process: SpawnProcess
    connection: Connection
    place: int | None = None


def spawn() -> Worker:
    """Start a worker process, on one thread."""
    context = multiprocessing.get_context("spawn")  # a forked copy of a process that uses torch may hang
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    with environment(ONE_THREAD), _interrupts_blocked(), theirs:
        process.start()
    return Worker(process, ours)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT for processes started inside the block: Ctrl-C is handled by this process alone."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # else started along with the first process, and it unblocks the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def ready_workers(workers: list[Worker]) -> list[Worker]:
    """Return those that have sent something or have ended, after waiting a while for one.

    The end of a process mostly shows as the end of its connection, but not where a child of its own holds that open.
    """
    ready = wait([worker.connection for worker in workers], timeout=POLL_SECONDS)
    return [worker for worker in workers if worker.connection in ready or not worker.process.is_alive()]


def receive(worker: Worker) -> Any:
    """Return the outcome that a ready worker has sent; None if it died."""
    try:
        answer = worker.connection.recv_bytes() if worker.connection.poll() else None
    except (EOFError, OSError):
        return None
    return pickle.loads(answer) if answer else None


def stop_workers(workers: list[Worker]) -> None:
    """End processes: an idle one exits when its connection is closed, a busy one is terminated."""
    for worker in workers:
        worker.connection.close()
        if worker.place is not None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(STOP_TIMEOUT)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
