"""A reproduction that is killed repeatedly gives the same results as one that is not."""

import multiprocessing
import random
import time
from pathlib import Path

import pytest
from small_translations import TINY

from attnscope.files import read_json
from attnscope.lab.engines import LocalEngine
from attnscope.studies import study
from attnscope.studies.aitken2021.experiments import PROFILES
from attnscope.studies.reproduce import reproduce

KILLS = 20
FINDING = "fig2-aed"


def carried_out(store: Path) -> None:
    PROFILES["tiny"] = TINY
    reproduce(study("aitken2021"), [study("aitken2021").finding(FINDING)], "tiny", 2, store, LocalEngine(0))


def attempt(store: Path, seconds: float | None) -> int | None:
    """In a process of its own, which is killed after so many seconds; how it ended."""
    process = multiprocessing.get_context("fork").Process(target=carried_out, args=(store,))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


def left_in(store: Path) -> tuple[dict[str, object], dict[str, bytes]]:
    """The result, but for the time that it took, and the weights of every run."""
    result = read_json(store / "results" / "aitken2021" / f"{FINDING}.json")
    weights = {path.parent.name: path.read_bytes() for path in store.glob("runs/*/weights.safetensors")}
    del result["digest"]  # of the times, too
    for each in (result, *result["by_seed"]):
        del each["seconds"]
    return result, weights


@pytest.mark.slow
def test_kills_at_any_moment_change_nothing(tmp_path):
    begun = time.monotonic()
    assert attempt(tmp_path / "alone", None) == 0
    whole, draw = time.monotonic() - begun, random.Random(0)
    ends = [attempt(tmp_path / "killed", draw.uniform(0, whole / 3)) for _ in range(KILLS)]
    assert ends.count(-9) >= 3, "the attempts were over too soon to be killed"
    assert attempt(tmp_path / "killed", None) == 0
    assert left_in(tmp_path / "killed") == left_in(tmp_path / "alone")
