"""Predictions with trained, uniform and permuted attention. (tutek2020 §3.2, §4.1, appendices B and C; tables 1 and 6)

One measurement per run: tables 1 and 6 and appendix C are read from it. Scores are in percent, losses in points. Is
attention fragile, and more so in regularised models (table 1)? Does fragility change with more layers (table 6)? Does
dot attention depend on the initialisation of its query (appendix C)?
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.models import Classifier, ClassifierSettings
from attnscope.plots.bars import ERROR_BAR
from attnscope.plots.style import INK, axes, colours, line_legend, name_axes, styled
from attnscope.probes.counterfactual import trace_and_mask
from attnscope.probes.divergences import relative_entropy
from attnscope.probes.fragility import Fragility, fragility
from attnscope.probes.grounding import Grounding, GroundingAccumulator, batch_token_probabilities
from attnscope.studies.bars import (
    INTERVAL,
    BarValues,
    Panel,
    bar_values,
    draw_panels,
    draw_points,
    keep_last_legend,
    label_panels,
)
from attnscope.studies.claims import UNIT, ClaimVerdict, equivalent, more_than, not_testable, untested
from attnscope.studies.finding import (
    Case,
    Finding,
    Label,
    Measurement,
    Measurements,
    PublishedNumber,
    PublishedOf,
    TrainedCase,
    case_unless_missing,
    published_by,
)
from attnscope.studies.tutek2020.experiments import (
    BASE,
    CONCAT,
    LICENSED_NOTE,
    MLM,
    MODELS,
    REGULARISED,
    TYING,
    AdditiveLabel,
    LayersLabel,
    ModelLabel,
    Sizes,
    model_experiment,
    with_licensed_corpora,
)
from attnscope.tasks import Batch
from attnscope.training.evaluation import Decisions, decide

published = published_by("tutek2020")

PERTURBED = ("uniform", "permuted")  # attention; these names also stand for the loss of F1 under it
SCORES: dict[str, tuple[str, Callable[[Decisions], float]]] = {
    "f1": ("F1", lambda decisions: decisions.f1),
    "macro_f1": ("macro F1", lambda decisions: decisions.macro_f1),
    "accuracy": ("accuracy", lambda decisions: decisions.accuracy),
    "auc": ("AUC", lambda decisions: decisions.auc),
}
LOSSES = {how: f"loss of F1, {how}" for how in PERTURBED}
PAPER_QUANTITIES = {
    "f1": "F1, trained attention (Tr.)",
    "uniform": "loss of F1, uniform attention (Un.)",
    "permuted": "loss of F1, permuted attention (Pm.)",
}
EXTRA_QUANTITIES = {
    "permuted_sd": "sd of the loss of F1 over permutations",
    **{
        f"{score}{suffix}": f"{loss}{SCORES[score][0]}, {attention} attention"
        for score in ("macro_f1", "accuracy", "auc")
        for suffix, loss, attention in (
            ("", "", "trained"),
            ("_uniform", "loss of ", "uniform"),
            ("_permuted", "loss of ", "permuted"),
        )
    },
    "changed_uniform": "predictions changed by uniform attention, %",
    "changed_permuted": "predictions changed by permuted attention, %",
    "moved_uniform": "change of the output, uniform attention (TVD)",
    "moved_permuted": "change of the output, permuted attention (TVD)",
    "entropy": "entropy of attention, relative to uniform attention",
    "highest": "maximum attention weight of a text",
    "validation_f1": "F1 on the validation split",
    "validation_accuracy": "accuracy on the validation split",
}
QUANTITIES = PAPER_QUANTITIES | EXTRA_QUANTITIES
NOTES = (
    "F1 is that of the positive class: in table 1 a model loses 91.0 points of 91.0 (anemia), which a macro F1 cannot. "
    "A loss is what F1 has less of, in points; the paper prints it with a minus sign.",
    "A loss under permuted attention is the mean over permutations, 100 in the profile paper and fewer in quick: the "
    "paper does not say how many it samples. Start and end tokens are never attended to.",
    "Embeddings are frozen in all models but 'base, words trained': 100 dimensions of GloVe and, where embeddings are "
    "larger, random numbers of the same spread. The paper does not name its embeddings, and only says of MLM that they "
    "are frozen.",
    "Where the paper is silent, settings are those of Jain and Wallace 2019: special tokens, AMSGrad, eight epochs "
    "(IMDB: four, our choice), of which the best on the validation split is kept, here by accuracy.",
    "Corpora are not all the paper's: AG News has a sixth of its training texts; 20 Newsgroups and IMDB are split anew "
    "by the recipe of Jain and Wallace, and long reviews are truncated to 400 words rather than left out.",
    "Claims were written before any model was measured on a test split.",
)


@dataclass(frozen=True)
class DecisionSettings:
    """How often attention is permuted; whether networks and epochs are those of the paper."""

    num_permutations: int
    as_published: bool


def case(sizes: Sizes, make: Callable[[], Experiment]) -> Case:
    """Return the case of one model, or one that is reported as failed where its corpus is missing."""
    settings = DecisionSettings(sizes.num_permutations, sizes.name == "paper")
    return case_unless_missing(lambda: Case({"model": make()}, settings))


# One model -----------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase) -> Measurement:
    """Return scores and losses on the test split, and two scores on the validation split."""
    model, task = trained_classifier(subject), subject.runs["model"].task
    robustness = fragility(model, task.batches("test"), subject.settings.num_permutations)
    validation = decide(model, task.batches("validation"))
    return {
        "as_published": subject.settings.as_published,
        **scores_and_losses(robustness),
        **output_changes(robustness),
        **entropy_and_length(model, task.batches("test")),
        "validation_f1": 100 * validation.f1,
        "validation_accuracy": 100 * validation.accuracy,
    }


def trained_classifier(subject: TrainedCase) -> Classifier:
    """Return the trained classifier of a case."""
    model = subject.runs["model"].model()
    assert isinstance(model, Classifier)
    return model


def batches_on_device(subject: TrainedCase) -> list[Batch]:
    """Return the test split on the device of the case."""
    return [batch.to(subject.device) for batch in subject.runs["model"].task.batches("test")]


def scores_and_losses(robustness: Fragility) -> dict[str, float]:
    """Return each score, and its losses by the attention; losses of F1 have no prefix."""
    numbers: dict[str, float] = {}
    for name, (_, score) in SCORES.items():
        losses = zip(("uniform", "permuted", "permuted_sd"), robustness.losses(score), strict=True)
        prefix = "" if name == "f1" else f"{name}_"
        numbers |= {name: 100 * score(robustness.own)}
        numbers |= {f"{prefix}{attention}": 100 * loss for attention, loss in losses}
    return numbers


def output_changes(robustness: Fragility) -> dict[str, float]:
    """Return how many predictions change (percent), how far outputs move (TVD), and the maximum attention weight."""
    table = robustness.table().astype(float)
    changed = {f"changed_{how}": 100 * float(table["changed"][how]) for how in PERTURBED}
    moved = {f"moved_{how}": float(table["change"][how]) for how in PERTURBED}
    return {**changed, **moved, "highest": float(robustness.highest.mean())}


def token_grounding(model: Classifier, batches: Iterable[Batch]) -> Grounding:
    """Return the predictions of each token alone (eq. 9)."""
    grounding = GroundingAccumulator()
    for batch in batches:
        grounding.update(batch_token_probabilities(model, batch))
    return grounding.result()


def entropy_and_length(model: Classifier, batches: Iterable[Batch]) -> dict[str, float]:
    """Return means over texts: the entropy of attention relative to uniform attention, and the number of words."""
    entropies, lengths = [], []
    for batch in batches:
        trace, attended = trace_and_mask(model, batch)
        entropies.append(relative_entropy(trace.attention[:, 0, 0], attended))
        lengths.append(attended.sum(-1))
    return {"entropy": torch.cat(entropies).nanmean().item(), "length": torch.cat(lengths).double().mean().item()}


# Many models ---------------------------------------------------------------------------------------------------------


def published_in(table: str) -> PublishedOf:
    """Return the published numbers of a table: the fields of a label name its section."""

    def published_number(label: Label, name: str) -> PublishedNumber:
        parts = (label,) if isinstance(label, str) else label
        return published("_".join((table, *map(str, parts))), name)

    return published_number


def label_columns(label: ModelLabel | AdditiveLabel | LayersLabel) -> dict[str, str]:
    """Return one column per field of a label."""
    return {name: str(part) for name, part in label._asdict().items()}


def corpus_and_model(label: ModelLabel) -> dict[str, str]:
    """Return columns for corpus and model; the attention is the same for all."""
    return {"corpus": label.corpus, "model": label.model}


def corpus_and_attention(label: ModelLabel) -> str:
    """Return the name of a group of models."""
    return f"{label.corpus}, {label.attention}"


# Table 1: models -----------------------------------------------------------------------------------------------------

SIMILAR = 2.0  # points of F1: the most that tying or MLM have less than base in table 1 (20 Newsgroups, dot, MLM)
REPRODUCED = ("sst", "20newsgroups", "imdb")  # corpora on which F1 should be the published one,
REACH = 1.5  # within so many points
published_in_table1 = published_in("table1")


def model_experiments(sizes: Sizes) -> dict[ModelLabel, Case]:
    sizes = with_licensed_corpora(sizes)
    labels = ModelLabel.product(sizes.corpora, MODELS)
    return {label: case(sizes, partial(model_experiment, sizes, *label)) for label in labels}


def claims_about_models(measured: Measurements) -> list[ClaimVerdict]:
    bases = list(measured.where(model=BASE))
    fragile, similar = list[ClaimVerdict](), list[ClaimVerdict]()
    for base, model in product(bases, REGULARISED):
        where, ours = corpus_and_attention(base), base._replace(model=model)
        for how in PERTURBED:
            text = f"{where}: {model} loses more F1 than base under {how} attention"
            fragile.append(measured.more_than(text, ours, base, how))
        text = f"{where}: F1 of {model} is at most {SIMILAR:g} points lower than that of base"
        similar.append(measured.no_lower(text, ours, base, "f1", SIMILAR))
    reproduced = [f1_as_published(measured, base) for base in bases if base.corpus in REPRODUCED]
    longer = [longer_texts_are_fragile(measured, attention) for attention in measured.each("attention")]
    return [*fragile, *similar, *reproduced, *longer]


def f1_as_published(measured: Measurements, base: ModelLabel) -> ClaimVerdict:
    theirs = published_in_table1(base, "f1")["published"]
    text = f"{corpus_and_attention(base)}: F1 of base is within {REACH:g} points of {theirs:g}"
    if not all(measured.flags(base, "as_published")):
        return untested(text, "this profile trains smaller networks for fewer epochs than the paper")
    return equivalent(text, measured.values(base, "f1"), theirs, REACH)


def longer_texts_are_fragile(measured: Measurements, attention: str) -> ClaimVerdict:
    """Appendix A: "datasets with longer instances were naturally more fragile"."""
    bases = [label for label in measured.where(attention=attention, model=BASE) if measured[label]]
    corpora = ", ".join(label.corpus for label in bases)
    text = f"{attention}: base loses more F1 under permuted attention where texts are longer (Kendall's τ above 0)"
    if len(bases) < 2 or not measured.have_same_seeds(bases):
        return untested(text, f"it takes two corpora or more with the same seeds; there is {corpora or 'none'}")
    lengths, losses = (np.array([measured.values(label, name) for label in bases]) for name in ("length", "permuted"))
    taus = [concordance(*seed) for seed in zip(lengths.T, losses.T, strict=True)]
    why = f"it is about corpora, of which there are {len(bases)}; seeds say nothing about others"
    return not_testable(more_than(text, taus, [0.0] * len(taus)), why)


def concordance(lengths: np.ndarray, losses: np.ndarray) -> float:
    """Return Kendall's τ of corpora: the share of concordant pairs less that of discordant ones.

    >>> concordance(np.array([17, 31, 164, 234]), np.array([5.0, 3.9, 14.1, 13.4]))  # table 1, additive, base
    0.3333333333333333
    """
    pairs = combinations(range(len(lengths)), 2)
    return float(np.mean([np.sign(lengths[i] - lengths[j]) * np.sign(losses[i] - losses[j]) for i, j in pairs]))


TABLE1 = Finding(
    name="table1",
    title="Regularised models are more fragile to other attention, at similar F1",
    section="§4.1, table 1",
    experiments=model_experiments, measure=measure, table=QUANTITIES, published=published_in_table1,
    columns=label_columns, claims=claims_about_models,
    figure=label_panels(PERTURBED, corpus_and_attention, lambda label: label.model, published_in_table1),
    draw=partial(draw_panels, ylabels=LOSSES),
    notes=(
        *NOTES,
        "'Similar' means at most 2.0 points of F1 lower: the most that table 1 has between base and tying or MLM on "
        "these corpora (20 Newsgroups, dot, MLM: 91.1 and 89.1).",
        "Of the 32 comparisons that say more fragile, the numbers of table 1 itself are against five: MLM with dot "
        "attention on SST (permuted) and on IMDB (both), and MLM on AG News with either attention (uniform).",
        "Kendall's τ between the length of texts and the loss of base over the four corpora is 0.33 in table 1, with "
        "either attention: SST is more fragile than AG News, and 20 Newsgroups more than IMDB. Two corpora give 1 or "
        "-1.",
        "Residual and the base model with trained embeddings are not in table 1; the paper says of residual that it is "
        "consistently comparable to concat.",
        LICENSED_NOTE,
        "What this does not show: that attention on which a decision depends is on the words on which it depends.",
    ),
)  # fmt: skip


# Table 6: layers -----------------------------------------------------------------------------------------------------

LAYERED_MODELS = (BASE, CONCAT, TYING, MLM)  # those of table 6, with additive attention
published_in_table6 = published_in("table6")
Curves = Mapping[str, Mapping[str, BarValues]]  # by model and number of layers


def layer_experiments(sizes: Sizes) -> dict[LayersLabel, Case]:
    """Models of one layer are those of table 1."""
    return {
        LayersLabel(corpus, layers, model): case(
            sizes, partial(model_experiment, sizes, corpus, "additive", model, layers)
        )
        for corpus, layers, model in product(sizes.corpora, sizes.layers, LAYERED_MODELS)
    }


def claims_about_layers(measured: Measurements) -> list[ClaimVerdict]:
    """ "The base model consistently becomes more robust to attention perturbation the more layers we add." """
    text = "{}: with {} layers base loses less F1 under permuted attention than with one"
    return [
        measured.more_than(text.format(one.corpus, layers), one, one._replace(layers=layers), "permuted")
        for one in measured.where(model=BASE, layers=1)
        for layers in sorted(measured.each("layers"))
        if layers > 1
    ]


def layer_figure(measured: Measurements) -> Mapping[str, Mapping[str, Curves]]:
    """Return curves by corpus and perturbation."""
    panels: dict[str, dict[str, dict[str, dict[str, BarValues]]]] = {}
    for label, how in product(measured, PERTURBED):
        curve = panels.setdefault(label.corpus, {}).setdefault(how, {}).setdefault(label.model, {})
        curve[str(label.layers)] = bar_values(measured.values(label, how), published_in_table6(label, how))
    return panels


PUBLISHED: dict[str, Any] = {"linestyle": "", "marker": "_", "markersize": 11, "markeredgewidth": 2}


@styled
def draw_layers(data: Mapping[str, Mapping[str, Curves]]) -> Figure:
    """Draw one column per corpus, one row per perturbation: loss over layers; published numbers are short lines."""
    picture, panels = plots.panels(len(PERTURBED), max(len(data), 1), size=(3.4, 2.7))
    for column, (corpus, by_perturbation) in enumerate(data.items()):
        for line, (how, curves) in enumerate(by_perturbation.items()):
            ax = panels[line * len(data) + column]
            draw_curves(curves, ax)
            ax.set_title(corpus if line == 0 else "")
            name_axes(ax, "layers", f"loss of F1, {how}" if column == 0 else None)
    if data:
        models = next(iter(data.values()))[PERTURBED[0]]
        lines = {model: {"color": colours(MODELS)[model], "marker": "o", "markersize": 4} for model in models}
        line_legend(panels[len(data) - 1], {**lines, INTERVAL: ERROR_BAR, "published": {"color": "black", **PUBLISHED}})
    return picture


def draw_curves(curves: Curves, ax: Axes) -> None:
    paint = colours(MODELS)
    for model, curve in curves.items():
        layers = sorted(map(int, curve))
        points = [curve[str(number)] for number in layers]
        seeds = [np.array(point["ours"], dtype=float) for point in points]
        draw_points(layers, seeds, ax, color=paint[model], markersize=4)
        theirs = np.array([point["published"] for point in points], dtype=float)
        ax.plot(layers, theirs, color=paint[model], **PUBLISHED)
    axes(ax).set_xticks(sorted({int(number) for curve in curves.values() for number in curve}))
    ax.margins(x=0.15)
    ax.axhline(0, color=INK, linewidth=0.8)


TABLE6 = Finding(
    name="table6",
    title="With more layers the base model is more robust to other attention",
    section="appendix B, table 6",
    experiments=layer_experiments, measure=measure, table=QUANTITIES, published=published_in_table6,
    columns=label_columns, claims=claims_about_layers, figure=layer_figure, draw=draw_layers,
    notes=(
        "As in the paper, δ and η are those chosen for one layer.",
        "The paper's second observation, that regularisation gains less with more layers, it calls inconsistent "
        "itself; it is no claim here.",
        *NOTES,
    ),
)  # fmt: skip


# Appendix C: the query of dot attention ------------------------------------------------------------------------------

STARTS = {"normal": "N(0, 1)", "default": "torch's default"}
UNIFORM = 0.95  # of the entropy of uniform attention, or more
CONSTANT = 1.0  # points of F1, or less


class QueryLabel(NamedTuple):
    """The base model with dot attention, by the initialisation of its query.

    >>> str(QueryLabel("sst", "normal"))
    'sst, dot, base, query from N(0, 1)'
    """

    corpus: str
    start: str

    def __str__(self) -> str:
        return f"{self.corpus}, dot, {BASE}, query from {STARTS[self.start]}"


def query_experiments(sizes: Sizes) -> dict[QueryLabel, Case]:
    labels = [QueryLabel(*parts) for parts in product(sizes.corpora, STARTS)]
    return {label: case(sizes, partial(with_query, sizes, *label)) for label in labels}


def with_query(sizes: Sizes, corpus: str, start: str) -> Experiment:
    """Return the base model of table 1 with dot attention and this initialisation of its query."""
    experiment = model_experiment(sizes, corpus, "dot", BASE)
    assert isinstance(experiment.model, ClassifierSettings)
    return replace(experiment, model=replace(experiment.model, query_start=start))


def published_query(label: QueryLabel, name: str) -> PublishedNumber:
    """Return the numbers of table 1, which has queries from N(0, 1) only."""
    return published(f"table1_{label.corpus}_dot_{BASE}", name) if label.start == "normal" else {}


def claims_about_queries(measured: Measurements) -> list[ClaimVerdict]:
    """ "The attention distribution of the model consistently converged to a uniform one"; F1 "remained constant"."""
    verdicts: list[ClaimVerdict] = []
    for corpus in measured.each("corpus"):
        default, normal = QueryLabel(corpus, "default"), QueryLabel(corpus, "normal")
        uniform = f"{corpus}: from torch's default, attention is uniform: its relative entropy is at least {UNIFORM}"
        peaked = f"{corpus}: from N(0, 1), attention is not uniform: its relative entropy is at most {UNIFORM}"
        constant = f"{corpus}: from torch's default, F1 is constant: {{}} attention costs at most a point"
        verdicts += [
            measured.at_least(uniform, default, "entropy", UNIFORM),
            measured.at_most(peaked, normal, "entropy", UNIFORM),
            *(measured.at_most(constant.format(how), default, how, CONSTANT) for how in PERTURBED),
        ]
    return verdicts


QUERY_PANELS = {
    "entropy": "entropy of attention, relative to uniform",
    **LOSSES,
}


def draw_queries(data: Mapping[str, Panel]) -> Figure:
    width = 1.8 + 0.6 * max(map(len, data.values()), default=1)
    picture = draw_panels(data, QUERY_PANELS, {"entropy": UNIT}, row=(width, 3.2))
    keep_last_legend(picture.axes)
    return picture


APPENDIX_C = Finding(
    name="appendix-c",
    title="From torch's default the query of dot attention leads to uniform attention, from N(0, 1) it does not",
    section="appendix C",
    experiments=query_experiments, measure=measure, table={"entropy": QUANTITIES["entropy"]} | QUANTITIES,
    published=published_query, columns=lambda label: {"corpus": label.corpus, "query": STARTS[label.start]},
    claims=claims_about_queries,
    figure=label_panels(QUERY_PANELS, lambda label: label.corpus, lambda label: STARTS[label.start]), draw=draw_queries,
    notes=(
        "The paper says 'uniform' and 'constant' and gives no numbers. Our thresholds: an entropy of at least 0.95 of "
        "that of uniform attention over the same words, in the mean over test texts; a loss of at most 1 point of F1.",
        "torch's default for a linear layer is uniform within 1 / √d, where d is the size of a state.",
        *NOTES,
    ),
)  # fmt: skip
