"""Result files are read back, and errors in them name the file and the field."""

import hashlib
import json
import math
import platform
import socket
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnscope.cli import app
from attnscope.errors import AttnscopeError, InputWarning
from attnscope.files import Malformed
from attnscope.report import write_report
from attnscope.studies import result as module
from attnscope.studies.claims import COUNT, SeedValues, at_least, untested
from attnscope.studies.result import (
    Result,
    labels_of,
    load_results,
    not_recomputable,
    problems,
    provenance,
    row,
    verify,
)


@pytest.fixture
def result() -> Result:
    return Result(
        finding="fig5a",
        study="aitken2021",
        title="Breakdown of the alignment",
        section="4.1, figure 5a",
        profile="quick",
        seeds=[0, 1, 2],
        settings={"hidden": 64, "lengths": [15, 20]},
        table=[
            row(task="escan", model="AED", values=[0.8, 0.9, 0.85], published=0.77, published_text="> 0.77"),
            row(task="escan", model="AO", values=[0.7]),
        ],
        claims=[
            at_least("temporal terms dominate", [0.8, 0.9, 0.85], 0.5),
            untested("also in French", "no corpus here"),
        ],
        notes=["What this does not show: that attention explains."],
        seconds=12.5,
        figure={"AED": [0.8, 0.1, 0.1]},
        **provenance(),
    )


@pytest.fixture
def plain(result) -> dict:
    return json.loads(json.dumps(result.to_json()))


def test_what_is_written_can_be_read_again(result, tmp_path):
    path = result.write(tmp_path)
    assert path == tmp_path / "aitken2021" / "fig5a.json"
    assert Result.read(path) == result
    assert verify(tmp_path) == []


def test_a_range_without_an_upper_end_can_be_read_again(result, tmp_path):
    counts = SeedValues([1.0, 9.0, 0.0], "AED", range(3), COUNT)
    counted = replace(result, table=[row(model="AED", values=counts)], claims=[at_least("many", counts, 5)])
    path = counted.write(tmp_path)
    assert (Result.read(path).claims, Result.read(path).table) == (counted.claims, counted.table)
    assert verify(tmp_path) == []


def test_the_file_holds_exactly_the_agreed_fields(plain):
    assert list(plain) == [
        "schema", "digest", "finding", "study", "title", "section", "profile", "seeds", "settings", "table", "claims",
        "notes", "seconds", "machine", "versions", "commit", "figure", "by_seed", "counts",
    ]  # fmt: skip
    statistics = {"mean", "sd", "n", "low", "high", "values", "within"}
    assert set(plain["table"][0]) == {"task", "model", "published", "published_text"} | statistics
    assert set(plain["claims"][0]) == {"text", "verdict", "evidence", "why", "test", "estimate", "p"}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("seeds", "five", "field 'seeds' should be a list of whole numbers, but is 'five'"),
        ("seeds", [True], "field 'seeds' should be a list of whole numbers"),
        ("seconds", "long", "field 'seconds' should be a number that is not negative, but is 'long'"),
        ("seconds", -12.5, "field 'seconds' should be a number that is not negative, but is -12.5"),
        ("schema", 3, "field 'schema' should be 2"),
        ("finding", "../fig5a", "field 'finding' should be a name"),
        ("study", 5, "field 'study' should be a name"),
        ("notes", [1], "field 'notes' should be a list of texts"),
        ("commit", 7, "field 'commit' should be text or null"),
        ("settings", [], "field 'settings' should be a dictionary"),
        ("figure", {"y": [math.nan]}, "without NaN"),
        ("versions", {"python": 3.11}, "field 'versions' should be a dictionary of texts"),
        ("table", None, "field 'table' should be a list"),
        ("table", [3], "table row 1, should be a dictionary, but is 3"),
        ("claims", ["x"], "claim 1, should be a dictionary, but is 'x'"),
        ("colour", "red", "field 'colour' is unknown; the fields are schema"),
    ],
)
def test_a_wrong_field_is_named(plain, field, value, message):
    assert message in " ".join(problems({**plain, field: value}))
    with pytest.raises(Malformed, match=r"somewhere\.json"):
        Result.from_json({**plain, field: value}, where="somewhere.json")


@pytest.mark.parametrize("field", ["finding", "table", "claims", "figure", "commit"])
def test_a_missing_field_is_named(plain, field):
    del plain[field]
    assert problems(plain) == [f"field '{field}' is missing"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": "high"}, "table row 2, field 'mean' should be a finite number or null, but is 'high'"),
        ({"n": -1}, "table row 2, field 'n' should be a whole number that is not negative, but is -1"),
        ({"model": 3}, "table row 2, field 'model' should be text, but is 3"),
        ({"layer": "1"}, "table row 2, the label columns are task, model, layer, but task, model in row 1"),
        ({"n": 2}, "table row 2, 'mean' should be null only if n = 0 and 'sd' only if n < 2, but n = 2"),
    ],
)
def test_a_wrong_row_is_named(plain, change, message):
    plain["table"][1] |= change
    assert problems(plain) == [message]


def test_a_wrong_claim_is_named(plain):
    plain["claims"][1]["verdict"] = "yes"
    assert problems(plain) == [
        "claim 2, field 'verdict' should be one of holds, fails, equivalent, undecided, not testable, but is 'yes'"
    ]


def test_an_undecided_claim_must_say_why(plain):
    plain["claims"][1]["why"] = ""
    assert problems(plain) == ["claim 2, field 'why' should say why the claim is undecided, but is empty"]


def test_a_malformed_result_is_not_written(result, tmp_path):
    broken = Result(**{**vars(result), "seconds": math.inf})
    with pytest.raises(Malformed, match="aitken2021/fig5a: field 'seconds'"):
        broken.write(tmp_path)
    assert list(tmp_path.rglob("*.json")) == []


# Recomputed from the seeds -------------------------------------------------------------------------------------------


def sealed_again(path: Path, change) -> None:
    """Change a file as someone would who also computes its digest again."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    change(plain)
    text = json.dumps(plain | {"digest": ""}, indent=1, ensure_ascii=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(text.replace('"digest": ""', f'"digest": "{digest}"', 1), encoding="utf-8")


def changed(*keys, value):
    """A change of one field, however deep."""

    def change(plain):
        for key in keys[:-1]:
            plain = plain[key]
        plain[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("table", 0, "mean", value=0.95), "table row 1, field 'mean' is 0.95, but its seeds give 0.85"),
        (changed("table", 0, "sd", value=0.01), "table row 1, field 'sd' is 0.01"),
        (changed("table", 0, "n", value=5), "table row 1, field 'n' is 5, but its seeds give 3"),
        (changed("table", 0, "low", value=0.8), "table row 1, field 'low' is 0.8"),
        (changed("table", 0, "values", 2, value=0.95), "table row 1, field 'mean' is 0.85"),
        (
            changed("claims", 0, "verdict", value="fails"),
            "claim 1, field 'verdict' is 'fails', but its seeds give 'holds'",
        ),
        (changed("claims", 1, "verdict", value="holds"), "claim 2, field 'verdict' is 'holds'"),
        (changed("claims", 0, "test", "threshold", value=0.95), "claim 1, field 'verdict' is 'holds'"),
        (changed("claims", 0, "estimate", "high", value=1.0), "claim 1, field 'estimate'"),
        (changed("claims", 0, "p", value=[1.0, 0.0]), "claim 1, field 'p'"),
        (changed("claims", 0, "test", value=None), "claim 1, field 'test' is None"),
        (changed("counts", "holds", value=2), "counts, field 'holds' is 2, but its seeds give 1"),
        (changed("seconds", value=-12.5), "field 'seconds' should be a number that is not negative, but is -12.5"),
        (changed("seconds", value=99.0), "field 'seconds' is 99.0, but its seeds give 12.5"),
        (changed("by_seed", 0, "seed", value=7), "by_seed, seeds 7 are not in 'seeds'"),
    ],
)
def test_verify_recomputes_what_follows_from_the_seeds(with_seeds, tmp_path, change, message):
    path = with_seeds.write(tmp_path)
    sealed_again(path, lambda plain: None)
    assert verify(tmp_path) == []
    sealed_again(path, change)
    problems_found = verify(tmp_path)
    assert any(line.startswith(f"aitken2021/fig5a.json: {message}") for line in problems_found), problems_found
    assert not any("digest" in line for line in problems_found)


@pytest.fixture
def with_seeds(result) -> Result:
    record = {"label": "AED", "values": {"share": 0.8}, "seconds": 6.25, "commit": None, "device": "cpu"}
    return replace(result, by_seed=[{**record, "seed": 0}, {**record, "seed": 1}])


def test_every_changed_digit_is_detected(with_seeds, tmp_path):
    """One digit after the other is replaced, those of the digest, of texts and of names included."""
    path = with_seeds.write(tmp_path)
    text = path.read_text(encoding="utf-8")
    digits = [place for place, letter in enumerate(text) if letter.isdigit()]
    assert len(digits) > 300
    for place in digits:
        other = str((int(text[place]) + 1) % 10)
        path.write_text(text[:place] + other + text[place + 1 :], encoding="utf-8")
        assert verify(tmp_path) != [], text[place - 20 : place + 20]
        with pytest.raises(Malformed):
            Result.read(path)
    path.write_text(text, encoding="utf-8")
    assert verify(tmp_path) == []


def test_a_changed_digit_of_an_equal_number_is_detected(result, tmp_path):
    """Both spellings are the same double."""
    assert float("0.30000000000000004") == float("0.30000000000000005")
    path = replace(result, settings={"rate": 0.1 + 0.2}).write(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("0.30000000000000004", "0.30000000000000005"))
    assert verify(tmp_path) == [
        "aitken2021/fig5a.json: field 'digest' does not match: the file was changed since it was written"
    ]


def test_results_of_the_first_schema_are_read_and_counted_as_not_recomputable(plain, tmp_path):
    old = {name: value for name, value in plain.items() if name not in ("schema", "digest", "counts")}
    statistics = ("low", "high", "values", "within")
    old["table"] = [{name: value for name, value in line.items() if name not in statistics} for line in plain["table"]]
    old["claims"] = [{"text": "x", "holds": True, "evidence": "1 ± 0", "why": ""}]
    path = tmp_path / "aitken2021" / "fig5a.json"
    path.parent.mkdir()
    path.write_text(json.dumps(old), encoding="utf-8")
    assert verify(tmp_path) == []
    assert not_recomputable(tmp_path) == ["aitken2021/fig5a.json"]
    assert Result.read(path).claims[0].verdict == "holds"
    output = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert output.exit_code == 0
    assert "1 not recomputable" in output.output
    with pytest.raises(AttnscopeError, match="earlier schema"):
        Result.read(path).write(tmp_path)


def test_verify_names_each_file_with_its_problem(result, plain, tmp_path):
    result.write(tmp_path)
    (tmp_path / "aitken2021" / "fig9.json").write_text(json.dumps(plain))  # without a digest, but first: elsewhere
    (tmp_path / "aitken2021" / "half.json").write_text('{"finding": ')
    (tmp_path / "aitken2021" / "list.json").write_text("[]")
    message = verify(tmp_path)
    assert [line.split(":")[0] for line in message] == [f"aitken2021/{name}.json" for name in ("fig9", "half", "list")]
    assert "should lie at aitken2021/fig5a.json" in message[0]
    assert "not JSON" in message[1]
    assert "should be a dictionary, but is []" in message[2]


def test_a_store_with_a_user_defined_study_is_verified_and_reported(result, tmp_path, monkeypatch):
    """Its module is not there: everything but the figure is, with a warning."""
    no_figure = "looking/looked has no figure here: run this in the folder of looking.py"
    monkeypatch.chdir(tmp_path)
    own = Result(**{**vars(result), "study": "looking", "finding": "looked"})
    own.write(tmp_path / "runs" / "results")
    (tmp_path / "runs" / "measurements").mkdir()
    (tmp_path / "runs" / "measurements" / "key.json").write_text("{}")  # is no result
    assert verify(tmp_path / "runs") == []
    assert verify(tmp_path / "runs" / "results") == []
    (loaded,) = load_results(tmp_path / "runs")
    assert loaded == own
    with pytest.warns(InputWarning, match=no_figure):
        assert loaded.display_figure() is None
    with pytest.warns(InputWarning, match=no_figure):
        page = write_report([loaded], Result.display_figure, tmp_path / "page.html")
    assert "looking" in page.read_text(encoding="utf-8")
    outcome = CliRunner().invoke(app, ["verify", "runs"], catch_exceptions=False)
    assert (outcome.exit_code, outcome.output.split()[0]) == (0, "1")
    with pytest.warns(InputWarning, match=no_figure):
        assert CliRunner().invoke(app, ["report", "runs"]).exit_code == 0
    assert (tmp_path / "runs" / "report.html").exists()


def test_results_are_in_the_order_of_the_studies_findings(result, tmp_path):
    for finding in ("cells", "fig5a", "fig2-ao"):
        Result(**{**vars(result), "finding": finding}).write(tmp_path)
    assert [each.finding for each in load_results(tmp_path)] == ["fig2-ao", "fig5a", "cells"]
    with pytest.raises(AttnscopeError, match="there are no results"):
        load_results(tmp_path / "aitken2021")


def test_a_folder_without_results_is_a_problem(tmp_path):
    assert "no result file" in verify(tmp_path)[0]
    assert "no folder" in verify(tmp_path / "nowhere")[0]


def test_a_row_holds_mean_and_sample_deviation():
    values = [0.2, 0.5, 0.9]
    line = row(task="sorting", values=values, published=0.4)
    assert (line["mean"], line["sd"], line["n"]) == (statistics.mean(values), statistics.stdev(values), 3)
    assert labels_of(line) == {"task": "sorting"}


def test_a_row_of_one_seed_has_no_deviation_and_a_row_of_none_no_mean():
    none = {"published": None, "sd": None, "low": None, "high": None, "within": None}
    assert row(values=[0.2]) == none | {"mean": 0.2, "n": 1, "values": [0.2]}
    assert row(values=[math.nan]) == none | {"mean": None, "n": 0, "values": [None]}


def test_provenance_names_machine_and_versions_but_no_host_and_no_path():
    actual = provenance()
    assert "cores" in actual["machine"]
    assert actual["versions"]["python"] == platform.python_version()
    text = json.dumps(actual)
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
    assert str(Path(module.__file__).parent) not in text


def test_the_commit_says_whether_the_package_was_changed(monkeypatch):
    answers = {"ls-files": "__init__.py", "rev-parse": "abc", "status": ""}
    monkeypatch.setattr(module, "_git", lambda folder, *words: answers[words[0]])
    assert module.commit() == "abc"
    answers["status"] = " M models/cells.py"
    assert module.commit() == "abc+changes"
    answers["ls-files"] = None
    assert module.commit() is None


def test_a_gpu_is_named_only_if_it_was_used(monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: f"GPU of {device}")
    assert module.machine("cuda").endswith("GPU of cuda")
    assert module.machine("cuda:1").endswith("GPU of cuda:1")
    assert "GPU" not in module.machine("cpu")


def test_the_environment_states_the_commit_outside_a_checkout(monkeypatch):
    monkeypatch.setattr(module, "_git", lambda *words: None)
    monkeypatch.setenv("ATTNSCOPE_COMMIT", "abc")
    assert module.commit() == "abc"
