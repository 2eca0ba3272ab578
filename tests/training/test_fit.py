import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.models import PRESETS, EncoderDecoder
from attnscope.tasks import OneToOne
from attnscope.training import L2, CrossEntropy, TrainingDiverged, TrainingSettings, evaluate, fit
from attnscope.training.fit import read_tensors

TASK = OneToOne(min_length=3, max_length=5, test_size=20)
SETTINGS = TrainingSettings(steps=30, batch_size=8, evaluate_every=10)


def new_model(seed=0, units=16):
    torch.manual_seed(seed)
    return EncoderDecoder(
        replace(PRESETS["aed"], units=units), len(TASK.source_vocabulary), len(TASK.target_vocabulary)
    )


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_a_small_network_learns_the_task():
    model = new_model(units=32)
    log = fit(model, TASK, settings=TrainingSettings(steps=400, batch_size=32, learning_rate=1e-2)).log
    assert log[0]["word_accuracy"] < 0.6
    assert log[-1]["word_accuracy"] > 0.95
    assert evaluate(model, TASK.batches("validation"))["word_accuracy"] == log[-1]["word_accuracy"]


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    first, second, other = new_model(), new_model(), new_model()
    fit(first, TASK, settings=SETTINGS, seed=1)
    fit(second, TASK, settings=SETTINGS, seed=1)
    fit(other, TASK, settings=SETTINGS, seed=2)
    assert same(first, second)
    assert not same(first, other)


def test_cross_entropy_is_the_mean_over_real_words():
    model, batch = new_model(), next(TASK.batches())
    trace = model(batch)
    logs = trace.logits.log_softmax(-1)
    terms = [
        -logs[i, j, batch.target[i, j]]
        for i in range(len(batch))
        for j in range(batch.target.shape[1])
        if batch.target_mask[i, j]
    ]
    torch.testing.assert_close(CrossEntropy()(model, batch, trace), torch.stack(terms).mean())


def test_objectives_add_up():
    model, batch = new_model(), next(TASK.batches())
    trace = model(batch)
    squares = sum(p.square().sum() for p in model.parameters())
    both = CrossEntropy() + L2(0.01) + L2(0.02)
    torch.testing.assert_close(both(model, batch, trace), CrossEntropy()(model, batch, trace) + 0.03 * squares)
    assert len(both.terms) == 3


def test_adam_follows_torchs_own_with_the_papers_options():
    """One step by hand: gradient of the whole objective, clipped, at the scheduled rate."""
    settings = replace(
        SETTINGS,
        steps=3,
        learning_rate=0.1,
        epsilon=0.1,
        schedule="exponential",
        max_grad_norm=0.5,
        teacher_forcing=1.0,
    )
    ours, twin = new_model(), new_model()
    fit(ours, TASK, CrossEntropy() + L2(1e-3), settings, seed=3)
    adam = torch.optim.Adam(twin.parameters(), lr=0.1, betas=(0.9, 0.99), eps=0.1)
    for step in range(3):
        adam.param_groups[0]["lr"] = 0.1 * 0.9997**step
        batch = TASK.training_batch(3, step, 8)
        trace = twin(batch)
        loss = torch.nn.functional.cross_entropy(trace.logits[batch.target_mask], batch.target[batch.target_mask])
        loss = loss + 1e-3 * sum(p.square().sum() for p in twin.parameters())
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        adam.step()
    for a, b in zip(ours.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [1, 1, 1]), ("exponential", [1, 0.5, 0.25]), ("linear", [1, 0.75, 0.5]), ("cosine", [1, 0.854, 0.5])],
)
def test_schedules(schedule, expected):
    settings = TrainingSettings(steps=4, learning_rate=1.0, schedule=schedule, decay=0.5)
    assert [settings.rate(step) for step in range(3)] == pytest.approx(expected, abs=1e-3)


def test_warm_up_reaches_the_full_learning_rate():
    settings = TrainingSettings(learning_rate=1.0, warmup=3)
    assert [settings.rate(step) for step in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1, 1])


def test_checkpoints_are_kept_at_the_chosen_steps(tmp_path):
    model, twin = new_model(), new_model()
    fit(model, TASK, settings=replace(SETTINGS, checkpoints=(0, 20, 30)), folder=tmp_path)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-000000.safetensors", "step-000020.safetensors", "step-000030.safetensors"]
    twin.load_state_dict(read_tensors(tmp_path / "checkpoints" / names[0]))
    assert same(twin, new_model())
    twin.load_state_dict(read_tensors(tmp_path / "checkpoints" / names[2]))
    assert same(twin, model)


def test_probes_are_watched_during_training():
    log = fit(
        new_model(), TASK, settings=SETTINGS, watch={"size": lambda model, task: {"units": model.settings.units}}
    ).log
    assert [row["step"] for row in log] == [0, 10, 20, 30]
    assert all(row["size.units"] == 16 for row in log)


def test_training_stops_when_it_is_good_enough():
    good_enough = evaluate(new_model(), TASK.batches("validation"), teacher_forcing=0.0)["word_accuracy"]
    assert good_enough > 0
    progress = fit(new_model(), TASK, settings=replace(SETTINGS, stop_at_accuracy=good_enough))
    assert progress.step == 0
    assert progress.stopped


def test_training_stops_when_the_loss_does_not_fall_and_keeps_the_best():
    settings = replace(SETTINGS, steps=200, evaluate_every=5, learning_rate=0.5, patience=3, keep_weights="best")
    model = new_model()
    log = fit(model, TASK, settings=settings).log
    losses = [row["loss"] for row in log]
    assert len(log) < 41
    assert losses.index(min(losses)) == len(log) - 4
    assert evaluate(model, TASK.batches("validation"), teacher_forcing=0.0)["loss"] == pytest.approx(min(losses))


@pytest.mark.filterwarnings("ignore:.*Inf.*")
def test_a_nan_loss_stops_training_with_a_message():
    model = new_model()
    with torch.no_grad():
        model.output.weight[0, 0] = torch.nan
    with pytest.raises(TrainingDiverged, match=r"became nan at step 1 of 30 \(seed 7, learning rate 0.002"):
        fit(model, TASK, settings=SETTINGS, seed=7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be positive"),
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
        ({"schedule": "stairs"}, "choose one of constant, exponential, linear, cosine"),
        ({"checkpoints": (99999,)}, r"checkpoints \[99999\] lie outside"),
        ({"teacher_forcing": 2.0}, "from 0 to 1"),
        ({"keep_weights": "all"}, "choose one of last, best"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(settings, message):
    with pytest.raises(BadSetting, match=message):
        TrainingSettings(**settings)


def test_the_model_is_left_in_the_mode_it_was_in():
    model = new_model()
    for training in (True, False):
        model.train(training)
        evaluate(model, TASK.batches())
        assert model.training is training
        assert all(p.grad is None for p in model.parameters())


PROGRAM = """
import json, os, signal, sys, time, torch
from dataclasses import replace
from pathlib import Path
from attnscope.models import PRESETS, EncoderDecoder
from attnscope.tasks import OneToOne
from attnscope.training import L2, CrossEntropy, TrainingSettings, fit
torch.set_num_threads(1)

def train(folder):
    task = OneToOne(min_length=3, max_length=8, test_size=20)
    torch.manual_seed(0)
    model = EncoderDecoder(replace(PRESETS["aed"], units=24), len(task.source_vocabulary), len(task.target_vocabulary))
    settings = TrainingSettings(steps=400, batch_size=16, evaluate_every=20, checkpoints=(100, 300),
                                keep_weights="best", teacher_forcing=0.5)
    progress = fit(model, task, CrossEntropy() + L2(), settings, 5, folder, save_every=0.05)
    (folder / "log.json").write_text(json.dumps(progress.log))

def in_a_child(folder, kill_after=None):
    child = os.fork()
    if child == 0:
        train(folder)
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

undisturbed, killed = Path(sys.argv[1], "undisturbed"), Path(sys.argv[1], "killed")
print(json.dumps([in_a_child(undisturbed), *(in_a_child(killed, delay) for delay in (0.3, 0.75, 0.1, 1.1, None))]))
"""


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_with_the_same_bits(tmp_path):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    process = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, check=True)
    first, *deaths, last = json.loads(process.stdout)
    assert first == last == 0
    assert -signal.SIGKILL in deaths
    for name in ("weights.safetensors", "checkpoints/step-000100.safetensors", "checkpoints/step-000300.safetensors"):
        assert (undisturbed / name).read_bytes() == (killed / name).read_bytes(), name
    assert json.loads((undisturbed / "log.json").read_text()) == json.loads((killed / "log.json").read_text())
    assert not (killed / "progress.safetensors").exists()
