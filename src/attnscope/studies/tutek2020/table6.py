"""What do more layers do to fragility? (tutek2020 appendix B, table 6)"""

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnscope import plots
from attnscope.plots.style import INK, colours, legend, name_axes, styled
from attnscope.studies.bars import bar_values
from attnscope.studies.claims import ClaimVerdict, more_than, spread
from attnscope.studies.finding import Case, Finding, Measurements
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.decided import NOTES, PERTURBED, QUANTITIES, by_parts, case, measure, stated_by
from attnscope.studies.tutek2020.experiments import BASE, CONCAT, MLM, TYING, Sizes, trained
from attnscope.studies.tutek2020.experiments import MODELS as ALL  # whose colours are those of table 1

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODELS = (BASE, CONCAT, TYING, MLM)  # those of table 6, with additive attention
stated = stated_by("table6")


class LayersLabel(NamedTuple):
    """A model of several layers.

    >>> str(LayersLabel("sst", 2, MLM)), str(LayersLabel("sst", 1, BASE))
    ('sst, additive, mlm, 2 layers', 'sst, additive, base, 1 layer')
    """

    corpus: str
    layers: int
    model: str

    def __str__(self) -> str:
        return f"{self.corpus}, additive, {self.model}, {self.layers} layer{'s' if self.layers > 1 else ''}"


def experiments(sizes: Sizes) -> dict[LayersLabel, Case]:
    """Models of one layer are those of table 1."""
    return {
        LayersLabel(corpus, layers, model): case(sizes, partial(trained, sizes, corpus, "additive", model, layers))
        for corpus, layers, model in product(sizes.corpora, sizes.layers, MODELS)
    }


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES, stated, by_parts)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    """ "The base model consistently becomes more robust to attention perturbation the more layers we add." """
    return [
        more_than(
            f"{corpus}: with {layers} layers base loses less F1 under permuted attention than with one",
            measured.values(LayersLabel(corpus, 1, BASE), "permuted"),
            measured.values(LayersLabel(corpus, layers, BASE), "permuted"),
        )
        for corpus in measured.each("corpus")
        for layers in sorted(measured.each("layers"))
        if layers > 1
    ]


# Drawing -------------------------------------------------------------------------------------------------------------


def figure(measured: Measurements) -> dict[str, Any]:
    """By corpus, perturbation, model and layers."""
    found: dict[str, Any] = {}
    for label, how in product(measured, PERTURBED):
        curve = found.setdefault(label.corpus, {}).setdefault(how, {}).setdefault(label.model, {})
        curve[str(label.layers)] = bar_values(measured.values(label, how), stated(label, how))
    return found


@styled
def draw(data: Any) -> "Figure":
    """A column a corpus, a row a perturbation: the loss over layers, ours in full lines, published ones dashed."""
    picture, axes = plots.panels(len(PERTURBED), max(len(data), 1), size=(3.4, 2.7))
    for column, (corpus, by_perturbation) in enumerate(data.items()):
        for line, (how, curves) in enumerate(by_perturbation.items()):
            ax = axes[line * len(data) + column]
            draw_curves(curves, ax)
            ax.set_title(corpus if line == 0 else "")
            name_axes(ax, "layers", f"loss of F1, {how}" if column == 0 else None)
    if data:
        key(axes[len(data) - 1], list(next(iter(data.values()))[PERTURBED[0]]))
    return picture


def draw_curves(curves: Any, ax: "Axes") -> None:
    paint = colours(ALL)
    layers = sorted({int(number) for curve in curves.values() for number in curve})
    for model, curve in curves.items():
        present = [number for number in layers if str(number) in curve]
        cells = [curve[str(number)] for number in present]
        means, errors = [np.mean(one["ours"]) for one in cells], [spread(one["ours"]) for one in cells]
        ax.errorbar(present, means, yerr=errors, color=paint[model], marker="o", markersize=4, capsize=2.5)
        stated = [np.nan if one["published"] is None else one["published"] for one in cells]
        ax.plot(present, stated, color=paint[model], linestyle="--", linewidth=1, marker="_", markersize=9)
    ax.set_xticks(layers)
    ax.margins(x=0.15)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)


def key(ax: "Axes", models: list[str]) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=colours(ALL)[model], marker="o", markersize=4) for model in models]
    dashed = Line2D([], [], color=INK, linestyle="--", linewidth=1)
    legend(ax, [*lines, dashed], [*models, "published"])


TABLE6 = Finding(
    name="table6",
    title="With more layers the base model is more robust to other attention",
    section="appendix B, table 6",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "As in the paper, δ and η are those chosen for one layer.",
        "The paper's second observation, that regularisation gains less with more layers, it calls inconsistent "
        "itself; it is no claim here.",
        *NOTES,
    ),
)  # fmt: skip
