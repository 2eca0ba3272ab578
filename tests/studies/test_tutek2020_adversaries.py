"""Figure 1 of tutek2020 and the tests of faithfulness, at a tiny size on made-up texts."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import well_formed
from scipy.stats import kendalltau

import attnscope.studies.tutek2020 as tutek2020
from attnscope.errors import BadSetting
from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import train
from attnscope.lab.store import Store
from attnscope.probes.adversary import SearchSettings
from attnscope.studies.finding import Measurements, MissingData, TrainedCase
from attnscope.studies.reproduce import reproduce
from attnscope.studies.tutek2020 import deceptive, faithfulness, fig1, jain_wallace
from attnscope.studies.tutek2020.deceptive import DECEPTION, DECEPTIVE, TESTS
from attnscope.studies.tutek2020.experiments import BASE, MLM, TEXTS, TYING, ModelLabel, Sizes
from attnscope.studies.tutek2020.faithfulness import (
    changes_by_weight,
    importance,
    indicative_words,
    largest_weights,
    mask_of_words,
    measure,
    remove_words,
    sample_texts,
)
from attnscope.studies.tutek2020.fig1 import FIG1, AdversaryLabel, at_equal_jsd, untrained_copy
from attnscope.studies.tutek2020.jain_wallace import JAIN_WALLACE
from attnscope.tasks import SPECIALS
from attnscope.tasks.batch import Batch
from attnscope.training import CrossEntropy, Hiding
from attnscope.training.evaluation import decide
from tasks.small_corpora import write_jsonl

FINDINGS = (FIG1, JAIN_WALLACE, DECEPTION)
TINY = Sizes(
    "tiny", seeds=2, corpora=("sst",), input_size=6, epochs={"sst": 1}, num_permutations=3, num_words=8,
    num_clusters=4, max_vectors=100, max_texts=12, layers=(1,),
    adversary_corpora=("sst",), faithfulness_corpora=("sst",), lambdas=(0.0, 1.0),
    indicative_share=0.25,
)  # fmt: skip
WORDS = ["good", "bad", *(f"word{i}" for i in range(10))]


def sentences(random):
    """A text is as good as its one word 'good' or 'bad'."""
    for split, count in (("train", 60), ("dev", 20), ("test", 30)):
        for number in range(count):
            words = random.choice(WORDS[2:], random.integers(3, 8)).tolist()
            words[random.integers(len(words))] = WORDS[1 - number % 2]
            yield {"split": split, "tokens": words, "binary_label": number % 2}


@pytest.fixture(scope="module", autouse=True)
def quick_search():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faithfulness, "SEARCH", SearchSettings(restarts=2, steps=10))
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of corpora, which ATTNSCOPE_DATA names."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("sst", "glove"):
        (folder / name).mkdir()
    write_jsonl(folder / "sst" / "sst.jsonl.gz", sentences(np.random.default_rng(0)))
    vectors = np.random.default_rng(1).normal(size=(len(WORDS), 3)).astype(np.float16)
    np.savez(folder / "glove" / "glove.6B.100d.float16.npz", vectors=vectors)
    (folder / "glove" / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNSCOPE_DATA", str(folder))
        for name, task in TEXTS.items():
            patch.setitem(TEXTS, name, replace(task))  # one that has read no other data yet
        yield folder


@pytest.fixture(scope="module")
def study(data):
    with well_formed.tiny(tutek2020, FINDINGS, TINY) as tiny_study:
        yield tiny_study


@pytest.fixture(scope="module")
def reproduced(study, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    return store, well_formed.results_of(study, store)


@pytest.fixture(scope="module")
def subject(data, tmp_path_factory):
    seeded = jain_wallace.experiments(TINY)[ModelLabel("sst", "additive", BASE)].with_seed(0, "cpu")
    store = Store(tmp_path_factory.mktemp("runs"))
    return TrainedCase({"model": train(seeded.runs["model"], store)}, seeded.settings, 0, "cpu")


@pytest.fixture(scope="module")
def model(subject):
    return subject.runs["model"].model()


@pytest.fixture(scope="module")
def numbers(subject):
    return measure(subject)


def numbers_of(*words):
    finite = TEXTS["sst"].source_vocabulary.tokens
    return tuple(sorted(finite.index(word) for word in words))


# Whole findings ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_finding_writes_a_well_formed_result_and_a_figure(reproduced, study):
    for name, result in reproduced[1].items():
        well_formed.check(study.finding(name), result)


@pytest.mark.slow
def test_models_are_trained_and_tested_once_and_every_adversary_is_kept(reproduced):
    models, adversaries = 5, 3 * len(TINY.lambdas)  # base, residual, tying, MLM, deceptive; three are imitated
    assert len(list((reproduced[0] / "runs").iterdir())) == 2 * models
    assert len(list((reproduced[0] / "measurements").iterdir())) == 2 * (models + adversaries)


def test_a_missing_corpus_is_named_and_its_claims_are_undecided(study, tmp_path, monkeypatch):
    monkeypatch.setitem(TEXTS, "sst", replace(TEXTS["sst"], file="nowhere/sst.jsonl.gz"))
    assert all(isinstance(case.settings, MissingData) for case in DECEPTION.experiments(TINY).values())
    for result in reproduce(study, FINDINGS, "tiny", 1, tmp_path, LocalEngine(0)):
        assert any("there is no corpus nowhere/sst.jsonl.gz" in note for note in result.notes)
        assert all(claim.holds is None for claim in result.claims)
        assert all(row["mean"] is None for row in result.table)
        assert result.figure is None


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_every_finding_copes_with_runs_that_failed(data, finding):
    well_formed.check_without_runs(finding, TINY)


# What is trained -----------------------------------------------------------------------------------------------------


def test_indicative_words_are_those_that_determine_the_class(data):
    assert indicative_words(TEXTS["sst"].resolved(), 0.25) == numbers_of("good", "bad")


def test_indicative_words_are_the_largest_weights_up_to_a_share():
    weights, running = np.array([9.0, 5.0, 1.0, 4.0]), np.array([0, 30, 60, 10])
    assert largest_weights(weights, running, 0.4) == (1, 3)
    assert largest_weights(weights, running, 0.39) == (1,)
    assert largest_weights(weights, running, 0.01) == (1,)  # the first of all never occurs
    with pytest.raises(BadSetting, match=r"the share of indicative words is between 0 and 1, not 1\.5"):
        largest_weights(weights, running, 1.5)


def test_the_deceptive_model_differs_from_base_in_its_loss_only(data):
    cases, label = deceptive.experiments(TINY), ModelLabel("sst", "additive", BASE)
    base, hiding = (cases[label._replace(model=model)].runs["model"] for model in (BASE, DECEPTIVE))
    assert replace(hiding, objective=CrossEntropy()) == base
    assert hiding.objective == CrossEntropy() + Hiding(1.0, numbers_of("good", "bad"))
    assert cases[label] == jain_wallace.experiments(TINY)[label]


def test_an_adversary_has_another_initialisation_and_the_same_vocabulary(subject, model):
    fresh, own = untrained_copy(subject.runs["model"]), dict(model.named_parameters())
    alike = {name for name, values in fresh.named_parameters() if torch.equal(values, own[name])}
    assert "source_inputs.table" in alike
    assert not any(name.startswith(("encoder", "attend")) and "weight" in name for name in alike)


def test_a_trained_adversary_is_compared_on_the_test_split(subject):
    actual = fig1.measure(replace(subject, settings=fig1.AdversarySettings(1.0)))
    assert 0 < actual["jsd"] < np.log(2)
    assert 0 < actual["tvd"] < 1
    assert actual == fig1.measure(
        replace(subject, settings=fig1.AdversarySettings(1.0))
    )  # so an interrupted study can go on


# What is measured ----------------------------------------------------------------------------------------------------


def alone(batch):
    """The texts of a batch, each as its words."""
    return [source[mask].tolist() for source, mask in zip(batch.source, batch.source_mask, strict=True)]


def probability_of(model, words):
    """Of the positive class, by a pass over one text."""
    task = TEXTS["sst"]
    batch = next(task.batches("test", size=1))
    source = torch.tensor([words])
    made = model(replace(batch, source=source, source_mask=torch.ones_like(source, dtype=torch.bool)))
    return made.logits[0, 0, len(SPECIALS) :].softmax(-1)[1].item(), made


def test_leave_one_out_is_kendalls_tau_with_texts_that_lack_a_word(numbers, model, subject):
    taus = []
    for words in (text for batch in sample_texts(TEXTS["sst"], TINY.max_texts, "cpu") for text in alone(batch)):
        whole, made = probability_of(model, words)
        inner = range(1, len(words) - 1)  # start and end are not attended to
        changes = [abs(whole - probability_of(model, words[:i] + words[i + 1 :])[0]) for i in inner]
        taus.append(kendalltau(made.attention[0, 0, 0, 1:-1].tolist(), changes).statistic)
    assert numbers["leave_one_out"] == pytest.approx(np.mean(taus), abs=1e-6)
    assert numbers["leave_one_out_sd"] == pytest.approx(np.std(taus, ddof=1), abs=1e-6)


def test_a_gpu_with_an_index_uses_the_batch_size_of_gpus(monkeypatch):
    monkeypatch.setattr(Batch, "to", lambda batch, device: batch)
    monkeypatch.setattr(faithfulness, "BATCH_SIZE", {"cpu": 2, "cuda": 3})
    for device, size in {"cpu": 2, "cuda": 3, "cuda:1": 3, "mps": 3}.items():
        assert len(sample_texts(TEXTS["sst"], 6, device)[0]) == size


def test_gradients_do_not_flow_through_attention(model):
    batch = sample_texts(TEXTS["sst"], TINY.max_texts, "cpu")[0]
    trace = model(batch)
    actual = importance(model, batch, trace)
    embedded = model.source_inputs(batch.source).detach().requires_grad_()
    context = (trace.attention[:, 0].detach() @ model.states(embedded, batch.source_mask))[:, 0]
    (slope,) = torch.autograd.grad(model.output(context).sum(), embedded)  # of two classes, the log-odds
    expected = (slope * embedded).sum(-1)
    mask = batch.source_mask
    torch.testing.assert_close(actual["gradient"][mask], expected.abs()[mask])
    signs = (trace.logits[:, 0, -1] - trace.logits[:, 0, -2]).sign()[:, None]
    torch.testing.assert_close(actual["gradient_signed"][mask], (expected * signs)[mask])
    assert not torch.allclose(actual["gradient_through"][mask], expected.abs()[mask])


def test_indicative_words_are_removed_and_the_others_close_the_gap(data):
    words = numbers_of("good", "bad")
    batch = next(TEXTS["sst"].batches("test"))
    assert mask_of_words(batch, words).sum(1).tolist() == [1] * len(batch)
    for before, after in zip(alone(batch), alone(remove_words(batch, words)), strict=True):
        assert after == [word for word in before if word not in words]


def test_attention_on_indicative_words_and_the_loss_without_them(numbers, model):
    words, task = numbers_of("good", "bad"), TEXTS["sst"]
    masses, shares = [], []
    for batch in task.batches("test", size=1):
        there = torch.isin(batch.source[0], torch.tensor(words))
        masses.append(model(batch).attention[0, 0, 0][there].sum().item())
        shares.append(1 / (len(there) - 2))
    assert numbers["mass"] == pytest.approx(np.mean(masses))
    assert numbers["mass_uniform"] == pytest.approx(np.mean(shares))
    assert numbers["having"] == 1
    whole, without = (decide(model, texts).f1 for texts in (task.batches("test"), texts_without(task, words)))
    assert numbers["f1_lost"] == pytest.approx(100 * (whole - without))


def texts_without(task, words):
    return [remove_words(batch, words) for batch in task.batches("test")]


def test_a_search_never_goes_farther_than_the_farthest(numbers):
    assert numbers["searched"] <= numbers["farthest"] + 1e-9
    assert numbers["farthest"] <= np.log(2)
    assert 0 <= numbers["searched_feasible"] <= numbers["farthest_feasible"] <= 1


def test_changes_are_averaged_by_the_highest_weight():
    actual = changes_by_weight(np.array([0.1, 0.2, 0.6, 1.0]), np.array([0.0, 0.5, 0.3, 0.9]))
    assert actual["texts"] == [2, 0, 1, 1]
    assert actual["change"] == pytest.approx([0.25, np.nan, 0.3, 0.9], nan_ok=True)


def test_a_measurement_has_every_quantity_of_the_tables(numbers):
    assert {*jain_wallace.QUANTITIES, *TESTS, *deceptive.QUANTITIES} <= set(numbers)


# Curves of adversaries -----------------------------------------------------------------------------------------------


def line(slope, jsds):
    return np.array(jsds), slope * np.array(jsds)


def test_two_lines_are_compared_where_both_have_points():
    steep, flat = at_equal_jsd(line(2.0, [0.6, 0.1, 0.3]), line(0.5, [0.2, 0.5]))
    assert (steep, flat) == (pytest.approx(2 * 0.35), pytest.approx(0.5 * 0.35))  # 0.2 to 0.5


def test_curves_that_share_no_jsd_are_not_compared():
    assert np.isnan(at_equal_jsd(line(1.0, [0.1, 0.2]), line(1.0, [0.3, 0.4]))).all()


def adversaries(slopes, jsds=(0.1, 0.5), seeds=6):
    """TVD rises with JSD, for each model by another slope."""
    return Measurements(
        {
            AdversaryLabel("sst", model, weight): [
                {"jsd": jsd + 0.01 * seed, "tvd": slope * jsd, "kl": 1.0, "changed": 5.0, "f1": 80.0}
                for seed in range(seeds)
            ]
            for (model, slope), (weight, jsd) in product(slopes.items(), zip(TINY.lambdas, jsds, strict=True))
        }
    )


def words_of(claims, *parts):
    return [claim.verdict for claim in claims if all(part in claim.text for part in parts)]


def test_harder_to_find_means_more_tvd_at_equal_jsd():
    claims = fig1.claims(adversaries({BASE: 0.5, MLM: 0.9, TYING: 0.2}))
    assert words_of(claims, "higher for mlm") == ["holds"]
    assert words_of(claims, "higher for tying") == ["fails"]


def test_the_table_has_every_adversary_and_the_comparison():
    rows = fig1.table(adversaries({BASE: 0.5, MLM: 0.9, TYING: 0.2}))
    assert len(rows) == 3 * 2 * len(fig1.QUANTITIES) + 2 * 2
    (compared,) = [row for row in rows if row["λ"] == "all" and row["model"] == MLM]
    assert compared["mean"] == pytest.approx(0.9 * 0.3)  # in the middle of 0.1 and 0.5


def test_without_all_adversaries_nothing_is_claimed():
    actual = adversaries({BASE: 0.5, MLM: 0.9, TYING: 0.2}).by_label
    last = AdversaryLabel("sst", MLM, TINY.lambdas[-1])
    claims = fig1.claims(Measurements({**actual, last: actual[last][:1]}))
    assert words_of(claims, "higher for mlm") == ["undecided"]
    assert words_of(claims, "higher for tying") == ["fails"]


def test_figure_1_has_a_line_per_model():
    (ax,) = FIG1.draw(fig1.figure(adversaries({BASE: 0.5, MLM: 0.9, TYING: 0.2}))).axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [BASE, MLM, TYING]
    assert len(ax.lines) == 3
    assert [text.get_text() for text in ax.texts] == ["λ = 0", "λ = 1"]


# Claims about tests --------------------------------------------------------------------------------------------------

HONEST = {
    "f1": 80.0, "f1_lost": 8.0, "mass": 0.3, "mass_uniform": 0.1, "having": 0.8,
    "gradient": 0.3, "leave_one_out": 0.3, "comprehensiveness_gain": 0.1, "sufficiency_gain": 0.1, "earlier_text": 0.7,
    "earlier_attention": 0.7, "permuted": 0.2, "uniform": 0.2, "farthest": 0.5, "information": 3.0, "per_token": 0.6,
}  # fmt: skip
CAUGHT = {name: -0.1 if test.chance == 0 else 0.1 for name, test in TESTS.items() if test.higher} | {
    "farthest": 0.65, "per_token": 0.8, "mass": 0.01,
}  # fmt: skip


def measured_as(models):
    """Six seeds of each model, a little apart; by model, what differs from base."""
    rest = dict.fromkeys((*jain_wallace.QUANTITIES, *deceptive.QUANTITIES, *TESTS), 0.5)
    ranges = {"by_highest": {"change": [0.1, 0.2, float("nan"), 0.4], "texts": [5, 5, 0, 2]}}
    return Measurements(
        {
            ModelLabel("sst", "additive", model): [
                {name: value + 0.001 * seed for name, value in (rest | HONEST | changes).items()} | ranges
                for seed in range(6)
            ]
            for model, changes in models.items()
        }
    )


def test_a_model_caught_by_every_test_is_flagged_beside_base_and_by_itself():
    claims = deceptive.claims(measured_as({BASE: {}, DECEPTIVE: CAUGHT}))
    assert words_of(claims, "beside base, deceptive is flagged") == ["holds"] * len(TESTS)
    assert words_of(claims, "by itself, deceptive is flagged") == ["holds"] * 6
    assert words_of(claims, "by itself, base is not flagged") == ["holds"] * 6
    assert [claim.verdict for claim in claims[:3]] == ["holds", "equivalent", "holds"]


def test_a_model_that_passes_as_base_does_is_not_flagged():
    claims = deceptive.claims(measured_as({BASE: {}, DECEPTIVE: {"mass": 0.3, "f1": 75.0, "f1_lost": 1.0}}))
    assert words_of(claims, "by itself, deceptive is flagged") == ["fails"] * 6
    assert words_of(claims, "beside base, deceptive is flagged") == ["undecided"] * len(TESTS)  # as much in every seed
    assert [claim.verdict for claim in claims[:3]] == ["fails"] * 3


def test_flags_are_counted_over_seeds():
    rows = deceptive.table(measured_as({BASE: {}, DECEPTIVE: CAUGHT}))
    flags = {(row["model"], row["quantity"]): row["mean"] for row in rows if row["quantity"].startswith("flagged")}
    assert {model for model, _ in flags} == {"deceptive beside base", "deceptive by itself", "base by itself"}
    assert all(share == (model != "base by itself") for (model, _), share in flags.items())
    assert len(flags) == len(TESTS) + 2 * 6


def test_remedied_models_must_agree_more_and_leave_less_room_than_base():
    better = {"gradient": 0.6, "leave_one_out": 0.2, "farthest": 0.3}
    claims = jain_wallace.claims(measured_as({BASE: {}, "residual": {}, TYING: better, MLM: {}}))
    assert words_of(claims, "sst: base") == ["holds"] * 3
    assert words_of(claims, "tying") == ["holds", "fails", "holds"]
    assert words_of(claims, "mlm") == ["undecided"] * 3  # as much in every seed


def test_the_figure_of_the_tests_shows_how_often_each_flags():
    data = deceptive.figure(measured_as({BASE: {}, DECEPTIVE: CAUGHT | {"uniform": 0.9}}))
    titles = [ax.get_title() for ax in DECEPTION.draw(data).axes]
    assert titles[0] == "attention on\nindicative words"
    assert titles[1] == "gradients:\nflagged in 6 of 6"
    assert "uniform attention:\nflagged in 0 of 6" in titles
    assert len(titles) == len(TESTS) + 1


def test_the_jain_wallace_figure_has_a_gap_where_there_is_no_text():
    data = jain_wallace.figure(measured_as({BASE: {}, "residual": {}, TYING: {}, MLM: {}}))
    taus, jsds, changes = JAIN_WALLACE.draw(data).axes
    assert (len(taus.patches), len(jsds.patches)) == (3 * 4, 2 * 4)
    assert changes.lines[0].get_ydata() == pytest.approx([0.1, 0.2, np.nan, 0.4], nan_ok=True)
