"""The findings of baan2019 §3, §4 and appendix A at a tiny size: measurements and claims."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

import attnscope.studies.baan2019 as baan2019
from attnscope.models import PRESETS
from attnscope.probes.gates import Activations, Saturation
from attnscope.probes.weights import EmbeddingTable, weight_graph
from attnscope.studies.baan2019 import experiments, fig1_2, fig3_4
from attnscope.studies.baan2019.experiments import (
    BASELINE,
    GUIDED,
    PROFILES,
    baseline,
    guided,
    lookup_tables,
    network_of,
    network_traces,
)
from attnscope.studies.baan2019.functional_groups import (
    OVERLAP,
    SIGNALS,
    TABLE2,
    TABLE3,
    at_gold_position,
    diagnostic_samples,
)
from attnscope.studies.baan2019.table5_6 import TABLE5_6
from attnscope.studies.finding import Finding, Measurements, published_by
from attnscope.tasks import NOWHERE, SPECIALS, Batch, LookupTables, PublishedLookupTables
from attnscope.training import CrossEntropy
from attnscope.training.objectives import Guidance
from studies import well_formed

FINDINGS = (TABLE5_6, TABLE2, TABLE3, fig1_2.FIG1, fig1_2.FIG2, fig3_4.FIG3, fig3_4.FIG4, OVERLAP)
TINY = replace(PROFILES["quick"], name="tiny", seeds=2, units=20, input_size=4, batch_size=232, epochs=2, repeats=1)
PUBLISHED = published_by("baan2019")
DATA = os.environ.get("ATTNSCOPE_DATA", "")  # most tests here do without


@pytest.fixture(scope="module")
def study():
    """The findings at a tiny size, on tables that are drawn here."""
    with well_formed.tiny(baan2019, FINDINGS, TINY) as tiny_study, pytest.MonkeyPatch.context() as patch:
        patch.delenv("ATTNSCOPE_DATA", raising=False)
        yield tiny_study


@pytest.fixture(scope="module")
def reproduced(study, store):
    """On at most 100 sentences of each split."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "lookup_tables", lambda: LookupTables(end=False, test_size=100))
        return well_formed.results_of(study, store)


# Whole findings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_writes_a_well_formed_result_and_a_figure(finding, reproduced):
    result = reproduced[finding.name]
    well_formed.check(finding, result)
    assert {row["model"] for row in result.table} == {BASELINE, GUIDED}
    assert all(row["n"] == 2 for row in result.table if "saturated" not in row["quantity"])  # no gate is, so early
    assert result.claims


def test_every_network_is_trained_once_and_three_findings_share_a_measurement(reproduced, store):
    assert len(list((store / "runs").iterdir())) == 2 * 2  # networks times seeds
    assert len(list((store / "measurements").iterdir())) == 2 * (5 * 2 + 1)  # fig. 2 measures both networks together


# What is trained -----------------------------------------------------------------------------------------------------


def test_the_paper_profile_trains_as_the_authors_did(study):
    actual = baseline(PROFILES["paper"])
    assert actual.model == PRESETS["lookup_tables"]
    settings = actual.training
    assert (settings.batch_size, settings.learning_rate, settings.betas, settings.max_grad_norm) == (
        1,
        1e-3,
        (0.9, 0.999),
        5.0,
    )
    assert (settings.teacher_forcing, settings.evaluate_every, settings.keep_weights) == (0.0, 200, "best")
    assert settings.steps == 100 * 232
    assert (PROFILES["paper"].seeds, PROFILES["paper"].first_seed) == (5, 5)


def test_a_guided_network_differs_from_the_baseline_in_its_loss_only(study):
    with_guidance = guided(TINY, weight=0.5, share=0.25)
    assert with_guidance.objective.terms == (CrossEntropy(total=True), Guidance(0.5, total=True, share=0.25))
    assert replace(with_guidance, objective=CrossEntropy(total=True)) == baseline(TINY)


def test_changes_are_those_of_the_training_settings(study):
    assert baseline(TINY, keep_weights="last").training == replace(baseline(TINY).training, keep_weights="last")


def test_without_the_published_files_tables_are_random(study):
    assert lookup_tables() == LookupTables(end=False)


@pytest.mark.corpus
@pytest.mark.skipif(not DATA, reason="ATTNSCOPE_DATA names no folder with the published files")
def test_with_the_published_files_they_are_used(monkeypatch):
    monkeypatch.setenv("ATTNSCOPE_DATA", DATA)
    assert isinstance(lookup_tables(), PublishedLookupTables)
    assert lookup_tables().end is False


# What is recorded ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", SIGNALS)
def test_every_table_is_current_equally_often(run, signal):
    """Footnote 6: a majority classifier is right in 12.5 % of the cases."""
    actual = diagnostic_samples(run, signal)
    assert len(actual) == 64 * 1 + 512 * 2
    assert actual.majority == 0.125
    assert len(np.unique(actual.sequences)) == 576


def test_a_time_step_is_a_place_before_the_full_stop(run):
    labels = diagnostic_samples(run, "h_enc", "time step").labels
    assert np.unique(labels, return_counts=True)[1].tolist() == [576, 576, 512]


def test_a_recorded_state_is_that_of_its_table(run):
    """Sentence by sentence, with the names of the tables read off the question."""
    questions, words = run.task.queries("new_compositions"), run.task.source_vocabulary
    actual = diagnostic_samples(run, "h_enc", splits=["new_compositions"])
    model = network_of(run)
    for number, (batch, question) in enumerate(zip(run.task.batches("new_compositions", 1), questions, strict=True)):
        with torch.no_grad():
            states = model(batch, teacher_forcing=0.0).encoder[0, 1:3].double().numpy()
        mine = actual.sequences == number
        np.testing.assert_allclose(actual.states[mine], states, atol=1e-6)
        assert words.decode(actual.labels[mine].tolist()) == list(question[1])


def test_a_decoder_gate_is_labelled_with_the_table_of_its_step(run):
    """The k-th word of an answer needs the k-th word of the question."""
    actual = diagnostic_samples(run, "z_dec", splits=["new_compositions"])
    (pair,) = network_traces(run, ["new_compositions"])
    gates = pair[1].gates["decoder.keep"][:, 1:3].flatten(0, 1).double().numpy()
    np.testing.assert_array_equal(actual.states, gates)
    np.testing.assert_array_equal(actual.labels, pair[0].source[:, 1:3].flatten().numpy())


def test_a_step_without_a_guide_has_no_word():
    source, everywhere = torch.tensor([[7, 8, 9]]), torch.ones(1, 3, dtype=torch.bool)
    batch = Batch(source, everywhere, source, everywhere, gold_attention=torch.tensor([[2, NOWHERE, 0]]))
    assert at_gold_position(source, batch).tolist() == [[9, NOWHERE, 7]]


# What is published and claimed ---------------------------------------------------------------------------------------

RUNS = {  # tables 5 and 6: HC, HI, HT, NC
    BASELINE: [[0.25, 0.20, 0.04, 0], [0.16, 0.20, 0.06, 0], [0.25, 0.23, 0.04, 0.03], [0.22, 0.23, 0.03, 0.03],
               [0.23, 0.20, 0.07, 0.06]],
    GUIDED: [[1, 1, 0.85, 0.69], [1, 1, 0.98, 0.97], [1, 1, 0.88, 0.81], [1, 1, 0.98, 0.97], [1, 1, 0.94, 0.91]],
}  # fmt: skip
SPLITS = ("heldout_compositions", "heldout_inputs", "heldout_tables", "new_compositions")


@pytest.mark.parametrize("model", RUNS)
def test_published_accuracies_are_the_means_of_five_runs(model):
    for split, mean in zip(SPLITS, np.mean(RUNS[model], 0), strict=True):
        assert PUBLISHED(f"table5-6_{model}", split)["published"] == pytest.approx(mean)


def words_of(finding: Finding, measured: Measurements) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in finding.claims(measured)}


def test_the_claims_of_tables_5_and_6_hold_for_the_papers_own_runs():
    measured = Measurements(
        {model: [dict(zip(SPLITS, run, strict=True)) for run in runs * 2] for model, runs in RUNS.items()}
    )
    assert set(words_of(TABLE5_6, measured).values()) == {"holds"}


def as_published(which: str, names: list[str]) -> dict[str, list[dict[str, float]]]:
    row = {
        model: {name: PUBLISHED(f"{which}_{model}", name)["published"] for name in names}
        for model in (BASELINE, GUIDED)
    }
    return {model: [numbers] * 6 for model, numbers in row.items()}


@pytest.mark.parametrize(("finding", "readings"), [(TABLE2, ["h_enc", "z_dec", "r_dec"]), (TABLE3, ["time"])])
def test_the_claims_of_a_table_hold_for_the_papers_own_numbers(finding, readings):
    names = [f"{reading}_{what}" for reading in readings for what in ("group", "full", "size")]
    assert set(words_of(finding, Measurements(as_published(finding.name, names))).values()) == {"holds"}


def test_no_difference_between_the_networks_supports_no_difference():
    same = as_published("table3", ["time_full", "time_size"])
    words = words_of(TABLE3, Measurements({BASELINE: same[BASELINE], GUIDED: same[BASELINE]}))
    assert [word for text, word in words.items() if "needs more" in text] == ["undecided", "fails"]


def test_the_overlap_claims_hold_just_above_the_papers_own_number():
    row = {"overlap": 0.94, "chance": 0.05}
    assert set(words_of(OVERLAP, Measurements({GUIDED: [row] * 6})).values()) == {"holds"}


# Small functions -----------------------------------------------------------------------------------------------------


def test_words_that_are_never_decoder_input_are_left_out():
    table = EmbeddingTable(np.arange(8.0).reshape(4, 2), (*SPECIALS, "000"))
    assert fig1_2.without_unused(table, "decoder").words == ("<start>", "000")
    assert fig1_2.without_unused(table, "encoder").values.tolist() == [[2.0, 3.0], [6.0, 7.0]]


def test_statistics_of_connections_of_a_graph():
    graph = weight_graph(np.array([[0.5, -0.3], [0.0, 0.1]]), 0.2)
    assert fig1_2.connection_statistics(graph, "next") == {"edges": 2, "strength": 0.4, "gathered": 1.0, "highest": 2}
    assert fig1_2.connection_statistics(graph, "previous")["highest"] == 1


def test_opposite_polarities_correlate_negatively():
    update, reset = np.array([[1.0, 3.0], [-1.0, -1.0]]), np.array([[-2.0, -2.0], [0.0, 1.0]])
    assert fig1_2.gate_polarity({"encoder.Whz": update, "encoder.Whr": reset}, "encoder") == pytest.approx(-1)


def test_a_unit_is_narrow_or_wide_by_the_range_that_it_covers():
    values = np.array([[-1.0, 0.2, -0.6], [1.0, 0.3, 0.6]])
    actual = fig3_4.activation_statistics(Activations(values, (0, 1, 2)))
    assert (actual["narrow"], actual["wide"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_stored_quantiles_include_minimum_and_maximum():
    values = np.random.default_rng(0).uniform(-1, 1, (300, 4))
    output = fig3_4.sample_units(Activations(values, (0, 1, 2, 3)))
    np.testing.assert_array_equal(output["quantiles"][0], values.min(0)[output["units"]])
    np.testing.assert_array_equal(output["quantiles"][-1], values.max(0)[output["units"]])


def test_a_gate_is_often_open_above_half_of_the_steps():
    gate = Saturation(closed=torch.tensor([0.0, 0.5]), open=torch.tensor([0.75, 0.5]), steps=4)
    assert fig3_4.gate_statistics(gate)["often_open"] == 0.5
