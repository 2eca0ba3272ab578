from dataclasses import replace

import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.lab.configuration import describe, rebuild
from attnscope.lab.experiment import Experiment, Run, find, train
from attnscope.lab.overrides import overridden
from attnscope.lab.store import DamagedRun, Store
from attnscope.models import PRESETS, EncoderDecoderSettings, Positions
from attnscope.tasks import TASKS, OneToOne
from attnscope.training import L2, CrossEntropy, TrainingSettings

SMALL = Experiment(
    task=OneToOne(shortest=2, longest=4, test_size=10),
    model=replace(PRESETS["aed"], units=8),
    training=TrainingSettings(steps=4, batch_size=4, evaluate_every=2, checkpoints=(2,)),
    objective=CrossEntropy() + L2(1e-5),
)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", PRESETS)
def test_a_configuration_comes_back_as_it_was(task, model):
    experiment = replace(SMALL, task=TASKS[task](), model=PRESETS[model], seed=3)
    assert Experiment.of(experiment.config()) == experiment


def test_every_setting_is_part_of_the_key():
    others = [
        replace(SMALL, seed=1),
        replace(SMALL, threads=2),
        replace(SMALL, device="cuda"),
        replace(SMALL, objective=CrossEntropy()),
        replace(SMALL, task=replace(SMALL.task, words=4)),
        replace(SMALL, model=replace(SMALL.model, attention="bilinear")),
        replace(SMALL, training=replace(SMALL.training, clip=None)),
        replace(SMALL, watch=("shares",)),
    ]
    assert len({SMALL.key, *(other.key for other in others)}) == len(others) + 1


def test_unknown_settings_in_a_file_are_refused():
    with pytest.raises(BadSetting, match="there is no kind of settings 'rnn'; choose one of"):
        rebuild({"kind": "rnn"})
    with pytest.raises(Malformed, match="not the settings of a positions"):
        rebuild({"kind": "positions", "bas": 1})
    assert rebuild(describe(Positions(base=3.0))) == Positions(base=3.0)


def test_a_run_leaves_weights_checkpoints_log_and_summary(tmp_path):
    run = train(SMALL, Store(tmp_path))
    assert run.checkpoints == [2]
    assert list(run.log["step"]) == [0, 2, 4]
    assert run.summary["steps"] == 4
    assert not run.model().training
    before, after = run.model(2), run.model()
    assert not torch.equal(before.output.weight, after.output.weight)
    with pytest.raises(BadSetting, match=r"no checkpoint 3; this run has \[2\]"):
        run.model(3)
    assert Run.at(run.folder) == run


def test_a_finished_run_is_not_trained_again(tmp_path, monkeypatch):
    first = train(SMALL, Store(tmp_path))
    monkeypatch.setattr("attnscope.lab.experiment.carry_out", None)
    assert train(SMALL, Store(tmp_path)) == first


def test_a_damaged_run_is_set_aside_and_trained_again_to_the_same_weights(tmp_path):
    run = train(SMALL, Store(tmp_path))
    path = run.folder / "weights.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with pytest.warns(DamagedRun, match=r"weights\.safetensors"):
        again = train(SMALL, Store(tmp_path))
    assert (again.folder / "weights.safetensors").read_bytes() == whole
    assert list((tmp_path / "damaged").iterdir())


def test_probes_are_watched_by_name(tmp_path):
    run = train(replace(SMALL, watch=("shares",)), Store(tmp_path))
    share = run.log["shares.temporal share"]
    assert ((share > 0) & (share <= 1)).all()
    with pytest.raises(BadSetting, match="choose one of shares"):
        replace(SMALL, watch=("entropy",))


def test_the_number_of_threads_is_put_back(tmp_path):
    before = torch.get_num_threads()
    train(replace(SMALL, threads=2), Store(tmp_path))
    assert torch.get_num_threads() == before


def test_a_run_is_found_by_the_beginning_of_its_key(tmp_path):
    run = train(SMALL, Store(tmp_path))
    assert find(SMALL.key[:6], Store(tmp_path)) == run
    with pytest.raises(BadSetting, match=f"its runs: {SMALL.key}"):
        find("zzz", Store(tmp_path))


def test_a_gpu_that_is_not_there_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadSetting, match="torch sees no GPU"):
        train(replace(SMALL, device="cuda"), Store(tmp_path))
    with pytest.raises(BadSetting, match="choose one of cpu, cuda"):
        train(replace(SMALL, device="tpu"), Store(tmp_path))


def test_settings_are_changed_by_name():
    changed = overridden(
        SMALL, ["model.units=16", "task.longest=9", "training.learning_rate=1", "model.positions.base=50"]
    )
    assert changed.model == EncoderDecoderSettings(units=16, positions=Positions(base=50.0))
    assert changed.task.longest == 9
    assert changed.training.learning_rate == 1.0


def test_positions_can_be_taken_away():
    positioned = replace(SMALL, model=replace(SMALL.model, positions=Positions()))
    assert overridden(positioned, ["model.positions=null"]).model.positions is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.unit=3", "there is no setting 'unit'; choose one of cell, units"),
        ("modle.units=3", "there is no setting 'modle'; choose one of task, model"),
        ("model.units", "write name=value"),
        ("model.units=many", "model.units is a int, such as 8; 'many' is not"),
        ("model=3", "name one of them"),
        ("model.units.more=3", "has no settings of its own"),
        ("task.longest=1", "must not be more than longest"),
        ("training.steps=-5", "steps must be positive"),
    ],
)
def test_a_wrong_change_is_refused_with_a_sentence(change, message):
    with pytest.raises(BadSetting, match=message):
        overridden(SMALL, [change])
