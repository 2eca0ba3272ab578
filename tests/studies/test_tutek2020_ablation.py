"""The findings `ablation` and `plausible` at a tiny size on made-up texts: what is trained, chosen, claimed, drawn."""

import tomllib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import well_formed
from sklearn.metrics import average_precision_score, f1_score

import attnscope.studies.tutek2020 as tutek2020
from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import train
from attnscope.lab.store import Store
from attnscope.probes.saliency import gradient_times_input
from attnscope.studies.finding import Measurements, MissingData, TrainedCase, study_toml
from attnscope.studies.reproduce import reproduce
from attnscope.studies.result import Result
from attnscope.studies.tutek2020 import ablation, decisions, plausible, reduction
from attnscope.studies.tutek2020.ablation import (
    ABLATION,
    CONICITY,
    NOT_SQUARED,
    PER_DIMENSION,
    QUANTITIES,
    WEIGHTS,
    RegulariserLabel,
    as_toml,
    weights_from,
    weights_in,
)
from attnscope.studies.tutek2020.experiments import ATTENTIONS, BASE, DELTAS, ETAS, MLM, TEXTS, TYING, ModelLabel, Sizes
from attnscope.studies.tutek2020.faithfulness import log_odds
from attnscope.studies.tutek2020.plausible import ANNOTATED, CHANCE, MEASURES, PLAUSIBLE
from attnscope.studies.tutek2020.reduction import MEAN, REDUCTION, STRONGEST, SUM, ReductionLabel
from attnscope.tasks import SPECIALS
from attnscope.training import Tying
from attnscope.training.evaluation import decide
from tasks.small_corpora import write_jsonl

FINDINGS = (ABLATION, PLAUSIBLE, REDUCTION)
TINY = Sizes(
    "tiny", seeds=2, corpora=("sst",), input_size=4, epochs={"sst": 1}, num_permutations=3, num_words=10,
    num_clusters=5, max_vectors=100, max_texts=10, layers=(1,),
)  # fmt: skip
PAPER = replace(TINY, name="paper")
WORDS = ["good", "bad", *(f"word{i}" for i in range(9))]
YELP = "yelp_rationales"


# Made-up texts, in the places and formats of the real ones -----------------------------------------------------------


def texts(random, count):
    """A text is as good as its one word 'good' or 'bad', whose place is told as well."""
    for number in range(count):
        words = random.choice(WORDS[2:], random.integers(3, 9)).tolist()
        place = int(random.integers(len(words)))
        words[place] = WORDS[1 - number % 2]
        yield words, place, number % 2


def sentences(random):
    for split, count in (("train", 40), ("dev", 20), ("test", 30)):
        for words, _, good in texts(random, count):
            yield {"split": split, "tokens": words, "binary_label": good}


def reviews(random):
    """Two people marked the indicative word, one also its neighbour; in every tenth review nobody marked a word."""
    for number, (words, place, good) in enumerate(texts(random, 120)):
        marks = [int(i == place and number % 10 > 0) for i in range(len(words))]
        wider = [int(0 <= i - place <= 1 and number % 10 > 0) for i in range(len(words))]
        split = ("50words", "100words", "200words", "part7")[number % 4]
        yield {"split": split, "text": " ".join(words), "label": good, "rationales": [marks, wider, marks]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of corpora, which ATTNSCOPE_DATA names."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("sst", "yelp_human_attention", "glove"):
        (folder / name).mkdir()
    write_jsonl(folder / "sst" / "sst.jsonl.gz", sentences(random))
    write_jsonl(folder / "yelp_human_attention" / "yelp_human_attention.jsonl.gz", reviews(random))
    np.savez(folder / "glove" / "glove.6B.100d.float16.npz", vectors=random.normal(size=(9, 3)).astype(np.float16))
    (folder / "glove" / "vocab.txt").write_text("\n".join(WORDS[:9]) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNSCOPE_DATA", str(folder))
        patch.setitem(plausible.EPOCHS, YELP, 1)
        for tasks in (TEXTS, ANNOTATED):
            for name, task in tasks.items():
                patch.setitem(tasks, name, replace(task))  # one that has read no other data yet
        yield folder


@pytest.fixture(scope="module")
def study(data):
    with well_formed.tiny(tutek2020, FINDINGS, TINY) as tiny_study:
        yield tiny_study


def trained_case(case, store):
    seeded = case.with_seed(0, "cpu")
    runs = {part: train(experiment, Store(store)) for part, experiment in seeded.runs.items()}
    return TrainedCase(runs, seeded.settings, 0, "cpu")


@pytest.fixture(scope="module")
def subject(data, tmp_path_factory):
    """A model of the ablation, on texts that people marked."""
    case = ablation.experiments(PAPER)[RegulariserLabel(YELP, "additive", TYING, 10.0)]
    return trained_case(case, tmp_path_factory.mktemp("runs"))


# Whole findings ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_findings_write_a_well_formed_result_and_a_figure(study, tmp_path):
    for result in reproduce(study, FINDINGS, "tiny", 1, tmp_path, LocalEngine(0)):
        well_formed.check(study.finding(result.finding), result)
        assert all(row["n"] == 1 for row in result.table)


def test_a_missing_corpus_is_named_and_its_claims_are_undecided(study, tmp_path, monkeypatch):
    monkeypatch.setitem(TEXTS, "sst", replace(TEXTS["sst"], file="nowhere/sst.jsonl.gz"))
    for result in reproduce(study, FINDINGS, "tiny", 1, tmp_path, LocalEngine(0)):
        (failed,) = [note for note in result.notes if "there is no corpus nowhere/sst.jsonl.gz" in note]
        assert all(str(label) in failed for label in study.finding(result.finding).experiments(TINY))
        assert all(claim.holds is None for claim in result.claims)
        assert all(row["mean"] is None for row in result.table)
        assert result.figure is None


# What is trained -----------------------------------------------------------------------------------------------------


def test_the_grid_has_every_weight_of_the_paper_squared_and_plain(data):
    grid = list(ablation.experiments(TINY))
    assert {of[:2] for of in grid} == {("sst", "additive")}
    assert {(regulariser, weight) for _, _, regulariser, weight in grid} == {
        (BASE, 0.0), *product((TYING, NOT_SQUARED, PER_DIMENSION), (1, 10, 20, 30)),
        *product((MLM,), (0.1, 0.3, 1, 3, 5)), *product((CONICITY,), (1, 5)),
    }  # fmt: skip


def test_the_profile_paper_has_both_attentions_and_texts_that_people_marked(data):
    groups = {which[:2] for which in ablation.experiments(PAPER)}
    assert groups == {("sst", "additive"), ("sst", "dot"), (YELP, "additive")}


def test_models_equal_base_of_table_1_except_for_objective_and_seeds(data):
    bases = decisions.model_experiments(TINY)
    for which, case in ablation.experiments(TINY).items():
        corpus, attention, *_ = which
        base, ours = bases[ModelLabel(corpus, attention, BASE)].runs["model"], case.runs["model"]
        assert replace(ours, objective=base.objective, seed=base.seed) == base
        assert ours.seed == 100 > base.seed + 5


def test_tying_is_squared_or_not(data):
    cases = ablation.experiments(TINY)
    for regulariser, squared in ((TYING, True), (NOT_SQUARED, False)):
        objectives = cases[RegulariserLabel("sst", "additive", regulariser, 20.0)].runs["model"].objective
        assert Tying(20.0, squared=squared) in objectives.parts


def test_models_on_rationale_corpora_are_trained_with_the_weights_of_sst(data):
    theirs, ours = decisions.model_experiments(TINY), plausible.experiments(TINY)
    assert list(ours) == [ModelLabel(YELP, "additive", model) for model in plausible.COMPARED]
    for which, case in ours.items():
        like, actual = (
            theirs[ModelLabel("sst", "additive", which.model)].runs["model"],
            case.runs["model"],
        )
        steps = {"steps": like.training.steps, "evaluate_every": like.training.evaluate_every}
        assert actual.training.steps == ANNOTATED[YELP].steps(32)  # one round here
        assert replace(actual, task=like.task, training=replace(actual.training, **steps)) == like


def test_only_the_profile_paper_uses_long_reviews():
    corpora = {sizes.name: {label.corpus for label in plausible.experiments(sizes)} for sizes in (PAPER, TINY)}
    assert corpora == {"paper": {YELP, "eraser_movies"}, "tiny": {YELP}}
    assert ANNOTATED["eraser_movies"].preparation.max_length == 400


def test_a_missing_corpus_stays_among_the_cases(data):
    cases = [case for which, case in plausible.experiments(PAPER).items() if "eraser" in which.corpus]
    assert len(cases) == len(plausible.COMPARED)
    assert all(isinstance(case.settings, MissingData) for case in cases)


# What is measured ----------------------------------------------------------------------------------------------------


def by_text(run):
    """Each test text that has a marked word by itself: its batch, its words, its marks."""
    for batch in run.task.batches("test", size=1):
        words = batch.source[0] >= len(SPECIALS)
        marks = batch.rationale[0][words].numpy() >= 0.5
        if marks.any():
            yield batch, words, marks


def test_the_ablation_measures_scores_fragility_information_and_agreement(subject):
    actual, run = ablation.measure(subject), subject.runs["model"]
    assert set(QUANTITIES) <= set(actual)
    model = decide(run.model(), run.task.batches("validation"))
    assert actual["validation_f1"] == pytest.approx(100 * f1_score(model.gold, model.chosen, zero_division=0))
    assert 0 <= actual["information_by_chance"] <= actual["information"] <= actual["information_at_most"]


def test_agreement_with_people_is_average_precision_by_scikit_learn(subject):
    actual, run = plausible.measure(subject), subject.runs["model"]
    model, ours, slopes = run.model(), [], []
    for batch, words, marks in by_text(run):
        ours.append(average_precision_score(marks, model(batch).attention[0, 0, 0][words].detach().numpy()))
        slope = gradient_times_input(model, batch, log_odds).values[0, 0][words].abs()
        slopes.append(average_precision_score(marks, slope.numpy()))
    assert actual["attention_average_precision"] == pytest.approx(np.mean(ours))
    assert actual["gradient_average_precision"] == pytest.approx(np.mean(slopes), abs=1e-6)
    assert actual["texts"] == len(ours) < len(run.task.part("test"))
    assert ablation.measure(subject)["agreement"] == actual["attention_average_precision"]


def test_words_for_a_positive_decision_are_words_against_a_negative_one(subject):
    run = subject.runs["model"]
    model, expected = run.model(), []
    for batch, words, marks in by_text(run):
        slope = gradient_times_input(model, batch, log_odds).values[0, 0][words].numpy()
        positive = int(model(batch).predictions) == len(SPECIALS) + 1
        expected.append(average_precision_score(marks, slope if positive else -slope))
    assert plausible.measure(subject)["supporting_average_precision"] == pytest.approx(np.mean(expected), abs=1e-6)


def test_chance_of_the_mass_is_the_share_of_marked_words(subject):
    actual, run = plausible.measure(subject), subject.runs["model"]
    assert actual[f"{CHANCE}_mass"] == pytest.approx(np.mean([marks.mean() for *_, marks in by_text(run)]))
    assert np.isnan(actual["supporting_mass"])
    assert np.isfinite([actual[name] for name in plausible.QUANTITIES]).all()


# What is chosen ------------------------------------------------------------------------------------------------------


def seed_numbers(validation_f1=80.0, f1=80.0, permuted=5.0, information=2.0, as_published=True):
    fixed = {"uniform": 1.0, "information_by_chance": 0.5, "information_at_most": 4.0, "per_token": 0.7}
    return {
        "validation_f1": validation_f1, "f1": f1, "permuted": permuted, "information": information,
        "as_published": as_published, **fixed,
    }  # fmt: skip


def grid(by_model, attentions=ATTENTIONS, **common):
    """Six seeds of every model; by regulariser, a function of the weight that says what differs."""
    actual = {}
    for attention, (regulariser, weights) in product(attentions, WEIGHTS.items()):
        for weight in weights:
            differs = by_model.get(regulariser, lambda _: {})(weight) | common
            seeds = [
                seed_numbers(**{name: value + noise / 100 for name, value in differs.items()})
                for noise in (-2, -1, 0, 0, 1, 2)
            ]
            actual[RegulariserLabel("sst", attention, regulariser, weight)] = seeds
    return Measurements(actual)


BEST_AT = {
    PER_DIMENSION: lambda delta: {"validation_f1": 80 - abs(delta - 20), "f1": delta},
    MLM: lambda eta: {"validation_f1": 80 - abs(eta - 0.3), "f1": eta},
}


def test_the_validation_split_chooses_and_the_test_split_does_not():
    assert weights_from(grid(BEST_AT)) == {"sst": {of: {"delta": 20.0, "eta": 0.3} for of in ATTENTIONS}}


def test_of_equally_good_weights_the_smallest_is_chosen():
    assert weights_from(grid({}, ["dot"])) == {"sst": {"dot": {"delta": min(DELTAS), "eta": min(ETAS)}}}


def test_nothing_is_chosen_where_a_weight_was_not_tried():
    actual = grid(BEST_AT, ["dot"])
    without = Measurements({**actual.by_label, RegulariserLabel("sst", "dot", MLM, 5.0): []})
    assert weights_from(without) == {"sst": {"dot": {"delta": 20.0}}}
    assert ablation.weights_in_use(without, "sst", "dot").holds is None


def test_a_result_file_says_what_is_chosen(tmp_path):
    measured = grid(BEST_AT)
    result = Result(
        "ablation", "tutek2020", "title", "section", "paper", list(range(6)), {}, ablation.table(measured), [], [], 1.0,
        "m", {}, None,
    )  # fmt: skip
    assert weights_in(Result.read(result.write(tmp_path))) == weights_from(measured)
    best = {(row["attention"], row["model"]): row["mean"] for row in result.table if row["weight"] == "best"}
    assert best == {(of, model): mean for of in ATTENTIONS for model, mean in ((PER_DIMENSION, 20.0), (MLM, 0.3))}


def test_chosen_weights_are_read_back():
    weights = weights_from(grid(BEST_AT))
    assert tomllib.loads(as_toml(weights | {YELP: weights["sst"]})) == weights
    in_use = {name: of for name, of in study_toml("tutek2020", "chosen.toml").items() if name in TEXTS}
    assert tomllib.loads(as_toml(in_use)) == in_use


@pytest.mark.parametrize(("delta", "published", "word"), [(0, 1, "holds"), (5, 1, "fails"), (0, 0, "undecided")])
def test_weights_in_use_are_those_of_the_profile_paper(monkeypatch, delta, published, word):
    in_use = {"sst": {of: {"delta": 20.0 + delta, "eta": 0.3} for of in ATTENTIONS}}
    monkeypatch.setattr(ablation, "study_toml", lambda *_: in_use)
    claims = ablation.claims(grid(BEST_AT, as_published=bool(published)))
    assert verdicts(claims, "the weights in chosen.toml") == [word] * 2


# What is claimed -----------------------------------------------------------------------------------------------------


def verdicts(claims, *parts):
    return [claim.verdict for claim in claims if all(part in claim.text for part in parts)]


def test_what_rises_with_the_weight_is_a_claim_that_holds():
    rising = {
        TYING: lambda delta: {"permuted": delta, "information": 2 + delta / 10, "f1": 79.0},
        NOT_SQUARED: lambda delta: {"permuted": delta / 10, "information": 2 + delta / 100},
        MLM: lambda eta: {"information": 3 - eta / 10, "f1": 80 - eta},
        CONICITY: lambda weight: {"permuted": 5 + weight},
    }
    claims = ablation.claims(grid(rising))
    assert verdicts(claims, "permuted attention with δ = 30 than with δ = 1") == ["holds"]
    assert verdicts(claims, "information", "δ = 30") == ["holds"]
    assert verdicts(claims, "information", "η = 5") == ["fails"]
    assert verdicts(claims, "squared") == ["holds", "holds"]
    assert verdicts(claims, "conicity") == ["holds"]
    assert verdicts(claims, "F1 is at most 2 points lower") == ["holds", "fails"]


def test_a_seed_counts_once_whatever_the_number_of_attentions():
    claims = ablation.claims(grid({TYING: lambda delta: {"permuted": delta}}))
    (claim,) = [claim for claim in claims if "permuted attention with δ = 30" in claim.text]
    assert "n = 6" in claim.evidence


def agreeing(**precision):
    """Six seeds of each model on Yelp, by average precision."""
    actual = {}
    for model in plausible.COMPARED:
        numbers = dict.fromkeys(plausible.QUANTITIES, 0.3)
        ours = [precision.get(model, 0.4) + noise / 100 for noise in (-2, -1, 0, 0, 1, 2)]
        actual[ModelLabel(YELP, "additive", model)] = [
            numbers | {"attention_average_precision": value} for value in ours
        ]
    return Measurements(actual)


def test_closer_to_people_means_a_higher_average_precision_than_base_seed_by_seed():
    claims = plausible.claims(agreeing(tying=0.5, mlm=0.35))
    assert verdicts(claims, "more than chance") == ["holds"]
    assert verdicts(claims, "attention of tying") == ["holds"]
    assert verdicts(claims, "attention of mlm") == ["fails"]
    assert verdicts(claims, "attention of residual") == ["undecided"]  # as much in every seed
    assert verdicts(plausible.claims(agreeing(base=0.2)), "more than chance") == ["fails"]


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_every_finding_copes_with_runs_that_failed(data, finding):
    nothing = Measurements({which: [] for which in finding.experiments(TINY)})
    assert all(claim.holds is None for claim in finding.claims(nothing))
    assert all(row["mean"] is None for row in finding.table_rows(nothing))


# What is drawn -------------------------------------------------------------------------------------------------------


def test_the_ablation_figure_has_a_panel_per_corpus_and_marks_the_chosen_weight():
    plain = grid(BEST_AT).by_label
    marked = {which._replace(corpus=YELP): [seed | {"agreement": 0.3} for seed in plain[which]] for which in plain}
    figures = ABLATION.draw(ablation.figure(Measurements({**plain, **marked})))
    titles = [[ax.get_title() for ax in figure.axes] for figure in figures]
    assert titles == [["sst", YELP], ["sst", YELP], ["sst", YELP], [YELP]]  # agreement only where people marked words
    rings = [line.get_xdata()[0] for line in figures[0].axes[0].lines if line.get_markersize() == 9]
    assert sorted(rings) == [0.3, 0.3, 20.0, 20.0]


def test_the_plausibility_figure_has_a_bar_per_model_and_for_chance():
    attention, gradient = PLAUSIBLE.draw(plausible.figure(agreeing())).axes
    bars = len(MEASURES) * (len(plausible.COMPARED) + 1)
    assert len(attention.patches) == len(gradient.patches) == bars


def test_a_label_is_what_it_is_called_in_results():
    assert str(RegulariserLabel("sst", "dot", NOT_SQUARED, 30.0)) == "sst, dot, tying, not squared, weight 30"
    assert str(RegulariserLabel("sst", "dot", BASE, 0.0)) == "sst, dot, base, weight 0"


# The reduction of the loss -------------------------------------------------------------------------------------------


def summed(model, weight, validation, permuted=10.0):
    label = ReductionLabel("sst", "additive", model, SUM, weight)
    numbers = {"f1": validation, "validation_f1": validation, "uniform": permuted, "permuted": permuted}
    return {label: [numbers, {name: value + 0.1 for name, value in numbers.items()}]}


def test_the_strongest_weight_within_two_points_of_base_is_chosen_by_validation():
    base = summed(BASE, 0.0, 80.0)
    measured = Measurements(
        {**base, **summed(TYING, 1.0, 80.5), **summed(TYING, 10.0, 78.5), **summed(TYING, 30.0, 70.0)}
    )
    actual = reduction.chosen_labels(measured, "sst", "additive", TYING)
    assert {how: label.weight for how, label in actual.items()} == {reduction.BEST: 1.0, STRONGEST: 10.0}
    too_costly = Measurements({**base, **summed(TYING, 1.0, 70.0)})
    assert STRONGEST not in reduction.chosen_labels(too_costly, "sst", "additive", TYING)


def test_summed_models_differ_from_those_of_table_1_in_their_loss_only():
    cases = reduction.experiments(TINY)
    for label, case in cases.items():
        (trained,) = case.runs.values()
        reference = decisions.model_experiments(TINY)[ModelLabel(label.corpus, label.attention, label.model)].runs[
            "model"
        ]
        assert replace(trained, objective=reference.objective) == reference
        assert (trained == reference) == (label.reduction == MEAN)
