"""The engine that runs work on a Ray cluster."""

import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from urllib.parse import urlsplit

from attnscope.errors import AttnscopeError
from attnscope.lab.engines.local import (
    ATTEMPTS,
    NO_NEEDS,
    POLL_SECONDS,
    Needs,
    OnDone,
    Outcome,
    R,
    Schedule,
    T,
    environment,
    pack,
    run_item,
    unpack_and_run,
)

QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}
CONNECT_TIMEOUT = 10.0  # seconds
LOCAL_CLUSTER = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}


@dataclass(frozen=True)
class RayEngine:
    """Runs on the Ray cluster at `address`; without one, on a new cluster of this machine alone."""

    address: str | None = None

    def map(
        self, function: Callable[[T], R], items: Sequence[T], done: OnDone[R] | None = None, needs: Needs = NO_NEEDS
    ) -> list[Outcome[R]]:
        schedule = Schedule(len(items), done, needs)
        running: dict[object, int] = {}
        with _interrupts_deferred() as raise_interrupt, _cluster(self.address) as ray:
            raise_interrupt()
            task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1, retry_exceptions=False)(run_item)
            # Packed here, so that a worker adds the folders of modules to its path before it imports the function.
            work = [pack(function, item, ray.cloudpickle.dumps) for item in items]
            try:
                while not schedule.finished:
                    # Ray's queue has no priorities: with one task more than cores, no item waits behind many others.
                    while schedule.ready and len(running) <= ray.cluster_resources().get("CPU", 0):
                        place = schedule.next()
                        running[task.remote(unpack_and_run, work[place])] = place
                    done_now, _ = ray.wait(list(running), timeout=POLL_SECONDS)
                    raise_interrupt()
                    for reference in done_now:
                        schedule.finish(running.pop(reference), _outcome(ray, reference))
            except BaseException:
                for reference in running:
                    ray.cancel(reference, force=True)
                raise
        return schedule.results()


@contextmanager
def _interrupts_deferred() -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C to calls of the yielded function: raised inside Ray's own code, it ends in a SystemError."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    interrupts: list[int] = []

    def raise_interrupt() -> None:
        if interrupts:
            handler(interrupts.pop(), None)

    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield raise_interrupt
    finally:
        signal.signal(signal.SIGINT, handler)
    raise_interrupt()


def _outcome(ray: ModuleType, reference: object) -> Outcome[R]:
    try:
        outcome: Outcome[R] = ray.get(reference)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
        return Outcome(failure=f"its process or its machine died {ATTEMPTS} times")
    except ray.exceptions.RayError as error:
        return Outcome(failure=f"Ray could not run it: {_in_one_line(error)}")
    return outcome


@contextmanager
def _cluster(address: str | None) -> Iterator[ModuleType]:
    """Yield Ray, connected; an existing connection is used, and left open."""
    with environment(_loopback_settings() if address is None else {}):
        ray = _ray()
        ours = not ray.is_initialized()
        if ours:
            _connect(ray, address)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: ModuleType, address: str | None) -> None:
    try:
        _check_reachable(address or "")
        ray.init(**QUIET, **(LOCAL_CLUSTER if address is None else {"address": address}))
    except Exception as error:  # Ray raises plain Exceptions, too
        what = f"reach the Ray cluster at {address}" if address else "start Ray on this machine"
        raise AttnscopeError(f"cannot {what}: {_in_one_line(error)}") from error


def _check_reachable(address: str) -> None:
    """Raise an OSError if nothing answers; Ray itself would retry for many minutes, and ignore signals meanwhile."""
    url = urlsplit(f"//{address.removeprefix('ray://')}")
    if url.hostname and url.port:
        socket.create_connection((url.hostname, url.port), timeout=CONNECT_TIMEOUT).close()


def _loopback_settings() -> dict[str, str]:
    """Return settings that keep a cluster of one machine on its loopback interface, closed to other users."""
    return {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # without this Ray replaces 127.0.0.1 by the external address
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": _authentication(),
    }


@cache
def _authentication() -> str:
    """Return how Ray authenticates: by a token, unless it was imported before, since it reads this on import."""
    return os.environ.get("RAY_AUTH_MODE", "disabled" if "ray" in sys.modules else "token")


def _ray() -> ModuleType:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise AttnscopeError("the engine 'ray' needs Ray: pip install 'attnscope[ray]'") from error


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
