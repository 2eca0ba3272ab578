"""The whole study at a tiny size, through the command line; and its own small functions against closed forms."""

import json

import pytest
import torch
from small_translations import TINY, write_corpus
from typer.testing import CliRunner

from attnscope.cli import app
from attnscope.errors import AttnscopeError
from attnscope.lab.engines import LocalEngine
from attnscope.models import Positions
from attnscope.models.encoder_decoder import PositionalCode
from attnscope.probes.decomposition.components import CrossAttention
from attnscope.probes.decomposition.trajectories import principal_axes
from attnscope.studies import study
from attnscope.studies.aitken2021.discrepancies import compare_terms
from attnscope.studies.aitken2021.experiments import PROFILES
from attnscope.studies.jobs import TrainingJob, run_training
from attnscope.studies.reproduce import reproduce
from attnscope.studies.result import Result
from attnscope.tasks import Sorting
from attnscope.training import TrainingDiverged


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "tiny", TINY)
        patch.setenv("ATTNSCOPE_DATA", str(write_corpus(tmp_path_factory.mktemp("data"))))
        words = ["reproduce", "aitken2021", "--profile", "tiny", "--workers", "0", "--store", str(store)]
        outcome = CliRunner().invoke(app, words, catch_exceptions=False)
    assert outcome.exit_code == 0
    return store, outcome.output


@pytest.mark.slow
def test_every_finding_writes_a_well_formed_result_and_a_figure(reproduced):
    store, _ = reproduced
    for finding in study("aitken2021").findings:
        result = Result.read(store / "results" / "aitken2021" / f"{finding.name}.json")
        assert result.claims, finding.name
        assert all(row["n"] == 2 for row in result.table), finding.name
        assert result.profile == "tiny"
        figure = finding.draw(result.figure)
        assert figure.axes, finding.name


@pytest.mark.slow
def test_the_report_is_one_file_with_every_finding(reproduced):
    store, output = reproduced
    page = (store / "report.html").read_text(encoding="utf-8")
    for finding in study("aitken2021").findings:
        assert finding.name in page
    assert 'src="http' not in page
    assert str(store / "report.html") in output.replace("\n", "")


@pytest.mark.slow
def test_two_findings_that_need_the_same_run_train_it_once(reproduced):
    store, _ = reproduced
    configs = [json.loads(path.read_text()) for path in store.glob("runs/*/config.json")]
    # 17 distinct experiments with seeds 0 and 1; four optimisers with seeds 2 and 3, which the pilot has not seen; ten
    # arms on discrepancies with seeds 5 and 6
    assert len(configs) == 2 * (17 + 4 + 10)


@pytest.mark.slow
def test_verify_and_report_read_what_reproduce_wrote(reproduced, tmp_path):
    store, _ = reproduced
    assert CliRunner().invoke(app, ["verify", str(store / "results")]).exit_code == 0
    again = tmp_path / "again.html"
    assert CliRunner().invoke(app, ["report", str(store), "--out", str(again)]).exit_code == 0
    assert again.read_text() == (store / "report.html").read_text()


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_numbers(reproduced, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.setitem(PROFILES, "tiny", TINY)
    words = ["--only", "fig2h", "--profile", "tiny", "--engine", "ray", "--store", str(tmp_path)]
    assert CliRunner().invoke(app, ["reproduce", "aitken2021", *words], catch_exceptions=False).exit_code == 0
    there, here = (Result.read(store / "results/aitken2021/fig2h.json") for store in (tmp_path, reproduced[0]))
    assert there.table == here.table
    assert there.figure == here.figure


def test_a_node_that_does_not_see_the_store_says_so(tmp_path):
    with pytest.raises(AttnscopeError, match="must be on a disk that all nodes share"):
        run_training(TrainingJob("aitken2021", (), str(tmp_path / "elsewhere")))


def test_a_failed_run_is_named_and_its_claims_are_undecided(tmp_path, monkeypatch):
    """A network that diverges is reported; the finding is written all the same."""
    monkeypatch.setitem(PROFILES, "tiny", TINY)
    monkeypatch.setattr("attnscope.studies.jobs.train_all", diverge)
    monkeypatch.setenv("ATTNSCOPE_DATA", str(write_corpus(tmp_path)))
    finding = study("aitken2021").finding("fig5a")
    (result,) = reproduce(study("aitken2021"), [finding], "tiny", 2, tmp_path, LocalEngine(0))
    assert all(claim.holds is None for claim in result.claims)
    (note,) = [note for note in result.notes if note.startswith("Runs failed")]
    assert note.count("seeds 0, 1") == 6  # networks
    assert note.endswith(": the loss became nan")
    assert result.figure is None


def diverge(experiments, store):
    raise TrainingDiverged("the loss became nan")


def test_a_single_frequency_is_a_circle_and_the_usual_spectrum_is_not():
    """Footnote 4: what three axes hold of the positional code itself."""
    spectrum, circle = (
        principal_axes(PositionalCode(Positions(frequency=frequency), 50)(21)).explained.sum().item()
        for frequency in (None, 0.15)
    )
    assert circle == pytest.approx(1)
    assert spectrum == pytest.approx(0.699, abs=1e-3)


def test_terms_that_favour_no_position_have_no_centred_share():
    """μ·μ is constant over encoder steps and large, Δ·χ alone differs: all of the centred share is Δ·χ's."""
    batch = next(Sorting(num_words=4, min_length=3, max_length=3).batches("test", 2))
    nine = torch.zeros(3, 3, 2, 1, 4, 4)
    nine[0, 0] = 50.0
    nine[2, 1] = torch.randn(2, 1, 4, 4)
    scores = nine.sum((0, 1))
    own = CrossAttention(scores, scores.softmax(-1), batch.source_mask, batch.target_mask)
    sums, distances, steps = compare_terms(nine, own)
    assert sums.shares("all").absolute[0, 2, 1].item() == pytest.approx(1)
    assert steps == 8
    assert distances.argmin().item() == 7
    assert distances[7].item() == pytest.approx(0, abs=1e-5)
