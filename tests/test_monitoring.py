"""Attention measured during training: in a user's own loop, and by the transformers Trainer."""

import pandas as pd
import pytest
import torch
import transformers
from typer.testing import CliRunner

import attnscope
from attnscope.cli import app
from attnscope.errors import AttnscopeError, BadSetting
from attnscope.monitoring import AttentionMonitor, draw_curves, halfway_steps, read_all_curves, read_curves
from models import language_examples
from models.adapter_examples import LABELS, SOURCES, wordpiece

MEASURED = ["output change, shuffled", "decisions changed, shuffled", "τ with leave-one-out", "entropy", "A(α, β)",
            "A(α, β) by chance", "share of position", "share of words"]  # fmt: skip


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=len(wordpiece()), dim=16, n_layers=2, n_heads=2, hidden_dim=16, max_position_embeddings=40,
        pad_token_id=0, num_labels=3,
    )  # fmt: skip
    return transformers.DistilBertForSequenceClassification(config)


@pytest.fixture
def monitor(model, tmp_path):
    def make(measures=("dependence", "rank_correlation", "entropy", "lexical_agreement", "position_shares")):
        result = AttentionMonitor(model, SOURCES, tmp_path / "curves.csv", 2, measures, tokenizer=wordpiece())
        result.measure(0)
        return result

    return make


def test_measures_that_a_model_does_not_support_are_left_out_with_a_warning(model, tmp_path):
    monitor = AttentionMonitor(model, SOURCES, tmp_path / "curves.csv", tokenizer=wordpiece())
    with pytest.warns(UserWarning, match="head_kinds is not measured"):
        assert list(monitor.measure(0)) == MEASURED
    assert list(monitor.measure(500)) == MEASURED
    asked_for = AttentionMonitor(model, SOURCES, tmp_path / "x.csv", measures=["head_kinds"], tokenizer=wordpiece())
    with pytest.raises(AttnscopeError):
        asked_for.measure(0)


def test_a_training_loop_measures_at_its_steps_and_leaves_the_model_unchanged(monitor, model):
    result = monitor()
    model.train()
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    assert [result.step(step) is not None for step in range(1, 5)] == [False, True, False, True]
    assert model.training
    assert all(torch.equal(weights, before[name]) for name, weights in model.state_dict().items())
    assert all(weights.grad is None for weights in model.parameters())
    table = read_curves(result.path)
    assert list(table.columns) == ["step", *MEASURED]
    assert table["step"].tolist() == [0, 2, 4]
    numbers = table.drop(columns="step")
    assert (numbers == numbers.iloc[0]).all(axis=None)  # nothing was trained


def test_the_numbers_are_those_of_the_probes(monitor, model):
    result = monitor()
    loaded = attnscope.load(model, tokenizer=wordpiece())
    (row,) = read_curves(result.path).to_dict("records")
    assert row["A(α, β)"] == pytest.approx(attnscope.agreement(loaded, SOURCES).top)
    assert row["entropy"] == pytest.approx(attnscope.entropy(loaded, SOURCES).table()["mean"].mean())
    permuted = attnscope.fragility(loaded, SOURCES, draws=5).table().loc["permuted"]
    assert row["output change, shuffled"] == pytest.approx(permuted["change"])


def test_a_restart_resumes_from_the_file_and_drops_later_steps(monitor):
    first = monitor(measures=["entropy"])
    first.measure(2)
    first.measure(4)
    again = monitor(measures=["entropy"])  # measures at step 0: what came later belongs to another training
    assert read_curves(again.path)["step"].tolist() == [0]
    again.measure(2)
    assert read_curves(again.path)["step"].tolist() == [0, 2]


def test_the_trainer_measures_and_logs(model, tmp_path):
    encoded = wordpiece()(SOURCES, padding=True, return_tensors="pt")
    rows = [
        {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor(label)}
        for ids, mask, label in zip(encoded["input_ids"], encoded["attention_mask"], LABELS, strict=True)
    ]
    arguments = transformers.TrainingArguments(
        tmp_path / "trainer", max_steps=4, per_device_train_batch_size=2, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no", learning_rate=0.05,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    path = tmp_path / "curves.csv"
    monitor = AttentionMonitor(model, SOURCES, path, 2, ["entropy", "lexical_agreement"], tokenizer=wordpiece())
    monitor.attach(trainer)
    trainer.train()
    table = read_curves(path)
    assert table["step"].tolist() == [0, 2, 4]
    assert table["entropy"].nunique() == 3
    logged = [entry for entry in trainer.state.log_history if "attention/entropy" in entry]
    assert [entry["step"] for entry in logged] == [0, 2, 4]
    assert [entry["attention/entropy"] for entry in logged] == pytest.approx(table["entropy"].tolist())


def test_kinds_of_heads_are_measured_of_a_language_model(tmp_path):
    torch.manual_seed(0)
    model, tokenizer = language_examples.language_model("gpt2"), language_examples.tokenizer()
    texts = ["the old dog sleeps the old dog sleeps"]
    monitor = AttentionMonitor(model, texts, tmp_path / "curves.csv", measures=["head_kinds"], tokenizer=tokenizer)
    numbers = monitor.measure(0, perplexity=7.5)
    assert numbers["perplexity"] == 7.5
    repeated = attnscope.run_probe("head_statistics", model).table()
    assert numbers["largest induction"] == pytest.approx(repeated["induction without sink"].max())
    assert numbers["mean sink"] == pytest.approx(
        attnscope.run_probe("head_statistics", model, texts).table()["first"].mean()
    )
    assert 0 < numbers["largest induction"] <= 1
    assert 0 < numbers["largest previous"] <= 1


def test_report_draws_the_curves(monitor, tmp_path):
    monitor().measure(2)
    result = CliRunner().invoke(app, ["report", str(tmp_path / "curves.csv")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_report_draws_the_curves_of_several_models_and_says_when_they_rise(tmp_path):
    steps = [0, 10, 20, 40, 80, 160, 320]
    curves = {"early": [0.0, 0.9, 1, 1, 1, 1, 1], "late": [1.0, 1, 1, 1, 0.9, 0.4, 0.0]}
    for name, values in curves.items():
        (tmp_path / name).mkdir()
        table = pd.DataFrame({"step": steps, "largest induction": values, "largest induction without sink": 0.5})
        table.to_csv(tmp_path / name / "curves.csv", index=False)
    tables = read_all_curves(tmp_path)
    halfway = halfway_steps(tables)
    assert halfway.loc["largest induction"].to_dict() == {"early": 10, "late": 160}
    assert halfway.loc["largest induction without sink"].isna().all()  # it never moves
    panel, *others = [ax for ax in draw_curves(tables).axes if ax.axison]
    assert not others  # the variant is drawn beside the number
    assert len([line for line in panel.lines if len(line.get_xdata())]) == 4
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "160" in result.output
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_named(model, tmp_path):
    with pytest.raises(BadSetting, match="there is no measure 'tau'"):
        AttentionMonitor(model, SOURCES, tmp_path / "x.csv", measures=["tau"], tokenizer=wordpiece())
    with pytest.raises(BadSetting, match="every is a number of steps, at least 1, not 0"):
        AttentionMonitor(model, SOURCES, tmp_path / "x.csv", every=0, tokenizer=wordpiece())
    pd.DataFrame({"a": ["b"]}).to_csv(tmp_path / "other.csv")
    with pytest.raises(BadSetting, match="not a file of an AttentionMonitor"):
        read_curves(tmp_path / "other.csv")
