import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.lab.configuration import describe, override, rebuild
from attnscope.lab.ensembles import MAX_REPLICAS, MAX_TEXT_REPLICAS, group_for_workers, train_all
from attnscope.lab.experiment import Experiment, Run, find_run, train
from attnscope.lab.store import DamagedRun, Store
from attnscope.models import (
    CELLS,
    PRESETS,
    ClassifierSettings,
    EncoderDecoderSettings,
    Positions,
    Start,
    TransformerClassifierSettings,
)
from attnscope.models.cells import GRU
from attnscope.models.inference import available_devices, check_device
from attnscope.tasks import TASKS, Classification, Copying, Keyword, LookupTables, OneToOne, Scan, Splits, Translation
from attnscope.training import L2, CrossEntropy, TrainingSettings
from attnscope.training.replicas import fit_together

SMALL = Experiment(
    task=OneToOne(min_length=2, max_length=4, test_size=10),
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
        replace(SMALL, task=replace(SMALL.task, num_words=4)),
        replace(SMALL, model=replace(SMALL.model, attention="bilinear")),
        replace(SMALL, training=replace(SMALL.training, max_grad_norm=None)),
        replace(SMALL, watch=("shares",)),
        replace(SMALL, start=Start(weights=0)),
        replace(SMALL, training=replace(SMALL.training, attention="uniform")),
        replace(SMALL, training=replace(SMALL.training, trained="attention")),
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
    monkeypatch.setattr("attnscope.lab.experiment.run_to_end", None)
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
    assert find_run(SMALL.key[:6], Store(tmp_path)) == run
    with pytest.raises(BadSetting, match=f"its runs: {SMALL.key}"):
        find_run("zzz", Store(tmp_path))


def test_a_gpu_that_is_not_there_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadSetting, match=r"no device 'cuda' here; choose one of cpu \(torch sees no GPU\)"):
        train(replace(SMALL, device="cuda"), Store(tmp_path))
    with pytest.raises(BadSetting, match="there is no device 'tpu' here; choose one of cpu"):
        train(replace(SMALL, device="tpu"), Store(tmp_path))


def test_every_device_of_this_machine_may_be_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    assert available_devices() == ["cpu", "cuda", "cuda:0", "cuda:1", "mps", "mps:0"]
    for device in ("cpu", "cuda", "cuda:1", "mps"):
        check_device(device)
    with pytest.raises(BadSetting, match="no device 'cuda:2' here; choose one of cpu, cuda, cuda:0, cuda:1, mps"):
        check_device("cuda:2")


def test_settings_are_changed_by_name():
    changed = override(
        SMALL, ["model.units=16", "task.max_length=9", "training.learning_rate=1", "model.positions.base=50"]
    )
    assert changed.model == EncoderDecoderSettings(units=16, positions=Positions(base=50.0))
    assert changed.task.max_length == 9
    assert changed.training.learning_rate == 1.0


def test_positional_codes_can_be_removed():
    positioned = replace(SMALL, model=replace(SMALL.model, positions=Positions()))
    assert override(positioned, ["model.positions=null"]).model.positions is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.unit=3", "there is no setting 'unit'; choose one of cell, units"),
        ("modle.units=3", "there is no setting 'modle'; choose one of task, model"),
        ("model.units", "write name=value"),
        ("model.units=many", "model.units is a whole number, such as 8; many is not"),
        ("training.checkpoints=many", r"training.checkpoints is a list, such as \[2\]; many is not"),
        ("model.bidirectional=True", "model.bidirectional is true or false, such as false; True is not"),
        ("model=3", "name one of them"),
        ("model.units.more=3", "has no settings below it"),
        ("task.max_length=1", "must not be more than max_length"),
        ("training.steps=-5", "steps must be positive"),
        ("threads=100000", "threads must be 1 to 512, not 100000"),
        ("threads=0", "threads must be 1 to 512, not 0"),
    ],
)
def test_a_wrong_change_is_refused_with_a_sentence(change, message):
    with pytest.raises(BadSetting, match=message):
        override(SMALL, [change])


def test_a_single_word_is_accepted_for_a_list():
    splits = Splits(validation=("dev",))
    for written in ("valid", '"valid"', '["valid"]'):
        assert override(splits, [f"validation={written}"]).validation == ("valid",)
    assert override(SMALL, ["watch=shares"]).watch == ("shares",)


NAMES_FOR_THINGS = """
from attnscope.lab.experiment import Experiment
from attnscope.models import MODELS
from attnscope.tasks import TASKS
from attnscope.training import TrainingSettings

right = {"task": TASKS["one_to_one"](), "model": MODELS["aed"], "training": TrainingSettings()}
for wrong in ({"task": "turned"}, {"task": TASKS["one_to_one"]}, {"model": "aed"}, {"training": 100}):
    try:
        Experiment(**right | wrong)
    except ValueError as error:
        print(error)
"""


def test_a_name_in_place_of_a_task_model_or_settings_is_refused():
    """In a process of its own, where no types are checked."""
    messages = subprocess.run(
        [sys.executable, "-c", NAMES_FOR_THINGS], capture_output=True, text=True
    ).stdout.splitlines()
    assert messages[0] == "the task of an experiment is one such as TASKS['one_to_one'](), not 'turned'"
    assert messages[1].endswith("not <class 'attnscope.tasks.synthetic.OneToOne'>")
    assert messages[2] == "the model of an experiment is one such as MODELS['aed'], not 'aed'"
    assert messages[3] == "the training of an experiment is one such as TrainingSettings(steps=100), not 100"


@pytest.mark.parametrize(
    "model", [ClassifierSettings(units=2, hidden=2), TransformerClassifierSettings(units=2, hidden=2, heads=1)]
)
def test_a_classifier_of_sentences_is_refused_before_training(tmp_path, model):
    message = (
        "a classifier predicts one token, but one_to_one has targets of up to [345], .* keyword .*: ved, aed, ao, "
    )
    with pytest.raises(BadSetting, match=message) as refused:
        train(replace(SMALL, model=model), Store(tmp_path))
    assert "classifier" not in str(refused.value).rpartition(":")[2]


COPYING = Experiment(
    task=Copying(num_words=5, length=4, test_size=10),
    model=replace(PRESETS["copying"], units=8, input_size=8, hidden=8),
    training=TrainingSettings(steps=4, batch_size=4, evaluate_every=2, checkpoints=(2,), teacher_forcing=1.0),
    device="cuda",
)


def test_on_a_gpu_experiments_that_differ_in_where_they_start_are_trained_as_one():
    seeds = [replace(COPYING, seed=seed) for seed in range(3)]
    elsewhere = replace(COPYING, start=Start(heads=(5,)))
    longer = replace(COPYING, training=replace(COPYING.training, steps=5))
    groups = group_for_workers([*seeds, elsewhere, longer])
    assert groups == [(*seeds, elsewhere), (longer,)]
    many = [replace(COPYING, seed=seed) for seed in range(MAX_REPLICAS + 1)]
    assert [len(group) for group in group_for_workers(many)] == [MAX_REPLICAS, 1]


class OwnCell(GRU):
    pass


def test_encoder_decoders_of_every_built_in_cell_are_trained_as_one_but_not_of_a_cell_of_ones_own(monkeypatch):
    monkeypatch.setitem(CELLS, "own", OwnCell)
    for cell in CELLS:
        model = replace(SMALL.model, cell=cell, positions=Positions())
        seeds = tuple(replace(SMALL, model=model, device="cuda", seed=seed) for seed in range(2))
        assert group_for_workers(seeds) == ([seeds[:1], seeds[1:]] if cell == "own" else [seeds])


@pytest.mark.parametrize("task", [LookupTables(), Scan()])
def test_encoder_decoders_are_trained_as_one_on_tasks_with_few_words(task, monkeypatch):
    monkeypatch.setattr(Scan, "resolved", lambda self: self)  # without its file
    experiment = replace(SMALL, task=task, model=PRESETS["lookup_tables"], device="cuda")
    seeds = tuple(replace(experiment, seed=seed) for seed in range(2))
    assert group_for_workers(seeds) == [seeds]


def test_classifiers_and_translators_of_real_text_are_trained_as_one(tmp_path):
    (tmp_path / "texts.jsonl").write_text("{}")
    text, pairs = (kind(str(tmp_path / "texts.jsonl")) for kind in (Classification, Translation))
    readers = [
        replace(COPYING, task=text, model=ClassifierSettings(), seed=seed) for seed in range(MAX_TEXT_REPLICAS + 1)
    ]
    assert [len(group) for group in group_for_workers(readers)] == [MAX_TEXT_REPLICAS, 1]
    translators = [replace(COPYING, task=pairs, seed=seed) for seed in range(MAX_TEXT_REPLICAS + 1)]
    assert [len(group) for group in group_for_workers(translators)] == [MAX_TEXT_REPLICAS, 1]


def test_on_a_cpu_every_experiment_has_a_process_to_itself():
    seeds = [replace(COPYING, device="cpu", seed=seed) for seed in range(3)]
    assert group_for_workers(seeds) == [(experiment,) for experiment in seeds]


def test_runs_trained_as_one_batched_model_equal_runs_trained_alone(tmp_path):
    seeds = [replace(COPYING, device="cpu", seed=seed) for seed in range(3)]
    first = train(seeds[0], Store(tmp_path / "together"))  # found finished by the others
    runs = train_all(seeds, Store(tmp_path / "together"))
    assert runs[0] == first
    for run, experiment in zip(runs, seeds, strict=True):
        alone = train(experiment, Store(tmp_path / "alone"))
        assert run.checkpoints == alone.checkpoints == [2]
        assert run.summary["word_accuracy"] == pytest.approx(alone.summary["word_accuracy"])
        assert run.log["loss"].tolist() == pytest.approx(alone.log["loss"].tolist(), rel=1e-5)
        for ours, theirs in zip(run.model(2).parameters(), alone.model(2).parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_group_too_large_for_the_gpu_is_split_in_halves(tmp_path, monkeypatch):
    seeds, tried = [replace(COPYING, device="cpu", seed=seed) for seed in range(5)], []

    def with_room_for_two(runs):
        tried.append(len(runs))
        if len(runs) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return fit_together(runs)

    monkeypatch.setattr("attnscope.lab.ensembles.fit_together", with_room_for_two)
    runs = train_all(seeds, Store(tmp_path))
    assert [run.experiment for run in runs] == seeds
    assert tried == [5, 2, 3, 2]  # and one alone
    assert all(run.summary["steps"] == COPYING.training.steps for run in runs)


def test_heads_start_from_their_own_seeds_and_all_else_from_another():
    first = replace(COPYING, start=Start(weights=7, heads=(1,))).new_model()
    second = replace(COPYING, seed=3, start=Start(weights=7, heads=(2,))).new_model()
    assert torch.equal(first.output.weight, second.output.weight)
    assert not torch.equal(first.attend.query.weight, second.attend.query.weight)


@pytest.mark.parametrize("model", ["copying", "classifier"])
def test_everything_but_attention_can_be_frozen(tmp_path, model):
    experiment = replace(COPYING, device="cpu", training=replace(COPYING.training, trained="attention"))
    if model == "classifier":
        settings = ClassifierSettings(input_size=4, units=3, hidden=3)
        experiment = replace(experiment, task=Keyword(num_words=4, length=5, test_size=10), model=settings)
    run = train(experiment, Store(tmp_path))
    before = dict(experiment.new_model().named_parameters())
    changed = {name for name, value in run.model().named_parameters() if not torch.equal(value, before[name])}
    assert changed
    assert all(name.startswith("attend.") for name in changed)
    checkpoint = dict(run.model(2).named_parameters())
    assert all(torch.equal(checkpoint[name], before[name]) for name in before if not name.startswith("attend."))


def test_attention_frozen_to_be_uniform_is_never_trained(tmp_path):
    experiment = replace(COPYING, device="cpu", training=replace(COPYING.training, attention="uniform"))
    run = train(experiment, Store(tmp_path))
    before = experiment.new_model()
    assert torch.equal(run.model().attend.query.weight, before.attend.query.weight)
    assert not torch.equal(run.model().output.weight, before.output.weight)
    weights = run.model()(next(run.task.batches()), **run.forward).attention
    assert weights.unique().tolist() == pytest.approx([1 / 5])  # four words and the end


def test_settings_that_cannot_be_trained_are_refused(tmp_path):
    with pytest.raises(BadSetting, match="leaves nothing"):
        TrainingSettings(attention="uniform", trained="attention")
    with pytest.raises(BadSetting, match="needs a model whose part `attend` has weights"):  # dot attention has none
        train(replace(SMALL, training=replace(SMALL.training, trained="attention")), Store(tmp_path))
