"""A process that trains one run, for tests of several at once: `python trainer.py MODE ROOT`."""

import resource
import sys
import time
from pathlib import Path

from attnscope.errors import AttnscopeError
from attnscope.files import read_json, write_atomically, write_json
from attnscope.lab import Store

CONFIG = {"cell": "gru", "seed": 1}
LARGE = bytes(1_000_000)


def slowly(folder: Path) -> None:
    """Leaves a line for each time that it is trained, beside the store."""
    with (folder.parents[2] / "trained.txt").open("a") as file:
        file.write("once\n")
    time.sleep(0.5)


def step_by_step(folder: Path) -> None:
    """Takes up at its checkpoint; without one, never gets past the first."""
    checkpoint = folder / "checkpoints" / "step.json"
    if not checkpoint.exists():
        write_json(checkpoint, 1)
        time.sleep(600)
    write_json(folder / "result.json", read_json(checkpoint) + 1)


def on_a_full_disk(folder: Path) -> None:
    write_json(folder / "step.json", 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    write_atomically(folder / "weights.safetensors", LARGE)


def log_on_a_full_disk(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    (folder / "log.csv").write_bytes(LARGE)


def main(mode: str, root: str) -> None:
    with Store(root).work(CONFIG) as run:
        if not run.finished:
            globals()[mode](run.folder)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except AttnscopeError as error:
        sys.exit(str(error))
