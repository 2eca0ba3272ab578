"""Which tests of faithfulness detect a model trained to hide the words it uses? (beyond tutek2020; Pruthi et al. 2020)

The known answer: attention of this model is unfaithful by training. A test that does not flag it cannot be trusted to
flag another model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.plots.style import INK, axes, colours, styled
from attnscope.studies.claims import ClaimVerdict, at_most, more_than
from attnscope.studies.finding import Case, Finding, Measurements
from attnscope.studies.result import Row, row
from attnscope.studies.tutek2020.decisions import corpus_and_model
from attnscope.studies.tutek2020.experiments import BASE, ModelLabel, Sizes, model_experiment
from attnscope.studies.tutek2020.faithfulness import case, indicative_words, measure
from attnscope.studies.tutek2020.jain_wallace import ATTENTION
from attnscope.tasks import Classification
from attnscope.training import CrossEntropy, Hiding

DECEPTIVE = "deceptive"
MODELS = (BASE, DECEPTIVE)
WEIGHT = 1.0  # of the loss on attention to indicative words
OFF = 0.05  # of attention on them, or less, counts as none
SIMILAR = 2.0  # points of F1
USED = 0.5  # of the F1 that base loses without these words


@dataclass(frozen=True)
class FaithfulnessTest:
    """A quantity that is higher (or lower) where attention is more faithful, and its value by chance, if known.

    The test flags a model that is no better than chance; and, in comparison with base, one that is worse than base.
    """

    text: str
    quantity: str
    higher: bool = True
    chance: float | None = None

    def goodness(self, values: Sequence[float | None]) -> np.ndarray:
        """Return the values with the sign by which more is better; null becomes NaN."""
        return np.array(values, dtype=float) * (1.0 if self.higher else -1.0)


TESTS = {
    "gradient": FaithfulnessTest("gradients", "τ of attention with |gradient|", chance=0.0),
    "leave_one_out": FaithfulnessTest("leave-one-out", "τ of attention with leave-one-out", chance=0.0),
    "comprehensiveness_gain": FaithfulnessTest(
        "comprehensiveness", "comprehensiveness of attention, less that of chance", chance=0.0
    ),
    "sufficiency_gain": FaithfulnessTest("sufficiency", "sufficiency of chance, less that of attention", chance=0.0),
    "earlier_text": FaithfulnessTest(
        "erasure of words", "decisions that flip earlier than by chance, words removed", chance=0.5
    ),
    "earlier_attention": FaithfulnessTest(
        "erasure of attention", "decisions that flip earlier than by chance, attention removed", chance=0.5
    ),
    "permuted": FaithfulnessTest("permuted attention", "median change of the output, permuted"),
    "uniform": FaithfulnessTest("uniform attention", "change of the output, uniform"),
    "farthest": FaithfulnessTest(
        "adversarial attention", "JSD of the farthest attention that keeps the output", higher=False
    ),
    "information": FaithfulnessTest("mutual information", "mutual information of words and states, in nats"),
    "per_token": FaithfulnessTest(
        "per-token probability", "probability of the decision given each token alone", higher=False
    ),
}
QUANTITIES = {
    "f1": "F1",
    "f1_lost": "loss of F1 without the indicative words",
    "mass": "attention on indicative words, in texts that have one",
    "mass_uniform": "... if attention were uniform",
    "having": "texts that have an indicative word, share",
} | {name: test.quantity for name, test in TESTS.items()}


def experiments(sizes: Sizes) -> dict[ModelLabel, Case]:
    make: dict[str, Callable[[Sizes, str], Experiment]] = {BASE: base_experiment, DECEPTIVE: deceptive_experiment}
    labels = ModelLabel.product(sizes.faithfulness_corpora, MODELS, (ATTENTION,))
    return {label: case(sizes, partial(make[label.model], sizes, label.corpus)) for label in labels}


def base_experiment(sizes: Sizes, corpus: str) -> Experiment:
    """Return the base model, which hides nothing."""
    return model_experiment(sizes, corpus, ATTENTION, BASE)


def deceptive_experiment(sizes: Sizes, corpus: str) -> Experiment:
    """Return base with an additional loss on attention to indicative words."""
    base = base_experiment(sizes, corpus)
    task = base.task.resolved()
    assert isinstance(task, Classification)
    return replace(base, objective=CrossEntropy() + Hiding(WEIGHT, indicative_words(task, sizes.indicative_share)))


# Which tests flag it -------------------------------------------------------------------------------------------------


def of_both(measured: Measurements, corpus: str, name: str) -> list[list[float]]:
    """Return a quantity of base and of deceptive, one number per seed."""
    return [measured.values(ModelLabel(corpus, ATTENTION, model), name) for model in MODELS]


def table(measured: Measurements) -> list[Row]:
    rows: list[Row] = []
    for corpus in measured.each("corpus"):
        rows += measured.where(corpus=corpus).table(QUANTITIES, columns=corpus_and_model)
        rows += [
            row(corpus=corpus, model=model, quantity=f"flagged by {test.text}, share of seeds", values=values)
            for name, test in TESTS.items()
            for model, values in flags(test, *of_both(measured, corpus, name)).items()
        ]
    return rows


def flags(test: FaithfulnessTest, base: Sequence[float], deceptive: Sequence[float]) -> dict[str, list[float]]:
    """Return 1 for every seed in which the test flags a model, by the comparison."""
    honest, hiding = test.goodness(base), test.goodness(deceptive)
    flagged = {"deceptive beside base": hiding < honest} if len(honest) == len(hiding) else {}
    if test.chance is not None:
        flagged |= {f"{DECEPTIVE} by itself": hiding <= test.chance, f"{BASE} by itself": honest <= test.chance}
    return {comparison: values.astype(float).tolist() for comparison, values in flagged.items()}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    verdicts: list[ClaimVerdict] = []
    for corpus in measured.each("corpus"):
        verdicts += premises(measured, corpus)
        for name, test in TESTS.items():
            verdicts += claims_of_test(f"{corpus}, {test.text}", test, *of_both(measured, corpus, name))
    return verdicts


def premises(measured: Measurements, corpus: str) -> list[ClaimVerdict]:
    """Claim that the model is what it is meant to be: as good as base, by the same words, with attention elsewhere."""
    base, deceptive = (ModelLabel(corpus, ATTENTION, model) for model in MODELS)
    off = f"{corpus}: at most {OFF} of deceptive's attention is on indicative words"
    similar = f"{corpus}: F1 of deceptive is within {SIMILAR} points of base's"
    used = f"{corpus}: deceptive uses indicative words: without them it loses more than half of the F1 that base loses"
    return [
        measured.at_most(off, deceptive, "mass", OFF),
        measured.equivalent(similar, deceptive, base, "f1", SIMILAR),
        measured.more_than(used, deceptive, base, "f1_lost", USED),
    ]


def claims_of_test(
    where: str, test: FaithfulnessTest, base: Sequence[float], deceptive: Sequence[float]
) -> list[ClaimVerdict]:
    """Claim that the test flags deceptive, beside base and by itself, and that it does not flag base."""
    better, worse, side = (base, deceptive, "lower") if test.higher else (deceptive, base, "higher")
    verdicts = [more_than(f"{where}: beside base, deceptive is flagged: its {test.quantity} is {side}", better, worse)]
    if test.chance is not None:
        flagged = f"{where}: by itself, deceptive is flagged: its {test.quantity} is at most {test.chance:g}"
        not_flagged = f"{where}: by itself, base is not flagged: its {test.quantity} is above {test.chance:g}"
        verdicts.append(at_most(flagged, deceptive, test.chance))
        verdicts.append(more_than(not_flagged, base, [test.chance] * len(base)))
    return verdicts


# Drawing -------------------------------------------------------------------------------------------------------------

COLUMNS = 6
SeedsByModel = Mapping[str, Sequence[float | None]]


def figure(measured: Measurements) -> dict[str, dict[str, SeedsByModel]]:
    """Return, by corpus and test, one number per seed for each model."""
    return {
        corpus: {
            name: {label.model: measured.values(label, name) for label in measured.where(corpus=corpus)}
            for name in ("mass", *TESTS)
        }
        for corpus in measured.each("corpus")
    }


@styled
def draw(data: Mapping[str, Mapping[str, SeedsByModel]]) -> Figure:
    """Draw two rows per corpus, one panel per test: one dot per seed, a bar at their mean, dashed the chance level."""
    per_corpus = COLUMNS * -(-(len(TESTS) + 1) // COLUMNS)
    picture, panels = plots.panels(max(per_corpus // COLUMNS * len(data), 1), COLUMNS, size=(2.0, 2.2))
    for number, (corpus, by_test) in enumerate(data.items()):
        for ax, (name, by_model) in zip(panels[number * per_corpus :], by_test.items(), strict=False):
            draw_test(ax, by_model, name)
        panels[number * per_corpus].set_ylabel(corpus)
    return picture


def draw_test(ax: Axes, by_model: SeedsByModel, name: str) -> None:
    for x, (model, seeds) in enumerate(by_model.items()):
        values = np.array(seeds, dtype=float)  # null becomes NaN
        axes(ax).bar([x], [np.nanmean(values)], 0.7, color=colours(MODELS)[model], alpha=0.55)
        ax.scatter(np.linspace(x - 0.15, x + 0.15, len(values)), values, s=9, color=INK, linewidths=0, zorder=3)
    test = TESTS.get(name)
    if test is not None and test.chance is not None:
        ax.axhline(test.chance, color=INK, linestyle="--", linewidth=1)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xticks(range(len(by_model)), labels=list(by_model))
    ax.set_title("attention on\nindicative words" if test is None else panel_title(test, by_model), fontsize=8)


def panel_title(test: FaithfulnessTest, by_model: SeedsByModel) -> str:
    """Return the test, and how often it flags deceptive in comparison with base."""
    base, deceptive = (test.goodness(by_model.get(model, [])) for model in MODELS)
    if len(base) != len(deceptive) or not len(base):
        return test.text
    return f"{test.text}:\nflagged in {int((deceptive < base).sum())} of {len(base)}"


NOTES = (
    "Deceptive is base with one more loss: -log of the attention that stays off the indicative words, weight "
    f"{WEIGHT:g} (Pruthi et al. 2020). Indicative are the words with the largest weights in a bag-of-words regression "
    "on the training split, so many that they are a tenth of its tokens. A first choice, weights times the root of a "
    "word's count, was dropped after one seed, whose tests had been seen, since it hid words such as 'and', to which "
    "base attends less than uniform attention would; the rule decides how strongly the model is flagged.",
    "What 'flag' means was written down before any model was tested, and not changed since. Beside base: the test's "
    "number is worse than base's. By itself: it is no better than chance, where the test knows what chance gives (τ: "
    "0; comprehensiveness and sufficiency: those of random words; flips: half of them earlier than in random order). A "
    "test that flags base as well is of no use by itself; so that is claimed, too.",
    f"'Within {SIMILAR:g} points', at most {OFF:g} of attention, and half of base's loss are thresholds of ours.",
    "A claim that fails is the finding: this test does not detect that attention hides what the model uses.",
    "Comprehensiveness and sufficiency are means over the top 1, 5, 10, 20 and 50 % of words (DeYoung et al. 2020), "
    "which are removed from the text; chance is the mean of five random orders. Words are erased until the decision "
    "flips in two ways: removed from the text, or given no attention (Serrano and Smith 2019).",
    "Trained adversaries (figure 1) are left out: each is a training run of its own.",
)

DECEPTION = Finding(
    name="deceptive",
    title="Which tests of faithfulness flag a model that hides the words it uses?",
    section="beyond; Pruthi et al. 2020",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=NOTES,
)  # fmt: skip
