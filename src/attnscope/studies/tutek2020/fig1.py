"""What does it cost an adversary to attend elsewhere than the model that it imitates? (tutek2020 §3.3, §4.3, figure 1)

For each λ a new model learns to say what a trained one says while its attention moves away (eq. 6). It is trained as
part of the measurement, so an interrupted study goes on with the next λ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.models import Classifier
from attnscope.plots.style import colours, legend, name_axes, styled
from attnscope.probes.adversarial_training import imitation, train_adversary
from attnscope.studies.claims import ClaimVerdict, more_than, untested
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase, case_unless_missing
from attnscope.studies.result import Row, row
from attnscope.studies.tutek2020.experiments import BASE, MLM, TYING, Sizes, trained
from attnscope.training.decisions import decide

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ATTENTION = "additive"
REGULARISED = (MLM, TYING)  # the paper shows the first, "while the others fare comparably"
SHOWN = (BASE, *REGULARISED)
ANOTHER = 1000  # added to a model's seed, for its adversary must start elsewhere
PLACES = 21  # of JSD, at which two curves are compared

QUANTITIES = {
    "jsd": "JSD of attentions, in nats",
    "tvd": "TVD of outputs",
    "kl": "KL of attentions, in nats",
    "changed": "other decisions, %",
    "f1": "F1 of the adversary",
}


class AdversaryLabel(NamedTuple):
    """An adversary of a model, by the λ that it was trained with.

    >>> str(AdversaryLabel("sst", MLM, 0.1))
    'sst, additive, mlm, λ = 0.1'
    """

    corpus: str
    model: str
    weight: float

    def __str__(self) -> str:
        return f"{self.corpus}, {ATTENTION}, {self.model}, λ = {self.weight:g}"


@dataclass(frozen=True)
class Adversary:
    """λ of eq. 6; epochs are those of the model that is imitated."""

    weight: float


def experiments(sizes: Sizes) -> dict[AdversaryLabel, Case]:
    labels = [AdversaryLabel(*parts) for parts in product(sizes.imitated, (BASE, *REGULARISED), sizes.lambdas)]
    return {label: case_unless_missing(partial(imitated, sizes, *label)) for label in labels}


def imitated(sizes: Sizes, corpus: str, model: str, weight: float) -> Case:
    return Case({"model": trained(sizes, corpus, ATTENTION, model)}, Adversary(weight))


# One adversary -------------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase) -> Measurement:
    """Means over the texts of the test split."""
    run = subject.runs["model"]
    base, adversary = run.model(), newcomer(run)
    given = run.experiment.training
    settings = replace(
        given, best_metric="loss", keep_weights="best"
    )  # the loss is that of eq. 6, on the validation split
    train_adversary(base, adversary, run.task, subject.settings.weight, settings=settings, seed=run.experiment.seed)
    found = imitation(base, adversary, run.task.batches("test")).summary()
    f1 = decide(adversary, run.task.batches("test")).f1
    return found | {"changed": 100 * found["changed"], "f1": 100 * f1}


def newcomer(run: Run) -> Classifier:
    """An untrained model of the same architecture, with the same words."""
    fresh = replace(run.experiment, seed=run.experiment.seed + ANOTHER).new_model()
    base = run.model()
    assert isinstance(fresh, Classifier)
    assert isinstance(base, Classifier)
    fresh.source_inputs.load_state_dict(base.source_inputs.state_dict())
    return fresh.to(run.experiment.device)


# Curves over λ -------------------------------------------------------------------------------------------------------

Curve = tuple[np.ndarray, np.ndarray]  # JSD and TVD, a number a λ


def curves(measured: Measurements, corpus: str, model: str) -> list[Curve]:
    """One a seed."""
    own = measured.where(corpus=corpus, model=model)
    jsd, tvd = (np.array([own.values(label, name) for label in own]).T for name in ("jsd", "tvd"))
    return list(zip(jsd, tvd, strict=True))


def at_equal_jsd(one: Curve, other: Curve) -> tuple[float, float]:
    """The mean TVD of each curve, drawn straight from point to point, over the JSD that both reach; NaN if none.

    >>> low, high = (np.array([0.1, 0.3]), np.array([0.0, 0.2])), (np.array([0.2, 0.6]), np.array([0.3, 0.3]))
    >>> tuple(round(mean, 6) for mean in at_equal_jsd(low, high))
    (0.15, 0.3)
    """
    start, end = max(one[0].min(), other[0].min()), min(one[0].max(), other[0].max())
    if end <= start:
        return float("nan"), float("nan")
    places = np.linspace(start, end, PLACES)
    first, second = (float(np.interp(places, *in_order(curve)).mean()) for curve in (one, other))
    return first, second


def in_order(curve: Curve) -> Curve:
    """By JSD, which mostly rises with λ, but need not."""
    order = np.argsort(curve[0], kind="stable")
    return curve[0][order], curve[1][order]


def compared(measured: Measurements, corpus: str, model: str) -> list[tuple[float, float]]:
    """TVD of a model and of base at equal JSD, a pair a seed; none if a run is missing."""
    both = [label for label in measured if label.corpus == corpus and label.model in (model, BASE)]
    if not measured.have_same_seeds(both):
        return []
    ours, base = (curves(measured, corpus, which) for which in (model, BASE))
    return [at_equal_jsd(*pair) for pair in zip(ours, base, strict=True)]


def table(measured: Measurements) -> list[Row]:
    pairs = product(measured.each("corpus"), REGULARISED)
    return [
        *measured.table(QUANTITIES, columns=by_weight),
        *(line for corpus, model in pairs for line in at_equal_jsd_rows(measured, corpus, model)),
    ]


def by_weight(label: AdversaryLabel) -> dict[str, str]:
    return {"corpus": label.corpus, "model": label.model, "λ": f"{label.weight:g}"}


def at_equal_jsd_rows(measured: Measurements, corpus: str, model: str) -> list[Row]:
    pairs, text = compared(measured, corpus, model), f"TVD at equal JSD, {model} against base"
    return [
        row(corpus=corpus, model=whose, λ="all", quantity=text, values=[pair[place] for pair in pairs])
        for place, whose in enumerate((model, BASE))
    ]


def claims(measured: Measurements) -> list[ClaimVerdict]:
    """ "The imitation setup of the MLM model produces larger drops of TVD in order to increase the JSD." """
    return [
        costlier(f"{corpus}: at equal JSD, TVD is higher for {model} than for base", compared(measured, corpus, model))
        for corpus in measured.each("corpus")
        for model in REGULARISED
    ]


def costlier(text: str, pairs: Sequence[tuple[float, float]]) -> ClaimVerdict:
    if not pairs:
        return untested(text, "not all adversaries of both models were trained")
    if not np.isfinite(pairs).any():
        return untested(text, "the curves share no JSD in any seed")
    ours, base = zip(*pairs, strict=True)
    return more_than(text, ours, base)


# Drawing -------------------------------------------------------------------------------------------------------------


def figure(measured: Measurements) -> dict[str, Any]:
    """By corpus, model and λ: JSD and TVD, a number a seed."""
    found: dict[str, Any] = {}
    for label in measured:
        points = {name: measured.values(label, name) for name in ("jsd", "tvd")}
        found.setdefault(label.corpus, {}).setdefault(label.model, {})[f"{label.weight:g}"] = points
    return found


@styled
def draw(data: Any) -> "Figure":
    """A panel a corpus, a dotted line a model, a point a λ: means over seeds, and each seed's, paler."""
    picture, axes = plots.panels(1, max(len(data), 1), size=(3.9, 3.2))
    for ax, (corpus, by_model) in zip(axes, data.items(), strict=True):
        draw_corpus(ax, by_model)
        ax.set_title(corpus)
        name_axes(ax, "JSD of attentions, in nats", "TVD of outputs" if ax is axes[0] else None)
    if data:
        key(axes[len(data) - 1], [model for model in SHOWN if any(model in by_model for by_model in data.values())])
    return picture


def draw_corpus(ax: "Axes", by_model: Mapping[str, Any]) -> None:
    paint = colours(SHOWN)  # the same in every panel, whatever is missing
    for model, points in by_model.items():
        seeds = {name: [np.array(point[name], dtype=float) for point in points.values()] for name in ("jsd", "tvd")}
        ax.scatter(
            np.concatenate(seeds["jsd"]),
            np.concatenate(seeds["tvd"]),
            s=8,
            color=paint[model],
            alpha=0.35,
            linewidths=0,
        )
        means = [[one.mean() for one in seeds[name]] for name in ("jsd", "tvd")]
        ax.plot(*means, color=paint[model], linestyle=":", marker="o", markersize=4)
    last = list(by_model.values())[-1]
    write_lambdas(ax, last)
    ax.margins(x=0.18, y=0.12)
    ax.spines[["top", "right"]].set_visible(False)


def write_lambdas(ax: "Axes", points: Mapping[str, Any]) -> None:
    """λ at the first and the last point of one curve; the others lie between."""
    for weight in (next(iter(points)), list(points)[-1]):
        jsd, tvd = (float(np.mean(points[weight][name])) for name in ("jsd", "tvd"))
        ax.annotate(f"λ = {weight}", (jsd, tvd), xytext=(6, -2), textcoords="offset points", va="top", fontsize=7)


def key(ax: "Axes", models: list[str]) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=colours(SHOWN)[model], linestyle=":", marker="o", markersize=4) for model in models]
    legend(ax, lines, models)


FIG1 = Finding(
    name="fig1",
    title="Adversarial attention is harder to find for regularised models",
    section="§4.3, figure 1",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "λ, and for how long adversaries are trained, the paper does not say. Here an adversary has as many epochs as "
        "the model that it imitates, and the same settings and words; kept is the epoch of the lowest price by eq. 6 "
        "on the validation split. λ was chosen by how far the adversary of one base model moves (SST): with 0.01 or "
        "less, a JSD of 0.01; with 0.03, 0.44; with 0.1, 0.65 of at most ln 2 = 0.69.",
        "At equal JSD: in each seed, the points of a model are joined by straight lines, and TVD is averaged over the "
        "range of JSD that both models' lines have; the claim compares these means, seed by seed. The paper compares "
        "the lines by eye, and gives no numbers.",
        "The divergence is the JSD of eq. 6; the code of Wiegreffe and Pinter 2019 that the paper follows had KL in "
        "its place.",
        "The paper itself does 'not attempt to draw many conclusions from this experiment': an adversary that repeats "
        "a model's mistakes is likely to use the same words, and a high JSD may be another good explanation.",
        "Tying is added to the paper's figure, which has MLM alone.",
    ),
)  # fmt: skip
