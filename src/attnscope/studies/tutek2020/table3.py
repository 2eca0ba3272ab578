"""Does each token alone predict the decision, and less so in regularised models? (tutek2020 §5, eq. 9, table 3)"""

from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.studies.bars import Panel, draw_bars, panel
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.tutek2020.decisions import (
    batches_on_device,
    corpus_and_attention,
    label_columns,
    published_in,
    token_grounding,
    trained_classifier,
)
from attnscope.studies.tutek2020.experiments import BASE, COMPARED, REGULARISED, ModelLabel, Sizes, model_experiment

QUANTITIES = {
    "probability": "probability of the predicted class given a token alone",
    "decision": "the same given the text",
    "leakage": "share of tokens that alone suffice for the decision",
    "correct": "share of texts classified correctly",
}
published = published_in("table3")


@dataclass(frozen=True)
class WholeTestSplit:
    """All texts of the test split are measured."""


def experiments(sizes: Sizes) -> dict[ModelLabel, Case]:
    def case(label: ModelLabel) -> Case:
        return Case({"model": model_experiment(sizes, *label)}, WholeTestSplit())

    return {label: case_unless_missing(partial(case, label)) for label in ModelLabel.product(sizes.corpora, COMPARED)}


def measure(subject: TrainedCase[WholeTestSplit]) -> Measurement:
    grounding = token_grounding(trained_classifier(subject), batches_on_device(subject))
    return {
        "probability": grounding.probability,
        "decision": grounding.decision,
        "leakage": grounding.leakage,
        "correct": grounding.correct / grounding.texts,
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    text = "{}: a token alone predicts the decision less in {} than in base"
    return [
        measured.more_than(
            text.format(corpus_and_attention(base), model), base, base._replace(model=model), "probability"
        )
        for base in measured.where(model=BASE)
        for model in REGULARISED
    ]


def figure(measured: Measurements) -> Panel:
    """Return groups by corpus and attention, and bars by model."""
    return panel(measured, "probability", corpus_and_attention, lambda label: label.model, published)


def draw(data: Panel) -> Figure:
    picture, (ax,) = plots.panels(1, 1, size=(2.6 + 1.1 * max(len(data), 3), 3.3))
    draw_bars(data, ax, "probability of the decision,\na token alone")
    return picture


TABLE3 = Finding(
    name="table3",
    title="In regularised models a token alone predicts the decision less",
    section="§5, table 3",
    experiments=experiments, measure=measure, table=QUANTITIES, published=published, columns=label_columns,
    claims=claims, figure=figure, draw=draw,
    notes=(
        "The mean over the words of each text that is classified correctly, then over texts of the test split. Start "
        "and end tokens are left out.",
        "A token alone suffices if its probability of the predicted class is above one half and at most 0.1 below that "
        "of the text: our measure of the leakage that the paper describes in words.",
        "There is no claim about residual: in the paper's own table its numbers with dot attention are above base's.",
        "What this does not show: that a token whose probability is near one half does not matter to the decision; the "
        "states of its neighbours may contain it.",
    ),
)  # fmt: skip
