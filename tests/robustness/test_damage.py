"""A damaged stored file is detected and set aside, and its content is computed again, bit-equal."""

import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from attnscope.auditing import Settings, audit
from attnscope.errors import AttnscopeError
from attnscope.files import Damaged, read_checked, read_json, write_checked
from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import Experiment, start_training, train
from attnscope.lab.store import MANIFEST, DamagedRun, Store
from attnscope.loading import load
from attnscope.models import ClassifierSettings
from attnscope.studies import study
from attnscope.studies.aitken2021.experiments import PROFILES
from attnscope.studies.reproduce import reproduce
from attnscope.tasks import Keyword
from attnscope.training import TrainingSettings
from attnscope.training.fit import TrainingRun
from auditing.known_answers import honest, marked_examples
from studies.small_translations import TINY

SMALL = Experiment(
    task=Keyword(test_size=20),
    model=ClassifierSettings(input_size=5, units=4, hidden=3),
    training=TrainingSettings(steps=6, batch_size=8, evaluate_every=2, checkpoints=(2, 4)),
)


def digit(data: bytes) -> bytes:
    """Another digit in the last number of a text; in tensors, some byte that happens to be a digit or the last one."""
    place = max((i for i, byte in enumerate(data) if chr(byte).isdigit()), default=len(data) - 1)
    return data[:place] + (b"1" if data[place : place + 1] == b"2" else b"2") + data[place + 1 :]


def bit(data: bytes) -> bytes:
    place = len(data) * 3 // 4
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def nothing(data: bytes) -> bytes:
    return b""


def without_checksum(data: bytes) -> bytes:
    """As earlier versions wrote it."""
    return data.partition(b"\n")[2]


HARMS = [digit, bit, half, nothing]
every_harm = pytest.mark.parametrize("harm", HARMS)
every_harm_of_checked_files = pytest.mark.parametrize("harm", [*HARMS, without_checksum])


def spoil(path: Path, harm) -> None:
    before = path.read_bytes()
    path.write_bytes(harm(before))
    assert path.read_bytes() != before


def without_seconds(content):
    """The content without times, and without the digest of a result, which depends on them."""
    if isinstance(content, dict):
        return {name: without_seconds(value) for name, value in content.items() if name not in ("seconds", "digest")}
    return [without_seconds(value) for value in content] if isinstance(content, list) else content


# Any checked file ----------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_detected(tmp_path):
    path = tmp_path / "x"
    write_checked(path, b'{"a": 1}')
    assert read_checked(path) == b'{"a": 1}'
    whole = path.read_bytes()
    for place in range(8 * len(whole)):
        path.write_bytes(whole[: place // 8] + bytes([whole[place // 8] ^ (1 << place % 8)]) + whole[place // 8 + 1 :])
        with pytest.warns(Damaged, match="its checksum is wrong or missing; moved to x.damaged-1"):
            assert read_checked(path) is None
        path.with_name("x.damaged-1").unlink()


def test_a_missing_file_is_not_damaged(tmp_path):
    assert read_checked(tmp_path / "x") is None


def test_an_unreadable_file_gives_one_error_message(tmp_path):
    with pytest.raises(AttnscopeError, match=r"cannot read .*: Is a directory"):
        read_checked(tmp_path)


# Measurements --------------------------------------------------------------------------------------------------------


def measured(store: Path) -> tuple[object, dict[str, object]]:
    """Run a tiny finding; return its result and its measurements, without times."""
    aitken = study("aitken2021")
    reproduce(aitken, [aitken.finding("fig2-aed")], "tiny", 2, store, LocalEngine(0))
    stored = {path.name: json.loads(read_checked(path)) for path in store.glob("measurements/*.json")}
    return without_seconds(read_json(store / "results" / "aitken2021" / "fig2-aed.json")), without_seconds(stored)


@pytest.fixture(scope="module")
def finding(tmp_path_factory):
    """A store with the runs and measurements of a tiny finding, and what was measured."""
    store = tmp_path_factory.mktemp("finding")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "tiny", TINY)
        yield store, measured(store)


@every_harm_of_checked_files
def test_a_damaged_measurement_is_measured_again(finding, tmp_path, harm):
    original, before = finding
    store = shutil.copytree(original, tmp_path / "store")
    path = min(store.glob("measurements/*.json"))
    spoil(path, harm)
    with pytest.warns(Damaged, match=path.name):
        assert measured(store) == before
    assert path.with_name(f"{path.name}.damaged-1").read_bytes() == harm(
        (original / path.relative_to(store)).read_bytes()
    )
    assert measured(store) == before  # and now without a warning


def test_a_damaged_measurement_of_runs_that_are_gone_is_trained_and_measured_again(finding, tmp_path):
    original, before = finding
    store = shutil.copytree(original, tmp_path / "store")
    shutil.rmtree(store / "runs")
    spoil(min(store.glob("measurements/*.json")), half)
    with pytest.warns(Damaged):
        assert measured(store) == before


# Half-trained runs ---------------------------------------------------------------------------------------------------


def run_files(folder: Path) -> dict[str, bytes]:
    """The files of a finished run but for those that hold its time."""
    timed = {"summary.json", MANIFEST}
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name not in timed)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def interrupt(store: Store) -> Path:
    """Leave SMALL after five of six steps; return the folder."""
    with suppress(KeyboardInterrupt), store.work(SMALL.config()) as work:
        run = start_training(SMALL, work.folder)
        for _ in range(5):
            run.advance()
        run.save()
        raise KeyboardInterrupt
    return work.folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run_files(train(SMALL, Store(tmp_path_factory.mktemp("undisturbed"))).folder)


def test_an_undamaged_run_goes_on(tmp_path, trained, monkeypatch):
    interrupt(Store(tmp_path))
    steps = []
    monkeypatch.setattr(TrainingRun, "_check", lambda self, loss, step: steps.append(step))
    assert run_files(train(SMALL, Store(tmp_path)).folder) == trained
    assert steps == [5]


@every_harm_of_checked_files
def test_a_damaged_half_trained_run_is_trained_from_its_beginning(tmp_path, trained, harm):
    spoil(interrupt(Store(tmp_path)) / "progress.safetensors", harm)
    with pytest.warns(Damaged, match=r"progress\.safetensors: its checksum is wrong or missing"):
        assert run_files(train(SMALL, Store(tmp_path)).folder) == trained


@every_harm
def test_a_damaged_checkpoint_of_a_half_trained_run_is_trained_again(tmp_path, trained, harm):
    spoil(interrupt(Store(tmp_path)) / "checkpoints" / "step-000002.safetensors", harm)
    with pytest.warns(Damaged, match=r"checkpoints/step-000002\.safetensors is missing or altered"):
        assert run_files(train(SMALL, Store(tmp_path)).folder) == trained


# Parts of audits -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    return folder, without_seconds(audit(honest(), marked_examples(20), folder, Settings(quick=True)).to_dict())


@every_harm_of_checked_files
def test_a_damaged_part_of_an_audit_is_measured_again(audited, tmp_path, harm):
    original, before = audited
    folder = shutil.copytree(original, tmp_path / "audit")
    spoil(folder / "parts" / "words.json", harm)
    with pytest.warns(Damaged, match=r"words\.json: its checksum is wrong or missing"):
        assert without_seconds(audit(honest(), marked_examples(20), folder, Settings(quick=True)).to_dict()) == before
    assert without_seconds(read_json(folder / "audit.json")) == before


# Finished runs, by their folder --------------------------------------------------------------------------------------


def flip_signs(folder: Path) -> None:
    path = folder / "weights.safetensors"
    save_file({name: -tensor for name, tensor in load_file(path).items()}, path)


@every_harm
def test_a_damaged_run_is_not_loaded_by_its_folder_and_is_trained_again(tmp_path, trained, harm):
    run = train(SMALL, Store(tmp_path))
    logits = load(run.folder).module(next(SMALL.task.batches("test"))).logits
    spoil(run.folder / "weights.safetensors", harm)
    with pytest.warns(DamagedRun), pytest.raises(AttnscopeError, match="was damaged and is set aside; train it again"):
        audit(run.folder)
    assert run_files(train(SMALL, Store(tmp_path)).folder) == trained
    assert torch.equal(load(run.folder).module(next(SMALL.task.batches("test"))).logits, logits)


@pytest.mark.parametrize("name", ["weights.safetensors", "summary.json", MANIFEST])
def test_a_run_that_lost_a_file_is_not_opened(tmp_path, name):
    folder = train(SMALL, Store(tmp_path)).folder
    (folder / name).unlink()
    with pytest.warns(DamagedRun, match=f"{name} is missing"), pytest.raises(AttnscopeError, match="train it again"):
        load(folder)


@pytest.mark.parametrize("content", ["{}", '{"files": {}}', '{"files": {"config.json": {"bytes": 1}}}'])
def test_a_manifest_that_lists_no_files_is_invalid(tmp_path, content):
    folder = train(SMALL, Store(tmp_path)).folder
    (folder / MANIFEST).write_text(content)
    with pytest.warns(DamagedRun, match=f"{MANIFEST} is missing or malformed"), pytest.raises(AttnscopeError):
        load(folder)


@pytest.mark.parametrize("linked", [False, True])
def test_a_run_outside_of_a_store_is_checked_as_well(tmp_path, linked):
    run = train(SMALL, Store(tmp_path))
    folder = tmp_path / "elsewhere"
    if linked:
        folder.symlink_to(run.folder)
    else:
        shutil.copytree(run.folder, folder)
    load(folder)
    flip_signs(folder)
    with pytest.raises(AttnscopeError, match=r"is damaged: weights\.safetensors is altered"):
        load(folder)


@pytest.mark.parametrize("command", [("audit",), ("probe",), ("explain", "a text")])
def test_every_command_refuses_a_damaged_run(tmp_path, command):
    folder = train(SMALL, Store(tmp_path / "runs")).folder
    flip_signs(folder)
    name, *more = command
    words = [sys.executable, "-m", "attnscope", name, str(folder.relative_to(tmp_path)), *more]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    aside = Path("runs", "damaged", f"{folder.name}-1")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"attnscope: warning: in run {folder.name}, weights.safetensors is altered: moved to {tmp_path / aside}, "
        "to be trained again",
        f"attnscope: the run in {folder} was damaged and is set aside; train it again",
    ]
