"""The engine that runs work on the cores of this machine: one process per core, each on one thread.

A pool of the standard library breaks as a whole when one of its processes dies; here that process is replaced and only
its item is tried again. A worker process waits for work on its connection, does it, and sends back the outcome, until
the connection is closed. It must not outlive the process that started it.
"""

import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from attnscope.errors import AttnscopeError, BadSetting, check_kinds, origin_of, require

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 3  # at an item whose process dies or whose GPU fails
PR_SET_PDEATHSIG = 1  # linux/prctl.h
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
STOP_TIMEOUT = 5.0  # seconds for a process to exit by itself
POLL_SECONDS = 1.0  # seconds between checks of processes that send nothing


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started inside the block; restore them afterwards."""
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
    """The outcome of one item: a value, or an error message.

    `gpu_failed` says that the GPU failed: by a CUDA error, after which whatever the process does fails, or for want of
    memory, which other processes may hold.
    """

    value: R | None = None
    failure: str | None = None
    gpu_failed: bool = False


OnDone = Callable[[int, Outcome[R]], None]
Needs = Mapping[int, Collection[int]]
NO_NEEDS: Needs = MappingProxyType({})


@runtime_checkable
class Engine(Protocol):
    """Applies a function to items, in other processes, and returns the outcomes in order.

    The function is one that another process can import; items and values are small plain data. An error in it is the
    failure of that item and of those that need it. An item whose process dies or whose GPU fails is tried again, up to
    three times in all. Of the items that are ready, the first is run first. `done` is called with the index of each
    finished item and its outcome. `needs` has, by the index of an item, the indices of those that must succeed before
    it is run.
    """

    def map(
        self, function: Callable[[T], R], items: Sequence[T], done: OnDone[R] | None = None, needs: Needs = NO_NEEDS
    ) -> list[Outcome[R]]: ...


class Schedule(Generic[R]):
    """The items of one call of `map`: those that are ready, those that wait for others, and the outcomes so far."""

    def __init__(self, count: int, done: OnDone[R] | None, needs: Needs) -> None:
        self.count, self.done = count, done
        self.waiting = {place: set(needed) for place, needed in needs.items() if needed}
        self.ready = [place for place in range(count) if place not in self.waiting]  # a heap
        self.outcomes: dict[int, Outcome[R]] = {}

    @property
    def finished(self) -> bool:
        return len(self.outcomes) == self.count

    def next(self) -> int:
        """Return the first item that is ready, to be run now."""
        return heappop(self.ready)

    def repeat(self, place: int) -> None:
        """Make an item ready again."""
        heappush(self.ready, place)

    def finish(self, place: int, outcome: Outcome[R]) -> None:
        """Record an outcome: items that need this one become ready, or fail with it."""
        self.outcomes[place] = outcome
        if self.done:
            self.done(place, outcome)
        for other in [other for other, needed in self.waiting.items() if place in needed]:
            if outcome.failure and self.waiting.pop(other, None):
                self.finish(other, Outcome(failure=outcome.failure))
            elif other in self.waiting:
                self.waiting[other].remove(place)
                if not self.waiting[other]:
                    del self.waiting[other]
                    heappush(self.ready, other)

    def results(self) -> list[Outcome[R]]:
        return [self.outcomes[place] for place in range(self.count)]


def run_item(function: Callable[[T], R], item: T) -> Outcome[R]:
    """Return the function's value for an item, or its error message.

    >>> run_item(len, "abc").value
    3
    """
    try:
        return Outcome(value=function(item))
    except (Exception, SystemExit) as error:
        return Outcome(failure=error_message(error), gpu_failed=gpu_failed(error))
    finally:  # after the error is deleted, and with it the frames that hold tensors
        free_gpu_memory()


def free_gpu_memory() -> None:
    """Return to the GPU what torch has cached, for the other processes that use it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        with suppress(torch.AcceleratorError):  # the GPU is lost
            torch.cuda.empty_cache()


def gpu_failed(error: BaseException) -> bool:
    """Return whether the GPU raised this error: a new process may succeed."""
    if type(error) is RuntimeError and "cudaGetDeviceCount" in str(error):  # the driver does not answer
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.AcceleratorError | torch.OutOfMemoryError)


def error_message(error: BaseException) -> str:
    """Return the message of an error; of an unexpected one, with its type and origin."""
    return str(error) if isinstance(error, AttnscopeError) else f"{type(error).__name__}: {error}{origin_of(error)}"


def serve(connection: Connection) -> None:
    """Run the work that comes in, until the connection is closed."""
    _end_with_parent()
    warnings.formatwarning = lambda message, *_: f"attnscope: warning: {' '.join(str(message).split())}\n"
    try:
        while True:
            connection.send_bytes(_outcome_bytes(connection.recv_bytes()))
    except (EOFError, ConnectionError):  # the parent no longer waits for an answer
        return


def _outcome_bytes(work: bytes) -> bytes:
    outcome = run_item(unpack_and_run, work)
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        return pickle.dumps(Outcome[object](failure=f"its result cannot be sent back: {error_message(error)}"))


def pack(function: Callable[[T], R], item: T, dumps: Callable[[object], bytes] = pickle.dumps) -> bytes:
    """Return work to be sent to another process, with this one's sys.path."""
    folders = [folder or os.getcwd() for folder in sys.path]
    try:
        return pickle.dumps((folders, dumps((function, item))))
    except Exception as error:
        raise BadSetting(f"{function!r} of {item!r} cannot be sent to another process: {error}") from error


def unpack_and_run(work: bytes) -> object:
    """Call the function of packed work, after adding the sender's sys.path."""
    folders, call = pickle.loads(work)
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    function, item = pickle.loads(call)
    return function(item)


def _end_with_parent() -> None:
    """End this process with its parent: on Linux by a signal of the kernel, elsewhere by a thread that waits for it."""
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
    """A process, and the index of the item that it works on."""

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
    """Return the workers that have sent something or have ended, after waiting a while for one.

    A process that ends mostly closes its connection, but not if a child process holds it open.
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


# The engine ----------------------------------------------------------------------------------------------------------


MAX_WORKERS = 512  # each is a process with its own torch


@dataclass(frozen=True)
class LocalEngine:
    """Runs on this machine: `workers` processes, by default one per core; 0 runs in this process."""

    workers: int | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        valid = self.workers is None or 0 <= self.workers <= MAX_WORKERS
        require(valid, f"workers must be 0 to {MAX_WORKERS}, not {self.workers}; this machine has {cores()} cores")

    def map(
        self, function: Callable[[T], R], items: Sequence[T], done: OnDone[R] | None = None, needs: Needs = NO_NEEDS
    ) -> list[Outcome[R]]:
        schedule = Schedule(len(items), done, needs)
        count = cores() if self.workers is None else self.workers
        if count:
            _Pool([pack(function, item) for item in items], schedule).run(count)
        else:
            while not schedule.finished:
                place = schedule.next()
                schedule.finish(place, run_item(function, items[place]))
        return schedule.results()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pool(Generic[R]):
    """One call of map: its schedule and the workers."""

    def __init__(self, work: Sequence[bytes], schedule: Schedule[R]) -> None:
        self.work, self.schedule = work, schedule
        self.attempts = [0] * len(work)
        self.workers: list[Worker] = []

    def run(self, count: int) -> None:
        try:
            while not self.schedule.finished:
                while self.schedule.ready and (worker := self.idle(count)):
                    self.send(worker, self.schedule.next())
                for worker in ready_workers(self.workers):
                    self.collect(worker)
        finally:
            stop_workers(self.workers)

    def idle(self, count: int) -> Worker | None:
        """Return a worker without work, a new one if there are fewer than `count`."""
        for worker in self.workers:
            if worker.place is None:
                return worker
        if len(self.workers) == count:
            return None
        self.workers.append(spawn())
        return self.workers[-1]

    def send(self, worker: Worker, place: int) -> None:
        worker.place = place
        self.attempts[place] += 1
        with suppress(ConnectionError):  # it died while idle, which is noticed when it is next polled
            worker.connection.send_bytes(self.work[place])

    def collect(self, worker: Worker) -> None:
        outcome: Outcome[R] | None = receive(worker)
        if outcome is None or outcome.gpu_failed:
            self.reap(worker, outcome)
        elif worker.place is not None:
            place, worker.place = worker.place, None
            self.schedule.finish(place, outcome)

    def reap(self, worker: Worker, outcome: Outcome[R] | None) -> None:
        """Replace a worker that died or whose GPU failed; its item waits again, or fails after its last attempt."""
        self.workers.remove(worker)
        stop_workers([worker])
        if worker.place is None:
            return
        if self.attempts[worker.place] < ATTEMPTS:
            self.schedule.repeat(worker.place)
        else:
            self.schedule.finish(worker.place, outcome or Outcome(failure=exit_message(worker.process.exitcode)))


def exit_message(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process died {ATTEMPTS} times, the last time by {signal.Signals(-code).name}"
    return f"its process ended {ATTEMPTS} times before the item was done, the last time with exit code {code}"
