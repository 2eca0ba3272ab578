"""What do more layers do to fragility? (tutek2020 appendix B, table 6)"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.plots.style import INK, colours, legend, name_axes, styled
from attnscope.studies.claims import Verdict, more_than, spread
from attnscope.studies.finding import Case, Finding, Measured
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.decided import (
    AS_IN_THE_PAPER,
    BESIDE,
    NOTES,
    PERTURBED,
    case,
    cell,
    measure,
    rows,
)
from attnscope.studies.tutek2020.experiments import BASE, CONCAT, MLM, TYING, Sizes, trained
from attnscope.studies.tutek2020.experiments import MODELS as ALL  # whose colours are those of table 1

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODELS = (BASE, CONCAT, TYING, MLM)  # those of table 6, with additive attention


def experiments(sizes: Sizes) -> dict[str, Case]:
    """Models of one layer are those of table 1."""
    return {
        label(corpus, model, layers): case(sizes, partial(trained, sizes, corpus, "additive", model, layers))
        for corpus in sizes.corpora
        for layers in sizes.layers
        for model in MODELS
    }


def label(corpus: str, model: str, layers: int) -> str:
    return f"{corpus}, additive, {model}, {layers} layer{'s' if layers > 1 else ''}"


def named(label: str) -> tuple[str, str, int]:
    """Corpus, model and layers of a label.

    >>> named("sst, additive, mlm, 2 layers")
    ('sst', 'mlm', 2)
    """
    corpus, _, model, layers = label.split(", ")
    return corpus, model, int(layers.split()[0])


def section(label: str) -> str:
    corpus, model, layers = named(label)
    return f"table6_{corpus}_{layers}_{model}"


def table(measured: Measured) -> list[Row]:
    found: list[Row] = []
    for which in measured:
        corpus, model, layers = named(which)
        columns = {"corpus": corpus, "layers": str(layers), "model": model}
        found += rows(measured, which, section(which), AS_IN_THE_PAPER | BESIDE, columns)
    return found


def claims(measured: Measured) -> list[Verdict]:
    """ "The base model consistently becomes more robust to attention perturbation the more layers we add." """
    parts = [named(which) for which in measured]
    return [
        more_than(
            f"{corpus}: with {layers} layers base loses less F1 under permuted attention than with one",
            measured.values(label(corpus, BASE, 1), "permuted"),
            measured.values(label(corpus, BASE, layers), "permuted"),
        )
        for corpus in dict.fromkeys(corpus for corpus, _, _ in parts)
        for layers in sorted({layers for _, _, layers in parts if layers > 1})
    ]


# Drawing -------------------------------------------------------------------------------------------------------------


def figure(measured: Measured) -> dict[str, Any]:
    """By corpus, perturbation, model and layers."""
    found: dict[str, Any] = {}
    for which in measured:
        corpus, model, layers = named(which)
        for how in PERTURBED:
            curve = found.setdefault(corpus, {}).setdefault(how, {}).setdefault(model, {})
            curve[str(layers)] = cell(measured, which, section(which), how)
    return found


@styled
def draw(data: Any) -> "Figure":
    """A column a corpus, a row a perturbation: the loss over layers, ours in full lines, published ones dashed."""
    picture, axes = plots.panels(len(PERTURBED), max(len(data), 1), size=(3.4, 2.7))
    for column, (corpus, by_attention) in enumerate(data.items()):
        for line, (how, curves) in enumerate(by_attention.items()):
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
