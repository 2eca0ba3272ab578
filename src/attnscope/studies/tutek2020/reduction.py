"""Is the loss a sum or a mean, and which settings explain the largest published losses of F1? (tutek2020 §3.1, table 1)

The code that the paper builds on (Jain and Wallace 2019) sums the cross entropy over a batch of 32 texts. A weight δ or
η then counts 32 times less than beside a mean, as our other findings have it. With the sum, tying is as eq. 4 prints
it: the squared length of the difference, not its mean over dimensions.

MLM with dot attention on 20 Newsgroups loses 73 points under permuted attention in the paper, tying on IMDB 56 and 58
under uniform attention. Each arm of the finding `leaps` changes one setting under a summed loss: embeddings are
trained; all of their dimensions are GloVe's. Uniform attention that also counts padding is another measurement of the
same networks.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from torch import Tensor

from attnscope.lab.experiment import Experiment
from attnscope.models import ClassifierSettings
from attnscope.models.attention import by_row
from attnscope.studies.bars import Panel, draw_panels, label_panels
from attnscope.studies.claims import ClaimVerdict, at_least, equivalent, untested
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, PublishedNumber, TrainedCase
from attnscope.studies.result import Row, row
from attnscope.studies.tutek2020 import decisions
from attnscope.studies.tutek2020.decisions import PERTURBED, SIMILAR, case, published_in_table1
from attnscope.studies.tutek2020.experiments import (
    ATTENTIONS,
    BASE,
    DELTAS,
    ETAS,
    MLM,
    REGULARISED,
    TYING,
    ModelLabel,
    Sizes,
    chosen_weight,
    model_experiment,
)
from attnscope.training import CrossEntropy, MaskedWords, Objective, Tying
from attnscope.training.evaluation import decide

# Sum or mean ---------------------------------------------------------------------------------------------------------

CORPORA = ("sst", "20newsgroups", "ag_news")  # IMDB costs more than the three: a finding of its own
IMDB = ("imdb",)
MEAN, SUM = "mean", "sum"
WEIGHTS = {BASE: (0.0,), TYING: DELTAS, MLM: ETAS}
BEST, STRONGEST = "best validation F1", f"strongest within {SIMILAR:g} points of base"
LEAP = 0.5  # of a published loss: what a setting must reach to be its reason


class ReductionLabel(NamedTuple):
    """A model whose cross entropy is a mean or a sum over the batch.

    >>> str(ReductionLabel("sst", "dot", TYING, SUM, 10.0))
    'sst, dot, tying, sum, weight 10'
    """

    corpus: str
    attention: str
    model: str
    reduction: str
    weight: float

    def __str__(self) -> str:
        return f"{self.corpus}, {self.attention}, {self.model}, {self.reduction}, weight {self.weight:g}"


def experiments(sizes: Sizes, corpora: tuple[str, ...] = CORPORA) -> dict[ReductionLabel, Case]:
    """Return the models of table 1 under the mean, and every weight under the sum; in the profile quick of SST only."""
    places = [(corpus, attention) for corpus, attention in product(corpora, ATTENTIONS) if corpus in sizes.corpora]
    labels = []
    for corpus, attention in places if sizes.name == "paper" else places[:1]:
        in_table1 = {BASE: 0.0}
        in_table1 |= {model: chosen_weight(corpus, attention, name) for model, name in ((TYING, "delta"), (MLM, "eta"))}
        labels += [ReductionLabel(corpus, attention, model, MEAN, weight) for model, weight in in_table1.items()]
        summed = [(model, weight) for model, weights in WEIGHTS.items() for weight in weights]
        labels += [ReductionLabel(corpus, attention, model, SUM, weight) for model, weight in summed]
    return {label: case(sizes, partial(experiment, sizes, label)) for label in labels}


def experiment(sizes: Sizes, label: ReductionLabel) -> Experiment:
    base = model_experiment(sizes, label.corpus, label.attention, label.model)
    if label.reduction == MEAN:
        return base
    extra: dict[str, Objective] = {TYING: Tying(label.weight), MLM: MaskedWords(label.weight)}
    loss = CrossEntropy(total=True)
    return replace(base, objective=loss + extra[label.model] if label.model in extra else loss)


# Which weight? By the validation split alone -------------------------------------------------------------------------


def chosen_labels(measured: Measurements, corpus: str, attention: str, model: str) -> dict[str, ReductionLabel]:
    """Return the summed models with the best validation F1, and with the largest weight that costs little of it."""
    own = measured.where(corpus=corpus, attention=attention, model=model, reduction=SUM)
    base = validation_f1(measured, ReductionLabel(corpus, attention, BASE, SUM, 0.0))
    scores = {label: validation_f1(own, label) for label in own if own[label]}
    labels = {BEST: max(scores, key=scores.__getitem__)} if scores else {}
    near = [label for label, score in scores.items() if score >= base - SIMILAR]
    return labels | ({STRONGEST: max(near, key=lambda label: label.weight)} if near else {})


def validation_f1(measured: Measurements, label: ReductionLabel) -> float:
    return float(np.mean(measured.values(label, "validation_f1")))


def places(measured: Measurements) -> list[tuple[str, str]]:
    """Return corpora and attentions whose base was measured under both reductions."""
    pairs: list[tuple[str, str]] = measured.each("corpus", "attention")
    bases = {pair: [ReductionLabel(*pair, BASE, reduction, 0.0) for reduction in (MEAN, SUM)] for pair in pairs}
    return [pair for pair, labels in bases.items() if all(label in measured and measured[label] for label in labels)]


# Table, claims and figure --------------------------------------------------------------------------------------------


def published(label: ReductionLabel, name: str) -> PublishedNumber:
    return published_in_table1(ModelLabel(label.corpus, label.attention, label.model), name)


def columns(label: ReductionLabel) -> dict[str, str]:
    return {name: f"{part:g}" if name == "weight" else part for name, part in label._asdict().items()}


def table(measured: Measurements) -> list[Row]:
    rows = measured.table(decisions.QUANTITIES, published, columns)
    for place, model in product(places(measured), REGULARISED):
        for how, label in chosen_labels(measured, *place, model).items():
            fields = columns(label) | {"weight": how}
            rows.append(row(values=[label.weight], published=None, published_text=None, quantity="weight", **fields))
    return rows


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [
        verdict
        for place, model in product(places(measured), REGULARISED)
        for verdict in claims_about(measured, *place, model)
    ]


def claims_about(measured: Measurements, corpus: str, attention: str, model: str) -> list[ClaimVerdict]:
    base, where = ReductionLabel(corpus, attention, BASE, SUM, 0.0), f"{corpus}, {attention}, summed loss"
    verdicts = []
    if model == TYING:
        text = f"{where}: tying as printed with δ = 1 is at most {SIMILAR:g} points of F1 below base"
        verdicts.append(measured.no_lower(text, base._replace(model=TYING, weight=1.0), base, "f1", SIMILAR))
    labels = chosen_labels(measured, corpus, attention, model)
    for rule, how in product((BEST, STRONGEST), PERTURBED):
        more = f"{where}: {model} ({rule}) loses more F1 than base under {how} attention"
        leap = f"{where}: {model} ({rule}) loses at least half of the published F1 loss under {how} attention"
        if rule not in labels:
            verdicts += [untested(text, "no weight costs so little") for text in (more, leap)]
            continue
        verdicts.append(measured.more_than(more, labels[rule], base, how))
        theirs = published(base._replace(model=model), how)
        if theirs and theirs["published"] > 0:
            verdicts.append(at_least(leap, measured.values(labels[rule], how), LEAP * theirs["published"]))
    return verdicts


def figure(measured: Measurements) -> dict[str, Panel]:
    """Return panels by perturbation: models under the mean beside those under the sum, with the strongest weight."""
    bar_names = dict[ReductionLabel, str]()
    for corpus, attention in places(measured):
        for model in (BASE, *REGULARISED):
            means = measured.where(corpus=corpus, attention=attention, model=model, reduction=MEAN)
            bar_names |= dict.fromkeys(means, f"{model}, mean")
            summed = {STRONGEST: ReductionLabel(corpus, attention, BASE, SUM, 0.0)}
            labels = summed if model == BASE else chosen_labels(measured, corpus, attention, model)
            if STRONGEST in labels:
                bar_names[labels[STRONGEST]] = f"{model}, sum"

    def place(label: ReductionLabel) -> str:
        return f"{label.corpus}, {label.attention}"

    return label_panels(PERTURBED, place, bar_names.__getitem__, published)(measured.only(*bar_names))


REDUCTION = Finding(
    name="reduction",
    title="Cross entropy summed over the batch: fragility of regularised models",
    section="beyond; §3.1, table 1",
    experiments=experiments, measure=decisions.measure, table=table, claims=claims, figure=figure,
    draw=partial(draw_panels, ylabels=decisions.LOSSES),
    first_seed=5,
    notes=(
        "The reason for the sum is the public code that the paper builds on. We came to it after the results of table "
        "1 had been seen: seeds 0 to 4 are those of table 1, so these models have others.",
        "Weights are chosen on the validation split, by the mean F1 over seeds: the best, and the largest within "
        f"{SIMILAR:g} points of base, since choosing by F1 alone favours weak regularisation. Under the mean, models "
        "are those of table 1.",
        "'Half of the published loss' is our mark for a setting that explains a published number.",
        *decisions.NOTES,
    ),
)  # fmt: skip
MACRO_MARGIN = 5.0  # points within which a macro F1 loss counts as the published one


def claims_with_macro_f1(measured: Measurements) -> list[ClaimVerdict]:
    """Add claims that the published losses of tying are those of macro F1, with δ = 1 as printed."""
    verdicts = claims(measured)
    for corpus, attention in places(measured):
        tying = ReductionLabel(corpus, attention, TYING, SUM, 1.0)
        for how in PERTURBED:
            theirs = published(tying, how)["published"]
            text = f"{tying}: loss of macro F1 under {how} attention is within {MACRO_MARGIN:g} points of {theirs}"
            verdicts.append(equivalent(text, measured.values(tying, f"macro_f1_{how}"), theirs, MACRO_MARGIN))
    return verdicts


REDUCTION_IMDB = replace(
    REDUCTION,
    name="reduction-imdb",
    title=f"{REDUCTION.title}, IMDB",
    experiments=partial(experiments, corpora=IMDB),
    claims=claims_with_macro_f1,
    notes=(
        *REDUCTION.notes,
        "The claims on macro F1 were added after `leaps` had been seen: with additive attention and other seeds (10 to "
        "14) tying with δ = 1 loses 54.1 and 43.6 points of macro F1 there, and 56.2 and 43.3 points in the paper.",
    ),
)


# The largest published losses ----------------------------------------------------------------------------------------

AS_BEFORE, TRAINED, GLOVE_ONLY = "as in `reduction`", "words trained", "100 dimensions, all of GloVe"
ARMS = (AS_BEFORE, TRAINED, GLOVE_ONLY)
GLOVE_SIZE = 100
LEAP_WEIGHTS = {BASE: 0.0, TYING: 1.0, MLM: 5.0}  # under the sum: the δ that table 1 prints; the largest η
# By corpus: the attentions, the model that leaps in the paper, and under which attention.
LEAPS = {"20newsgroups": (("dot",), MLM, "permuted"), "imdb": (("additive", "dot"), TYING, "uniform")}
PADDED = "uniform_padded"
OTHER_CLASS = {f"negative_{how}": f"loss of F1, other class, {how}" for how in PERTURBED}
LEAP_QUANTITIES = decisions.PAPER_QUANTITIES | {
    PADDED: "loss of F1, uniform attention over as many positions as the longest text has",
    "negative_uniform": "loss of the other class's F1, uniform attention",
    "negative_permuted": "loss of the other class's F1, permuted attention",
    "validation_f1": "F1 on the validation split",
}


class LeapLabel(NamedTuple):
    """A model with one setting changed."""

    corpus: str
    attention: str
    model: str
    arm: str

    def __str__(self) -> str:
        return ", ".join(self)


def leap_experiments(sizes: Sizes) -> dict[LeapLabel, Case]:
    """Return base and the model that leaps, in each arm; of the corpora that the profile has."""
    labels = [
        LeapLabel(corpus, attention, model, arm)
        for corpus, (attentions, leaping, _) in LEAPS.items()
        if corpus in sizes.corpora
        for attention in attentions
        for model in (BASE, leaping)
        for arm in ARMS
    ]
    return {label: case(sizes, partial(arm_experiment, sizes, label)) for label in labels}


def arm_experiment(sizes: Sizes, label: LeapLabel) -> Experiment:
    corpus, attention, model, arm = label
    base = experiment(sizes, ReductionLabel(corpus, attention, model, SUM, LEAP_WEIGHTS[model]))
    if arm == TRAINED:
        return replace(base, training=replace(base.training, trained="all"))
    if arm == GLOVE_ONLY:
        assert isinstance(base.model, ClassifierSettings)
        units = GLOVE_SIZE // 2  # per direction: tying needs states as large as embeddings
        return replace(base, model=replace(base.model, input_size=GLOVE_SIZE, units=units, hidden=units))
    return base


def measure_leaps(subject: TrainedCase[decisions.DecisionSettings]) -> Measurement:
    """Return the numbers of table 1, those of the other class, and the loss where padding is attended to."""
    numbers = dict(decisions.measure(subject))
    batches = decisions.batches_on_device(subject)
    longest = max(batch.source.shape[1] for batch in batches)
    padded = decide(decisions.trained_classifier(subject), batches, attention=uniform_over(longest))
    other = {f"negative_{how}": 2 * numbers[f"macro_f1_{how}"] - numbers[how] for how in PERTURBED}
    return {**numbers, **other, PADDED: numbers["f1"] - 100 * padded.f1}


def uniform_over(positions: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return uniform attention over this many positions; what lies beyond a text has no state, so it adds nothing."""
    return lambda weights, mask: by_row(mask)[:, None].to(weights).expand_as(weights) / positions


def published_leap(label: LeapLabel, name: str) -> PublishedNumber:
    return published_in_table1(ModelLabel(*label[:3]), "uniform" if name == PADDED else name)


def claims_about_leaps(measured: Measurements) -> list[ClaimVerdict]:
    """Claim of each arm that it reaches half of the published loss; of the padded measurement, in the first arm."""
    verdicts = []
    for label in measured:
        leaping, how = LEAPS[label.corpus][1:]
        if label.model != leaping:
            continue
        mark = LEAP * published_leap(label, how)["published"]
        text = f"{label}: at least half of the published loss of F1 under {how} attention"
        verdicts.append(at_least(text, measured.values(label, how), mark))
        other = f"negative_{how}"
        verdicts.append(at_least(f"{text}, by the other class's F1", measured.values(label, other), mark))
        if how == "uniform":
            verdicts.append(at_least(f"{text}, padding included", measured.values(label, PADDED), mark))
    return verdicts


LEAPING = Finding(
    name="leaps",
    title="Candidates for the largest published losses of F1",
    section="beyond; table 1",
    experiments=leap_experiments, measure=measure_leaps, table=LEAP_QUANTITIES, published=published_leap,
    claims=claims_about_leaps,
    figure=label_panels(
        (*PERTURBED, *OTHER_CLASS), lambda label: ", ".join(label[:3]), lambda label: label.arm, published_leap
    ),
    draw=partial(draw_panels, ylabels=decisions.LOSSES | OTHER_CLASS), columns=LeapLabel._asdict, first_seed=10,
    notes=(
        "The claims were written before any of these networks was trained. Half of the published loss is our mark for "
        "a setting that explains it; seeds are others than those of table 1 and `reduction`.",
        "Vectors of 300 dimensions are not at hand: our embeddings have 100 of GloVe and 200 random ones, so one arm "
        "has the 100 alone, and states of the same size.",
        "Padding: uniform attention whose weights are one over the number of positions of the longest text, the most "
        "that a batch could be padded to.",
        "The other class's F1 follows from the macro F1: twice that, less the F1 of the positive class.",
    ),
)  # fmt: skip
