"""What does it cost an adversary to attend elsewhere than the model that it imitates? (tutek2020 §3.3, §4.3, figure 1)

For each λ a new model learns to predict what a trained one predicts while its attention moves away (eq. 6). It is
trained as part of the measurement, so an interrupted study goes on with the next λ.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.models import Classifier
from attnscope.plots.style import axes, colours, line_legend, name_axes, styled
from attnscope.probes.adversary import imitation, train_adversary
from attnscope.studies.claims import ClaimVerdict, more_than, untested
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, cases
from attnscope.studies.result import Row, row
from attnscope.studies.tutek2020.experiments import BASE, MLM, TYING, Sizes, model_experiment
from attnscope.training.evaluation import decide

ATTENTION = "additive"
REGULARISED = (MLM, TYING)  # the paper shows the first, "while the others fare comparably"
SHOWN = (BASE, *REGULARISED)
SEED_OFFSET = 1000  # of an adversary's initial weights from the seed of its model
PLACES = 21  # of JSD, at which two curves are compared

QUANTITIES = {
    "jsd": "JSD of attentions, in nats",
    "tvd": "TVD of outputs",
    "kl": "KL of attentions, in nats",
    "changed": "changed predictions, %",
    "f1": "F1 of the adversary",
}


class AdversaryLabel(NamedTuple):
    """An adversary of a model, by its λ.

    >>> str(AdversaryLabel("sst", MLM, 0.1))
    'sst, additive, mlm, λ = 0.1'
    """

    corpus: str
    model: str
    weight: float

    def __str__(self) -> str:
        return f"{self.corpus}, {ATTENTION}, {self.model}, λ = {self.weight:g}"


@dataclass(frozen=True)
class AdversarySettings:
    """λ of eq. 6; epochs are those of the model that is imitated."""

    weight: float


def experiments(sizes: Sizes) -> dict[AdversaryLabel, Case]:
    def case(label: AdversaryLabel) -> Case:
        experiment = model_experiment(sizes, label.corpus, ATTENTION, label.model)
        return Case({"model": experiment}, AdversarySettings(label.weight))

    labels = [AdversaryLabel(*parts) for parts in product(sizes.adversary_corpora, SHOWN, sizes.lambdas)]
    return cases(labels, case)


# One adversary -------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase[AdversarySettings]) -> Measurement:
    """Train an adversary and return means over the texts of the test split."""
    run = subject.runs["model"]
    base, adversary, seed = run.model(), untrained_copy(run), run.experiment.seed
    # The loss is that of eq. 6, on the validation split.
    training = replace(run.experiment.training, best_metric="loss", keep_weights="best")
    train_adversary(base, adversary, run.task, subject.settings.weight, settings=training, seed=seed)
    distances = imitation(base, adversary, run.task.batches("test")).summary()
    f1 = decide(adversary, run.task.batches("test")).f1
    return distances | {"changed": 100 * distances["changed"], "f1": 100 * f1}


def untrained_copy(run: Run) -> Classifier:
    """Return an untrained model of the same architecture, with the same embeddings."""
    fresh, base = replace(run.experiment, seed=run.experiment.seed + SEED_OFFSET).new_model(), run.model()
    assert isinstance(fresh, Classifier)
    assert isinstance(base, Classifier)
    fresh.source_inputs.load_state_dict(base.source_inputs.state_dict())
    return fresh.to(run.experiment.device)


# Curves over λ -------------------------------------------------------------------------------------------------------

Curve = tuple[np.ndarray, np.ndarray]  # JSD and TVD, one number per λ


def at_equal_jsd(one: Curve, other: Curve) -> tuple[float, float]:
    """Return the mean TVD of each curve, interpolated linearly, over the JSD that both reach; NaN if none.

    >>> low, high = (np.array([0.1, 0.3]), np.array([0.0, 0.2])), (np.array([0.2, 0.6]), np.array([0.3, 0.3]))
    >>> tuple(round(mean, 6) for mean in at_equal_jsd(low, high))
    (0.15, 0.3)
    """
    start, end = max(one[0].min(), other[0].min()), min(one[0].max(), other[0].max())
    if end <= start:
        return float("nan"), float("nan")
    places = np.linspace(start, end, PLACES)
    orders = [np.argsort(jsd, kind="stable") for jsd, _ in (one, other)]  # JSD mostly rises with λ, but need not
    first, second = (
        float(np.interp(places, jsd[order], tvd[order]).mean())
        for (jsd, tvd), order in zip((one, other), orders, strict=True)
    )
    return first, second


def compare_with_base(measured: Measurements, corpus: str, model: str) -> list[tuple[float, float]]:
    """Return the TVD of a model and of base at equal JSD, one pair per seed; none if a run is missing."""
    both = [measured.where(corpus=corpus, model=name) for name in (model, BASE)]
    if not measured.have_same_seeds(label for group in both for label in group):
        return []
    ours, base = (
        np.array([[group.values(label, name) for label in group] for name in ("jsd", "tvd")]) for group in both
    )  # JSD and TVD x λ x seeds
    seeds = zip(np.moveaxis(ours, -1, 0), np.moveaxis(base, -1, 0), strict=True)
    return [at_equal_jsd((a[0], a[1]), (b[0], b[1])) for a, b in seeds]


def table(measured: Measurements) -> list[Row]:
    rows = measured.table(
        QUANTITIES, columns=lambda label: {"corpus": label.corpus, "model": label.model, "λ": f"{label.weight:g}"}
    )
    for corpus, model in product(measured.each("corpus"), REGULARISED):
        pairs, text = compare_with_base(measured, corpus, model), f"TVD at equal JSD, {model} against base"
        rows += [
            row(corpus=corpus, model=name, λ="all", quantity=text, values=[pair[place] for pair in pairs])
            for place, name in enumerate((model, BASE))
        ]
    return rows


def claims(measured: Measurements) -> list[ClaimVerdict]:
    """ "The imitation setup of the MLM model produces larger drops of TVD in order to increase the JSD." """
    return [costs_more(measured, corpus, model) for corpus in measured.each("corpus") for model in REGULARISED]


def costs_more(measured: Measurements, corpus: str, model: str) -> ClaimVerdict:
    text = f"{corpus}: at equal JSD, TVD is higher for {model} than for base"
    pairs = compare_with_base(measured, corpus, model)
    if not pairs:
        return untested(text, "not all adversaries of both models were trained")
    if not np.isfinite(pairs).any():
        return untested(text, "the curves share no JSD in any seed")
    ours, base = zip(*pairs, strict=True)
    return more_than(text, ours, base)


# Drawing -------------------------------------------------------------------------------------------------------------

Points = Mapping[str, Mapping[str, list[float]]]  # by λ, and JSD or TVD: one number per seed


def figure(measured: Measurements) -> dict[str, dict[str, Points]]:
    """Return points by corpus and model."""
    return {
        corpus: {
            model: {
                f"{label.weight:g}": {name: measured.values(label, name) for name in ("jsd", "tvd")}
                for label in measured.where(corpus=corpus, model=model)
            }
            for model in measured.where(corpus=corpus).each("model")
        }
        for corpus in measured.each("corpus")
    }


@styled
def draw(data: Mapping[str, Mapping[str, Points]]) -> Figure:
    """Draw one panel per corpus, one dotted line per model, one point per λ: means over seeds, and seeds paler."""
    picture, panels = plots.panels(1, max(len(data), 1), size=(3.9, 3.2))
    paint = colours(SHOWN)  # the same in every panel, whatever is missing
    for ax, (corpus, by_model) in zip(panels, data.items(), strict=True):
        for model, points in by_model.items():
            draw_points(axes(ax), points, paint[model])
        write_lambdas(ax, list(by_model.values())[-1])
        ax.margins(x=0.18, y=0.12)
        ax.set_title(corpus)
        name_axes(ax, "JSD of attentions, in nats", "TVD of outputs" if ax is panels[0] else None)
    if data:
        models = [model for model in SHOWN if any(model in by_model for by_model in data.values())]
        look = {"linestyle": ":", "marker": "o", "markersize": 4}
        line_legend(panels[len(data) - 1], {model: {"color": paint[model], **look} for model in models})
    return picture


def draw_points(ax: Axes, points: Points, colour: str) -> None:
    jsd, tvd = ([np.array(point[name], dtype=float) for point in points.values()] for name in ("jsd", "tvd"))
    ax.scatter(np.concatenate(jsd), np.concatenate(tvd), s=8, color=colour, alpha=0.35, linewidths=0)
    means = [[seeds.mean() for seeds in side] for side in (jsd, tvd)]
    ax.plot(*means, color=colour, linestyle=":", marker="o", markersize=4)


def write_lambdas(ax: Axes, points: Points) -> None:
    """Write λ at the first and the last point of one curve; the others lie between."""
    for weight in (next(iter(points)), list(points)[-1]):
        jsd, tvd = (float(np.mean(points[weight][name])) for name in ("jsd", "tvd"))
        ax.annotate(f"λ = {weight}", (jsd, tvd), xytext=(6, -2), textcoords="offset points", va="top", fontsize=8)


FIG1 = Finding(
    name="fig1",
    title="Adversarial attention is harder to find for regularised models",
    section="§4.3, figure 1",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "The paper gives neither λ nor how long adversaries are trained. Here an adversary has as many epochs as the "
        "model that it imitates, and the same settings and embeddings; the epoch of the lowest loss by eq. 6 on the "
        "validation split is kept. λ was chosen by how far the adversary of one base model moves (SST): with 0.01 or "
        "less, a JSD of 0.01; with 0.03, 0.44; with 0.1, 0.65 of at most ln 2 = 0.69.",
        "At equal JSD: in each seed, the points of a model are interpolated linearly, and TVD is averaged over the "
        "range of JSD that both models have; the claim compares these means, seed by seed. The paper compares "
        "the curves by eye, and gives no numbers.",
        "The divergence is the JSD of eq. 6; the code of Wiegreffe and Pinter 2019 that the paper follows had KL in "
        "its place.",
        "The paper itself does 'not attempt to draw many conclusions from this experiment': an adversary that repeats "
        "a model's mistakes is likely to use the same words, and a high JSD may be another good explanation.",
        "Tying is added to the paper's figure, which has MLM alone.",
    ),
)  # fmt: skip
