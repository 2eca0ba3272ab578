"""Many seeds trained as one batched model learn what each learns alone."""

import json
from dataclasses import replace

import pytest
import torch

from attnscope.models import PRESETS, ClassifierSettings, Positions, build, restart_heads
from attnscope.tasks import Classification, Copying, Keyword, LookupTables, OneToOne, Splits, Translation, Words
from attnscope.training import L2, Conicity, CrossEntropy, Guidance, Hiding, TrainingSettings, Tying
from attnscope.training.fit import TrainingRun, run_to_end
from attnscope.training.replicas import fit_together, stack_batches

SMALL = {"units": 12, "input_size": 10, "hidden": 9}
COPYING = Copying(num_words=6, length=5, test_size=20)
SETTINGS = TrainingSettings(
    steps=12,
    batch_size=6,
    learning_rate=5e-3,
    teacher_forcing=1.0,
    evaluate_every=4,
    max_grad_norm=0.05,
    checkpoints=(6,),
)
SEEDS = (3, 0, 7)
LETTERS = OneToOne(min_length=3, max_length=6, test_size=20)
TABLES = LookupTables(bits=2, tables=4, heldout_tables=1, heldout_compositions=1, validation=8, end=False)
AED = replace(PRESETS["aed"], units=8, input_size=10)
AO = replace(PRESETS["ao"], units=8, input_size=10)
FREE_RUNNING = replace(SETTINGS, teacher_forcing=0.0)
CASES = {
    "copying": (COPYING, replace(PRESETS["copying"], **SMALL), SETTINGS),
    "dropout": (COPYING, replace(PRESETS["translation"], **SMALL), SETTINGS),
    "batches of different widths": (
        OneToOne(min_length=3, max_length=9, test_size=20),
        replace(PRESETS["translation"], **SMALL, shared_inputs=False, dropout=0.0),
        replace(SETTINGS, batch_size=2),
    ),
    "random buffers": (  # each seed has positions of its own
        COPYING,
        replace(PRESETS["copying"], **SMALL, positions=Positions()),
        SETTINGS,
    ),
    "eight heads": (COPYING, replace(PRESETS["copying"], **SMALL, heads=8, combine="sum"), SETTINGS),
    "own words": (COPYING, replace(PRESETS["copying"], **SMALL), replace(SETTINGS, teacher_forcing=0.5)),
    "uniform attention": (COPYING, replace(PRESETS["copying"], **SMALL), replace(SETTINGS, attention="uniform")),
    "attention only": (COPYING, replace(PRESETS["copying"], **SMALL), replace(SETTINGS, trained="attention")),
    "gru": (LETTERS, AED, SETTINGS),
    "gru, two directions": (LETTERS, replace(AED, layers=2, bidirectional=True, attention="bilinear"), SETTINGS),
    "gru, positions": (LETTERS, replace(AED, positions=Positions()), FREE_RUNNING),
    "free running": (LETTERS, AED, FREE_RUNNING),
    "no attention": (LETTERS, replace(AED, attention="none", readout="state"), FREE_RUNNING),
    "query_key_value": (LETTERS, replace(AED, attention="query_key_value", heads=2, key_size=4), FREE_RUNNING),
    "ugrnn": (LETTERS, replace(AED, cell="ugrnn"), FREE_RUNNING),
    "feedforward": (LETTERS, AO, FREE_RUNNING),
    "ungated feedforward": (LETTERS, replace(AO, cell="ungated_feedforward"), FREE_RUNNING),
    "classifier": (
        Keyword(num_words=5, length=6, test_size=20),
        ClassifierSettings(input_size=7, units=5, hidden=4),
        SETTINGS,
    ),
}


def new_run(case, seed, folder=None, objective=CrossEntropy() + L2(1e-3)):  # noqa: B008 (frozen)
    task, model, settings = case
    torch.manual_seed(seed)
    network = build(model, len(task.source_vocabulary), len(task.target_vocabulary))
    return TrainingRun(network, task, objective, settings, seed, folder and folder / str(seed), {})


def losses(run):
    return torch.tensor([row["loss"] for row in run.progress.log])


def assert_equal(side_by_side, alone):
    for one, other in zip(alone, side_by_side, strict=True):
        torch.testing.assert_close(losses(other), losses(one), rtol=1e-5, atol=1e-6)
        for (name, expected), value in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_seed_learns_what_it_learns_alone(case, tmp_path):
    alone = [run_to_end(new_run(case, seed, tmp_path / "alone")) for seed in SEEDS]
    side_by_side = [new_run(case, seed, tmp_path / "together") for seed in SEEDS]
    fit_together(side_by_side)
    assert_equal(side_by_side, alone)
    for one, other in zip(alone, side_by_side, strict=True):
        assert other.progress.step == 12
        files = [sorted(p.name for p in run.folder.rglob("*.safetensors")) for run in (one, other)]
        assert files[0] == files[1] == ["step-000006.safetensors", "weights.safetensors"]
    assert not torch.allclose(losses(side_by_side[0]), losses(side_by_side[1]))


def test_a_seed_that_reached_the_accuracy_stops_and_stays_unchanged(tmp_path):
    """Its neighbours go on; the weights that it leaves are those it had when it stopped."""
    task, model, settings = CASES["copying"]
    case = (task, model, replace(settings, steps=60, evaluate_every=2, checkpoints=(), max_grad_norm=None))
    watched = [new_run(case, seed) for seed in SEEDS]
    reached = [max(row["word_accuracy"] for row in run_to_end(run).progress.log) for run in watched]
    enough = sorted(reached)[1]  # the median: one at least stops, one at least does not before the end
    case = (task, model, replace(case[2], stop_at_accuracy=enough))
    alone = [run_to_end(new_run(case, seed)) for seed in SEEDS]
    side_by_side = [new_run(case, seed) for seed in SEEDS]
    fit_together(side_by_side)
    assert [run.progress.step for run in side_by_side] == [run.progress.step for run in alone]
    assert len({run.progress.step for run in alone}) > 1
    for one, other in zip(alone, side_by_side, strict=True):
        for expected, value in zip(one.model.parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 4, 5])  # of 32 sentences: with 5, the last batch of an epoch is smaller
def test_guided_seeds_keep_the_weights_of_their_best_evaluation(batch_size):
    """Lookup tables, until the validation loss has not improved for two evaluations."""
    model = replace(PRESETS["lookup_tables"], units=8, input_size=5, target_input_size=8)
    # The bias of the scores has no gradient but rounding errors; ε keeps Adam from scaling them up.
    settings = replace(
        FREE_RUNNING, steps=80, batch_size=batch_size, learning_rate=0.05, epsilon=0.1, max_grad_norm=5.0,
        evaluate_every=3, checkpoints=(), keep_weights="best", patience=2,
    )  # fmt: skip
    case, objective = (TABLES, model, settings), CrossEntropy(total=True) + Guidance(1.0, total=True)
    alone = [run_to_end(new_run(case, seed, objective=objective)) for seed in SEEDS]
    side_by_side = [new_run(case, seed, objective=objective) for seed in SEEDS]
    fit_together(side_by_side)
    assert_equal(side_by_side, alone)
    assert len({run.progress.step for run in alone}) > 1


def test_an_interrupted_group_resumes_alone_or_together(tmp_path):
    """Two of three were saved at step 5, one at step 3; they end as if nothing had happened."""
    case = CASES["dropout"]
    expected = [losses(run_to_end(new_run(case, seed))) for seed in SEEDS]
    runs = [new_run(case, seed, tmp_path) for seed in SEEDS]
    for run, steps in zip(runs, (5, 3, 5), strict=True):
        for _ in range(steps):
            run.advance()
        run.save()
    again = [new_run(case, seed, tmp_path) for seed in SEEDS]
    assert [run.progress.step for run in again] == [5, 3, 5]
    fit_together(again, save_every=0.0)
    for run, expected_losses in zip(again, expected, strict=True):
        torch.testing.assert_close(losses(run), expected_losses, rtol=1e-5, atol=1e-6)


def test_a_single_run_can_resume_from_the_files_of_a_group(tmp_path):
    case = CASES["copying"]
    expected = losses(run_to_end(new_run(case, 0)))
    runs = [new_run(case, seed, tmp_path) for seed in SEEDS]
    with pytest.raises(KeyboardInterrupt):
        fit_together([*runs[:2], Interrupting(runs[2], at=8)], save_every=0.0)
    alone = new_run(case, 0, tmp_path)
    assert 0 < alone.progress.step < 12
    torch.testing.assert_close(losses(run_to_end(alone)), expected, rtol=1e-5, atol=1e-6)


class Interrupting(TrainingRun):
    def __init__(self, run, at):
        self.__dict__.update(run.__dict__)
        self.at = at

    def finish_step(self, loss):
        super().finish_step(loss)
        if self.progress.step == self.at:
            raise KeyboardInterrupt


def test_heads_with_other_initialisations_can_be_replicas(tmp_path):
    task, model, settings = CASES["eight heads"]
    runs = []
    for heads in (range(8), range(8, 16)):
        run = new_run((task, model, settings), 0)
        restart_heads(run.model, tuple(heads))
        runs.append(run)
    fit_together(runs)
    assert not torch.allclose(losses(runs[0]), losses(runs[1]))


def test_stacked_batches_are_padded_to_common_widths():
    batches = [next(OneToOne(min_length=n, max_length=n, test_size=2).batches()) for n in (3, 5)]
    both = stack_batches(batches)
    assert both.source.shape == (2, 2, 6)
    assert both.source_mask[0].sum(1).tolist() == [4, 4]
    assert torch.equal(both.target[1], batches[1].target)


SENTENCES = [
    "a good film",
    "bad",
    "good and long and good",
    "a bad end of a bad film",
    "fine",
    "very very bad",
    "so good",
]


@pytest.mark.parametrize(
    ("objective", "attention"),
    [
        pytest.param(CrossEntropy(), "own", id="plain"),
        pytest.param(CrossEntropy(), "uniform", id="uniform"),
        pytest.param(CrossEntropy() + Tying(1.0), "own", id="tying"),
        pytest.param(CrossEntropy() + Conicity(0.5), "own", id="conicity"),
        pytest.param(CrossEntropy() + Hiding(1.0, (4, 5)), "own", id="hiding"),
    ],
)
def test_texts_of_all_lengths_and_a_last_smaller_batch(objective, attention, tmp_path):
    """Of seven sentences in batches of four, one seed has a batch of three where the other has one of four."""
    rows = [{"text": text, "label": int("good" in text), "split": split} for split in ("train", "dev", "test")
            for text in SENTENCES]  # fmt: skip
    (tmp_path / "films.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    task = Classification(
        str(tmp_path / "films.jsonl"),
        special="both",
        splits=Splits(("train",), ("dev",), ("test",)),
        vocabulary=Words(min_count=1),
    )
    model = ClassifierSettings(input_size=6, units=3, attention="additive", hidden=4, specials_attended=False)
    case = (task, model, replace(SETTINGS, batch_size=4, checkpoints=(), attention=attention))
    sizes = {tuple(len(task.training_batch(seed, step, 4)) for seed in SEEDS) for step in range(12)}
    assert any(len(set(of_a_step)) > 1 for of_a_step in sizes)
    alone = [run_to_end(new_run(case, seed, objective=objective)) for seed in SEEDS]
    side_by_side = [new_run(case, seed, objective=objective) for seed in SEEDS]
    fit_together(side_by_side)
    assert_equal(side_by_side, alone)


@pytest.mark.parametrize("attention", ["own", "uniform"])
@pytest.mark.parametrize(
    "model", [replace(PRESETS["translation"], **SMALL, dropout=0.0), replace(AO, input_size=15)], ids=["lstm", "ao"]
)
def test_translators_of_real_text_learn_what_they_learn_alone(tmp_path, model, attention):
    """Batches of seeds differ in width, and at the end of an epoch in size."""
    rows = [{"source": text, "target": " ".join(reversed(text.split())), "split": split}
            for split in ("train", "dev", "test") for text in SENTENCES]  # fmt: skip
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    splits = Splits(("train",), ("dev",), ("test",))
    task = Translation(str(tmp_path / "pairs.jsonl"), splits=splits, vocabulary=Words(min_count=1))
    case = (task, model, replace(SETTINGS, batch_size=4, checkpoints=(), attention=attention))
    alone = [run_to_end(new_run(case, seed)) for seed in SEEDS]
    side_by_side = [new_run(case, seed) for seed in SEEDS]
    fit_together(side_by_side)
    assert_equal(side_by_side, alone)
