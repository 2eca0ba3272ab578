"""How is work spread over the cores of this machine?

One process a core, each on one thread. A pool of the standard library breaks as a whole when one of its processes
dies; here that process is replaced and only its item is tried again.
"""

import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic

from attnscope.errors import BadSetting, require
from attnscope.lab.engines.outcome import ATTEMPTS, Done, Outcome, R, T, attempt, sentence
from attnscope.lab.engines.worker import serve

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PATIENCE = 5.0  # seconds for a process to leave by itself
PULSE = 1.0  # seconds between looks at processes that say nothing


@dataclass(frozen=True)
class LocalEngine:
    """Runs on this machine: `workers` processes, by default one a core; 0 runs in this process."""

    workers: int | None = None

    def __post_init__(self) -> None:
        require(self.workers is None or self.workers >= 0, f"workers must be 0 or more, not {self.workers}")

    def map(self, function: Callable[[T], R], items: Sequence[T], done: Done[R] | None = None) -> list[Outcome[R]]:
        count = cores() if self.workers is None else self.workers
        if count == 0:
            return [_here(function, place, item, done) for place, item in enumerate(items)]
        _require_importable(function)
        return _Shift(function, items, done).run(count)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _here(function: Callable[[T], R], place: int, item: T, done: Done[R] | None) -> Outcome[R]:
    outcome = attempt(function, item)
    if done:
        done(place, outcome)
    return outcome


def _require_importable(function: Callable[..., Any]) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:
        raise BadSetting(f"another process cannot import the function {function!r}: {error}") from error


@dataclass
class _Worker:
    """A process and the place of the item that it is at."""

    process: SpawnProcess
    connection: "Connection[Any, Any]"
    place: int | None = None


class _Shift(Generic[T, R]):
    """One call of map: items that wait, workers at others, and the outcomes so far."""

    def __init__(self, function: Callable[[T], R], items: Sequence[T], done: Done[R] | None) -> None:
        self.function, self.items, self.done = function, items, done
        self.waiting = deque(range(len(items)))
        self.attempts = [0] * len(items)
        self.outcomes: dict[int, Outcome[R]] = {}
        self.workers: list[_Worker] = []

    def run(self, count: int) -> list[Outcome[R]]:
        try:
            while len(self.outcomes) < len(self.items):
                self.hand_out(count)
                for worker in _heard_of(self.workers):
                    self.hear(worker)
        finally:
            _dismiss(self.workers)
        return [self.outcomes[place] for place in range(len(self.items))]

    def hand_out(self, count: int) -> None:
        while self.waiting and (worker := self.idle(count)):
            self.give(worker, self.waiting.popleft())

    def idle(self, count: int) -> _Worker | None:
        for worker in self.workers:
            if worker.place is None:
                return worker
        if len(self.workers) < count:
            self.workers.append(_hire())
            return self.workers[-1]
        return None

    def give(self, worker: _Worker, place: int) -> None:
        try:
            work = pickle.dumps((self.function, self.items[place]))
        except Exception as error:
            self.finish(place, Outcome(failure=f"the item cannot be sent to another process: {sentence(error)}"))
            return
        worker.place = place
        self.attempts[place] += 1
        with suppress(ConnectionError):  # it died while idle: seen when it is next heard of
            worker.connection.send_bytes(work)

    def hear(self, worker: _Worker) -> None:
        try:
            outcome = pickle.loads(worker.connection.recv_bytes())
        except (EOFError, OSError):
            self.bury(worker)
            return
        place, worker.place = worker.place, None
        if place is not None:
            self.finish(place, outcome)

    def bury(self, worker: _Worker) -> None:
        """A process died: its item waits again, or has failed if this has happened too often."""
        self.workers.remove(worker)
        _dismiss([worker])
        if worker.place is None:
            return
        if self.attempts[worker.place] < ATTEMPTS:
            self.waiting.appendleft(worker.place)
        else:
            self.finish(worker.place, Outcome(failure=_epitaph(worker.process.exitcode)))

    def finish(self, place: int, outcome: Outcome[R]) -> None:
        self.outcomes[place] = outcome
        if self.done:
            self.done(place, outcome)


def _heard_of(workers: list[_Worker]) -> list[_Worker]:
    """Those that have sent something, or have ended.

    The end of a process mostly shows as the end of its connection, but not where a process of its own holds that open.
    """
    ready = wait([worker.connection for worker in workers], timeout=PULSE)
    return [worker for worker in workers if worker.connection in ready or not worker.process.is_alive()]


def _epitaph(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process died {ATTEMPTS} times, the last time by {signal.Signals(-code).name}"
    return f"its process ended {ATTEMPTS} times before the item was done, the last time with exit code {code}"


def _hire() -> _Worker:
    context = multiprocessing.get_context("spawn")  # a forked copy of a process that uses torch may hang
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    with _started_quietly(), theirs:
        process.start()
    return _Worker(process, ours)


@contextmanager
def _started_quietly() -> Iterator[None]:
    """What a process inherits at its start: one thread for computing, and no ear for Ctrl-C, which is ours to answer."""
    resource_tracker.ensure_running()  # it would be started along with the first process, and listen to Ctrl-C again
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        _restore(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _restore(environment: dict[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _dismiss(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.connection.close()  # tells an idle one to leave
        if worker.place is not None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(PATIENCE)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
