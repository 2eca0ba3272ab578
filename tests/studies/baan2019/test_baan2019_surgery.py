"""Findings of baan2019 §5 at a tiny size: pruning and component transplant."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import attnscope.studies.baan2019 as baan2019
from attnscope.lab.experiment import train
from attnscope.lab.store import Store
from attnscope.probes.transplant import COMPONENTS, parameters_of, prune_to_strongest
from attnscope.studies.baan2019 import sec5
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, PROFILES, network_of, sequence_accuracy
from attnscope.studies.baan2019.sec5 import (
    NOTHING,
    PARTS,
    PRUNING_QUANTITIES,
    SEC5_2,
    TABLE4,
    WORDS,
    PartLabel,
    Substitution,
    pair,
    random_neurons,
    train_further,
    transplant,
)
from attnscope.studies.finding import Measurements
from studies import well_formed

FINDINGS = (SEC5_2, TABLE4)
TINY = replace(PROFILES["quick"], name="tiny", seeds=2, units=20, input_size=4, batch_size=232, epochs=1, repeats=1)


@pytest.fixture(scope="module")
def study():
    """The two findings at a tiny size, on tables that are drawn here."""
    with well_formed.tiny(baan2019, FINDINGS, TINY) as tiny_study, pytest.MonkeyPatch.context() as patch:
        patch.delenv("ATTNSCOPE_DATA", raising=False)
        patch.setitem(sec5.PRUNING_EPOCHS, "tiny", 1)
        patch.setitem(sec5.TRANSPLANT_EPOCHS, "tiny", 1)
        yield tiny_study


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_a_finding_writes_a_well_formed_result_and_a_figure(finding, reproduced):
    result = reproduced[finding.name]
    well_formed.check(finding, result)
    assert all(row["n"] == 2 for row in result.table)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_claims_of_runs_that_failed_are_undecided(finding, study):
    nothing = Measurements({name: [] for name in finding.experiments(TINY)})
    assert all(claim.holds is None for claim in finding.claims(nothing))


def test_every_number_that_the_paper_states_is_in_a_row(reproduced):
    published = [
        row["published"] for name in ("sec5.2", "table4") for row in reproduced[name].table if row["published"]
    ]
    assert sorted(published) == [
        0.01, 0.02, 0.02, 0.12, 0.124, 0.17, 0.31, 0.60, 0.75, 0.79, 0.82, 0.823, 0.89, 0.91, 0.925
    ]  # fmt: skip


# Pruning -------------------------------------------------------------------------------------------------------------


def test_the_papers_26_neurons_are_kept_of_each_side():
    neurons = random_neurons(512, 0.05, seed=0)
    assert [len(set(neurons[side])) for side in ("encoder", "decoder")] == [26, 26]
    assert neurons != random_neurons(512, 0.05, seed=1)


def test_removed_neurons_stay_removed_in_training_unless_they_are_free(run):
    modified = prune_to_strongest(network_of(run), 0.05)
    held, free = train_further(modified, run, 1), train_further(modified, run, 1, free=True)
    for name, where in modified.frozen.items():
        assert (dict(held.named_parameters())[name][where] == 0).all(), name
    assert any((dict(free.named_parameters())[name][where] != 0).any() for name, where in modified.frozen.items())


def test_retraining_is_reproducible(run):
    modified = prune_to_strongest(network_of(run), 0.05)
    one, other = (train_further(modified, run, 1).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_accuracy_is_that_of_whole_answers_to_new_compositions(run):
    model, (batch,) = network_of(run), run.task.batches("new_compositions")
    with torch.no_grad():
        answers = model(batch, teacher_forcing=0.0).predictions
    assert sequence_accuracy(model, run) == pytest.approx((answers == batch.target).all(1).double().mean().item())


def pruning(**values: float) -> Measurements:
    """Six seeds alike but for a little."""
    numbers = dict.fromkeys(PRUNING_QUANTITIES, 0.5) | values
    return Measurements({GUIDED: [{name: value + 0.001 * i for name, value in numbers.items()} for i in range(6)]})


def test_the_papers_own_numbers_would_hold_all_its_claims_on_pruning():
    verdicts = SEC5_2.claims(pruning(before=0.823, strongest_cut=0.124, strongest_retrained=0.925))
    assert [verdict.holds for verdict in verdicts[:3]] == [True] * 3


def test_an_accuracy_that_does_not_come_back_fails_the_claims():
    verdicts = SEC5_2.claims(pruning(before=0.8, strongest_cut=0.7, strongest_retrained=0.6, random_retrained=0.9))
    assert [verdict.holds for verdict in verdicts] == [False] * 4


# Substitution --------------------------------------------------------------------------------------------------------


def test_there_are_sixteen_substitutions_and_two_controls(study):
    assert len(TABLE4.experiments(TINY)) == 2 * (8 + 1)
    assert set(WORDS) == set(PARTS) == {NOTHING, *COMPONENTS}


@pytest.mark.parametrize("seed", range(2))
def test_receiver_and_donor_start_apart_and_are_networks_of_other_rows(seed, study):
    case = pair(TINY, Substitution(GUIDED, "encoder", 1))(seed).with_seed(seed, "cpu")
    assert (case.runs["receiver"].seed, case.runs["donor"].seed) == (seed, 1 - seed)
    assert case.runs["receiver"].objective != case.runs["donor"].objective


def test_a_frozen_part_is_the_donors_to_the_end(run, study, tmp_path):
    donor = network_of(train(pair(TINY, Substitution(GUIDED, "decoder_wih", 1))(0).runs["donor"], Store(tmp_path)))
    modified = transplant(network_of(run), donor, "decoder_wih")
    made = train_further(modified, run, 1)
    for name, parameter in parameters_of(donor, "decoder_wih").items():
        assert torch.equal(dict(made.named_parameters())[name], parameter), name


def test_with_nothing_replaced_the_network_is_its_parent(run):
    parent = network_of(run)
    assert transplant(parent, parent, NOTHING).model is parent


PUBLISHED = {
    "encoder": 0.17, "encoder_embedding": 0.75, "encoder_wih": 0.89, "encoder_whh": 0.79,
    "decoder": 0.12, "decoder_embedding": 0.31, "decoder_wih": 0.60, "decoder_whh": 0.91,
}  # fmt: skip


def substitutions(guided: dict[str, float], baseline: dict[str, float]) -> Measurements:
    rows = {}
    for receiver, parent, after in ((GUIDED, 0.82, guided), (BASELINE, 0.01, baseline)):
        for part in PARTS:
            value = after.get(part, parent)
            rows[PartLabel(receiver, part)] = [
                {"before": parent, "donor": 0.5, "operated": 0.1, "retrained": value + 0.001 * i} for i in range(6)
            ]
    return Measurements(rows)


def test_the_papers_own_numbers_would_hold_all_its_claims_on_parts():
    verdicts = TABLE4.claims(substitutions(PUBLISHED, dict.fromkeys(COMPONENTS, 0.02)))
    assert all(verdict.holds for verdict in verdicts), [verdict for verdict in verdicts if not verdict.holds]


def test_one_part_that_improves_a_baseline_is_enough_to_fail_a_claim():
    verdicts = TABLE4.claims(substitutions(PUBLISHED, {"decoder": 0.6}))
    (rescue,) = [verdict for verdict in verdicts if "rescues" in verdict.text]
    assert rescue.holds is False


def test_gain_is_measured_on_the_parent_of_the_same_seed():
    rows = {
        PartLabel(BASELINE, part): [{"before": b, "retrained": b + 0.05} for b in (0.0, 0.5)] for part in COMPONENTS
    }
    np.testing.assert_allclose(sec5.best_gains(Measurements(rows)), [0.05, 0.05])
