"""How often is the audit wrong? Its rule on models whose answer is known by a certificate (attnscope.testing).

Models of every kind are assessed on generated texts. From a centre (two balanced classes, 500 texts of 19 words on
average), one factor varies at a time; texts of contextual encoders have at most 8 words, as their certificates. Bounds
are fitted to kinds that are not sealed, leaving one kind out at a time, and the rule is then judged on the sealed ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, pairwise, product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

import attnscope
from attnscope.auditing.drawing import columns_of
from attnscope.errors import BadSetting, require
from attnscope.faithfulness.assessment import Assessment, assess
from attnscope.faithfulness.criteria import AGREEMENT, CLASS_AGREEMENT, MIN_MEAN_TEXTS, MIN_TEXTS, ROUTE, Bounds
from attnscope.faithfulness.records import Cell as Value
from attnscope.faithfulness.records import Row, Test
from attnscope.faithfulness.verdict import mean_texts
from attnscope.files import write_atomically, write_json
from attnscope.report.html import HERE as REPORT
from attnscope.report.html import environment
from attnscope.testing import known_answers
from attnscope.testing.known_answers import KINDS, Family, KnownAnswer, known_answer
from attnscope.testing.known_texts import SHORT, Texts

HERE = Path(__file__).parent
Z = 1.96
KEY = ["kind", "seed", "cell"]
ANSWERS = ("yes", "with care", "no", "undecided")
CENTRE, AGAIN, CONTEXTUAL, SAVE_EVERY = "centre", "another sample", "contextual encoders", 20
ROUNDING = 1e-9
FIT_STEP, POWER = 0.05, 0.95  # grid step of the bounds; share of the models that a fitted rule decides


@dataclass(frozen=True)
class Cell:
    """Texts on which models are assessed; of translators, a tenth as many sentences.

    Attributes:
        models: How many of a faithful kind, and of any other.
    """

    models: tuple[int, int]
    count: int = 500
    balance: float | None = None
    texts: Texts = field(default_factory=Texts)
    families: tuple[Family, ...] = ("classifier",)


FULL: dict[str, Cell] = {
    CENTRE: Cell((60, 60), families=("classifier", "translator")),
    AGAIN: Cell((20, 9), families=("classifier", "translator")),
    "20 % positive": Cell((20, 9), balance=0.2),
    "5 % positive": Cell((20, 9), balance=0.05),
    "50 texts": Cell((20, 9), count=50),
    "50 texts, 5 % positive": Cell((60, 60), count=50, balance=0.05),
    "100 texts": Cell((20, 9), count=100),
    "5,000 texts": Cell((20, 9), count=5000),
    "six classes": Cell((20, 9), texts=Texts(classes=6)),
    "8 words": Cell((20, 9), texts=Texts(mean_length=8)),
    "30 words": Cell((20, 9), texts=Texts(mean_length=30)),
    CONTEXTUAL: Cell((60, 60), texts=SHORT, families=("contextual",)),
}
QUICK: dict[str, Cell] = {
    CENTRE: Cell((12, 12), families=("classifier", "translator")),
    "5 % positive": Cell((6, 3), balance=0.05),
    "50 texts, 5 % positive": Cell((6, 3), count=50, balance=0.05),
    CONTEXTUAL: Cell((4, 4), texts=SHORT, families=("contextual",)),
}
FAITHFUL_KINDS = (  # by design
    "importance", "learned", "pooling", "translator", "translator-reversed", "translator-positional",
    "translator-recurrent",
)  # fmt: skip


# Measuring


def plan(cells: Mapping[str, Cell], kinds: Sequence[str]) -> Iterator[tuple[str, int, Texts, list[str]]]:
    """Yield kind and seed of every model, its texts, and the names of its cells."""
    for kind in kinds:
        family, faithful = KINDS[kind].family, kind in FAITHFUL_KINDS
        chosen = [name for name, cell in cells.items() if family in cell.families]
        for texts, names in groupby(sorted(chosen, key=lambda n: repr(cells[n].texts)), key=lambda n: cells[n].texts):
            same = list(names)
            for seed in range(max(cells[name].models[not faithful] for name in same)):
                yield kind, seed, texts, [name for name in same if seed < cells[name].models[not faithful]]


def measure(
    path: Path, cells: Mapping[str, Cell], kinds: Sequence[str],
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> pd.DataFrame:  # fmt: skip
    """Return one row per model and cell; rows that the CSV file at `path` already has are not measured again."""
    stored = read_measured(path) if path.exists() else pd.DataFrame(columns=KEY)
    rows: dict[tuple[object, ...], Mapping[Any, Any]] = {
        tuple(row[name] for name in KEY): row for row in stored.to_dict("records")
    }
    models = list(plan(cells, kinds))
    for done, (kind, seed, texts, names) in enumerate(models, 1):
        missing = [name for name in names if (kind, seed, name) not in rows]
        if missing:
            model = known_answer(kind, seed, texts)
            rows |= {(kind, seed, name): assess_known(model, name, cells[name]) for name in missing}
            if done % SAVE_EVERY == 0:
                save(path, rows.values())
        progress(done, len(models), kind)
    save(path, rows.values())
    keys = {(kind, seed, name) for kind, seed, _, names in models for name in names}
    measured = read_measured(path)  # rounded, so that tables do not depend on which rows are new
    return measured[[key in keys for key in measured[KEY].itertuples(index=False, name=None)]].reset_index(drop=True)


def read_measured(path: Path) -> pd.DataFrame:
    """Return the rows of an earlier calibration."""
    try:
        table = pd.read_csv(path, keep_default_na=True)
    except (OSError, ValueError) as error:
        raise BadSetting(f"{path} cannot be read as a CSV file: {error}") from error
    require({*KEY, "label", "answer"} <= {*table.columns}, f"{path} is not a calibration file; choose another --out")
    return table


def save(path: Path, rows: Iterable[Mapping[Any, Any]]) -> None:
    write_atomically(path, pd.DataFrame(list(rows)).to_csv(index=False, float_format="%.5g").encode())


def assess_known(answer: KnownAnswer, name: str, cell: Cell) -> dict[str, object]:
    """Return the row of one model in one cell: certificate, tests, and the other inputs of the rule."""
    count = cell.count // 10 if KINDS[answer.kind].family == "translator" else cell.count
    seed = [*name.encode(), *answer.kind.encode(), answer.seed]
    assessment = assess(answer.model, answer.batches(count, seed, cell.balance), seed=answer.seed)
    certified = answer.certificate
    return {
        "kind": answer.kind, "seed": answer.seed, "cell": name, "label": certified.label,
        "certified share": min(certified.share), "certified agreement": min(certified.agreement), **inputs(assessment),
        "answer": assessment.answer,
    }  # fmt: skip


def inputs(assessment: Assessment) -> dict[str, object]:
    """Return all tests with their intervals, and the other inputs of the rule."""
    required = [assessment[ROUTE.name], assessment[AGREEMENT.name]]
    judged = [each.value for each in required[1].classes.values() if not each.reason]
    numbers: dict[str, object] = {}
    for test in assessment.tests:
        value = test.value if not test.reason else np.nan
        numbers |= {test.name: value, f"{test.name} from": test.low, f"{test.name} to": test.high}
    texts = min(median_texts(test) for test in required)
    return {**numbers, "smallest class agreement": min(judged, default=1.0), "texts per class": texts,
            "mean texts": min(map(mean_texts, required))}  # fmt: skip


def median_texts(test: Test) -> int:
    """Return the number of texts of the class in the middle, the lower of two: half of the classes have no more."""
    counts = sorted(each.texts for each in test.classes.values()) or [test.texts or 0]
    return counts[(len(counts) - 1) // 2]


# The rule on many models


@dataclass(frozen=True)
class Rule:
    """Bounds of route and agreement, the least agreement of a class, and of texts per class."""

    route: Bounds
    agreement: Bounds
    class_agreement: float
    min_texts: int = MIN_TEXTS
    min_mean_texts: int = MIN_MEAN_TEXTS

    def answers(self, rows: pd.DataFrame) -> "pd.Series[str]":
        """Return the answer for each row, as `faithfulness.verdict.decide` gives it."""
        tests = [answer_of(rows, name, bounds) for name, bounds in
                 ((ROUTE.name, self.route), (AGREEMENT.name, self.agreement))]  # fmt: skip
        each, texts = np.stack(tests), rows["texts per class"].to_numpy()
        few = (texts < self.min_texts) | (rows["mean texts"].to_numpy() < self.min_mean_texts)
        undecided = few | np.isin(each, ["undecided", "not measurable"]).any(0)
        passed = (each == "yes").all(0) & (rows["smallest class agreement"] >= self.class_agreement).to_numpy()
        no = (each == "no").any(0) & (texts >= self.min_texts)
        answers = np.select([no, undecided, passed], ["no", "undecided", "yes"], "with care")
        return pd.Series(answers, rows.index)


def answer_of(rows: pd.DataFrame, name: str, bounds: Bounds) -> np.ndarray:
    """Return the answers of one test, as Bounds.answer gives them."""
    value, low, high = (rows[column].to_numpy(float) for column in (name, f"{name} from", f"{name} to"))
    return np.select(
        [np.isnan(value), (low <= bounds.no) & (high >= bounds.yes), value <= bounds.no, value >= bounds.yes],
        ["not measurable", "undecided", "no", "yes"], "with care",
    )  # fmt: skip


def current_rule() -> Rule:
    """Return the rule that audits use."""
    assert ROUTE.bounds is not None
    assert AGREEMENT.bounds is not None
    return Rule(ROUTE.bounds, AGREEMENT.bounds, CLASS_AGREEMENT)


def fit(rows: pd.DataFrame) -> Rule:
    """Return the bounds fitted to these models, with equal weight per kind.

    "Yes" begins at the highest bounds that POWER of the faithful models reach. "No" ends a third of the way from the
    lowest bounds that POWER of the unfaithful models stay under to there, which leaves room for unfaithful models of
    another kind.
    """
    grid = np.round(np.arange(0, 1 + FIT_STEP / 2, FIT_STEP), 2)
    pairs = list(product(grid.tolist(), grid.tolist()))

    def rates(label: str, above: Callable[..., np.ndarray]) -> np.ndarray:
        """Return the share of models, kinds weighted equally, that are above both bounds of each pair."""
        models = rows[rows["label"] == label]
        weights = 1 / models.groupby("kind")["kind"].transform("size").to_numpy(float) / models["kind"].nunique()
        route, agreement = (above(models[name].to_numpy(float)[:, None], grid) for name in (ROUTE.name, AGREEMENT.name))
        return np.asarray((route * weights[:, None]).T @ agreement).flatten()

    faithful, unfaithful = rates("faithful", np.greater_equal), 1 - rates("unfaithful", np.greater)
    reached = [pair for pair, rate in zip(pairs, faithful, strict=True) if rate >= POWER - ROUNDING]
    under = [pair for pair, rate in zip(pairs, unfaithful, strict=True) if rate >= POWER - ROUNDING]
    yes = max(reached, key=lambda pair: (sum(pair), min(pair)), default=(0.0, 0.0))
    no = min(under, key=lambda pair: (sum(pair), max(pair)), default=(1.0, 1.0))
    ends = [low + (high - low) / 3 for low, high in zip(no, yes, strict=True)]
    bounds = [Bounds(round(FIT_STEP * round(end / FIT_STEP), 2), high) for end, high in zip(ends, yes, strict=True)]
    return Rule(bounds[0], bounds[1], bounds[1].no)


def leave_one_kind_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the models that are not grey, with the answers of the rule that was fitted to the other kinds."""
    known = rows[counted(rows)]
    answers = [pd.Series(dtype=object)]
    for kind in known["kind"].unique():
        own, others = known[known["kind"] == kind], known[known["kind"] != kind]
        if others["label"].nunique() == 2:  # both certificates, or nothing could be fitted
            answers.append(fit(others).answers(own))
    all_answers = pd.concat(answers)
    table: pd.DataFrame = known.loc[all_answers.index].assign(answer=all_answers)
    return table


def counted(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Return which models have a certificate that is not grey."""
    return rows["label"] != "grey"


# Tables


def wilson(count: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate (Wilson 1927).

    >>> [round(limit, 3) for limit in wilson(0, 60)]
    [0.0, 0.06]
    """
    if of == 0:
        return 0.0, 1.0
    rate, spread = count / of, Z**2 / of
    centre, half = rate + spread / 2, Z * (rate * (1 - rate) / of + spread / of / 4) ** 0.5
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


def confusion(rows: pd.DataFrame, by: Sequence[str]) -> list[Row]:
    """Return one row per group and certificate: how often each answer occurs, and how often it is wrong."""
    table = list[Row]()
    for names, group_rows in rows.groupby([*by, "label"], sort=False):
        *group, label = names
        counts = {answer: int((group_rows["answer"] == answer).sum()) for answer in ANSWERS}
        row: dict[str, Value] = {**dict(zip(by, map(str, group), strict=True)), "certificate": str(label)}
        row |= {"models": len(group_rows), **counts}
        if label != "grey":
            wrong = counts["no" if label == "faithful" else "yes"]
            row |= {"false": f"false {'no' if label == 'faithful' else 'yes'}: {rate_text(wrong, len(group_rows))}"}
        table.append(row)
    return table


def rate_text(count: int, of: int) -> str:
    """Return a rate in per cent with its interval.

    >>> rate_text(3, 60)
    '5.0 % (1.7 to 13.7)'
    """
    low, high = wilson(count, of)
    return f"{count / max(of, 1):.1%} ({100 * low:.1f} to {100 * high:.1f})".replace("%", " %")


def stability(rows: pd.DataFrame) -> list[Row]:
    """Return how often a model's answer differs between the centre and other texts of the same model."""
    answers = rows.pivot_table(index=["kind", "seed"], columns="cell", values="answer", aggfunc="first")
    labels = rows.groupby(["kind", "seed"])["label"].first()
    table = list[Row]()
    for name in (AGAIN, "20 % positive", "5 % positive"):
        if name not in answers or CENTRE not in answers:
            continue
        both = answers[[CENTRE, name]].dropna()
        differ, grey = both[CENTRE] != both[name], labels[both.index] == "grey"
        table.append({
            "centre against": name, "models": int((~grey).sum()),
            "other answer": rate_text(int(differ[~grey].sum()), int((~grey).sum())), "grey models": int(grey.sum()),
            "other answer (grey)": rate_text(int(differ[grey].sum()), int(grey.sum())),
        })  # fmt: skip
    return table


def roc(rows: pd.DataFrame, name: str) -> tuple[list[tuple[float, float]], float]:
    """Return the ROC curve of one test (share of unfaithful and of faithful models above a bound), and its area."""
    known = rows[counted(rows) & rows[name].notna()]
    faithful = (known["label"] == "faithful").to_numpy()
    value = known[name].to_numpy(float)
    bounds = np.unique(value)[::-1]
    curve = [(float((value[~faithful] >= b).mean()), float((value[faithful] >= b).mean())) for b in bounds]
    points = [(0.0, 0.0), *curve]
    area = sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(points))
    return points, float(area)


def carrying(rows: pd.DataFrame, rule: Rule) -> list[Row]:
    """Return the errors of the rule without one of its tests."""
    open_ = Bounds(-np.inf, -np.inf)
    rules = {"both": rule, "route alone": replace(rule, agreement=open_, class_agreement=-np.inf),
             "agreement alone": replace(rule, route=open_)}  # fmt: skip
    table = list[Row]()
    for name, each in rules.items():
        answers = each.answers(rows)
        row: dict[str, Value] = {"tests": name}
        for label, wrong in (("unfaithful", "yes"), ("faithful", "no")):
            labelled = answers[rows["label"] == label]
            row[f"false {wrong}"] = rate_text(int((labelled == wrong).sum()), len(labelled))
        table.append(row)
    return table


# The page


def calibrate(
    out: Path, quick: bool = False,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    cells: Mapping[str, Cell] | None = None, kinds: Sequence[str] | None = None,
) -> dict[str, object]:  # fmt: skip
    """Measure the models that are missing, write calibration.html, .json and .csv, and return the tables.

    Args:
        out: A folder. Rows that its CSV file already has are not measured again.
        quick: Whether fewer models and factors are measured.
        progress: Called with the number of models done, their total number, and the current kind.
        cells: Texts and numbers of models; by default those of `quick`.
        kinds: Names of KINDS; None: all.
    """
    chosen = (QUICK if quick else FULL) if cells is None else cells
    rows = measure(Path(out) / "calibration.csv", chosen, kinds or tuple(KINDS), progress)
    rows["answer"] = current_rule().answers(rows)
    content = tables(rows)
    write_json(Path(out) / "calibration.json", content)
    write_page(Path(out) / "calibration.html", rows, content, quick)
    return content


def tables(rows: pd.DataFrame) -> dict[str, object]:
    """Return the content of the page."""
    sealed = rows["kind"].map(lambda kind: KINDS[kind].sealed)
    centre = rows[rows["cell"] == CENTRE].assign(sealed=sealed.map({True: "sealed", False: "fitted"}))
    fitted, rule = centre[centre["sealed"] == "fitted"], current_rule()
    contextual, tests = rows[rows["cell"] == CONTEXTUAL].assign(sealed="contextual"), [ROUTE.name, AGREEMENT.name]
    names = [column.removesuffix(" from") for column in map(str, rows) if column.endswith(" from")]
    order = rows.sort_values("label", kind="stable")
    both = {"faithful", "unfaithful"} <= set(fitted["label"])
    return {
        "kinds of models": rows["kind"].nunique(), "assessments": len(rows), "rule": asdict(rule),
        "fitted": asdict(fit(fitted)) if both else None,
        "overall": confusion(pd.concat([centre, contextual]).loc[counted], ["sealed"]),
        "kinds": with_medians(centre, ["kind", "sealed"], tests), "contextual": with_medians(
            contextual, ["kind"], ["certified share", "certified agreement", *tests]
        ),
        "cells": confusion(order[counted(order)], ["cell"]), "stability": stability(rows),
        "left_out": confusion(leave_one_kind_out(fitted), ["kind"]) if both else [],
        "carrying": carrying(centre, rule), "areas": {name: round(roc(centre, name)[1], 4) for name in names},
    }  # fmt: skip


def with_medians(rows: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> list[Row]:
    """Return confusions with the medians of some columns."""
    medians = rows.groupby([*by, "label"], sort=False)[list(columns)].median().round(3).add_suffix(" (median)")
    columns_of_row = [dict(zip(medians.columns, row, strict=True)) for row in medians.to_numpy().tolist()]
    return [{**row, **added} for row, added in zip(confusion(rows, by), columns_of_row, strict=True)]


def narrow(rows: Sequence[Row]) -> list[Row]:
    """Return a table with short names; the certificate says whether a wrong answer is a false yes or a false no."""
    return [
        {"wrong" if name == "false" else name.removesuffix(" (median)"):
         str(value).split(": ")[-1] if name == "false" else value for name, value in row.items()}
        for row in rows
    ]  # fmt: skip


def write_page(path: Path, rows: pd.DataFrame, content: Mapping[str, object], quick: bool) -> None:
    """Write the page of a calibration."""
    rule = current_rule()
    centre, areas = rows[rows["cell"] == CENTRE], cast("Mapping[str, float]", content["areas"])
    curves = [
        {"name": name, "area": area, "points": polyline(roc(centre, name)[0])}
        for name, area in sorted(areas.items(), key=lambda item: -item[1])
    ]
    contextual = rows[(rows["cell"] == CONTEXTUAL) & rows[ROUTE.name].notna()]
    dots = zip(contextual["certified share"], contextual[ROUTE.name], contextual["answer"], strict=True)
    page = environment(HERE, REPORT).get_template("calibration.html.jinja").render(
        quick=quick, facts=summary(content), dots=list(dots), rule=rule, certified=known_answers, curves=curves,
        kinds={name: kind for name, kind in KINDS.items() if name in set(rows["kind"])},
        columns_of=lambda name: columns_of(narrow(cast("Sequence[Row]", content[name]))), content=content,
        version=attnscope.__version__,
    )  # fmt: skip
    write_atomically(path, page.encode())


def polyline(points: Sequence[tuple[float, float]]) -> str:
    """Return points of a curve in a square of 100 units, y upwards, as SVG takes them."""
    return " ".join(f"{100 * x:.1f},{100 - 100 * y:.1f}" for x, y in points)


def summary(content: Mapping[str, object]) -> dict[str, str]:
    """Return the main rates as text."""
    rates = {f"{str(row['sealed']).capitalize()} kinds, {row['certificate']}": str(row["false"])
             for row in cast("Sequence[Row]", content["overall"])}  # fmt: skip
    return {"Kinds of models": str(content["kinds of models"]), "Assessments": f"{content['assessments']:,}", **rates}
