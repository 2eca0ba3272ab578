"""The command line in a process of its own, mistakes included."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

RESULTS = Path(__file__).parent.parent / "results"
SMALL = ["--set", "training.steps=3", "--set", "training.batch_size=4", "--set", "task.test_size=12"]


def attnscope(*words, cwd=None, columns=200):
    environment = {**os.environ, "COLUMNS": str(columns), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "attnscope", *map(str, words)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120)
    assert answer.returncode != 70, answer.stderr  # a bug that the safety net caught
    return answer


def test_help_loads_no_torch():
    program = "import sys, attnscope.cli; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
    shown = attnscope("--help")
    assert shown.returncode == 0
    for command in ("list", "reproduce", "report", "site", "verify", "train", "probe", "audit", "explore"):
        assert command in shown.stdout


def test_list_names_everything_and_the_file_of_each_finding():
    shown = attnscope("list").stdout
    for name in ("fig2-aed", "fig6", "escan", "query_key_value", "ungated_feedforward", "decompose", "ved"):
        assert name in shown
    assert "studies/snell2021/fig3.py" in shown


def test_list_fits_a_narrow_terminal():
    assert max(map(len, attnscope("list", columns=80).stdout.splitlines())) <= 80


def test_train_then_probe(tmp_path):
    trained = attnscope("train", "one_to_one", "aed", *SMALL, "--store", tmp_path)
    assert trained.returncode == 0, trained.stderr
    key = trained.stdout.split("run: ")[1].strip()
    picture = tmp_path / "shares.png"
    result = attnscope("probe", key[:8], "decompose", "--store", tmp_path, "--out", picture)
    assert result.returncode == 0, result.stderr
    assert "temporal share" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_figures_of_a_store_are_written_as_images(tmp_path):
    (tmp_path / "aitken2021").mkdir()
    for number, finding in enumerate(("fig2-aed", "average"), 1):
        shutil.copy(RESULTS / "aitken2021" / f"{finding}.json", tmp_path / "aitken2021")
        result = attnscope("report", tmp_path, "--out", tmp_path / "figure.png")
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("figure: ") == number
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "figure.png", "figure-1-fig2-aed.png", "figure-2-average.png",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "aitken2022"], "there is no study 'aitken2022'; choose one of aitken2021"),
        (["reproduce", "aitken2021", "--only", "fig9"], "choose one of fig2-aed, fig2-ao"),
        (["reproduce", "aitken2021", "--profile", "slow"], "choose one of quick, paper"),
        (["reproduce", "aitken2021", "--engine", "cloud"], "choose one of local, ray"),
        (["reproduce", "aitken2021", "--device", "tpu"], "choose one of cpu"),
        (
            ["train", "two_to_two", "aed"],
            "choose one of one_to_one, reversed_one_to_one, sorting, escan, copying, keyword, ",
        ),
        (["train", "one_to_one", "bert"], "choose one of ved, aed, ao, copying"),
        (["train", "one_to_one", "aed", "--set", "model.heads=7"], "heads=7 does not divide units=128"),
        (["train", "one_to_one", "aed", "--set", "model.cell=feedforward"], "set positions"),
        (["train", "one_to_one", "aed", "--set", "model.cell=rnn"], "import the module that adds it to CELLS"),
        (["probe", "abc", "movement"], "To use your own, import the module that adds it to PROBES"),
        (["probe", "abc"], "0 finished runs begin with 'abc'"),
        (["report", "."], "there are no results"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, message, tmp_path):
    answer = attnscope(*words, cwd=tmp_path)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "runs").exists()


def test_verify_says_what_is_malformed(tmp_path):
    (tmp_path / "aitken2021").mkdir()
    (tmp_path / "aitken2021" / "fig3.json").write_text('{"finding": 3}')
    answer = attnscope("verify", tmp_path)
    assert answer.returncode == 1
    assert "field 'finding' should be a name" in answer.stderr


def test_the_shipped_results_are_well_formed():
    answer = attnscope("verify", RESULTS)
    assert answer.returncode == 0, answer.stderr


def test_a_folder_of_one_audit_with_its_parts_can_be_verified(tmp_path):
    shipped = RESULTS / "audits" / "sst-electra" / "audit.json"
    (tmp_path / "audit.json").write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "words.json").write_text("a checksum\n{}")
    answer = attnscope("verify", tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "1 audits agree" in answer.stdout


@pytest.mark.slow
def test_an_interrupted_command_reports_that_and_resumes_later(tmp_path):
    words = ["train", "one_to_one", "aed", "--store", str(tmp_path), "--set", "training.steps=100000"]
    process = subprocess.Popen([sys.executable, "-m", "attnscope", *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("working/*/config.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(2)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; the same command resumes from here" in stderr
    assert "Traceback" not in stderr


@pytest.mark.corpus
def test_a_classifier_is_trained_on_a_corpus(corpus, tmp_path):
    small = ["--set", "model.units=4", "--set", "model.input_size=5", "--set", "model.hidden=3"]
    trained = attnscope("train", "sst", "classifier", *SMALL[:4], *small, "--store", tmp_path)
    assert trained.returncode == 0, trained.stderr
    result = attnscope("probe", trained.stdout.split("run: ")[1].strip(), "--store", tmp_path)
    assert "word variance left" in result.stdout


def test_a_missing_corpus_says_what_is_looked_for(tmp_path):
    answer = attnscope("train", "sst", "classifier", "--data", tmp_path)
    assert answer.returncode == 2
    assert "there is no corpus sst/sst.jsonl.gz; looked for" in answer.stderr
    assert "JSON lines" in answer.stderr
