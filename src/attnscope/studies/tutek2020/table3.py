"""Does every token alone speak for the decision? Less so in regularised models. (tutek2020 §5, eq. 9, table 3)"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from attnscope import plots
from attnscope.probes.grounding import Ground, grounding_of
from attnscope.studies.claims import Verdict, more_than
from attnscope.studies.finding import Case, Finding, Measured, Measurement, Subject, unless_absent
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.decided import bars, cell, rows
from attnscope.studies.tutek2020.experiments import ATTENTIONS, BASE, MLM, RESIDUAL, TYING, Sizes, trained
from attnscope.studies.tutek2020.table1 import label, named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED = (BASE, RESIDUAL, TYING, MLM)
REGULARISED = (TYING, MLM)
QUANTITIES = {
    "probability": "probability of the decision given a token alone",
    "decision": "the same given the text",
    "leakage": "share of tokens that alone would decide as surely",
    "correct": "share of texts classified correctly",
}


@dataclass(frozen=True)
class Everything:
    """All texts of the test split."""


def experiments(sizes: Sizes) -> dict[str, Case]:
    def case(corpus: str, attention: str, model: str) -> Case:
        return Case({"model": trained(sizes, corpus, attention, model)}, Everything())

    return {
        label(corpus, attention, model): unless_absent(partial(case, corpus, attention, model))
        for corpus in sizes.corpora
        for attention in ATTENTIONS
        for model in MEASURED
    }


def measure(subject: Subject) -> Measurement:
    run = subject.runs["model"]
    model, ground = run.model(), Ground()
    for batch in run.task.batches("test"):
        ground.update(grounding_of(model, batch.to(run.experiment.device)))
    found = ground.result()
    return {
        "probability": found.probability,
        "decision": found.decision,
        "leakage": found.leakage,
        "correct": found.correct / found.texts,
    }


def section(which: str) -> str:
    return "_".join(("table3", *named(which)))


def table(measured: Measured) -> list[Row]:
    found: list[Row] = []
    for which in measured:
        corpus, attention, model = named(which)
        columns = {"corpus": corpus, "attention": attention, "model": model}
        found += rows(measured, which, section(which), QUANTITIES, columns)
    return found


def claims(measured: Measured) -> list[Verdict]:
    return [
        more_than(
            f"{corpus}, {attention}: a token alone speaks less for the decision in {model} than in base",
            measured.values(label(corpus, attention, BASE), "probability"),
            measured.values(label(corpus, attention, model), "probability"),
        )
        for corpus, attention in dict.fromkeys(named(which)[:2] for which in measured)
        for model in REGULARISED
    ]


def figure(measured: Measured) -> dict[str, Any]:
    """By corpus and attention, and model."""
    panel: dict[str, Any] = {}
    for which in measured:
        corpus, attention, model = named(which)
        panel.setdefault(f"{corpus}, {attention}", {})[model] = cell(measured, which, section(which), "probability")
    return panel


def draw(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(1, 1, size=(2.6 + 1.1 * max(len(data), 3), 3.3))
    bars(data, ax, "probability of the decision,\na token alone")
    return picture


TABLE3 = Finding(
    name="table3",
    title="In regularised models a token alone predicts the decision less",
    section="§5, table 3",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "The mean over the words of each text that is classified correctly, then over texts of the test split. Start "
        "and end tokens are left out.",
        "A token would decide as surely if its probability of the predicted class is above one half and at most 0.1 "
        "below the decision's: our measure of the leakage that the paper describes in words.",
        "Of residual the paper's own table says no such thing: with dot attention its numbers are higher than base's.",
        "What this does not show: that a token whose probability is near one half has no part in the decision; its "
        "neighbours may hold what it says.",
    ),
)  # fmt: skip
