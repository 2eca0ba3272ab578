"""User-defined studies with a mistake: the error names the finding, and the others are written."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnscope import studies
from attnscope.cli import _shortened, app, main
from attnscope.errors import AttnscopeError
from attnscope.files import read_checked, write_checked
from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import Experiment
from attnscope.models import EncoderDecoderSettings
from attnscope.report import write_report
from attnscope.studies import jobs
from attnscope.studies.claims import at_least
from attnscope.studies.finding import Finding, Profile, Study
from attnscope.studies.reproduce import FindingError, reproduce
from attnscope.studies.result import Result, load_results, verify
from attnscope.tasks import OneToOne
from attnscope.training import TrainingSettings


def experiments(profile):
    task = OneToOne(min_length=1, max_length=2, test_size=4)
    return {"small": Experiment(task, EncoderDecoderSettings(units=4), TrainingSettings(steps=1, batch_size=2))}


def measure(run):
    return {"moved": 1.0, "picture": [1.0]}


def measure_without_picture(run):
    return {"moved": 1.0}


def measure_a_number(run):
    return 0.5


def measure_nothing(run):
    raise ValueError("the attention has no such head")


def claims(measured):
    return [at_least("it moves", measured.values("small", "moved"), 0.5)]


def misspelt(measured):
    return [at_least("it moves", measured.values("small", "mooved"), 0.5)]


def taken_directly(measured):
    return [measured["small"][0]["mooved"]]


RIGHT = Finding("right", "It moves", "ours", experiments, measure, lambda m: m.table({"moved": "moved"}), claims, print)
STUDY = Study("test_reproduce_mistakes", (RIGHT,), {"quick": Profile("quick", seeds=1)})  # named as this module


@pytest.fixture
def outcome(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "STUDIES", list(studies.STUDIES))

    def reproduced(*findings):
        own = replace(STUDY, findings=findings)
        monkeypatch.setattr(sys.modules[__name__], "STUDY", own)
        return reproduce(own, findings, "quick", None, tmp_path, LocalEngine(0))

    return reproduced


def written(folder):
    return sorted(path.stem for path in Path(folder, "results", STUDY.name).glob("*.json"))


@pytest.mark.parametrize("part", ["claims", "table", "figure"])
def test_a_finding_that_cannot_be_judged_is_named_when_the_others_are_written(outcome, tmp_path, part):
    wrong = replace(RIGHT, name="wrong", **{part: taken_directly})
    message = (
        rf"^the {part} of {STUDY.name}/wrong could not be judged: KeyError: 'mooved' \({STUDY.name}.py, line \d+\)$"
    )
    with pytest.raises(FindingError, match=message) as raised:
        outcome(wrong, RIGHT)
    assert isinstance(raised.value.__cause__, KeyError)
    assert written(tmp_path) == ["right"]


def test_a_finding_without_a_picture_is_judged_and_reported(outcome, tmp_path):
    (result,) = outcome(replace(RIGHT, draw=None, measure=measure_without_picture))
    assert [claim.verdict for claim in result.claims] == ["undecided"]
    assert result.figure is None
    assert result.display_figure() is None
    page = write_report([result], Result.display_figure, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "It moves" in page
    assert "it moves" in page
    assert "<img" not in page


def test_every_finding_that_cannot_be_judged_is_named(outcome):
    first = replace(RIGHT, name="first", claims=misspelt)
    second = replace(RIGHT, name="second", claims=lambda measured: None)
    with pytest.raises(FindingError) as raised:
        outcome(first, second)
    message = str(raised.value)
    assert "'mooved' was not measured of 'small'; what was measured is moved, picture" in message
    assert f"{STUDY.name}/second could not be judged: " in message


def test_a_measure_that_returns_no_dictionary_is_reported_as_a_failed_run(outcome):
    (result,) = outcome(replace(RIGHT, measure=measure_a_number))
    (note,) = result.notes
    assert note.startswith("Runs failed: small, seed 0: ")
    assert f"the measure of {STUDY.name}/right should give a dictionary" in note
    assert note.endswith("but gave 0.5")


def test_an_error_in_seeds_is_reported_after_the_other_findings_are_written(outcome, tmp_path):
    wrong = replace(RIGHT, name="wrong", seeds=lambda profile: int(profile.sedes))
    with pytest.raises(
        FindingError, match=f"the seeds of {STUDY.name}/wrong could not be made: .*has no attribute 'sedes'"
    ):
        outcome(wrong, RIGHT)
    assert written(tmp_path) == ["right"]


NO_EXPERIMENTS = [
    ([1], "they should be a dictionary, by label what is trained, such as .* of type list"),
    ({"small": [1]}, "'small' should be an Experiment, a Case, or a function that gives one for a seed, .* type list"),
    ({"small": lambda seed: [seed]}, "'small' should be an Experiment, a Case, or a function .* type list"),
    ({"small": lambda seed: no_such_name}, r"NameError: name 'no_such_name' is not defined \(.*, line \d+\)"),  # noqa: F821
]


@pytest.mark.parametrize(("subjects", "why"), NO_EXPERIMENTS)
@pytest.mark.parametrize("part", ["experiments", "follow_up"])
def test_experiments_that_cannot_be_trained_are_reported_after_the_other_findings_are_written(
    outcome, tmp_path, part, subjects, why
):
    wrong = replace(RIGHT, name="wrong", **{part: lambda *_: subjects})
    with pytest.raises(FindingError, match=rf"^the {part} of {STUDY.name}/wrong could not be made: {why}$"):
        outcome(wrong, RIGHT)
    assert written(tmp_path) == ["right"]


@pytest.mark.parametrize("part", ["experiments", "follow_up"])
def test_an_error_in_experiments_is_reported_after_the_other_findings_are_written(outcome, tmp_path, part):
    wrong = replace(RIGHT, name="wrong", **{part: lambda profile, *measured: {}[profile.name]})
    message = rf"^the {part} of {STUDY.name}/wrong could not be made: KeyError: 'quick' \({STUDY.name}.py, line \d+\)$"
    with pytest.raises(FindingError, match=message) as raised:
        outcome(wrong, RIGHT)
    assert isinstance(raised.value.__cause__, KeyError)
    assert written(tmp_path) == ["right"]


def test_an_error_in_experiments_is_reported_before_training(tmp_path):
    reports = []
    wrong = replace(RIGHT, name="wrong", experiments=lambda profile: None)
    with pytest.raises(FindingError):
        reproduce(
            STUDY, (RIGHT, wrong), "quick", None, tmp_path, LocalEngine(0), progress=lambda *news: reports.append(news)
        )
    assert "wrong could not be made" in reports[0][3]
    assert reports[-2:] == [("trained", 1, 1, ""), ("measured", 1, 1, "")]


def test_findings_with_two_kinds_of_mistakes_are_all_named(outcome):
    first = replace(RIGHT, name="first", experiments=lambda profile: profile.no_such_size)
    second = replace(RIGHT, name="second", claims=misspelt)
    with pytest.raises(FindingError) as raised:
        outcome(first, second)
    message = str(raised.value)
    assert "the experiments of test_reproduce_mistakes/first could not be made: AttributeError" in message
    assert "the claims of test_reproduce_mistakes/second could not be judged: 'mooved' was not measured" in message


def test_a_follow_up_may_reuse_a_label(outcome):
    follow_up = {"small": experiments(None)["small"], "more": lambda seed: experiments(None)["small"]}
    (result,) = outcome(replace(RIGHT, follow_up=lambda profile, measured: follow_up))
    assert [row["model"] for row in result.table] == ["small", "more"]


def test_the_command_line_names_a_finding_whose_experiments_raise(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(studies, "STUDIES", list(studies.STUDIES))
    wrong = replace(RIGHT, name="wrong", experiments=lambda profile: {}["tiny"])
    monkeypatch.setattr(sys.modules[__name__], "STUDY", replace(STUDY, findings=(wrong, RIGHT)))
    words = ["attnscope", "reproduce", STUDY.name, "--workers", "0", "--store", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"attnscope: the experiments of {STUDY.name}/wrong could not be made: KeyError: 'tiny'")
    assert written(tmp_path) == ["right"]


def test_the_command_line_says_why_runs_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "STUDIES", list(studies.STUDIES))
    own = replace(STUDY, findings=(replace(RIGHT, measure=measure_nothing),))
    monkeypatch.setattr(sys.modules[__name__], "STUDY", own)
    words = ["reproduce", STUDY.name, "--workers", "0", "--store", str(tmp_path)]
    lines = CliRunner().invoke(app, words, catch_exceptions=False)
    assert lines.exit_code == 1
    message = " ".join(lines.output.split())
    assert "Runs failed: small, seed 0: ValueError: the attention has no such head" in message
    assert f"runs failed of {STUDY.name}/right" in " ".join(lines.stderr.split())


# What is kept --------------------------------------------------------------------------------------------------------


def measure_unless_seed_1(run):
    if run.experiment.seed == 1:
        raise ValueError("the disk is gone")
    return {"moved": 1.0, "picture": [1.0]}


def stored(folder, ending=".json"):
    return Result.read(Path(folder, "results", STUDY.name, f"right{ending}"))


@pytest.fixture
def with_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "STUDIES", list(studies.STUDIES))

    def reproduced(seeds, measure=measure, profile="quick"):
        profiles = {"quick": Profile("quick", seeds=1), "paper": Profile("paper", seeds=1)}
        own = replace(STUDY, findings=(replace(RIGHT, measure=measure),), profiles=profiles)
        monkeypatch.setattr(sys.modules[__name__], "STUDY", own)
        (result,) = reproduce(own, own.findings, profile, seeds, tmp_path, LocalEngine(0))
        return result

    return reproduced


def test_a_result_with_failed_runs_is_written_beside_the_earlier_good_one(with_seeds, tmp_path):
    good = with_seeds(2)
    partial = with_seeds(2, measure_unless_seed_1)
    assert stored(tmp_path) == good
    assert stored(tmp_path, ".partial.json") == partial
    assert partial.notes[-2:] == [
        "Runs failed: small, seed 1: ValueError: the disk is gone (test_reproduce_mistakes.py, line "
        f"{measure_unless_seed_1.__code__.co_firstlineno + 2})",
        "A better result is kept, right.json: it is complete; this one is right.partial.json",
    ]
    assert verify(tmp_path) == []
    assert load_results(tmp_path) == [good], "a report is made of the good one"


def test_a_result_of_fewer_seeds_does_not_replace_one_of_more(with_seeds, tmp_path):
    good = with_seeds(3)
    assert with_seeds(2).notes[-1] == (
        "A better result is kept, right.json: it has 3 seeds of the profile quick; this one is right.partial.json"
    )
    assert stored(tmp_path) == good
    assert len(stored(tmp_path, ".partial.json").seeds) == 2
    with_seeds(4)
    assert len(stored(tmp_path).seeds) == 4, "more seeds replace fewer"
    with_seeds(1, profile="paper")
    assert stored(tmp_path).profile == "paper", "the profile paper replaces quick"
    with_seeds(5)
    assert stored(tmp_path).profile == "paper"


def test_where_there_is_no_good_result_a_partial_one_is_in_its_place_until_runs_succeed(with_seeds, tmp_path):
    assert with_seeds(2, measure_unless_seed_1).failed
    assert stored(tmp_path).failed
    assert not with_seeds(2).failed
    assert not stored(tmp_path).failed


def test_each_network_is_measured_before_the_next_is_trained(tmp_path):
    reports = []
    reproduce(STUDY, (RIGHT,), "quick", 3, tmp_path, LocalEngine(0), progress=lambda *news: reports.append(news))
    assert reports == [(stage, done, 3, "") for done in (1, 2, 3) for stage in ("trained", "measured")]


INTERRUPTED_SEED = 2
MEASURED = []


def measure_unless_interrupted(run):
    if run.experiment.seed == INTERRUPTED_SEED:
        raise KeyboardInterrupt
    MEASURED.append(run.experiment.seed)
    return {"moved": 1.0, "picture": [1.0]}


def test_an_interrupted_reproduction_keeps_its_measurements_and_resumes_with_the_missing_ones(
    with_seeds, tmp_path, monkeypatch
):
    with pytest.raises(KeyboardInterrupt):
        with_seeds(4, measure_unless_interrupted)
    names = {folder: [path.name for path in (tmp_path / folder).iterdir()] for folder in ("measurements", "runs")}
    assert len(names["measurements"]) == 2
    assert len(names["runs"]) == 3
    trained, train_all = [], jobs.train_all
    monkeypatch.setattr(jobs, "train_all", lambda group, store: trained.append(group) or train_all(group, store))
    monkeypatch.setattr(sys.modules[__name__], "INTERRUPTED_SEED", None)
    assert not with_seeds(4, measure_unless_interrupted).failed
    assert [experiment.seed for group in trained for experiment in group] == [2, 3], "2 is only verified"
    assert MEASURED == [0, 1, 2, 3]


def test_of_two_incomplete_results_the_one_with_more_measurements_is_kept(with_seeds, tmp_path):
    partial = with_seeds(2, measure_unless_seed_1)
    none = with_seeds(2, measure_nothing)
    assert none.notes[-1] == ("A better result is kept, right.json: more is measured; this one is right.partial.json")
    assert stored(tmp_path) == partial


def test_stored_measurements_are_judged_without_running_anything(with_seeds, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        with_seeds(4, measure_unless_interrupted)
    monkeypatch.setattr(jobs, "train_all", None)
    judge = partial(reproduce, STUDY, STUDY.findings, "quick", store=tmp_path, engine=LocalEngine(0), stored_only=True)
    (result,) = judge(seeds=4)
    assert result.notes == ["Not measured yet: small, seeds 2, 3"]
    assert (result.failed, result.incomplete, result.by_seed) == (False, True, []), "two of four seeds are not judged"
    assert stored(tmp_path) == result
    (result,) = judge(seeds=2)
    assert not result.incomplete
    assert [record["seed"] for record in result.by_seed] == [0, 1]
    assert {record["machine"] for record in result.by_seed} == {result.machine}
    assert stored(tmp_path) == result
    with pytest.raises(AttnscopeError, match="has no measurement of these findings, seeds and sizes"):
        judge(seeds=2, first_seed=10)
    with pytest.raises(AttnscopeError, match="has no measurement"):
        judge(seeds=2, store=tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_a_result_names_every_machine_and_version_behind_its_measurements(with_seeds, tmp_path):
    here = with_seeds(2)
    (path, _) = sorted((tmp_path / "measurements").iterdir())
    record = json.loads(read_checked(path))
    record["origin"]["machine"], record["versions"]["torch"] = "another", "9.9"
    write_checked(path, json.dumps(record).encode())
    (result,) = reproduce(STUDY, STUDY.findings, "quick", 2, tmp_path, LocalEngine(0), stored_only=True)
    assert set(result.machine.split("; ")) == {here.machine, "another"}
    assert set(result.versions["torch"].split("; ")) == {here.versions["torch"], "9.9"}
    assert result.versions["numpy"] == here.versions["numpy"]


def test_a_network_that_cannot_be_trained_fails_what_measures_it_alone(with_seeds, tmp_path, monkeypatch):
    train_all = jobs.train_all

    def diverge_at_seed_1(group, store):
        if group[0].seed == 1:
            raise AttnscopeError("the loss became nan")
        return train_all(group, store)

    monkeypatch.setattr(jobs, "train_all", diverge_at_seed_1)
    reports = []
    (result,) = reproduce(
        STUDY, (RIGHT,), "quick", 3, tmp_path, LocalEngine(0), progress=lambda *news: reports.append(news)
    )
    assert result.notes == ["Runs failed: small, seed 1: the loss became nan"]
    assert [each["seed"] for each in result.by_seed] == [0, 2]
    failed = replace(experiments(None)["small"], seed=1).key
    assert [report[3] for report in reports if report[3]] == [f"{failed}: the loss became nan"]
    assert reports[-1] == ("measured", 3, 3, "")


def test_all_studies_are_run_where_one_fails(monkeypatch, tmp_path):
    import attnscope

    done = []

    def run(study, *rest):
        done.append(study.name)
        if study.name == "snell2021":
            raise FindingError("the claims of snell2021/fig3 could not be judged")
        return []

    monkeypatch.setattr(studies, "STUDIES", studies.STUDIES[:4])
    monkeypatch.setattr("attnscope.studies.reproduce.reproduce", run)
    with pytest.raises(FindingError, match="snell2021/fig3"):
        attnscope.reproduce("all", store=tmp_path)
    assert done == ["aitken2021", "snell2021", "baan2019", "tutek2020"]


def test_a_long_note_keeps_its_beginning_and_its_reason():
    note = f"Runs failed: {', '.join(map(str, range(1000)))}: the loss became nan"
    assert len(_shortened(note)) < 610
    assert _shortened(note).startswith("Runs failed: 0, 1")
    assert _shortened(note).endswith("the loss became nan")
    assert _shortened("Runs failed: short") == "Runs failed: short"


def test_seeds_count_from_the_first_seed_and_each_is_kept_with_where_it_comes_from(tmp_path):
    (result,) = reproduce(STUDY, (RIGHT,), "quick", 2, tmp_path, LocalEngine(0), first_seed=3)
    (from_finding,) = reproduce(STUDY, (replace(RIGHT, first_seed=7),), "quick", 1, tmp_path, LocalEngine(0))
    assert (list(result.seeds), list(from_finding.seeds)) == ([3, 4], [7])
    assert [(each["label"], each["seed"], each["values"]) for each in result.by_seed] == [
        ("small", 3, {"moved": 1.0}),
        ("small", 4, {"moved": 1.0}),
    ]
    assert all(each["device"] == "cpu" and each["tf32"] is False and each["torch"] for each in result.by_seed)


OWN_STUDY = """
from own_parts import measure
from test_reproduce_mistakes import RIGHT, STUDY
from dataclasses import replace

STUDY = replace(STUDY, name="own_study", findings=(replace(RIGHT, measure=measure, draw=None),))
"""
OWN_PARTS = """
def measure(run):
    return {"moved": 1.0}
"""
COMMAND = "import sys; sys.path[:] = [p for p in sys.path if p]; from attnscope.cli import main; main()"


@pytest.mark.slow
def test_a_study_in_the_current_folder_is_measured_by_worker_processes(tmp_path):
    (tmp_path / "own_study.py").write_text(OWN_STUDY)
    (tmp_path / "own_parts.py").write_text(OWN_PARTS)
    words = ["reproduce", "own_study", "--workers", "2", "--store", "runs"]
    paths = os.pathsep.join([str(Path(__file__).parent), *(path for path in sys.path if path)])
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (row,) = Result.read(tmp_path / "runs" / "results" / "own_study" / "right.json").table
    assert (row["mean"], row["n"]) == (1.0, 1)
    assert (tmp_path / "runs" / "report.html").exists()
