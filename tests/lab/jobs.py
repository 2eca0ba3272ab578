"""Work for engines: functions that other processes import. As a script, `python jobs.py FOLDER`, work without end."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from attnscope.errors import AttnscopeError
from attnscope.lab import LocalEngine


def square(number: int) -> int:
    return number * number


def later_for_smaller(number: int) -> int:
    time.sleep(0.3 / (number + 1))
    return number


def parsed(text: str) -> object:
    return json.loads(text)


def reciprocal(number: int) -> float:
    if number < 0:
        raise AttnscopeError("a number must not be negative")
    if number > 100:
        sys.exit("too large")
    return 1 / number


def called_first(item: tuple[int, str]) -> bool:
    """Each call leaves a line in the item's file; the first one returns True."""
    number, folder = item
    record = Path(folder) / str(number)
    with record.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return len(record.read_text().splitlines()) == 1


def append(item: tuple[int, str]) -> int:
    """Takes a moment, then leaves a line in the file."""
    number, path = item
    time.sleep(0.2)
    with Path(path).open("a") as file:
        file.write(f"{number}\n")
    return number


def die_at_first(item: tuple[int, str]) -> int:
    """The first call of each item is killed in the middle of its work."""
    if called_first(item):
        os.kill(os.getpid(), signal.SIGKILL)
    return item[0] * item[0]


def die_if_odd(number: int) -> int:
    if number % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def lose_the_gpu_at_first(item: tuple[int, str]) -> int:
    """The first call of each item raises what torch raises after an index out of bounds on a GPU."""
    return lose_the_gpu_if_odd(int(called_first(item))) + item[0] * item[0]


def run_out_of_gpu_memory_at_first(item: tuple[int, str]) -> int:
    import torch

    if called_first(item):
        raise torch.OutOfMemoryError("CUDA out of memory")
    return item[0] * item[0]


def miss_the_gpu_at_first(item: tuple[int, str]) -> int:
    if called_first(item):
        raise RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 807: MPS server is not ready")
    return item[0] * item[0]


def lose_the_gpu_if_odd(number: int) -> int:
    import torch

    if number % 2:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")
    return number


def leave(code: int) -> None:
    os._exit(code)


def threads(_: Any) -> tuple[int, str]:
    import torch

    return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def process(_: Any) -> int:
    return os.getpid()


def unsendable(_: Any) -> Any:
    return lambda: None


def never_end(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    while True:
        sum(range(10_000))  # busy, as training is: not asleep in a system call


def on_a_node(item: tuple[int, str, float]) -> int:
    """Writes down which node of a Ray cluster it is at, then takes its time."""
    import ray

    number, folder, seconds = item
    with (Path(folder) / str(number)).open("a") as file:
        file.write(f"{ray.get_runtime_context().get_node_id()}\n")
    time.sleep(seconds)
    return number * number


def listening(_: Any) -> list[str]:
    """The addresses, in the kernel's writing, at which this process and its parent can be reached."""
    ours = {_socket(file) for process in (os.getpid(), os.getppid()) for file in Path(f"/proc/{process}/fd").iterdir()}
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return [line[1].split(":")[0] for line in lines if line[3] == "0A" and line[9] in ours]  # 0A: waits for callers


def _socket(file: Path) -> str:
    try:
        return str(file.readlink()).removeprefix("socket:[").removesuffix("]")
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run under nohup
    try:
        LocalEngine(workers=2).map(never_end, [sys.argv[1]] * 3)
    except KeyboardInterrupt:
        sys.exit("interrupted")
