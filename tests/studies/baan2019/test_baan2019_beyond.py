"""Findings beyond baan2019, and footnote 5, at a tiny size."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import attnscope.studies.baan2019 as baan2019
from attnscope.lab.engines import LocalEngine
from attnscope.probes.diagnostic import fit_diagnostic
from attnscope.probes.functional_group import functional_group, mean_jaccard
from attnscope.studies.baan2019 import beyond, experiments, matched
from attnscope.studies.baan2019.beyond import (
    ALONE,
    DOSE,
    FULL,
    GUIDED_SCAN,
    LARGE,
    NONE,
    PATIENT,
    SMALL,
    SMALL_NETWORK,
    TENTH,
    UNITS,
    DoseLabel,
)
from attnscope.studies.baan2019.experiments import BASELINE, HARDEST, PROFILES, guided, network_of
from attnscope.studies.baan2019.functional_groups import TABLE2, control_and_rankings, diagnostic_samples
from attnscope.studies.baan2019.matched import CONVERGED, IN_THE_END, MATCHED, SELECTED
from attnscope.studies.baan2019.shapley import DECODED, SHAPLEY, groups_of
from attnscope.studies.finding import Measurements
from attnscope.studies.reproduce import reproduce
from attnscope.tasks import LookupTables
from attnscope.training.objectives import Guidance
from studies import well_formed

FINDINGS = (DOSE, MATCHED, SMALL_NETWORK, SHAPLEY, GUIDED_SCAN)
TINY = replace(PROFILES["quick"], name="tiny", seeds=2, units=4, input_size=4, batch_size=16, epochs=1, repeats=1)
TABLES = LookupTables(
    bits=2, tables=4, heldout_compositions=1, heldout_inputs=1, validation=1, end=False
)  # eighty sentences in all: classifiers are fitted at once
COMMANDS = {  # with the place that each action, and the end, comes from
    "walk .": ("I_WALK", "0 1"),
    "run left .": ("I_TURN_LEFT I_RUN", "1 0 2"),
    "look twice .": ("I_LOOK I_LOOK", "0 0 2"),
    "jump after walk .": ("I_WALK I_JUMP", "2 0 3"),
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A folder with a few commands of SCAN."""
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "scan").mkdir()
    rows = [
        {"split": split, "source": source, "target": target, "alignment": guide}
        for split in ("train", "validation", "test")
        for source, (target, guide) in COMMANDS.items()
    ]
    for commands in beyond.SCAN_SPLITS:
        with gzip.open(folder / "scan" / f"hard_attention_{commands}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


@pytest.fixture(scope="module")
def study(corpora):
    scan = beyond.ScanSizes(seeds=2, batch_size=2, steps=2, evaluate_every=2, test_size=None)
    with well_formed.tiny(baan2019, FINDINGS, TINY) as tiny_study, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNSCOPE_DATA", str(corpora))
        patch.setattr(experiments, "lookup_tables", lambda: TABLES)
        patch.setitem(matched.EPOCHS, "tiny", 2 * TINY.epochs)
        patch.setitem(beyond.DOSES, "tiny", beyond.DOSES["quick"])
        patch.setitem(beyond.WIDTHS, "tiny", (12,))
        patch.setitem(beyond.LONGER, "tiny", 4)
        patch.setitem(beyond.SCAN_SIZES, "tiny", scan)
        yield tiny_study


# Whole findings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_writes_a_well_formed_result_and_a_figure(finding, reproduced):
    result = reproduced[finding.name]
    well_formed.check(finding, result)
    assert result.table
    assert all(row["n"] == 2 for row in result.table)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_claims_of_runs_that_failed_are_undecided(finding, study):
    nothing = Measurements({name: [] for name in finding.experiments(TINY)})
    assert all(claim.holds is None for claim in finding.claims(nothing))


# How much guidance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_every_dose_that_a_claim_speaks_of_is_trained_in_every_profile(profile):
    doses = beyond.DOSES[profile]
    assert {0.1, 0.01} <= set(doses.weights)
    assert {0.5, 0.1} <= set(doses.shares)


def test_a_dose_is_what_its_label_says(study):
    for label, experiment in DOSE.experiments(TINY).items():
        guidance = [term for term in experiment.objective.terms if isinstance(term, Guidance)]
        assert [(term.weight, term.share) for term in guidance] == ([] if label == NONE else [label])


def test_no_guidance_and_all_of_it_have_one_name_each():
    assert str(NONE) == str(DoseLabel(0.0)) == "no guidance"
    assert str(FULL) == str(DoseLabel(share=1.0)) == "weight 1, every step"


def test_attention_is_measured_at_the_source_of_each_word(run):
    model, (batch,) = network_of(run), run.task.batches(HARDEST)
    with torch.no_grad():
        attention = model(batch, teacher_forcing=0.0).attention[:, 0]
    diagonal = attention.diagonal(dim1=1, dim2=2)[:, : batch.target.shape[1]]
    assert beyond.measure_dose(run)["attention"] == pytest.approx(diagonal.mean().item())


def test_a_dose_does_as_well_only_if_it_is_hardly_below():
    much = DoseLabel(weight=3.0)
    rows = {label: [{HARDEST: value}] * 6 for label, value in ((FULL, 0.9), (TENTH, 0.8), (much, 0.7))}
    assert beyond.as_good("a tenth does as well", TENTH, Measurements(rows)).holds is True
    assert beyond.as_good("three times does as well", much, Measurements(rows)).holds is False


# The same training for both ------------------------------------------------------------------------------------------


def test_converged_networks_are_trained_alike_and_to_the_end(study):
    runs = {model: case.runs["network"] for model, case in MATCHED.experiments(TINY).items()}
    assert runs[CONVERGED].training == runs[IN_THE_END].training
    assert (runs[SELECTED].training.keep_weights, runs[CONVERGED].training.keep_weights) == ("best", "last")
    assert runs[CONVERGED].training.steps > runs[SELECTED].training.steps


def test_selectivity_is_accuracy_less_that_of_the_control_task(run, study):
    how = MATCHED.experiments(TINY)[CONVERGED].settings
    reading = fit_diagnostic(diagnostic_samples(run, "h_enc"), how.stated)
    actual = control_and_rankings("h_enc", reading, functional_group(reading), how.released)
    assert actual["selectivity"] == pytest.approx(reading.accuracy - actual["control"])
    assert all(1 <= actual[f"size_{ranking}"] <= TINY.units for ranking in (*matched.RANKINGS, "released"))


def test_the_selected_baseline_is_measured_once_for_both_findings(study):
    assert MATCHED.experiments(TINY)[SELECTED] == TABLE2.experiments(TINY)[BASELINE]
    assert MATCHED.measure is TABLE2.measure


def test_published_sizes_stand_beside_the_procedure_they_come_from():
    assert matched.published_number(SELECTED, "h_enc_size_released")["published"] == 35
    assert matched.published_number(IN_THE_END, "time_size_released")["published"] == 2
    assert matched.published_number(SELECTED, "h_enc_size_all_classes") == {}
    assert matched.published_number(CONVERGED, "h_enc_full") == {}


# Few units -----------------------------------------------------------------------------------------------------------


def test_small_networks_have_26_units_in_every_part(study):
    actual = SMALL_NETWORK.experiments(TINY)
    for model in (SMALL, PATIENT, ALONE):
        assert (actual[model].model.units, actual[model].model.target_input_size) == (UNITS, UNITS)
    assert actual[PATIENT].training.steps == beyond.LONGER["tiny"] * actual[SMALL].training.steps
    assert actual[LARGE] == guided(TINY)


# Shapley values ------------------------------------------------------------------------------------------------------


def test_groups_without_a_common_unit_are_not_alike_and_equal_ones_are():
    assert mean_jaccard([{1, 2}, {3}, {4, 5}]) == 0.0
    assert mean_jaccard([{1, 2}, {1, 2}]) == 1.0


def test_each_ranking_has_a_group_of_each_split(run, study):
    groups = groups_of(run, DECODED[0], SHAPLEY.experiments(TINY)["guided"].settings)
    assert [len(each) for each in groups.values()] == [3, 3]
    assert all(1 <= len(group) <= TINY.units for each in groups.values() for group in each)


def shapley(**values: float) -> Measurements:
    rows = [
        {f"{name}_{what}": value + 0.001 * i for name in DECODED for what, value in values.items()} for i in range(6)
    ]
    return Measurements({"guided": rows})


def test_the_claims_of_footnote_5_hold_for_numbers_that_agree_with_it():
    numbers = {"size_all_classes": 2.0, "alike_all_classes": 0.9, "confirmed": 0.9}
    verdicts = SHAPLEY.claims(shapley(**numbers, size_shapley=5.0, alike_shapley=0.5))
    assert all(verdict.holds for verdict in verdicts)
    verdicts = SHAPLEY.claims(shapley(**numbers, size_shapley=1.0, alike_shapley=0.95))
    assert [verdict.holds for verdict in verdicts] == [True, False, False] * 2


# SCAN ----------------------------------------------------------------------------------------------------------------


def test_networks_on_scan_differ_in_guidance_alone(study):
    actual = GUIDED_SCAN.experiments(TINY)
    for split in beyond.SCAN_SPLITS:
        one, other = (actual[beyond.scan_label(split, kind)] for kind in beyond.OBJECTIVES)
        assert replace(one, objective=other.objective) == other
        assert one.task.gold_attention
        assert one.task.end


def commands(validation: float) -> Measurements:
    rows = {}
    for split in beyond.SCAN_SPLITS:
        for kind, test in (("baseline", 0.1), ("guided", 0.4)):
            numbers = {"validation": validation, "test": test, "attention": test}
            rows[beyond.scan_label(split, kind)] = [{n: x + 0.001 * i for n, x in numbers.items()} for i in range(6)]
    return Measurements(rows)


def test_test_commands_are_compared_once_all_networks_have_learned():
    assert [claim.holds for claim in GUIDED_SCAN.claims(commands(validation=0.95))] == [True] * 4
    assert [claim.holds for claim in GUIDED_SCAN.claims(commands(validation=0.5))] == [True, None] * 2


def test_without_scan_its_claims_are_undecided_and_the_reason_is_named(study, tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNSCOPE_DATA", str(tmp_path))
    (result,) = reproduce(study, [GUIDED_SCAN], "tiny", 1, tmp_path / "store", LocalEngine(0))
    assert all(claim.holds is None for claim in result.claims)
    assert any("there is no corpus scan/hard_attention_length" in note for note in result.notes)


@pytest.mark.corpus
def test_published_guides_are_not_diagonal(corpus):
    for commands in beyond.SCAN_SPLITS:
        rows = corpus(f"scan/hard_attention_{commands}.jsonl.gz")
        guides = [np.array(row["alignment"].split(), dtype=int) for row in rows[:200]]
        assert any((np.diff(guide) < 0).any() for guide in guides)
