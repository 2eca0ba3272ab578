"""Does dot attention depend on the initialisation of its query? (tutek2020 appendix C)"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.models import ClassifierSettings
from attnscope.studies.bars import Panel, draw_bars, one_key, panel
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Case, Finding, Measurements, PublishedNumber
from attnscope.studies.tutek2020.decisions import NOTES, PERTURBED, QUANTITIES, case, measure, published
from attnscope.studies.tutek2020.experiments import BASE, Sizes, model_experiment

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


def experiments(sizes: Sizes) -> dict[QueryLabel, Case]:
    labels = [QueryLabel(*parts) for parts in product(sizes.corpora, STARTS)]
    return {label: case(sizes, partial(with_query, sizes, *label)) for label in labels}


def with_query(sizes: Sizes, corpus: str, start: str) -> Experiment:
    """Return the base model of table 1 with dot attention and this initialisation of its query."""
    experiment = model_experiment(sizes, corpus, "dot", BASE)
    assert isinstance(experiment.model, ClassifierSettings)
    return replace(experiment, model=replace(experiment.model, query_start=start))


def published_number(label: QueryLabel, name: str) -> PublishedNumber:
    """Return the numbers of table 1, which has queries from N(0, 1) only."""
    return published(f"table1_{label.corpus}_dot_{BASE}", name) if label.start == "normal" else {}


def claims(measured: Measurements) -> list[ClaimVerdict]:
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


PANELS = {
    "entropy": "entropy of attention, relative to uniform",
    **{how: f"loss of F1, {how}" for how in PERTURBED},
}


def figure(measured: Measurements) -> dict[str, Panel]:
    """Return panels by quantity, with groups by corpus and bars by initialisation."""
    return {
        name: panel(measured, name, lambda label: label.corpus, lambda label: STARTS[label.start]) for name in PANELS
    }


def draw(data: Mapping[str, Panel]) -> Figure:
    picture, axes = plots.panels(1, len(data), size=(1.8 + 0.6 * max(map(len, data.values()), default=1), 3.2))
    for ax, (name, content) in zip(axes, data.items(), strict=True):
        draw_bars(content, ax, PANELS[name])
    one_key(axes)
    return picture


APPENDIX_C = Finding(
    name="appendix-c",
    title="From torch's default the query of dot attention leads to uniform attention, from N(0, 1) it does not",
    section="appendix C",
    experiments=experiments, measure=measure, table={"entropy": QUANTITIES["entropy"]} | QUANTITIES,
    published=published_number, columns=lambda label: {"corpus": label.corpus, "query": STARTS[label.start]},
    claims=claims, figure=figure, draw=draw,
    notes=(
        "The paper says 'uniform' and 'constant' and gives no numbers. Our thresholds: an entropy of at least 0.95 of "
        "that of uniform attention over the same words, in the mean over test texts; a loss of at most 1 point of F1.",
        "torch's default for a linear layer is uniform within 1 / √d, where d is the size of a state.",
        *NOTES,
    ),
)  # fmt: skip
