"""Does dot attention depend on how its query starts? (tutek2020 appendix C)"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.models import ClassifierSettings
from attnscope.studies.claims import Verdict, at_least, at_most
from attnscope.studies.finding import Case, Finding, Measured
from attnscope.studies.result import Row
from attnscope.studies.tutek2020.decided import (
    AS_IN_THE_PAPER,
    BESIDE,
    NOTES,
    PERTURBED,
    bars,
    case,
    measure,
    rows,
)
from attnscope.studies.tutek2020.experiments import BASE, Sizes, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STARTS = {"normal": "N(0, 1)", "default": "torch's default"}
UNIFORM = 0.95  # of the entropy of uniform attention, or more
CONSTANT = 1.0  # points of F1, or less


def experiments(sizes: Sizes) -> dict[str, Case]:
    return {
        label(corpus, start): case(sizes, partial(started, sizes, corpus, start))
        for corpus in sizes.corpora
        for start in STARTS
    }


def label(corpus: str, start: str) -> str:
    return f"{corpus}, dot, {BASE}, query from {STARTS[start]}"


def started(sizes: Sizes, corpus: str, start: str) -> Experiment:
    """The base model of table 1 with dot attention, but for where its query starts."""
    experiment = trained(sizes, corpus, "dot", BASE)
    assert isinstance(experiment.model, ClassifierSettings)
    return replace(experiment, model=replace(experiment.model, query_start=start))


def corpora(measured: Measured) -> list[str]:
    return list(dict.fromkeys(which.split(", ")[0] for which in measured))


def table(measured: Measured) -> list[Row]:
    """Published are only the base models of table 1, whose queries start from N(0, 1)."""
    quantities = {"entropy": BESIDE["entropy"]} | AS_IN_THE_PAPER | BESIDE
    found: list[Row] = []
    for corpus in corpora(measured):
        for start, text in STARTS.items():
            section = f"table1_{corpus}_dot_{BASE}" if start == "normal" else ""
            found += rows(measured, label(corpus, start), section, quantities, {"corpus": corpus, "query": text})
    return found


def claims(measured: Measured) -> list[Verdict]:
    """ "The attention distribution of the model consistently converged to a uniform one"; F1 "remained constant"."""
    found = []
    for corpus in corpora(measured):
        default, normal = (label(corpus, start) for start in ("default", "normal"))
        found += [
            at_least(
                f"{corpus}: from torch's default, attention is uniform: its relative entropy is at least {UNIFORM}",
                measured.values(default, "entropy"),
                UNIFORM,
            ),
            at_most(
                f"{corpus}: from N(0, 1), attention is not uniform: its relative entropy is at most {UNIFORM}",
                measured.values(normal, "entropy"),
                UNIFORM,
            ),
            *(
                at_most(
                    f"{corpus}: from torch's default, F1 is constant: {how} attention costs at most a point",
                    measured.values(default, how),
                    CONSTANT,
                )
                for how in PERTURBED
            ),
        ]
    return found


# Drawing -------------------------------------------------------------------------------------------------------------

PANELS = {
    "entropy": "entropy of attention, relative to uniform",
    **{how: f"loss of F1, {how}" for how in PERTURBED},
}


def figure(measured: Measured) -> dict[str, Any]:
    """By quantity, corpus and start of the query."""
    return {
        name: {
            corpus: {
                text: {"ours": measured.values(which, name), "published": None}
                for start, text in STARTS.items()
                if (which := label(corpus, start)) in measured.by_label
            }
            for corpus in corpora(measured)
        }
        for name in PANELS
    }


def draw(data: Mapping[str, Any]) -> "Figure":
    picture, axes = plots.panels(1, len(data), size=(2.2 + 0.8 * max(map(len, data.values()), default=1), 3.2))
    for ax, (name, panel) in zip(axes, data.items(), strict=True):
        bars(panel, ax, PANELS[name])
        if ax is not axes[-1] and (key := ax.get_legend()):
            key.remove()
    return picture


APPENDIX_C = Finding(
    name="appendix-c",
    title="From torch's default the query of dot attention leads to uniform attention, from N(0, 1) it does not",
    section="appendix C",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "The paper says 'uniform' and 'constant' and gives no numbers. Our thresholds: an entropy of at least 0.95 of "
        "that of uniform attention over the same words, in the mean over test texts; a loss of at most 1 point of F1.",
        "torch's default for a linear layer is uniform within 1 / √d, where d is the size of a state.",
        *NOTES,
    ),
)  # fmt: skip
