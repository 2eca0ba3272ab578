"""Calibration: the rule on many models, rates, and the command that writes the page."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from attnscope.auditing import calibration
from attnscope.auditing.calibration import (
    CENTRE,
    FULL,
    QUICK,
    Cell,
    Rule,
    calibrate,
    confusion,
    current_rule,
    fit,
    leave_one_kind_out,
    plan,
    roc,
    stability,
    wilson,
)
from attnscope.cli import app
from attnscope.faithfulness.criteria import AGREEMENT, MIN_TEXTS, ROUTE, Bounds, Interval
from attnscope.faithfulness.verdict import decide
from attnscope.testing.known_answers import KINDS

TINY = {CENTRE: Cell((2, 2), count=60, families=("classifier", "translator")), "another sample": Cell((1, 1), count=60)}
SOME = ("importance", "constant", "skip", "mixed", "translator")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("calibration")
    calibrate(out, cells=TINY, kinds=SOME)
    return out


def made_up(kind, label, route, agreement, count=10):
    rows = {"kind": kind, "label": label, "route": route, "agreement": agreement, "seed": range(count), "cell": CENTRE}
    table = pd.DataFrame(rows, index=range(count))
    for name in ("route", "agreement"):
        table[f"{name} from"], table[f"{name} to"] = table[name] - 0.05, table[name] + 0.05
    return table.assign(**{"smallest class agreement": table["agreement"], "texts per class": 100, "mean texts": 100.0})


def all_kinds():
    rows = [made_up("a", "faithful", 0.9, 0.9), made_up("b", "faithful", 0.8, 1.0),
            made_up("c", "unfaithful", 0.1, 1.0), made_up("d", "unfaithful", 1.0, 0.05),
            made_up("e", "grey", 0.5, 0.9)]  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def test_the_rule_on_rows_gives_the_answers_of_the_audit(measured):
    rows = pd.read_csv(measured / "calibration.csv")
    assert len(rows) == 2 * len(SOME) + 4
    assert current_rule().answers(rows).tolist() == rows["answer"].tolist()


def test_an_interrupted_calibration_resumes(measured, monkeypatch):
    monkeypatch.setattr(calibration, "known_answer", lambda *args: pytest.fail("measured again"))
    content = calibrate(measured, cells=TINY, kinds=SOME)
    assert content["assessments"] == 2 * len(SOME) + 4


def test_the_page_shows_the_numbers_of_the_calibration(measured):
    page = (measured / "calibration.html").read_text()
    stored = json.loads((measured / "calibration.json").read_text())
    assert "How often is the audit wrong?" in page
    assert all(kind in page for kind in SOME)
    assert "http://" not in page
    assert "https://" not in page
    assert {row["kind"] for row in stored["kinds"]} == set(SOME)
    assert stored["rule"]["route"]["yes"] == current_rule().route.yes


def test_answers_follow_bounds_intervals_and_numbers_of_texts():
    rule = Rule(Bounds(0.3, 0.7), Bounds(0.2, 0.5), 0.2, min_texts=15, min_mean_texts=25)
    rows = pd.concat([made_up("k", "faithful", r, a, 1) for r, a in [(0.9, 0.9), (0.2, 0.9), (0.5, 0.9), (0.9, 0.1)]])
    assert rule.answers(rows).tolist() == ["yes", "no", "with care", "no"]
    assert rule.answers(rows.assign(**{"texts per class": 14})).tolist() == ["undecided"] * 4
    few = rule.answers(rows.assign(**{"mean texts": 24.9})).tolist()
    assert few == ["undecided", "no", "undecided", "no"]  # a no takes fewer texts
    assert rule.answers(rows.assign(**{"route from": 0.1, "route to": 0.8})).tolist()[0] == "undecided"
    assert rule.answers(rows.assign(**{"smallest class agreement": 0.1})).tolist()[0] == "with care"
    assert rule.answers(rows.assign(route=np.nan)).tolist()[0] == "undecided"


def two_classes(value, texts, rare):
    labels = np.repeat([0, 1], [texts - rare, rare])
    return Interval.by_class(np.full(texts, value), np.ones(texts), labels, ("a", "b"), within=(-1.0, 1.0))


@pytest.mark.parametrize(("texts", "rare", "answer"), [
    (500, 19, "undecided"), (500, 20, "yes"), (50, 23, "undecided"), (50, 25, "undecided"), (60, 30, "yes"),
    (70, 25, "yes"),
])  # fmt: skip
def test_perfect_results_are_a_yes_if_there_are_enough_texts(texts, rare, answer):
    good, bad = two_classes(1.0, texts, rare), two_classes(0.0, texts, rare)
    agreement = AGREEMENT.judge("{}", good)
    assert decide([ROUTE.judge("{}", good), agreement]) == answer
    assert decide([ROUTE.judge("{}", good), AGREEMENT.judge("{}", bad)]) == ("undecided" if rare < MIN_TEXTS else "no")
    if rare >= MIN_TEXTS:  # the least width of the mean is the mean of those of classes, where all may err alike
        lowest = np.mean([one.low for one in agreement.classes.values()])
        assert (lowest >= AGREEMENT.bounds.yes - 1e-9) == (answer == "yes")


def test_fitted_bounds_keep_their_power_and_leave_room_below():
    rule = fit(all_kinds())
    assert (rule.route.yes, rule.agreement.yes) == (0.8, 0.9)
    assert (rule.route.no, rule.agreement.no) == (0.35, 0.35)  # a third of the way from 0.1 and 0.05


def test_a_kind_left_out_is_judged_by_bounds_of_the_others():
    rows = all_kinds()
    answers = leave_one_kind_out(rows).groupby("kind")["answer"].unique().map(list).to_dict()
    assert set(answers) == {"a", "b", "c", "d"}
    assert answers["a"] == ["with care"]  # kind b alone asks for an agreement of 1
    assert answers["c"] != ["yes"]


def test_confusions_count_false_yes_and_false_no():
    first, second = ["yes"] * 9 + ["no"] + ["yes"] * 10, ["no"] * 8 + ["yes"] * 2 + ["no"] * 10 + ["yes"] * 10
    rows = all_kinds().assign(answer=first + second)
    table = {row["kind"]: row for row in confusion(rows, ["kind"])}
    assert table["a"]["no"] == 1
    assert table["a"]["false"].startswith("false no: 10.0 %")
    assert table["c"]["false"].startswith("false yes: 20.0 %")
    assert "false" not in table["e"]


def test_wilson_intervals_equal_published_ones():
    assert wilson(0, 60) == pytest.approx((0.0, 0.0602), abs=1e-4)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_roc_area_is_the_probability_that_a_faithful_model_is_above():
    random = np.random.default_rng(0)
    rows = pd.concat([made_up("a", "faithful", 0.0, 0.0, 30), made_up("b", "unfaithful", 0.0, 0.0, 40)])
    rows["route"] = random.normal(size=70).round(1) + (rows["label"] == "faithful")
    above, below = (rows.loc[rows["label"] == label, "route"].to_numpy() for label in ("faithful", "unfaithful"))
    wins = (above[:, None] > below).mean() + (above[:, None] == below).mean() / 2
    assert roc(rows, "route")[1] == pytest.approx(wins)


def test_stability_counts_models_whose_answer_differs():
    rows = made_up("a", "faithful", 0.9, 0.9, 4).assign(answer="yes")
    other = rows.assign(cell="5 % positive", answer=["yes", "yes", "no", "yes"])
    again = rows.assign(cell="another sample")
    table = {row["centre against"]: row for row in stability(pd.concat([rows, other, again]))}
    assert table["5 % positive"]["other answer"].startswith("25.0 %")
    assert table["another sample"]["other answer"].startswith("0.0 %")


def test_every_quoted_cell_has_sixty_models_of_each_certificate():
    faithful, others = 3, 7  # kinds of classifiers that are faithful, and unfaithful, by design
    assert all(cell.models[0] * faithful >= 60 and cell.models[1] * others >= 60 for cell in FULL.values())
    assert FULL[CENTRE].models == (60, 60)
    assert {kind for kind, *_ in plan(QUICK, tuple(KINDS))} == set(KINDS)


def test_the_command_writes_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "QUICK", {CENTRE: Cell((1, 1), count=40)})
    monkeypatch.setattr(calibration, "KINDS", {name: KINDS[name] for name in ("importance", "constant")})
    result = CliRunner().invoke(app, ["calibrate", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "false yes" in result.output
    assert (tmp_path / "calibration.html").exists()
    first = (tmp_path / "calibration.json").read_text(encoding="utf-8")
    assert CliRunner().invoke(app, ["calibrate", "--quick", "--out", str(tmp_path)]).exit_code == 0  # nothing is new
    assert (tmp_path / "calibration.json").read_text(encoding="utf-8") == first
