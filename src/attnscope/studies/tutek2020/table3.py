"""Does every token alone speak for the decision? Less so in regularised models. (tutek2020 §5, eq. 9, table 3)"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from attnscope import plots
from attnscope.models import Classifier
from attnscope.studies.bars import Panel, draw_bars, panel
from attnscope.studies.claims import ClaimVerdict, more_than
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.decided import by_parts, grounded, stated_by
from attnscope.studies.tutek2020.experiments import BASE, REGULARISED, RESIDUAL, ModelLabel, Sizes, labels, trained
from attnscope.studies.tutek2020.table1 import corpus_and_attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = (BASE, RESIDUAL, *REGULARISED)
QUANTITIES = {
    "probability": "probability of the decision given a token alone",
    "decision": "the same given the text",
    "leakage": "share of tokens that alone would decide as surely",
    "correct": "share of texts classified correctly",
}
stated = stated_by("table3")


@dataclass(frozen=True)
class Everything:
    """All texts of the test split."""


def experiments(sizes: Sizes) -> dict[ModelLabel, Case]:
    def case(label: ModelLabel) -> Case:
        return Case({"model": trained(sizes, *label)}, Everything())

    return {label: case_unless_missing(partial(case, label)) for label in labels(sizes.corpora, MODELS)}


def measure(subject: TrainedCase) -> Measurement:
    run = subject.runs["model"]
    model = run.model()
    assert isinstance(model, Classifier)
    found = grounded(model, (batch.to(subject.device) for batch in run.task.batches("test")))
    return {
        "probability": found.probability,
        "decision": found.decision,
        "leakage": found.leakage,
        "correct": found.correct / found.texts,
    }


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES, stated, by_parts)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        more_than(
            f"{corpus}, {attention}: a token alone speaks less for the decision in {model} than in base",
            measured.values(ModelLabel(corpus, attention, BASE), "probability"),
            measured.values(ModelLabel(corpus, attention, model), "probability"),
        )
        for corpus, attention in measured.each("corpus", "attention")
        for model in REGULARISED
    ]


def figure(measured: Measurements) -> Panel:
    """By corpus and attention, and model."""
    return panel(measured, "probability", corpus_and_attention, lambda label: label.model, stated)


def draw(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(1, 1, size=(2.6 + 1.1 * max(len(data), 3), 3.3))
    draw_bars(data, ax, "probability of the decision,\na token alone")
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
