"""What does a worker process do?

It waits for work on its connection, does it, and sends back the outcome, until the connection is closed. It must not
outlive the process that started it, however that one ends.
"""

import ctypes
import os
import pickle
import signal
import sys
import threading
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from attnscope.lab.engines.outcome import Outcome, attempt, sentence

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def serve(connection: Connection) -> None:
    _end_with_parent()
    try:
        while True:
            connection.send_bytes(_answer(connection.recv_bytes()))
    except (EOFError, ConnectionError):  # nobody is waiting for an answer any more
        return


def _answer(work: bytes) -> bytes:
    outcome = attempt(_do, work)
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        return pickle.dumps(Outcome[Any](failure=f"its result cannot be sent back: {sentence(error)}"))


def _do(work: bytes) -> Any:
    function, item = pickle.loads(work)
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
