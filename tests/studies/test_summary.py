"""Ranks, multiplicity and headline claims, over synthetic results and over those that are shipped."""

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from attnscope.report.headlines import MARK, draw_headlines, headline_tables
from attnscope.studies import STUDIES, study, summary
from attnscope.studies.claims import at_least, exact, more_than, not_testable, range_from
from attnscope.studies.finding import Measurements
from attnscope.studies.headlines import HEADLINES, Headline
from attnscope.studies.result import Result, load_results, row
from attnscope.studies.summary import count, holm, interval, judge_headlines, rank, substitute, verdicts

ROOT = Path(__file__).parents[2]
SURE, UNSURE, WRONG = [0.90, 0.91, 0.92, 0.90, 0.91], [0.5, 0.9, 0.7, 0.4, 0.8], [0.10, 0.11, 0.12, 0.10, 0.11]


def result_of(finding, *claims, study="aitken2021", table=()):
    return Result(
        finding, study, "title", "section", "paper", [0, 1, 2, 3, 4], {}, list(table), claims, [], 1.0, "cpu", {}, None
    )


@pytest.fixture
def headlines(monkeypatch):
    """A list of headlines in place of the papers'."""

    def put(*headline_list):
        monkeypatch.setattr(summary, "HEADLINES", headline_list)

    return put


def headline(pattern="*", share=1.0, finding="fig2-aed", **changes):
    return Headline("aitken2021", "abstract", "a quote", {finding: (pattern,)}, "all hold", share, **changes)


# Ranks and counts ----------------------------------------------------------------------------------------------------


def test_claims_are_headline_sanity_or_supporting(headlines):
    headlines(headline("*dominates*"))
    texts = ("AED: μ·μ dominates", "AED: learns the task: word accuracy at least 0.98", "AED: 3 PCs hold")
    result = result_of("fig2-aed", *(at_least(text, SURE, 0.5) for text in texts))
    assert [rank(result, claim) for claim in result.claims] == ["headline", "sanity", "supporting"]


def test_above_chance_and_above_the_untrained_network_are_sanity_checks(headlines):
    headlines()
    texts = ("imdb: A(α, β) is above chance", "sst: ξ(α, β) is not trivial: more than the untrained network's")
    result = result_of("table2", *(at_least(text, SURE, 0.5) for text in texts), study="snell2021")
    assert {rank(result, claim) for claim in result.claims} == {"sanity"}


def test_a_repeated_sentence_counts_once_and_is_undecided_where_its_verdicts_differ(headlines):
    headlines()
    same, other = at_least("same", SURE, 0.5), at_least("differs", SURE, 0.5)
    results = [result_of("fig3", same, other), result_of("fig4", same, at_least("differs", WRONG, 0.5))]
    assert verdicts(results, "supporting") == {
        ("aitken2021", "same"): "holds",
        ("aitken2021", "differs"): "undecided",
    }


def test_claims_about_substitutes_are_marked_and_not_counted(headlines):
    headlines()
    texts = ("yelp: two seeds agree", "sst: two seeds agree", "iwslt14_de_en: two seeds agree")
    result = result_of("a9-sms", *(at_least(text, SURE, 0.5) for text in texts), study="snell2021")
    assert list(verdicts([result], "supporting")) == [("snell2021", "sst: two seeds agree")]
    assert substitute(result, texts[2]) == "4,600 of 160,240 training pairs"
    assert substitute(result, "yelp_rationales: another corpus") == ""


def test_supporting_claims_are_corrected_by_benjamini_and_hochberg(headlines):
    headlines()
    random = np.random.default_rng(0)
    claims = [at_least(f"claim {i}", random.normal(0.2, 0.3, 5), 0.0) for i in range(40)]
    p = [summary.two_sided(*claim.p) for claim in claims]
    decided = stats.false_discovery_control(p) <= 0.05
    actual = verdicts([result_of("fig3", *claims)], "supporting")
    assert [word in ("holds", "fails") for word in actual.values()] == decided.tolist()
    assert 0 < decided.sum() < sum(claim.verdict != "undecided" for claim in claims), "some are lost by the correction"


def test_claims_that_are_not_measured_yet_do_not_change_the_correction_of_others(headlines):
    headlines()
    claims = [at_least(f"claim {i}", np.random.default_rng(i).normal(0.4, 0.3, 5), 0.0) for i in range(40)]
    missing = [at_least(f"missing {i}", [], 0.0) for i in range(200)]
    expected = verdicts([result_of("fig3", *claims)], "supporting")
    actual = verdicts([result_of("fig3", *claims, *missing)], "supporting")
    assert {sentence: actual[sentence] for sentence in expected} == expected
    assert set(expected.values()) == {"holds", "undecided"}


def test_sanity_checks_and_what_is_not_random_are_not_corrected(headlines):
    headlines()
    weak = [at_least(f"{i} learns the task", [0.50, 0.61, 0.72, 0.58, 0.66], 0.5) for i in range(30)]
    assert {claim.verdict for claim in weak} == {"holds"}
    results = [result_of("fig3", *weak, exact("sizes are equal", [True]))]
    assert set(verdicts(results, "sanity").values()) == {"holds"}
    assert set(verdicts(results, "supporting").values()) == {"holds"}
    assert count(results)["sanity"].by_chance == pytest.approx(0.05 * 30)


def test_chance_decides_five_percent_of_corrected_decisions_and_of_uncorrected_tests(headlines):
    headlines()
    sure, unsure = at_least("sure", SURE, 0.5), at_least("unsure", UNSURE, 0.6)
    old = [replace(claim, text=f"{claim.text}, first schema", test=None, p=None) for claim in (sure, unsure)]
    result = result_of("fig3", sure, unsure, *old, not_testable(replace(sure, text="about tasks"), "it is about tasks"))
    assert count([result])["supporting"].by_chance == pytest.approx(0.05 * 3), "all but 'unsure' and 'about tasks'"


def test_chance_decides_headlines_in_five_percent_of_papers_and_more_by_the_earlier_rule(headlines):
    new, old = at_least("new", SURE, 0.5), [at_least(f"old {i}", SURE, 0.5) for i in range(3)]
    headlines(headline("new"), headline("new"), headline("old *"))
    result = result_of("fig2-aed", new, *(replace(claim, test=None, p=None) for claim in old))
    assert count([result])["headline"].by_chance == pytest.approx(0.05 + (3 + 1) * 0.025)


# Headlines -----------------------------------------------------------------------------------------------------------


def test_holm_is_the_step_down_procedure():
    p = np.array([0.2, 0.001, 0.03, 0.012, 1.0])
    order = np.argsort(p)
    expected = np.empty(5)
    expected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(5, 0, -1)), 1)
    assert holm(p.tolist()) == pytest.approx(expected)
    assert holm([]) == []


def test_a_headline_holds_if_all_its_claims_do_and_fails_if_one_fails(headlines):
    headlines(headline())
    good, bad, open_ = at_least("a", SURE, 0.5), at_least("b", WRONG, 0.5), at_least("c", UNSURE, 0.6)
    for claims, word in (((good, good), "holds"), ((good, bad), "fails"), ((good, open_), "undecided")):
        (actual,) = judge_headlines([result_of("fig2-aed", *claims)])
        assert actual.verdict == word


def test_a_headline_may_need_only_a_share_of_its_claims(headlines):
    headlines(headline(share=0.5))
    good, bad = at_least("a", SURE, 0.5), at_least("b", WRONG, 0.5)
    for claims, word in (((good, good, bad, bad), "holds"), ((good, bad, bad, bad), "fails")):
        (actual,) = judge_headlines([result_of("fig2-aed", *claims)])
        assert actual.verdict == word


def test_holm_takes_the_whole_list_of_a_paper(headlines):
    weak = at_least("a", [0.50, 0.61, 0.72, 0.58, 0.66], 0.5)
    result = result_of("fig2-aed", weak)
    headlines(headline())
    assert [each.verdict for each in judge_headlines([result])] == ["holds"]
    headlines(*[headline()] * 10)
    assert {(each.verdict, each.uncorrected) for each in judge_headlines([result])} == {("undecided", "holds")}


def test_a_headline_whose_claims_cannot_be_tested_is_not_testable(headlines):
    headlines(headline())
    claim = not_testable(at_least("a", SURE, 0.5), "it is about tasks")
    assert judge_headlines([result_of("fig2-aed", claim)])[0].verdict == "not testable"


def test_without_p_values_a_headline_is_judged_by_the_earlier_rule(headlines):
    headlines(headline())
    old = replace(at_least("a", SURE, 0.5), test=None, p=None)
    (actual,) = judge_headlines([result_of("fig2-aed", old, old)])
    assert (actual.verdict, actual.p, actual.held) == ("holds", None, 2)
    assert judge_headlines([result_of("fig2-aed")])[0].verdict == "undecided", "no claim, no verdict"


def test_a_null_effect_is_a_headline_in_at_most_one_paper_of_twenty(headlines):
    """Of lists of ten claims without any effect, at most 5 % have a decision."""
    headlines(*(headline(pattern=f"claim {i}") for i in range(10)))
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(200):
        claims = [more_than(f"claim {i}", random.normal(size=5), random.normal(size=5)) for i in range(10)]
        wrong += any(each.verdict != "undecided" for each in judge_headlines([result_of("fig2-aed", *claims)]))
    assert wrong <= stats.binom.ppf(0.999, 200, 0.05)


def test_the_interval_of_a_row_of_the_first_schema_is_its_t_interval():
    line = row(values=SURE)
    old = {name: line[name] for name in ("mean", "sd", "n")}
    assert interval(old) == pytest.approx((line["low"], line["high"]))
    assert interval(row(values=[1.0])) is None


def test_the_interval_of_a_row_of_the_first_schema_stays_in_the_range_of_its_quantity():
    old = {"mean": 0.24, "sd": 0.15, "n": 3}
    low, high = interval(old)
    assert low < 0
    low, high = interval(old, (0.0, 1.0))
    assert 0 < low < 0.24 < high < 1


def test_the_forest_plot_has_one_line_for_each_headline_with_a_published_number(headlines):
    headlines(headline(number=("fig2-aed", "AED | share")), headline(number=None))
    table = [row(model="AED", quantity="share", values=SURE, published=0.77, published_text="> 0.77")]
    verdicts_ = judge_headlines([result_of("fig2-aed", at_least("a", SURE, 0.5), table=table)])
    (ax,) = draw_headlines(verdicts_).axes
    assert len(ax.get_yticks()) == 1
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["holds", "fails", "undecided"]
    assert draw_headlines(verdicts_[1:]) is None


# What is shipped -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped():
    return load_results(ROOT / "results")


def test_every_pattern_of_a_headline_names_claims_that_are_shipped(shipped):
    for each in HEADLINES:
        for finding, patterns in each.tests.items():
            (result,) = [r for r in shipped if (r.study, r.finding) == (each.study, finding)]
            for pattern in patterns:
                assert any(fnmatchcase(claim.text, pattern) for claim in result.claims), (each.study, finding, pattern)
    assert all(each.row is not None for each in judge_headlines(shipped) if each.headline.number)


def test_values_lie_in_the_ranges_of_their_quantities(shipped):
    for result in shipped:
        for line in result.table:
            if line.get("within"):
                low, high = range_from(line["within"])
                assert all(low <= value <= high for value in line["values"] if value is not None), (
                    result.finding,
                    line,
                )


def test_the_headline_page_is_that_of_the_results(shipped):
    page = (ROOT / "docs" / "headlines.md").read_text(encoding="utf-8")
    assert page.partition(MARK)[2].strip() == headline_tables(shipped).strip()


@pytest.mark.parametrize("name", STUDIES[:4])
def test_patterns_of_sanity_checks_name_claims_that_are_shipped(shipped, name):
    texts = [claim.text for result in shipped if result.study == name for claim in result.claims]
    patterns = [pattern for pattern in study(name).sanity if any(fnmatchcase(text, pattern) for text in texts)]
    assert patterns, name


@pytest.mark.parametrize("each", HEADLINES, ids=lambda each: f"{each.study}: {each.quote[:30]}")
def test_every_pattern_of_a_headline_names_claims_that_a_study_makes(each):
    """Also of findings that were re-worded since they were run; without any measurement."""
    for finding, patterns in each.tests.items():
        actual = study(each.study).finding(finding)
        labels = actual.experiments(study(each.study).profiles["paper"])
        texts = [claim.text for claim in actual.claims(Measurements({label: [] for label in labels}))]
        for pattern in patterns:
            assert any(fnmatchcase(text, pattern) for text in texts), (finding, pattern)
