"""Tables 2 and 3 and figures 2 to 7 of tutek2020 at a tiny size on made-up texts."""

from dataclasses import replace

import pytest
import torch

from attnscope import plots
from attnscope.lab.engines import LocalEngine
from attnscope.studies import study
from attnscope.studies.finding import Measurements, published_by
from attnscope.studies.reproduce import reproduce
from attnscope.studies.result import problems
from attnscope.studies.tutek2020 import states
from attnscope.studies.tutek2020.experiments import BASE, MLM, RESIDUAL, TYING
from studies import small_texts
from studies.small_texts import TINY

FINDINGS = (states.TABLE2, states.TABLE3, states.FIG2)
SMALL = replace(TINY, corpora=("sst",), seeds=2)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with small_texts.corpora(tmp_path_factory.mktemp("data")), pytest.MonkeyPatch.context() as patch:
        whole = study("tutek2020")
        patch.setitem(whole.profiles, "tiny", SMALL)
        patch.setattr(states, "READABLE", range(3, 6))
        actual = reproduce(whole, FINDINGS, "tiny", None, tmp_path_factory.mktemp("store"), LocalEngine(0))
        yield {result.finding: result for result in actual}


@pytest.mark.parametrize("name", [finding.name for finding in FINDINGS])
def test_every_row_has_a_number_a_claim_its_evidence_and_the_figure_can_be_drawn(results, name, tmp_path):
    result = results[name]
    assert problems(result.to_json()) == []
    assert result.table
    # A network that has hardly learnt is sure of nothing.
    assert all(row["n"] == SMALL.seeds for row in result.table if "where base is" not in row["quantity"])
    assert result.claims
    picture = study("tutek2020").finding(name).draw(result.figure)
    plots.save(picture, tmp_path / "figure.png")
    assert picture.axes


def test_table_2_has_upper_bounds_and_the_untrained_network(results):
    rows = {(row["model"], row["quantity"]): row["mean"] for row in results["table2"].table}
    for model in states.INFORMATION_MODELS:
        for choice in ("frequent", "sampled"):
            shared, most = (rows[model, states.INFORMATION_QUANTITIES[f"{choice}{end}"]] for end in ("", "_most"))
            assert 0 <= shared <= most + 1e-9
    untrained = states.INFORMATION_QUANTITIES["frequent_untrained"]
    assert [model for model, quantity in rows if quantity == untrained] == [BASE]


def test_table_3_is_a_probability_and_the_decision_is_at_least_even(results):
    for row in results["table3"].table:
        assert 0 <= row["mean"] <= 1
        if row["quantity"] == states.TOKEN_QUANTITIES["decision"]:
            assert row["mean"] >= 0.5


def test_sentences_are_shown_with_a_number_for_each_word_and_model(results):
    for sentence in results["fig2"].figure.values():
        assert set(sentence["probabilities"]) == set(sentence["decisions"]) == set(states.COMPARED)
        assert all(len(line) == len(sentence["words"]) for line in sentence["probabilities"].values())


def test_published_numbers_stand_beside_each_model_of_the_paper():
    published = published_by("tutek2020")
    assert published("table2_imdb_tying", "frequent")["published"] == 5.186
    assert published("table3_20newsgroups_dot_mlm", "probability")["published"] == 0.482
    for corpus in ("sst", "ag_news", "20newsgroups", "imdb"):
        for model in (BASE, RESIDUAL, TYING, MLM):
            assert published(f"table2_{corpus}_{model}", "sampled")
            assert all(published(f"table3_{corpus}_{how}_{model}", "probability") for how in ("additive", "dot"))


def test_claims_compare_with_base_and_fail_where_base_is_higher():
    def seeds(value):
        return [{"frequent": value + noise, "sampled": value + noise} for noise in (0.0, 0.01) * 3]

    seeds_of = {BASE: seeds(3.0), RESIDUAL: seeds(5.0), TYING: seeds(2.0), MLM: []}
    measured = Measurements({states.AdditiveLabel("sst", model): actual for model, actual in seeds_of.items()})
    words = {
        verdict.text.split("states of ")[1].split()[0]: verdict.verdict
        for verdict in states.claims_about_information(measured)
    }
    assert words == {"residual": "holds", "tying": "fails", "mlm": "undecided"}


def test_the_probability_of_the_class_that_base_decides_for_is_that_of_the_other_class_where_models_differ():
    def torch_row(value):
        return torch.full((1, 3), value, dtype=torch.float64)

    def found(predicted, mean):
        return states.TokenProbabilities(
            tokens=torch_row(mean), decision=torch_row(0.9)[:, 0], target_class=predicted, predicted=predicted,
            gold=predicted, classes=2,
        )  # fmt: skip

    one, zero = torch.tensor([1]), torch.tensor([0])
    assert states.mean_for_class(found(one, 0.7), found(one, 0.8)).item() == pytest.approx(0.7)
    assert states.mean_for_class(found(zero, 0.7), found(one, 0.8)).item() == pytest.approx(0.3)
