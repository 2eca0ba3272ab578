"""Copying, heads and the keyword: all findings at a tiny size, and their own small functions by hand."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies import snell2021
from attnscope.studies.finding import Case, Measurements, TrainedCase
from attnscope.studies.result import Result
from attnscope.studies.snell2021 import fig6, fig7
from attnscope.studies.snell2021.experiments import PROFILES, Sizes
from attnscope.studies.snell2021.fig3 import FIG3, SEC6_2
from attnscope.studies.snell2021.fig6 import (
    ALL_BAD,
    ALL_LOW,
    AUTHOR,
    FIG6,
    FIG6_AUTHOR,
    ONE_GOOD,
    PAPER,
    RANDOM,
    HeadLabel,
    NetworkLabel,
)
from attnscope.studies.snell2021.fig7 import FIG7
from attnscope.studies.snell2021.toys import (
    QUICK,
    Curve,
    HeadSizes,
    KeywordSizes,
    ToySizes,
    draw_curves,
    measure,
    median,
    sometimes,
    with_heads,
)
from attnscope.tasks import NOWHERE, Batch
from studies import well_formed

FINDINGS = (FIG3, FIG6, FIG6_AUTHOR, FIG7, SEC6_2)
TOYS = ToySizes(
    seeds=2, units=8, batch_size=4, length=5, test_size=6, steps=20, stop_at_accuracy=0.99, reorderings=2,
    heads=HeadSizes(seeds=2, together=2, bases=(0, 1), groups=1, data_seeds=2, steps=10, shown=20),
    keyword=KeywordSizes(seeds=2, units=6, input_size=6, length=5, test_size=20, steps=30),
)  # fmt: skip
TINY = Sizes("tiny", 2, text=PROFILES["quick"].text, toys=TOYS, counting=PROFILES["quick"].counting)


# From end to end ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    with well_formed.tiny(snell2021, FINDINGS, TINY) as study:
        well_formed.results_of(study, store)
    return store


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
@pytest.mark.slow
def test_every_finding_writes_a_well_formed_result_and_a_figure(reproduced, finding):
    result = Result.read(reproduced / "results" / "snell2021" / f"{finding.name}.json")
    assert result.claims
    assert result.table
    assert finding.draw(result.figure).axes


@pytest.mark.slow
def test_the_control_of_figure_3_is_trained_once_for_both_findings(reproduced):
    configs = [json.loads(path.read_text()) for path in reproduced.glob("runs/*/config.json")]
    control = [c for c in configs if c["task"].get("distribution") == "sampled" and c["task"]["reordering"] is None]
    assert len(control) == TOYS.seeds


@pytest.mark.slow
def test_claims_without_good_or_bad_heads_are_undecided_with_the_reason(reproduced):
    """Ten steps teach nothing: all heads are bad, none is good."""
    result = Result.read(reproduced / "results" / "snell2021" / "fig6.json")
    for claim in (claim for claim in result.claims if "one of them starts well" in claim.text):
        assert claim.verdict == "undecided"
        assert "base 0: 0 good, 2 bad, 2 low; base 1: 0 good, 2 bad, 2 low" in claim.why
    assert set(result.figure) == {"summed", "averaged"}
    assert all(set(curves) == {ALL_BAD, ALL_LOW, RANDOM} for curves in result.figure.values())
    networks = {line["model"] for line in result.table if "summed" in line["model"]}
    assert networks == {f"{kind}, summed, base {base}" for kind in (ALL_BAD, ALL_LOW, RANDOM) for base in (0, 1)}


# When is it learnt? ------------------------------------------------------------------------------------------------


def curve(*accuracy):
    return Curve(np.arange(len(accuracy)) * 100, np.array(accuracy))


def test_a_task_is_learnt_at_the_first_evaluation_that_reaches_the_mark():
    assert curve(0.1, 0.5, 0.99, 0.9).first(0.99) == 200
    assert np.isnan(curve(0.1, 0.5).first(0.99))
    assert not curve(0.1, 0.5).reaches(0.99, within=1000)
    assert not curve(0.1, 0.5, 0.99).reaches(0.99, within=199)


def test_a_stopped_curve_keeps_its_last_value():
    assert curve(0.1, 0.995).at(300) == 0.995
    assert curve(0.1, 0.2, 0.3, 0.4, 0.9).at(300) == 0.4


@pytest.fixture
def run(tmp_path):
    """Runs with a made-up history of accuracies, one every hundred steps."""

    def made(*accuracy, head=0):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        log = pd.DataFrame({"step": np.arange(len(accuracy)) * 100, "word_accuracy": accuracy})
        log.to_csv(folder / "log.csv", index=False)
        return Run(with_heads(TOYS, 6, (head,), steps=2000, data=0), folder)

    return made


def test_a_network_that_never_learns_counts_all_steps(run):
    never = measure(run(0.0, 0.3, 0.6))
    assert never["steps_needed"] == 2000
    assert np.isnan(never["step_learnt"])
    late = measure(run(0.0, 0.3, 0.6, 0.8, 1.0))
    assert (late["steps_needed"], late["learnt"], late["learnt_in_time"]) == (400, True, False)
    assert late["accuracy_in_time"] == 0.8


def test_a_network_that_never_learns_ranks_last_in_the_median():
    steps = [100.0, float("nan"), 300.0]
    measured = Measurements(
        {"half": [{"step_learnt": step} for step in steps], "none": [{"step_learnt": float("nan")}]}
    )
    assert median(measured, "half") == 300
    assert median(measured, "none") == float("inf")


def test_an_event_is_shown_by_one_seed_and_undecided_without_any():
    never, once = [False] * 20, [True] + [False] * 19
    assert sometimes("", once, never).verdict == "holds"
    assert sometimes("", once, once).verdict == "undecided", "the control does the same"
    assert sometimes("", never, never).verdict == "undecided"
    high = stats.binomtest(0, 20).proportion_ci(method="exact").high
    assert sometimes("", never, never).why == f"a rate of up to {high:.0%} is not excluded"
    assert sometimes("", once, []).why == sometimes("", [], never).why == "there was no seed"


def test_a_curve_is_drawn_up_to_the_end_of_the_panel_and_no_further():
    long, stopped = (
        {"steps": [0, 100, 200, 400], "accuracy": [0.1, 0.2, 0.3, 0.9]},
        {"steps": [0, 100], "accuracy": [0.5, 1.0]},
    )
    _, (ax,) = plots.panels()
    draw_curves({"long": [long], "stopped": [stopped]}, {"long": "red", "stopped": "blue"}, ax, 300, "")
    ends = [(line.get_xdata()[-1], line.get_ydata()[-1]) for line in ax.get_lines()]
    assert ends == [(300, 0.3), (300, 1.0)]


# Good and bad heads ------------------------------------------------------------------------------------------------

SEEDS = range(20)


def measured_heads(*, good=(), bad=(), neither=(), base=0):
    kinds = {True: good, False: bad, None: neither}
    heads = [
        {"head": head, "good": kind is True, "bad": kind is False, "low": False, "share_learnt": float(kind is True)}
        for kind, heads in kinds.items()
        for head in heads
    ]
    return {HeadLabel(base, "A"): heads[::2], HeadLabel(base, "B"): heads[1::2]}


def starts(condition):
    """The heads of each seed's network."""
    return [condition(seed).start.heads for seed in SEEDS]


def follow_up(measured):
    return fig6.follow_up(PAPER, TINY, Measurements(measured))


def summed(networks, base=0):
    """The conditions, by name, in which contexts are summed, of one base."""
    labels = [label for label in networks if (label.combined, label.base) == ("summed", base)]
    return {label.condition: networks[label] for label in labels}


def test_a_head_is_good_or_bad_only_if_all_data_agree(run):
    converges, too_late, low = (0.0, 0.96, 0.5), (0.0, 0.1, 0.7, 1.0), (0.0, 0.1, 0.59, 1.0)

    def outcome(*histories):
        runs = {str(i): run(*history, head=7) for i, history in enumerate(histories)}
        actual = fig6.measure(TrainedCase(runs, None, 0, "cpu"))
        assert actual["head"] == 7
        return actual["good"], actual["bad"], actual["low"]

    assert outcome(converges) == (True, False, True)
    assert outcome(converges, (0.0, 0.1, 0.95)) == (True, False, False)
    assert outcome(converges, too_late) == (False, False, False)
    assert outcome(low, too_late) == (False, True, False)
    assert outcome(low, low) == (False, True, True)


def test_each_head_is_tried_with_each_base_and_several_data():
    cases = [group(seed).with_seed(seed, "cpu") for group in fig6.experiments(PAPER, TINY).values() for seed in SEEDS]
    assert all(isinstance(case, Case) and len(case.runs) == TOYS.heads.data_seeds for case in cases)
    starts = [{run.start for run in case.runs.values()} for case in cases]
    assert all(len(each) == 1 for each in starts)
    assert len(set.union(*starts)) == len(cases)
    assert {start.weights for each in starts for start in each} == set(TOYS.heads.bases)
    of_one_base = [run.seed for case in cases[: len(SEEDS)] for run in case.runs.values()]
    assert len(set(of_one_base)) == len(of_one_base)


def test_conditions_are_built_from_the_classified_heads():
    good, bad, neither = (1, 1002), (3, 4, 1005), (6, 7)
    networks = follow_up(measured_heads(good=good, bad=bad, neither=neither))
    conditions = summed(networks)
    assert list(conditions) == [ALL_BAD, ONE_GOOD, RANDOM]
    for condition, network in conditions.items():
        averaged = networks[NetworkLabel(condition, "averaged", 0)]
        assert starts(network) == starts(averaged)
        assert network(0).model.combine == "sum"
        assert averaged(0).model.combine == "mean"
    for heads in starts(conditions[ALL_BAD]):
        assert len(set(heads)) == TOYS.heads.together
        assert set(heads) <= set(bad)
    for first, *others in starts(conditions[ONE_GOOD]):
        assert first in good
        assert set(others) <= set(bad)
    assert {heads[0] for heads in starts(conditions[ONE_GOOD])} == set(good)
    drawn = [head for heads in starts(conditions[RANDOM]) for head in heads]
    assert len(set(drawn)) == len(drawn) == TOYS.heads.together * len(SEEDS)
    assert not set(drawn) & {*good, *bad, *neither}


def test_conditions_differ_from_seed_to_seed_in_nothing_but_seed_and_start():
    conditions = follow_up(measured_heads(good=[1], bad=[2, 3, 4]))
    for condition in conditions.values():
        experiments = [condition(seed) for seed in SEEDS]
        assert all(isinstance(experiment, Experiment) for experiment in experiments)
        rest = {(e.task, e.model, e.training, e.objective) for e in experiments}
        assert len(rest) == 1


def test_heads_are_evaluated_on_other_data_than_they_were_selected_on():
    tries = {
        run.seed
        for group in fig6.experiments(PAPER, TINY).values()
        for seed in SEEDS
        for run in group(seed).with_seed(seed, "cpu").runs.values()
    }
    condition = summed(follow_up(measured_heads(neither=[1])))[RANDOM]
    assert not tries & {condition(seed).seed + seed for seed in SEEDS}


@pytest.mark.parametrize(
    ("good", "bad", "left"),
    [((), (1, 2, 3), [ALL_BAD, RANDOM]), ((1,), (2,), [ONE_GOOD, RANDOM]), ((1, 2), (), [RANDOM])],
)
def test_a_condition_without_enough_heads_is_left_out(good, bad, left):
    assert list(summed(follow_up(measured_heads(good=good, bad=bad)))) == left


def test_networks_are_built_with_every_base_that_has_enough_heads():
    none_bad, both = measured_heads(good=range(9)), measured_heads(good=[1], bad=[2, 3], base=1)
    conditions = follow_up({**none_bad, **both})
    assert list(summed(conditions, base=0)) == [RANDOM]
    assert list(summed(conditions, base=1)) == [ALL_BAD, ONE_GOOD, RANDOM]
    assert all(condition(0).start.weights == label.base for label, condition in conditions.items())


def test_claims_about_conditions_follow_the_seeds():
    learnt, failed = ({"learnt": yes, "learnt_at_last": yes} for yes in (True, False))
    heads = {**measured_heads(good=range(4), bad=range(4, 20)), **measured_heads(good=[1], bad=range(2, 20), base=1)}
    as_published = {ALL_BAD: [failed] * 6, ALL_LOW: [failed] * 6, ONE_GOOD: [learnt] * 6, RANDOM: [learnt] * 6}
    turned = {ALL_BAD: [learnt] * 6, ALL_LOW: [learnt] * 6, ONE_GOOD: [failed] * 6, RANDOM: [failed] * 6}
    actual = {NetworkLabel(one, "summed", base): each for one, each in as_published.items() for base in (0, 1)}
    actual |= {NetworkLabel(one, "averaged", 1): each for one, each in turned.items()}
    words = [verdict.verdict for verdict in fig6.claims(PAPER, Measurements({**heads, **actual}))]
    high_chance = [3, 8]  # six of six seeds do not show 90 %
    assert [word for place, word in enumerate(words[:11]) if place not in high_chance] == ["holds"] * 9
    assert [words[place] for place in high_chance] == ["undecided"] * 2
    assert words[11:] == ["fails"] * 11


def test_the_author_s_network_has_a_value_layer_of_each_head():
    labels, condition = fig6.follow_up(AUTHOR, TINY, Measurements(measured_heads(neither=[1]))).popitem()
    assert labels.combined == "projected and averaged"
    model = condition(0).new_model()
    assert model.attend.value.weight.shape == (TOYS.heads.together * TOYS.units, TOYS.units)
    assert model.settings.cell == "gru"
    assert not model.settings.shared_inputs


@pytest.mark.parametrize("combine", [*PAPER, *AUTHOR])
def test_one_head_and_several_start_alike_but_for_their_heads(combine):
    """Otherwise a head that was bad in one network would not be known to be bad in the other."""
    one, several = (with_heads(QUICK, 0, heads, 1, 0, combine).new_model() for heads in ((5,), (3, 5, 9)))
    ours, theirs = one.state_dict(), several.state_dict()
    assert ours.keys() == theirs.keys()
    for name, weights in ours.items():
        if name.startswith("attend."):
            assert torch.equal(weights, theirs[name].chunk(3)[1]), name
        else:
            assert torch.equal(weights, theirs[name]), name


# The keyword -------------------------------------------------------------------------------------------------------


def test_only_sentences_with_a_keyword_before_the_last_word_count():
    place = torch.tensor([1, NOWHERE, 2, 0])
    words, target = torch.ones(4, 3, dtype=torch.long), torch.ones(4, 1, dtype=torch.long)
    batch = Batch(words, words > 0, target, target > 0, place[:, None])
    gamma = torch.arange(12.0).reshape(4, 3)
    positive, where = fig7.of_positives(batch, gamma)
    assert where.tolist() == [1, 0]
    assert positive.tolist() == [[0.0, 1.0, 2.0], [9.0, 10.0, 11.0]]
    # keyword: 1 and 9; after: 2 and 10; last: 2 and 11
    assert fig7.at_places(positive, where) == {"keyword": 5.0, "after": 6.0, "mean": 5.5, "last": 6.5}


def keyword_measurements(early, late):
    """Six seeds each: γ at the keyword, after it, on average, at the last word."""
    values = {"start": early, "early": early, "late": late}
    one = {f"{place}_{time}": values[time][i] for time in values for i, place in enumerate(fig7.PLACES)}
    return Measurements(
        {"one direction": [{name: value + 0.01 * seed for name, value in one.items()} for seed in range(6)]}
    )


def test_claims_of_hypothesis_2_and_observation_3_follow_the_measurements():
    as_published = keyword_measurements(early=(9.0, 3.0, 1.0, 1.1), late=(1.1, 4.0, 1.0, 9.0))
    assert [verdict.verdict for verdict in fig7.claims(as_published)] == ["holds"] * 9
    the_other_way = keyword_measurements(early=(1.1, 4.0, 4.5, 9.0), late=(9.0, 3.0, 3.5, 1.0))
    assert [verdict.verdict for verdict in fig7.claims(the_other_way)] == ["fails"] * 9


def test_early_is_the_first_checkpoint_above_the_mark():
    assert fig7.first_above(np.array([0.5, 0.9, 0.91, 0.6]), 0.9) == 2
    assert fig7.first_above(np.array([0.5, 0.9]), 0.9) is None
