"""Work on the cores of this machine: in order, failures by item, and no process left behind."""

import os
import re
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs
import pytest
from patience import alive, wait_for

from attnscope.errors import BadSetting
from attnscope.lab import Engine, LocalEngine, Outcome, RayEngine, engine
from attnscope.lab.engines.local import cores


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_outcomes_come_in_the_order_of_the_items(workers: int) -> None:
    outcomes = LocalEngine(workers).map(jobs.later_for_smaller, range(4))
    assert outcomes == [Outcome(value=number) for number in range(4)]


def test_no_items_give_no_outcomes() -> None:
    assert LocalEngine().map(jobs.square, []) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_each_outcome_is_reported_when_it_is_ready(workers: int) -> None:
    values: dict[int, Any] = {}
    LocalEngine(workers).map(jobs.square, [3, 4, 5], done=lambda place, outcome: values.update({place: outcome.value}))
    assert values == {0: 9, 1: 16, 2: 25}


def test_an_error_in_a_library_names_the_line_of_the_users_file() -> None:
    (outcome,) = LocalEngine(0).map(jobs.parsed, ["{"])
    assert outcome.failure is not None
    assert re.search(r"^JSONDecodeError: .* \(jobs.py, line \d+\)$", outcome.failure)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_is_the_failure_of_its_item_alone(workers: int) -> None:
    outcomes = LocalEngine(workers).map(jobs.reciprocal, [2, 0, -1, 101, 4])
    assert [outcome.value for outcome in outcomes] == [0.5, None, None, None, 0.25]
    division, negative, large = (outcome.failure for outcome in outcomes[1:4])
    assert division is not None
    assert division.startswith("ZeroDivisionError: division by zero (jobs.py, line ")
    assert negative == "a number must not be negative"
    assert large is not None
    assert large.startswith("SystemExit: too large")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_item_runs_as_soon_as_those_that_it_needs_are_done(workers: int, tmp_path: Path) -> None:
    items = [(number, str(tmp_path / "order")) for number in range(6)]
    outcomes = LocalEngine(workers).map(jobs.append, items, needs={0: [4], 1: [2, 3], 2: [4]})
    assert outcomes == [Outcome(value=number) for number in range(6)]
    assert [int(line) for line in (tmp_path / "order").read_text().split()] == [3, 4, 0, 2, 1, 5]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_item_fails_with_one_that_it_needs_and_others_do_not(workers: int) -> None:
    done: list[int] = []
    needs = {0: [3, 5], 1: [4], 2: [0, 3]}
    outcomes = LocalEngine(workers).map(
        jobs.reciprocal, [1, 2, 4, -1, 5, 8], done=lambda place, _: done.append(place), needs=needs
    )
    assert [outcome.value for outcome in outcomes] == [None, 0.5, None, None, 0.2, 0.125]
    assert {outcomes[place].failure for place in (0, 2, 3)} == {"a number must not be negative"}
    assert sorted(done) == list(range(6))


def test_an_item_whose_process_is_killed_is_tried_again(tmp_path: Path) -> None:
    outcomes = LocalEngine(2).map(jobs.die_at_first, [(number, str(tmp_path)) for number in range(3)])
    assert outcomes == [Outcome(value=number * number) for number in range(3)]
    assert all(len(set((tmp_path / str(number)).read_text().split())) == 2 for number in range(3))


def test_an_item_whose_process_always_dies_fails_alone() -> None:
    outcomes = LocalEngine(2).map(jobs.die_if_odd, [0, 1, 2, 4])
    assert outcomes[1].failure == "its process died 3 times, the last time by SIGKILL"
    assert [outcome.value for outcome in outcomes] == [0, None, 2, 4]


@pytest.mark.parametrize(
    "job", [jobs.lose_the_gpu_at_first, jobs.run_out_of_gpu_memory_at_first, jobs.miss_the_gpu_at_first]
)
def test_a_process_whose_gpu_failed_is_replaced(tmp_path: Path, job: Callable[[tuple[int, str]], int]) -> None:
    outcomes = LocalEngine(1).map(job, [(number, str(tmp_path)) for number in range(2)])
    assert outcomes == [Outcome(value=number * number) for number in range(2)]
    assert all(len(set((tmp_path / str(number)).read_text().split())) == 2 for number in range(2))


def test_an_item_that_always_loses_the_gpu_fails_by_its_own_error_and_the_others_do_not() -> None:
    outcomes = LocalEngine(1).map(jobs.lose_the_gpu_if_odd, [0, 1, 2])
    assert [outcome.value for outcome in outcomes] == [0, None, 2]
    assert outcomes[1].failure is not None
    assert outcomes[1].failure.startswith("AcceleratorError: CUDA error: device-side assert triggered (jobs.py, line ")


def test_a_process_that_exits_early_has_not_finished_its_item() -> None:
    (outcome,) = LocalEngine(1).map(jobs.leave, [0])
    assert outcome.failure == "its process ended 3 times before the item was done, the last time with exit code 0"


def test_a_value_that_cannot_be_sent_back_is_a_failure() -> None:
    (outcome,) = LocalEngine(1).map(jobs.unsendable, [0])
    assert outcome.failure is not None
    assert outcome.failure.startswith("its result cannot be sent back: ")


def test_a_function_that_cannot_be_imported_is_refused_at_once() -> None:
    with pytest.raises(BadSetting, match="cannot be sent to another process"):
        LocalEngine(1).map(lambda item: item, [1])


def test_processes_are_reused_and_no_more_than_there_are_items() -> None:
    of_two = {outcome.value for outcome in LocalEngine(2).map(jobs.process, range(8))}
    of_many = {outcome.value for outcome in LocalEngine(50).map(jobs.process, range(2))}
    assert len(of_two) <= 2
    assert len(of_many) <= 2
    assert os.getpid() not in of_two | of_many
    assert not any(alive(process) for process in of_two | of_many)


def test_without_workers_the_work_is_done_in_this_process() -> None:
    assert LocalEngine(0).map(jobs.process, [1]) == [Outcome(value=os.getpid())]


@pytest.mark.slow
def test_a_worker_computes_on_one_thread_whatever_this_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert LocalEngine(1).map(jobs.threads, [1]) == [Outcome(value=(1, "1"))]
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_worker_imports_the_modules_of_its_parent(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those beside a script of one's own, whose folder was added to sys.path."""
    (tmp_path / "beside_the_script.py").write_text("def double(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from beside_the_script import double  # type: ignore[import-not-found]

    assert LocalEngine(workers).map(double, [4]) == [Outcome(value=8)]


def test_an_error_of_the_listener_stops_the_work() -> None:
    def refuse(place: int, outcome: Outcome[int]) -> None:
        raise RuntimeError(f"item {place} is not wanted")

    with pytest.raises(RuntimeError, match="is not wanted"):
        LocalEngine(2).map(jobs.later_for_smaller, range(4), refuse)


def test_memory_of_the_gpu_is_freed_after_each_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of an item that failed, which its error refers to."""
    import torch

    alive_then: list[bool] = []
    tensor = weakref.ref(torch.nn.Linear(1, 1))

    def fail(item: int) -> None:
        nonlocal tensor
        layer = torch.nn.Linear(1, 1)
        tensor = weakref.ref(layer)
        raise ValueError("no")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive_then.append(tensor() is not None))
    assert LocalEngine(0).map(fail, [1])[0].failure
    assert alive_then == [False]


@pytest.mark.parametrize(
    ("how", "said"), [(signal.SIGKILL, ""), (signal.SIGTERM, ""), (signal.SIGINT, "interrupted\n")]
)
def test_no_process_is_left_when_this_one_ends(tmp_path: Path, how: signal.Signals, said: str) -> None:
    """All of the group are interrupted, as by Ctrl-C; the other signals are for the parent alone."""
    command = [sys.executable, jobs.__file__, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        workers = [int(path.name) for path in tmp_path.iterdir()]
        assert all(map(alive, workers))
        try:
            (os.killpg if how == signal.SIGINT else os.kill)(parent.pid, how)
            wait_for(lambda: not any(map(alive, workers)))
            assert parent.communicate(timeout=20)[1] == said
        finally:
            parent.kill()  # else the block waits for it


def test_there_is_by_default_a_worker_for_each_core_that_may_be_used() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system does not tie processes to cores")
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [min(allowed)])
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores() == len(allowed)


def test_engines_are_chosen_by_name() -> None:
    assert engine("local", workers=3) == LocalEngine(3)
    assert engine("ray", address="10.0.0.1:6379") == RayEngine("10.0.0.1:6379")
    assert all(isinstance(engine(name), Engine) for name in ("local", "ray"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "slurm"}, "there is no engine 'slurm'; choose one of local, ray"),
        ({"name": "local", "workers": -1}, "workers must be 0 to 512, not -1"),
        ({"name": "local", "workers": 100_000}, "workers must be 0 to 512, not 100000"),
        ({"name": "local", "address": "auto"}, "the engine 'local' has no address"),
        ({"name": "ray", "workers": 2}, "as many workers as its cluster has cores"),
    ],
)
def test_a_setting_that_an_engine_does_not_have_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        engine(**settings)
