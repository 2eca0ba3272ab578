"""Which tests of faithfulness notice a model that was taught to hide the words it uses? (beyond tutek2020; Pruthi 2020)

The known answer: attention of this model is unfaithful by training. A test that finds nothing wrong with it cannot be
trusted to find anything wrong with another model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.plots.style import DECODER, ENCODER, INK, styled
from attnscope.studies.claims import ClaimVerdict, at_most, more_than, no_lower
from attnscope.studies.finding import Case, Finding, Measurements
from attnscope.studies.result import Row, row
from attnscope.studies.tutek2020.decided import by_corpus_and_model
from attnscope.studies.tutek2020.experiments import BASE, ModelLabel, Sizes, labels, trained
from attnscope.studies.tutek2020.faithfulness import case, measure, telling_words
from attnscope.studies.tutek2020.jain_wallace import ATTENTION
from attnscope.tasks import Classification
from attnscope.training import CrossEntropy, Hiding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DECEPTIVE = "deceptive"
MODELS = (BASE, DECEPTIVE)
WEIGHT = 1.0  # of the price on attention to telling words
OFF = 0.05  # of attention on them, or less: nothing to be seen
SIMILAR = 2.0  # points of F1
USED = 0.5  # of the F1 that base loses without these words


@dataclass(frozen=True)
class Test:
    """A number that is meant to be higher where attention is more faithful, or lower; and what chance gives, if known.

    It flags a model that is no better than chance; and beside base, one that is worse than base.
    """

    text: str
    quantity: str
    higher: bool = True
    chance: float | None = None

    def goodness(self, values: Sequence[float]) -> np.ndarray:
        numbers = np.array(values, dtype=float)
        return numbers if self.higher else -numbers


TESTS = {
    "gradient": Test("gradients", "τ of attention with |gradient|", chance=0.0),
    "leave_one_out": Test("leave-one-out", "τ of attention with leave-one-out", chance=0.0),
    "comprehensiveness_gain": Test(
        "comprehensiveness", "comprehensiveness of attention, less that of chance", chance=0.0
    ),
    "sufficiency_gain": Test("sufficiency", "sufficiency of chance, less that of attention", chance=0.0),
    "earlier_text": Test("erasure of words", "decisions that flip earlier than by chance, words cut", chance=0.5),
    "earlier_attention": Test(
        "erasure of attention", "decisions that flip earlier than by chance, attention cut", chance=0.5
    ),
    "permuted": Test("permuted attention", "median change of the output, permuted"),
    "uniform": Test("uniform attention", "change of the output, uniform"),
    "farthest": Test("adversarial attention", "JSD of the farthest attention that keeps the output", higher=False),
    "information": Test("mutual information", "mutual information of words and states, in nats"),
    "per_token": Test("per-token probability", "probability of the decision by each word alone", higher=False),
}
PREMISES = {
    "f1": "F1",
    "f1_lost": "loss of F1 without the telling words",
    "mass": "attention on telling words, in texts that have one",
    "mass_uniform": "... if attention were uniform",
    "having": "texts that have a telling word, share",
}


def experiments(sizes: Sizes) -> dict[ModelLabel, Case]:
    make: dict[str, Callable[[Sizes, str], Experiment]] = {BASE: honest, DECEPTIVE: taught_to_hide}
    models = labels(sizes.tested, MODELS, (ATTENTION,))
    return {label: case(sizes, partial(make[label.model], sizes, label.corpus)) for label in models}


def honest(sizes: Sizes, corpus: str) -> Experiment:
    return trained(sizes, corpus, ATTENTION, BASE)


def taught_to_hide(sizes: Sizes, corpus: str) -> Experiment:
    """Base, but it pays for attention to the words that tell the class."""
    base = honest(sizes, corpus)
    task = base.task.resolved()
    assert isinstance(task, Classification)
    return replace(base, objective=CrossEntropy() + Hiding(WEIGHT, telling_words(task, sizes.telling)))


# Which tests flag it -------------------------------------------------------------------------------------------------


QUANTITIES = PREMISES | {name: test.quantity for name, test in TESTS.items()}


def of_both(measured: Measurements, corpus: str, name: str) -> list[list[float]]:
    """Of base and of deceptive, one number a seed."""
    return [measured.values(ModelLabel(corpus, ATTENTION, model), name) for model in MODELS]


def table(measured: Measurements) -> list[Row]:
    found: list[Row] = []
    for corpus in measured.each("corpus"):
        found += measured.where(corpus=corpus).table(QUANTITIES, columns=by_corpus_and_model)
        found += [
            row(corpus=corpus, model=whom, quantity=f"flagged by {test.text}, share of seeds", values=values)
            for name, test in TESTS.items()
            for whom, values in flags(test, *of_both(measured, corpus, name)).items()
        ]
    return found


def flags(test: Test, base: Sequence[float], deceptive: Sequence[float]) -> dict[str, list[float]]:
    """1 for every seed in which the test flags a model."""
    honest, hiding = test.goodness(base), test.goodness(deceptive)
    found = {}
    if len(honest) == len(hiding):
        found["deceptive beside base"] = (hiding < honest).astype(float).tolist()
    if test.chance is not None:
        found |= {
            f"{model} by itself": (values <= test.chance).astype(float).tolist()
            for model, values in ((DECEPTIVE, hiding), (BASE, honest))
        }
    return found


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        verdict
        for corpus in measured.each("corpus")
        for verdict in (*premises(measured, corpus), *alarms(measured, corpus))
    ]


def premises(measured: Measurements, corpus: str) -> list[ClaimVerdict]:
    """Is it what it is meant to be: as good as base, by the same words, with its attention elsewhere?"""
    (f1, f1_hiding), (lost, lost_hiding), (_, mass) = (
        of_both(measured, corpus, name) for name in ("f1", "f1_lost", "mass")
    )
    return [
        at_most(f"{corpus}: at most {OFF} of deceptive's attention is on telling words", mass, OFF),
        no_lower(f"{corpus}: F1 of deceptive is within {SIMILAR} points of base's", f1_hiding, f1, SIMILAR),
        more_than(
            f"{corpus}: deceptive uses telling words: without them it loses more than half of the F1 that base loses",
            lost_hiding,
            lost,
            USED,
        ),
    ]


def alarms(measured: Measurements, corpus: str) -> list[ClaimVerdict]:
    """Does each test flag it, beside base and by itself; and does it leave base alone?"""
    return [
        verdict
        for name, test in TESTS.items()
        for verdict in judged(f"{corpus}, {test.text}", test, *of_both(measured, corpus, name))
    ]


def judged(where: str, test: Test, base: Sequence[float], deceptive: Sequence[float]) -> list[ClaimVerdict]:
    better, worse, side = (base, deceptive, "lower") if test.higher else (deceptive, base, "higher")
    beside = f"{where}: beside base, deceptive is flagged: its {test.quantity} is {side}"
    found = [more_than(beside, better, worse)]
    if test.chance is not None:
        by_itself, chance = f"{where}: by itself,", f"{test.chance:g}"
        flagged = f"{by_itself} deceptive is flagged: its {test.quantity} is at most {chance}"
        left_alone = f"{by_itself} base is not flagged: its {test.quantity} is above {chance}"
        found.append(at_most(flagged, deceptive, test.chance))
        found.append(more_than(left_alone, base, [test.chance] * len(base)))
    return found


# Drawing -------------------------------------------------------------------------------------------------------------

COLUMNS = 6
PAINT = {BASE: DECODER, DECEPTIVE: ENCODER}


def figure(measured: Measurements) -> dict[str, Any]:
    """By corpus and test: a number a seed for each model."""
    return {
        corpus: {
            name: {label.model: measured.values(label, name) for label in measured.where(corpus=corpus)}
            for name in ("mass", *TESTS)
        }
        for corpus in measured.each("corpus")
    }


@styled
def draw(data: Any) -> "Figure":
    """Two rows a corpus, a panel a test: a dot a seed, a bar at their mean, dashed what chance gives."""
    high = -(-(len(TESTS) + 1) // COLUMNS)
    picture, axes = plots.panels(max(high * len(data), 1), COLUMNS, size=(2.0, 2.2))
    for number, (corpus, by_test) in enumerate(data.items()):
        for ax, (name, by_model) in zip(axes[number * high * COLUMNS :], by_test.items(), strict=False):
            draw_test(ax, by_model, name)
        axes[number * high * COLUMNS].set_ylabel(corpus)
    return picture


def draw_test(ax: "Axes", by_model: dict[str, list[float]], name: str) -> None:
    for place, (model, seeds) in enumerate(by_model.items()):
        values = np.array(seeds, dtype=float)  # null becomes NaN
        ax.bar([place], [np.nanmean(values)], 0.7, color=PAINT[model], alpha=0.55)
        ax.scatter(np.linspace(place - 0.15, place + 0.15, len(values)), values, s=9, color=INK, linewidths=0, zorder=3)
    test = TESTS.get(name)
    if test is not None and test.chance is not None:
        ax.axhline(test.chance, color=INK, linestyle="--", linewidth=1)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xticks(range(len(by_model)), labels=list(by_model))
    ax.set_title(titled(name, by_model), fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def titled(name: str, by_model: dict[str, list[float]]) -> str:
    """The test, and how often it flags deceptive beside base."""
    if name not in TESTS:
        return "attention on\ntelling words"
    test = TESTS[name]
    base, deceptive = (test.goodness(by_model.get(model, [])) for model in MODELS)
    if len(base) != len(deceptive) or not len(base):
        return test.text
    return f"{test.text}:\nflagged in {int((deceptive < base).sum())} of {len(base)}"


NOTES = (
    "Deceptive is base with one more price: -log of the attention that stays off the telling words, weight "
    f"{WEIGHT:g} (Pruthi et al. 2020). Telling are the words with the largest weights in a bag-of-words regression on "
    "the training split, so many that they are a tenth of its running words. A first choice, weights times the root of "
    "a word's count, was dropped after one seed, whose tests had been seen, since it hid words such as 'and', to which "
    "base attends less than uniform attention would; the rule decides how strongly the model is flagged.",
    "What 'flag' means was written down before any model was tested, and not changed since. Beside base: the test's "
    "number is worse than base's. By itself: it is no better than chance, where the test knows what chance gives (τ: "
    "0; comprehensiveness and sufficiency: those of random words; flips: half of them earlier than in random order). A "
    "test that flags base as well is of no use by itself; so that is claimed, too.",
    f"'Within {SIMILAR:g} points', at most {OFF:g} of attention, and half of base's loss are thresholds of ours.",
    "A claim that fails is the finding: this test does not see that attention hides what the model uses.",
    "Comprehensiveness and sufficiency are means over the top 1, 5, 10, 20 and 50 % of words (DeYoung et al. 2020), "
    "which are cut out of the text; chance is the mean of five random orders. Words are erased until the decision "
    "flips in two ways: cut out of the text, or given no attention (Serrano and Smith 2019).",
    "Trained adversaries (figure 1) are left out: each is a training run of its own.",
)

DECEPTION = Finding(
    name="deceptive",
    title="Which tests of faithfulness flag a model that hides the words it uses?",
    section="beyond; Pruthi et al. 2020",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=NOTES,
)  # fmt: skip
