"""Work on a Ray cluster, a real one of two nodes on this machine's loopback interface."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jobs
import pytest
from patience import alive, wait_for

from attnscope.errors import AttnscopeError
from attnscope.lab import Outcome, RayEngine

pytest.importorskip("ray", reason="Ray is not installed")

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
SWIFT = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Ray's processes can import the functions of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(jobs.__file__).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "_system_config": SWIFT})
    cluster.add_node(**node)
    yield cluster
    cluster.shutdown()


@pytest.mark.slow
def test_an_error_or_a_death_is_the_failure_of_its_item_alone(cluster: Any) -> None:
    outcome_of: dict[int, Outcome[float]] = {}
    outcomes = RayEngine(cluster.address).map(jobs.reciprocal, [2, 0, -1, 4], done=outcome_of.__setitem__)
    assert [outcome.value for outcome in outcomes] == [0.5, None, None, 0.25]
    assert outcomes[1].failure is not None
    assert outcomes[1].failure.startswith("ZeroDivisionError: division by zero")
    assert outcomes[2].failure == "a number must not be negative"
    assert [outcome_of[place] for place in range(4)] == outcomes


@pytest.mark.slow
def test_an_item_whose_process_always_dies_fails_alone(cluster: Any) -> None:
    outcomes = RayEngine(cluster.address).map(jobs.die_if_odd, [0, 1, 2])
    assert outcomes == [Outcome(0), Outcome(failure="its process or its machine died 3 times"), Outcome(2)]


@pytest.mark.slow
def test_an_item_runs_once_those_that_it_needs_are_done_before_others_or_fails_with_them(
    cluster: Any, tmp_path: Path
) -> None:
    items = [(number, str(tmp_path / "order")) for number in range(12)]
    outcomes = RayEngine(cluster.address).map(jobs.append, items, needs={0: [2], 1: [2, 3]})
    assert outcomes == [Outcome(number) for number in range(12)]
    order = [int(line) for line in (tmp_path / "order").read_text().split()]
    assert order.index(2) < order.index(0) < 10
    assert max(order.index(2), order.index(3)) < order.index(1) < 10
    failing = RayEngine(cluster.address).map(jobs.reciprocal, [1, 2, -1, 4], needs={0: [2], 1: [3]})
    assert [outcome.value for outcome in failing] == [None, 0.5, None, 0.25]
    assert failing[0].failure == "a number must not be negative"


@pytest.mark.slow
def test_a_worker_imports_the_modules_of_its_parent(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_driver.py").write_text("def double(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from beside_the_driver import double  # type: ignore[import-not-found]

    assert RayEngine(cluster.address).map(double, [4]) == [Outcome(8)]


@pytest.mark.slow
def test_an_existing_connection_is_reused_and_left_open(cluster: Any) -> None:
    import ray

    ray.init(address=cluster.address, log_to_driver=False)
    try:
        assert RayEngine("an address that is not needed").map(jobs.square, [3]) == [Outcome(9)]
        assert ray.is_initialized()
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_work_of_a_killed_node_moves_to_another_node(cluster: Any, tmp_path: Path) -> None:
    victim = next(iter(cluster.worker_nodes))

    def visits() -> list[list[str]]:
        return [path.read_text().split() for path in tmp_path.iterdir()]

    def kill() -> None:
        wait_for(lambda: any(victim.node_id in nodes for nodes in visits()))
        cluster.remove_node(victim, allow_graceful=False)  # SIGKILL to each of its processes

    killer = threading.Thread(target=kill)
    killer.start()
    outcomes = RayEngine(cluster.address).map(jobs.on_a_node, [(number, str(tmp_path), 1.0) for number in range(5)])
    killer.join()
    assert outcomes == [Outcome(number * number) for number in range(5)]
    assert any(nodes[0] == victim.node_id and len(nodes) == 2 for nodes in visits())


@pytest.mark.slow
def test_without_an_address_a_local_cluster_is_started_and_stopped() -> None:
    import ray

    (outcome,) = RayEngine().map(jobs.listening, [1])
    assert outcome.value
    assert set(outcome.value) <= LOOPBACK
    assert not ray.is_initialized()


@pytest.mark.slow
def test_a_cluster_is_made_where_ray_was_imported_before() -> None:
    code = "import ray, jobs; from attnscope.lab import RayEngine; print(RayEngine().map(jobs.square, [3])[0])"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(jobs.__file__).parent, env=clean, capture_output=True, text=True
    )
    assert result.stdout == f"{Outcome(9)}\n", result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [False, True], ids=["", "SIGINT was ignored"])
def test_ctrl_c_ends_with_one_sentence_and_leaves_no_process(tmp_path: Path, ignored: bool) -> None:
    """A shell without job control starts its background processes with SIGINT ignored."""
    words = ["reproduce", "aitken2021", "--only", "fig2-aed", "--engine", "ray", "--store", str(tmp_path)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        command = [sys.executable, "-m", "attnscope", *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            wait_for(lambda: bool(list(tmp_path.glob("working/*/config.json"))) or process.poll() is not None, 300)
            assert process.poll() is None, process.stderr.read()
            os.killpg(process.pid, signal.SIGINT)
            stderr = process.communicate(timeout=120)[1]
        finally:
            process.kill()  # else the block waits for it
    assert stderr.splitlines() == [
        "attnscope: interrupted; the same command resumes from here, and reuses finished runs"
    ]
    assert process.returncode == 130
    wait_for(lambda: not any(map(alive, of_session(process.pid))))


def of_session(leader: int) -> list[int]:
    """The processes of a session, as the sixth field of /proc/<process>/stat says."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            if int(path.read_text().rpartition(")")[2].split()[3]) == leader:
                processes.append(int(path.parent.name))
    return processes


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:port", "ray://127.0.0.1:1"])
def test_an_address_without_a_cluster_is_named(address: str) -> None:
    with pytest.raises(AttnscopeError, match=f"cannot reach the Ray cluster at {address}: "):
        RayEngine(address).map(jobs.square, [1])


def test_without_ray_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(AttnscopeError, match=r"pip install 'attnscope\[ray\]'"):
        RayEngine().map(jobs.square, [1])
