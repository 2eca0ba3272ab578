"""A finished run is found by every process and is never trained twice; an incomplete run is not taken for one."""

import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trainer
from filelock import FileLock
from patience import wait_for

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.files import read_json, write_json
from attnscope.lab import DamagedRun, Store, key
from attnscope.lab.store import seal

CONFIG = {"cell": "gru", "seed": 0}
KEY = key(CONFIG)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def train(store: Store, config: dict[str, Any] = CONFIG) -> Path:
    with store.work(config) as run:
        (run.folder / "weights.safetensors").write_bytes(b"0123456789")
        write_json(run.folder / "checkpoints" / "step-1.json", [1, 2])
    return store.root / "runs" / run.key


def fail_after_a_step(store: Store) -> None:
    with store.work(CONFIG) as run:
        write_json(run.folder / "step.json", 1)
        raise ZeroDivisionError


def start(mode: str, store: Store) -> "subprocess.Popen[str]":
    command = [sys.executable, trainer.__file__, mode, str(store.root)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


# the key


def test_the_order_of_settings_does_not_change_the_key() -> None:
    config = {"task": {"name": "sorting", "length": 10}, "seed": 0}
    assert key({"seed": 0, "task": {"length": 10, "name": "sorting"}}) == key(config)


def test_any_other_setting_is_another_key() -> None:
    others = [{**CONFIG, "seed": 1}, {**CONFIG, "seed": 0.0}, {**CONFIG, "seed": "0"}, {**CONFIG, "threads": 1}, {}]
    assert len({key(config) for config in [CONFIG, *others]}) == 6


def test_the_key_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert key({"task": {"length": 10}, "rate": 1e-3, "α": None}) == "904f2b2616dc583256e2"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"bytes", {("a", 1): 2}])
def test_a_configuration_that_is_not_json_is_refused(store: Store, value: Any) -> None:
    with pytest.raises(BadSetting, match="a configuration must be JSON"), store.work({"setting": value}):
        pass
    assert not store.root.exists()


@pytest.mark.parametrize("name", ["", "..", "../../etc", KEY + "\n", KEY.upper()])
def test_an_invalid_key_is_refused(store: Store, name: str) -> None:
    with pytest.raises(BadSetting, match="is not the key of a run"):
        store.find(name)


# finished and unfinished


def test_a_run_is_found_once_it_is_finished(store: Store) -> None:
    assert store.find(KEY) is None
    with store.work(CONFIG) as run:
        assert not run.finished
        assert read_json(run.folder / "config.json") == CONFIG
        assert store.find(KEY) is None
        assert store.keys() == []
    assert store.find(KEY) == store.root / "runs" / KEY
    assert store.keys() == [KEY]


def test_a_finished_run_is_whole_and_known_by_its_configuration(store: Store) -> None:
    folder = train(store)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {"config.json", "manifest.json", "weights.safetensors", "checkpoints/step-1.json"}
    assert key(store.config(KEY)) == KEY
    assert not (store.root / "working" / KEY).exists()


def test_an_unfinished_run_has_no_configuration(store: Store) -> None:
    with pytest.raises(AttnscopeError, match=f"there is no finished run {KEY}"):
        store.config(KEY)


def test_a_finished_run_is_not_trained_again(store: Store) -> None:
    folder = train(store)
    with Store(store.root).work(CONFIG) as run:
        assert run.finished
        assert run.folder == folder


def test_files_survive_an_error_so_that_a_run_can_resume(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_after_a_step(store)
    assert store.find(KEY) is None
    with store.work(CONFIG) as run:
        assert not run.finished
        assert read_json(run.folder / "step.json") == 1
    assert store.find(KEY) is not None


def test_a_run_killed_just_before_its_end_is_unfinished(store: Store) -> None:
    folder = store.root / "working" / KEY
    write_json(folder / "config.json", CONFIG)
    seal(folder)
    assert store.find(KEY) is None
    with store.work(CONFIG) as run:
        assert not run.finished
        assert not (run.folder / "manifest.json").exists()


def test_a_partial_file_of_a_killed_write_is_removed(store: Store) -> None:
    with store.work(CONFIG) as run:
        (run.folder / ".weights.safetensors.0a1b2c3d.part").write_bytes(b"half")
    assert sorted(path.name for path in (store.root / "runs" / KEY).iterdir()) == ["config.json", "manifest.json"]


# damage


def altered(path: Path) -> None:
    time.sleep(0.02)  # past the resolution of the times of files
    path.write_bytes(bytes(len(path.read_bytes())))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "harm", "flaw"),
    [
        ("weights.safetensors", altered, "is altered"),
        ("weights.safetensors", truncated, "has 5 bytes, 10 were written"),
        ("weights.safetensors", Path.unlink, "is missing"),
        ("checkpoints/step-1.json", altered, "is altered"),
        ("config.json", Path.unlink, "is missing"),
        ("manifest.json", truncated, "is missing or malformed"),
        ("manifest.json", altered, "is missing or malformed"),
        ("manifest.json", Path.unlink, "is missing or malformed"),
        ("manifest.json", lambda path: path.write_text('{"files": [1]}'), "is missing or malformed"),
    ],
)
@pytest.mark.parametrize("seen_before", [True, False])
def test_a_damaged_run_is_named_set_aside_and_trained_again(
    store: Store, name: str, harm: Callable[[Path], None], flaw: str, seen_before: bool
) -> None:
    folder = train(store)
    assert not seen_before or store.find(KEY)
    harm(folder / name)
    with pytest.warns(DamagedRun, match=f"in run {KEY}, {name} {flaw}: moved to .*{KEY}-1, to be trained again"):
        assert store.find(KEY) is None
    assert (store.root / "damaged" / f"{KEY}-1").is_dir()
    assert store.find(train(store).name) == folder


def test_each_damaged_run_is_kept(store: Store) -> None:
    for _ in range(2):
        truncated(train(store) / "weights.safetensors")
        with pytest.warns(DamagedRun):
            store.find(KEY)
    assert {path.name for path in (store.root / "damaged").iterdir()} == {f"{KEY}-1", f"{KEY}-2"}


def test_a_damaged_run_starts_from_the_beginning(store: Store) -> None:
    truncated(train(store) / "weights.safetensors")
    with pytest.warns(DamagedRun):
        train(store)
    assert store.find(KEY) == store.root / "runs" / KEY
    assert (store.root / "damaged" / f"{KEY}-1").is_dir()


def test_a_damaged_run_locked_by_another_process_is_not_touched(store: Store) -> None:
    folder = train(store)
    truncated(folder / "weights.safetensors")
    with FileLock(store.root / "locks" / KEY), warnings.catch_warnings(action="error"):
        assert store.find(KEY) is None
    assert folder.is_dir()


def test_one_damaged_run_does_not_touch_another(store: Store) -> None:
    other = train(store, {"seed": 9})
    truncated(train(store) / "weights.safetensors")
    with pytest.warns(DamagedRun):
        store.find(KEY)
    assert store.find(other.name) == other


# several processes


def test_two_processes_that_want_the_same_run_train_it_once(store: Store) -> None:
    processes = [start("slowly", store) for _ in range(2)]
    assert [process.communicate()[1] for process in processes] == ["", ""]
    assert (store.root.parent / "trained.txt").read_text() == "once\n"
    assert store.keys() == [key(trainer.CONFIG)]


def test_a_killed_run_resumes(store: Store) -> None:
    name = key(trainer.CONFIG)
    with start("step_by_step", store) as process:
        wait_for((store.root / "working" / name / "checkpoints" / "step.json").exists)
        process.send_signal(signal.SIGKILL)
    assert store.find(name) is None
    assert store.keys() == []
    with start("step_by_step", store) as process:
        assert process.communicate()[1] == ""
    folder = store.find(name)
    assert folder is not None
    assert read_json(folder / "result.json") == 2


@pytest.mark.parametrize(
    ("mode", "place"), [("on_a_full_disk", "weights.safetensors"), ("log_on_a_full_disk", key(trainer.CONFIG))]
)
def test_a_full_disk_loses_no_finished_run(store: Store, mode: str, place: str) -> None:
    finished = train(store)
    with start(mode, store) as process:
        error = process.communicate()[1]
    assert f"{place}: File too large; finished runs are untouched" in error
    assert len(error.splitlines()) == 1
    assert Store(store.root).find(KEY) == finished
    assert store.keys() == [KEY]
    assert train(store, trainer.CONFIG).is_dir()


@pytest.mark.parametrize("place", ["locks", "working", f"working/{KEY}", "runs"])
def test_a_store_that_cannot_be_written_says_where(store: Store, place: str) -> None:
    (store.root / place).parent.mkdir(parents=True)
    (store.root / place).write_text("a file where a folder should be")
    with (
        pytest.raises(AttnscopeError, match=rf"{store.root / place}.*; finished runs are untouched"),
        store.work(CONFIG),
    ):
        pass


def test_a_store_without_room_for_locks_can_still_be_read(store: Store) -> None:
    folder = train(store)
    (store.root / "locks" / KEY).unlink(missing_ok=True)
    (store.root / "locks").rmdir()
    (store.root / "locks").write_text("")
    with store.work(CONFIG) as run:
        assert run.finished
    assert Store(store.root).find(KEY) == folder
