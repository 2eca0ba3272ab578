"""Work on the cores of this machine: one process per core, each on one thread.

A pool of the standard library breaks as a whole when one of its processes dies; here that process is replaced and only
its item is tried again.
"""

import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic

from attnscope.errors import require
from attnscope.lab.engines.worker import (
    ATTEMPTS,
    OnDone,
    Outcome,
    R,
    T,
    Worker,
    pack,
    ready_workers,
    receive,
    run_item,
    spawn,
    stop_workers,
)


@dataclass(frozen=True)
class LocalEngine:
    """Runs on this machine: `workers` processes, by default one per core; 0 runs in this process."""

    workers: int | None = None

    def __post_init__(self) -> None:
        require(self.workers is None or self.workers >= 0, f"workers must be 0 or more, not {self.workers}")

    def map(self, function: Callable[[T], R], items: Sequence[T], done: OnDone[R] | None = None) -> list[Outcome[R]]:
        count = cores() if self.workers is None else self.workers
        if count:
            return _Pool([pack(function, item) for item in items], done).run(count)
        outcomes = []
        for place, item in enumerate(items):
            outcomes.append(run_item(function, item))
            if done:
                done(place, outcomes[-1])
        return outcomes


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Pool(Generic[R]):
    """One call of map: items that wait, workers at others, and the outcomes so far."""

    def __init__(self, work: Sequence[bytes], done: OnDone[R] | None) -> None:
        self.work, self.done = work, done
        self.waiting = deque(range(len(work)))
        self.attempts = [0] * len(work)
        self.outcomes: dict[int, Outcome[R]] = {}
        self.workers: list[Worker] = []

    def run(self, count: int) -> list[Outcome[R]]:
        try:
            while len(self.outcomes) < len(self.work):
                while self.waiting and (worker := self.idle(count)):
                    self.send(worker, self.waiting.popleft())
                for worker in ready_workers(self.workers):
                    self.collect(worker)
        finally:
            stop_workers(self.workers)
        return [self.outcomes[place] for place in range(len(self.work))]

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
        with suppress(ConnectionError):  # it died while idle, which shows when it is next polled
            worker.connection.send_bytes(self.work[place])

    def collect(self, worker: Worker) -> None:
        outcome: Outcome[R] | None = receive(worker)
        if outcome is None:
            self.reap(worker)
        elif worker.place is not None:
            place, worker.place = worker.place, None
            self.finish(place, outcome)

    def reap(self, worker: Worker) -> None:
        """Remove a worker whose process died: its item waits again, or fails if this has happened too often."""
        self.workers.remove(worker)
        stop_workers([worker])
        if worker.place is None:
            return
        if self.attempts[worker.place] < ATTEMPTS:
            self.waiting.appendleft(worker.place)
        else:
            self.finish(worker.place, Outcome(failure=exit_message(worker.process.exitcode)))

    def finish(self, place: int, outcome: Outcome[R]) -> None:
        self.outcomes[place] = outcome
        if self.done:
            self.done(place, outcome)


def exit_message(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process died {ATTEMPTS} times, the last time by {signal.Signals(-code).name}"
    return f"its process ended {ATTEMPTS} times before the item was done, the last time with exit code {code}"
