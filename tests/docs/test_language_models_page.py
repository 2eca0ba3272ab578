"""The numbers and figures of docs/language-models.md are those of results/language-models and results/audits."""

import json
import runpy
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "language-models"
SCRIPT = ROOT / "examples" / "draw_language_models.py"
MODELS = {"GPT-2-like": "gpt2-like-13m", "Llama-like": "llama-like-13m"}
PAGE = " ".join((ROOT / "docs" / "language-models.md").read_text(encoding="utf-8").split())


def table(model: str, name: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / MODELS[model] / f"{name}.csv")


def both(name: str, column: str, step: int | None = None) -> tuple[float, float]:
    """A number of both models at a step; by default after the last one."""
    return tuple(
        one.loc[one["step"] == (one["step"].max() if step is None else step), column].item()
        for one in (table(model, name) for model in MODELS)
    )


def cell(kind: str, model: str) -> str:
    """The row of the table of heads about a kind."""
    cells = PAGE.partition(f"| {kind} |")[2].split("|")
    return cells[list(MODELS).index(model)].strip()


@pytest.mark.parametrize("model", MODELS)
def test_steps_are_those_at_which_the_largest_scores_are_half_way(model):
    scores = runpy.run_path(str(SCRIPT))["SCORES"]
    largest = table(model, "heads").groupby("step")[list(scores.values())].max()
    for kind, row in {"previous token": "", "induction": "", "sink": "sink on the first token"}.items():
        values = largest[scores[kind]]
        step = values.index[values > (values.iloc[0] + values.iloc[-1]) / 2][0]
        assert cell(row or kind, model).startswith(f"step {step:,}; ")


@pytest.mark.parametrize("model", MODELS)
def test_heads_are_those_that_ablation_confirms(model):
    kinds = table(model, "kinds-on-texts")
    for kind in ("previous token", "induction", "duplicate token", "positional"):
        text, confirmed = cell(kind, model), kinds[(kinds["kind"] == kind) & kinds["confirmed"]]
        assert len(confirmed)
        for row in confirmed.to_dict("records"):
            assert f"{row['layer']}.{row['head']}" in text
            assert f"{row['score']:.2f}" in text
        changes = [f"by {row['loss change']:.2f} ({row['standard error']:.2f})" for row in confirmed.to_dict("records")]
        assert kind == "positional" or any(change in text for change in changes)
    sinks = kinds[kinds["kind"] == "sink"]
    assert not sinks["confirmed"].any()
    assert f"none confirmed: at most {sinks['score'].max():.2f}" in cell("sink on the first token", model)


def test_sentences_quote_the_curves():
    settings = [json.loads((RESULTS / name / "settings.json").read_text()) for name in MODELS.values()]
    millions = [f"{one['parameters'] / 1e6:.1f}" for one in settings]
    perplexity, a = both("curves", "validation perplexity"), both("curves", "A(α, β)")
    decisions = both("curves", "decisions changed, shuffled")
    random, repeated = both("curves", "loss, random tokens"), both("curves", "loss, their repetition")
    sinks, τ = both("curves", "largest sink"), both("curves", "τ with leave-one-out")
    later = pd.concat([table(model, "curves").query("step >= 112")["A(α, β)"] for model in MODELS])
    early = pd.concat([table(model, "curves").query("step <= 30")["decisions changed, shuffled"] for model in MODELS])
    for sentence in (
        f"(learned positions; {millions[0]} million parameters)",
        f"two heads of queries per head of keys; {millions[1]} million)",
        f"{settings[0]['tokens_read'] / 1e6:.0f} million tokens in {settings[0]['steps']:,} steps of "
        f"{settings[0]['batch']} × {settings[0]['context']} tokens: {settings[0]['training_tokens'] / 1e6:.0f} million",
        f"falls to {perplexity[0]:.1f} (GPT-2-like) and {perplexity[1]:.1f} (Llama-like)",
        f"changes {100 * decisions[0]:.0f} % (GPT-2-like) and {100 * decisions[1]:.0f} % (Llama-like) of the "
        f"predictions at the end, and {100 * early.min():.0f} to {100 * early.max():.0f} % in the first 30 steps",
        f"A(α, β) is {a[0]:.2f} and {a[1]:.2f} at the end",
        f"between {later.min():.2f} and {later.max() + 1e-9:.2f} at every checkpoint from step 112 on",
        f"The peak of {both('curves', 'A(α, β)', 20)[0]:.2f} in the GPT-2-like model, at step 20",
        f"(entropy {both('curves', 'entropy', 20)[0]:.3f})",
        f"τ is {τ[0]:.2f} and {τ[1]:.2f} at the end",
        f"{repeated[0]:.1f} nats instead of {random[0]:.1f} in the GPT-2-like model, and {repeated[1]:.1f} instead of "
        f"{random[1]:.1f} in",
        f"head of the GPT-2-like model has {sinks[0]:.2f} of its weight there, one of the Llama-like {sinks[1]:.2f}",
    ):
        assert sentence in PAGE


def test_statements_about_audits_agree_with_their_tests():
    audits = {}
    for path in sorted((ROOT / "results" / "audits").glob("*-like-13m-*/tests.csv")):
        audits[path.parent.name] = pd.read_csv(path, index_col="test")["value"]
    flips = pd.DataFrame(audits).T["flips with shuffled attention"]
    news, others = flips.filter(like="-news"), flips.drop(flips.filter(like="-news").index)
    assert (
        f"changes {100 * others.min():.0f} to {others.max():.0%} of the predictions of next words and synthetic facts "
        f"({100 * news.min():.0f} to {news.max():.0%} of topics)".replace("%", " %")
    ) in PAGE
    audit = json.loads((ROOT / "results" / "audits" / "gpt2-like-13m-facts" / "audit.json").read_text())
    (row,) = [row for row in audit["parts"]["units"]["table"] if row["unit"] == "named part"]
    assert f"attention has {row['route']:.0%} of the effect of deleting them".replace("%", " %") in PAGE
    assert f"sentence has {row['agreement']:.0%} of the squared effect of the best one".replace("%", " %") in PAGE


def test_figures_are_drawn_from_the_results(tmp_path, monkeypatch):
    arguments = [str(SCRIPT), str(RESULTS), str(ROOT / "results" / "audits"), str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    drawn = sorted(path.name for path in tmp_path.glob("*.png"))
    assert drawn == sorted(path.name for path in (ROOT / "docs").glob("language-models-*.png"))
    for name in drawn:
        with Image.open(tmp_path / name) as ours, Image.open(ROOT / "docs" / name) as published:
            assert name in PAGE
            if ours.info["Software"] != published.info["Software"]:
                pytest.skip(f"drawn with {published.info['Software']}, not matplotlib {mpl.__version__}")
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(published))
