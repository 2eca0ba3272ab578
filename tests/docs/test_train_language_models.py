"""The example that trains language models resumes to the same numbers."""

import gzip
import importlib.util
import itertools
import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

import attnscope

pytest.importorskip("transformers")
SCRIPT = Path(__file__).parents[2] / "examples" / "train_language_models.py"
SIZES = "--layers 2 --width 16 --heads 2 --pieces 300 --context 48 --batch 2 --steps 4 --prompts 5 --decisions 8"


def write_corpus(folder: Path) -> None:
    draw = random.Random(0)
    words = ["the", "old", "captain", "looks", "at", "sea", "and", "sailor", "sings", "of", "boat", "in", "wind"]
    rows = [
        {"title": "News", "text": " ".join(draw.choices(words, k=60)), "label": "Sports", "split": split}
        for split in ("train", "test") for _ in range(120)
    ]  # fmt: skip
    (folder / "ag_news").mkdir(parents=True)
    with gzip.open(folder / "ag_news" / "made-up.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Call the script on a made-up corpus, with a clock that advances by a second at each look."""
    write_corpus(tmp_path / "data")
    found = importlib.util.spec_from_file_location("train_language_models", SCRIPT)
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)

    def call(work: str, seconds: int, *more: str) -> Path:
        clock = itertools.count()
        monkeypatch.setattr(script, "time", SimpleNamespace(time=lambda: next(clock), monotonic=lambda: 0.0))
        results = tmp_path / f"{work}-results"
        script.main(
            [str(tmp_path / work), str(results), "--data", str(tmp_path / "data"), "--minutes", str(seconds / 60),
             "--kinds", "llama", "--device", "cpu", *SIZES.split(), *more]
        )  # fmt: skip
        return results / "llama-like"

    return call


@pytest.mark.slow
def test_a_resumed_run_gives_the_same_numbers(train, capsys):
    stopped = train("stopped", seconds=3)
    assert "call again to go on" in capsys.readouterr().out
    assert json.loads((stopped / "settings.json").read_text())["steps_done"] < 4
    with pytest.raises(SystemExit, match="other settings"):
        train("stopped", 10_000, "--rate", "0.5")
    train("stopped", seconds=10_000)
    assert "everything is done" in capsys.readouterr().out
    whole = train("whole", seconds=10_000)
    (whole / "settings.json").unlink()  # as if it had been killed after the last step
    (whole / "maps.csv").unlink()
    train("whole", 10_000, "--weights", str(whole.parent / "weights"))
    for name in ("curves.csv", "heads.csv", "kinds.csv", "lexical.csv", "maps.csv", "answers.csv"):
        pd.testing.assert_frame_equal(pd.read_csv(stopped / name), pd.read_csv(whole / name))
    assert pd.read_csv(whole / "curves.csv")["step"].tolist() == [0, 1, 2, 3, 4]
    assert (pd.read_csv(whole / "curves.csv")["validation perplexity"].diff().dropna() < 0).all()
    shards = sorted((whole.parent / "weights" / "llama-like").glob("*.safetensors"))
    for shard in shards:
        assert shard.stat().st_size < 16 * 2**20
        shutil.copy(shard, whole / "model")
    there = attnscope.load(str(whole.parent.parent / "whole" / "models" / "llama-like"))
    brought_back = attnscope.load(str(whole / "model"))
    texts = ["the old captain looks at the sea"]
    expected, found = (model.trace(texts).logits for model in (there, brought_back))
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=2e-3)
