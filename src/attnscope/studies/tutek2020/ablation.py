"""How strong should the regularisation be? δ, η and alternatives against F1, fragility and information. (§3.1)

δ and η of all other findings are chosen from these runs, by F1 on the validation split alone. No other finding shares
their seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Experiment
from attnscope.models import Classifier
from attnscope.plots.style import INK, colours, legend, name_axes, styled
from attnscope.probes.information import information
from attnscope.studies.claims import ClaimVerdict, more_than, no_lower, spread, untested
from attnscope.studies.finding import (
    Case,
    Finding,
    Measurement,
    Measurements,
    TrainedCase,
    case_unless_missing,
    study_toml,
)
from attnscope.studies.result import Result, Row, row
from attnscope.studies.tutek2020 import decided, plausible
from attnscope.studies.tutek2020.decided import AS_IN_THE_PAPER, grounded
from attnscope.studies.tutek2020.experiments import ATTENTIONS, BASE, DELTAS, ETAS, MLM, TEXTS, TYING, Sizes, trained
from attnscope.studies.tutek2020.table1 import SIMILAR
from attnscope.tasks import Batch
from attnscope.training import Conicity, CrossEntropy, MaskedWords, Objective, Tying

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


NOT_SQUARED, PER_NUMBER, CONICITY = "tying, not squared", "tying, mean over numbers", "conicity"
WEIGHTS: dict[str, tuple[float, ...]] = {
    BASE: (0.0,),
    TYING: DELTAS,
    NOT_SQUARED: DELTAS,
    PER_NUMBER: DELTAS,
    MLM: ETAS,
    CONICITY: (1.0, 5.0),  # our choice
}
DECIDED_BY = {"delta": PER_NUMBER, "eta": MLM}  # what experiments.chosen asks for, and the models that decide on it
DECIDING = "F1 on the validation split"
HEADING = (
    "# δ and η of each corpus and attention, chosen by F1 on the validation split alone, from the values of the paper."
)

Chosen = dict[str, dict[str, dict[str, float]]]  # by corpus, attention, and delta or eta


class RemedyLabel(NamedTuple):
    """A model whose remedy has a weight.

    >>> str(RemedyLabel("sst", "dot", NOT_SQUARED, 0.3))
    'sst, dot, tying, not squared, weight 0.3'
    """

    corpus: str
    attention: str
    remedy: str
    weight: float

    def __str__(self) -> str:
        return f"{self.corpus}, {self.attention}, {self.remedy}, weight {self.weight:g}"


Scores = Mapping[RemedyLabel, float]  # F1 on the validation split, in percent


def chosen(measured: Measurements) -> Chosen:
    """δ and η with the best F1 on the validation split, the mean over seeds: what chosen.toml should hold."""
    scores = {label: measured.values(label, "validation_f1") for label in measured}
    return best({label: float(np.mean(values)) for label, values in scores.items() if values})


def chosen_in(result: Result) -> Chosen:
    """The same, from a result file."""
    lines = [line for line in result.table if line["quantity"] == DECIDING and line["mean"] is not None]
    return best({labelled(line): line["mean"] for line in lines})


def labelled(line: Row) -> RemedyLabel:
    return RemedyLabel(line["corpus"], line["attention"], line["model"], float(line["weight"]))


def best(scores: Scores) -> Chosen:
    """Where every weight was tried; of equally good ones, the smallest."""
    found: Chosen = {}
    for corpus, attention in dict.fromkeys((label.corpus, label.attention) for label in scores):
        tried = {
            name: {weight: scores.get(RemedyLabel(corpus, attention, remedy, weight)) for weight in WEIGHTS[remedy]}
            for name, remedy in DECIDED_BY.items()
        }
        weights = {name: highest(by_weight) for name, by_weight in tried.items() if None not in by_weight.values()}
        if weights:
            found.setdefault(corpus, {})[attention] = weights
    return found


def highest(by_weight: Mapping[float, float | None]) -> float:
    """
    >>> highest({1.0: 80.5, 10.0: 81.25, 20.0: 81.25})
    10.0
    """
    return max(sorted(by_weight), key=lambda weight: by_weight[weight] or 0.0)


def as_toml(weights: Chosen) -> str:
    """The text of chosen.toml: of the paper's corpora only.

    >>> print(as_toml({"sst": {"dot": {"delta": 10.0, "eta": 0.3}}}), end="")
    # δ and η of each corpus and attention, chosen by F1 on the validation split alone, from the values of the paper.
    <BLANKLINE>
    [sst]
    dot = { delta = 10.0, eta = 0.3 }
    """
    lines = [HEADING]
    for corpus, by_attention in ((name, weights[name]) for name in TEXTS if name in weights):
        lines += ["", f"[{corpus}]"]
        for attention, by_name in by_attention.items():
            inner = ", ".join(f"{name} = {weight}" for name, weight in by_name.items())
            lines.append(f"{attention} = {{ {inner} }}")
    return "\n".join(lines) + "\n"


DRAWN = {
    "validation_f1": "F1, validation split",
    "permuted": "loss of F1, permuted",
    "information": "mutual information (nats)",
    "agreement": "agreement with people\n(average precision)",
}
LINES: dict[str, Literal["-", "--"]] = {"additive": "-", "dot": "--"}


@styled
def draw(data: Any) -> "Figure":
    """A row a corpus, a column a quantity: a curve a remedy over its weights; base is a horizontal line."""
    corpora = data["panels"]
    wide = max((len(panels) for panels in corpora.values()), default=1)
    picture, axes = plots.panels(max(len(corpora), 1), wide, size=(3.5, 2.7))
    for number, (corpus, panels) in enumerate(corpora.items()):
        line = axes[number * wide : (number + 1) * wide]
        for ax, (name, by_attention) in zip(line, panels.items(), strict=False):
            for attention, curves in by_attention.items():
                draw_curves(ax, curves, attention)
            frame(ax, DRAWN[name], corpus)
        ring(line[0], panels["validation_f1"], data["chosen"].get(corpus, {}))
        for ax in line[len(panels) :]:
            ax.set_axis_off()
    if corpora:
        draw_legend(
            axes[wide - 1],
            {attention for panels in corpora.values() for panel in panels.values() for attention in panel},
        )
    return picture


def draw_curves(ax: "Axes", curves: Mapping[str, Any], attention: str) -> None:
    paint = colours(WEIGHTS) | {BASE: INK}
    for remedy, by_weight in curves.items():
        look: dict[str, Any] = {"color": paint[remedy], "linestyle": LINES[attention]}
        weights, seeds = [float(weight) for weight in by_weight], list(by_weight.values())
        means = [float(np.mean(values)) for values in seeds]
        if remedy == BASE:
            ax.axhline(means[0], linewidth=1, **look)
        else:
            errors = [spread(values) for values in seeds]
            ax.errorbar(weights, means, yerr=errors, marker="o", markersize=3.5, capsize=2, **look)


def ring(ax: "Axes", by_attention: Mapping[str, Any], weights: Mapping[str, Mapping[str, float]]) -> None:
    """Around the weights with the best F1."""
    for attention, by_name in weights.items():
        for name, weight in by_name.items():
            height = float(np.mean(by_attention[attention][DECIDED_BY[name]][f"{weight:g}"]))
            ax.plot([weight], [height], "o", markersize=9, markerfacecolor="none", markeredgecolor=INK)


def frame(ax: "Axes", ylabel: str, title: str) -> None:
    ax.set_xscale("log")
    ax.set_xticks([0.1, 1, 10], labels=["0.1", "1", "10"])
    ax.minorticks_off()
    ax.set_title(title, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    name_axes(ax, "weight (δ, η)", ylabel)


def draw_legend(ax: "Axes", drawn: set[str]) -> None:
    """Remedies; attentions where there are two; what a ring means."""
    from matplotlib.lines import Line2D

    paint = colours(WEIGHTS) | {BASE: INK}
    lines = {attention: line for attention, line in LINES.items() if attention in drawn and len(drawn) > 1}
    handles = [Line2D([], [], color=paint[remedy]) for remedy in WEIGHTS]
    handles += [Line2D([], [], color=INK, linestyle=line) for line in lines.values()]
    circle = Line2D([], [], linestyle="", marker="o", markersize=9, markerfacecolor="none", markeredgecolor=INK)
    legend(ax, [*handles, circle], [*WEIGHTS, *lines, "best"])


SEEDS, FIRST_SEED = 2, 100  # other seeds count from 0
FEW = {"words": 500, "vectors": 20_000, "clusters": 200}  # at most, for mutual information


# What is trained -----------------------------------------------------------------------------------------------------


SPARED = (("imdb", "dot"),)  # its texts are long: dot attention has the weights of additive attention there


@dataclass(frozen=True)
class Asked(decided.Asked):
    """How much is measured."""

    words: int  # of mutual information, as the two below
    vectors: int
    clusters: int


def experiments(sizes: Sizes) -> dict[RemedyLabel, Case]:
    weighed = [(remedy, weight) for remedy, weights in WEIGHTS.items() for weight in weights]
    labels = [RemedyLabel(*place, *remedy) for place, remedy in product(places(sizes), weighed)]
    return {label: case_unless_missing(partial(case, sizes, label)) for label in labels}


def places(sizes: Sizes) -> list[tuple[str, str]]:
    """Corpora with their attentions; among them, in the profile paper, one that people marked."""
    if sizes.name != "paper":
        return [(sizes.corpora[0], "additive")]
    tried = [pair for pair in product(sizes.corpora, ATTENTIONS) if pair not in SPARED]
    return [*tried, ("yelp_rationales", plausible.ATTENTION)]


def case(sizes: Sizes, label: RemedyLabel) -> Case:
    few = {name: min(most, getattr(sizes, name)) for name, most in FEW.items()}
    asked = Asked(sizes.draws, sizes.name == "paper", **few)
    return Case({"model": remedied(sizes, *label)}, asked)


def remedied(sizes: Sizes, corpus: str, attention: str, remedy: str, weight: float) -> Experiment:
    """Base, paid for something else as well."""
    known = corpus in TEXTS
    base = trained(sizes, corpus, attention, BASE) if known else plausible.trained_on_marked(sizes, corpus, BASE)
    return replace(base, objective=objective(remedy, weight), seed=FIRST_SEED)


def objective(remedy: str, weight: float) -> Objective:
    extra: dict[str, Objective] = {
        TYING: Tying(weight),
        NOT_SQUARED: Tying(weight, squared=False),
        PER_NUMBER: Tying(weight, per_dimension=True),
        MLM: MaskedWords(weight),
        CONICITY: Conicity(weight),
    }
    return CrossEntropy() + extra[remedy] if remedy in extra else CrossEntropy()


# What is measured ----------------------------------------------------------------------------------------------------


def measure(subject: TrainedCase) -> Measurement:
    """As for table 1; and what is left of words, and how far attention agrees with people where they marked words."""
    run, model = subject.runs["model"], subject.runs["model"].model()
    assert isinstance(model, Classifier)
    batches = [batch.to(subject.device) for batch in run.task.batches("test")]
    found = {**decided.measure(subject), **retained(model, batches, subject.settings)}
    if batches[0].rationale is not None:
        agreement = plausible.in_numbers(plausible.plausibility(model, batches))
        found |= {"agreement": agreement["attention_average_precision"]}
    return found


def retained(model: Classifier, batches: Sequence[Batch], asked: Asked) -> dict[str, float]:
    """Mutual information of embeddings and states of frequent words, in nats; and each word's own opinion (eq. 9)."""
    found = information(model, batches, "frequent", asked.words, asked.vectors, asked.clusters)
    return {
        "information": found.embedding.nats,
        "information_by_chance": found.embedding.by_chance,
        "information_at_most": found.embedding.at_most,
        "per_token": grounded(model, batches).probability,
    }


QUANTITIES = {
    "validation_f1": DECIDING,
    **AS_IN_THE_PAPER,
    "information": "mutual information, most frequent words (nats)",
    "information_by_chance": "... of shuffled pairs",
    "information_at_most": "... at most",
    "per_token": "probability of the decision by each word alone",
}
AGREEMENT = {"agreement": "agreement with people: average precision of attention"}
BEST = "weight with the best F1 on the validation split"


def table(measured: Measurements) -> list[Row]:
    return [*(line for corpus in measured.each("corpus") for line in rows_of(measured, corpus)), *best_rows(measured)]


def rows_of(measured: Measurements, corpus: str) -> list[Row]:
    quantities = QUANTITIES | (AGREEMENT if corpus in plausible.MARKED else {})
    return measured.where(corpus=corpus).table(quantities, columns=by_weight)


def by_weight(label: RemedyLabel) -> dict[str, str]:
    corpus, attention, remedy, weight = label
    return {"corpus": corpus, "attention": attention, "model": remedy, "weight": f"{weight:g}"}


def best_rows(measured: Measurements) -> list[Row]:
    return [
        row(corpus=corpus, attention=attention, model=remedy, weight="best", quantity=BEST, values=[weight])
        for corpus, by_attention in chosen(measured).items()
        for attention, weights in by_attention.items()
        for remedy, weight in ((DECIDED_BY[name], weight) for name, weight in weights.items())
    ]


# What it says --------------------------------------------------------------------------------------------------------

LARGEST = (("δ = 30", TYING, 30.0), ("η = 5", MLM, 5.0))
STRONGER = (
    ("F1 loses more under permuted attention with δ = 30 than with δ = 1", "permuted", (TYING, 30.0), (TYING, 1.0)),
    ("mutual information is higher with δ = 30 than with δ = 1", "information", (TYING, 30.0), (TYING, 1.0)),
    ("mutual information is higher with η = 5 than with η = 0.1", "information", (MLM, 5.0), (MLM, 0.1)),
    (
        "F1 loses more under permuted attention with conicity (weight 5) than with base",
        "permuted",
        (CONICITY, 5.0),
        (BASE, 0.0),
    ),
)
IF_SQUARED = {"F1 loses more under permuted attention": "permuted", "mutual information is higher": "information"}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    stronger = [verdict for corpus in measured.each("corpus") for verdict in of_corpus(measured, corpus)]
    places = [place for place in measured.each("corpus", "attention") if place[0] in TEXTS]
    return [*stronger, *(as_chosen(measured, *place) for place in places)]


def of_corpus(measured: Measurements, corpus: str) -> list[ClaimVerdict]:
    """Over both attentions, seed by seed."""
    at, mean = partial(over_attentions, measured, corpus), partial(mean_over_weights, measured, corpus)
    stronger = [more_than(f"{corpus}: {text}", at(*one, name), at(*other, name)) for text, name, one, other in STRONGER]
    similar = [
        no_lower(
            f"{corpus}: with {text}, F1 is at most {SIMILAR:g} points lower than base's",
            at(remedy, weight, "f1"),
            at(BASE, 0.0, "f1"),
            SIMILAR,
        )
        for text, remedy, weight in LARGEST
    ]
    squared = [
        more_than(
            f"{corpus}: {text} if the distance is squared (mean over δ)", mean(TYING, name), mean(NOT_SQUARED, name)
        )
        for text, name in IF_SQUARED.items()
    ]
    return [*stronger, *similar, *squared]


def over_attentions(measured: Measurements, corpus: str, remedy: str, weight: float, name: str) -> list[float]:
    """A number a seed, one attention after the other."""
    own = measured.where(corpus=corpus, remedy=remedy, weight=weight)
    return [value for label in own for value in own.values(label, name)]


def mean_over_weights(measured: Measurements, corpus: str, remedy: str, name: str) -> list[float]:
    """The mean over weights, a number a seed, one attention after the other; none where a run is missing."""
    found: list[float] = []
    own = measured.where(corpus=corpus, remedy=remedy)
    for attention in own.each("attention"):
        values = [own.values(label, name) for label in own.where(attention=attention)]
        if len(set(map(len, values))) == 1:
            found += np.mean(values, axis=0).tolist()
    return found


def as_chosen(measured: Measurements, corpus: str, attention: str) -> ClaimVerdict:
    """Are the weights in use those that these runs would choose?"""
    text = f"{corpus}, {attention}: the weights in chosen.toml are those with the best validation F1 in these runs"
    ours = chosen(measured).get(corpus, {}).get(attention, {})
    if set(ours) != set(DECIDED_BY):
        return untested(text, "not every weight was tried")
    if not all(seed["as_published"] for label in measured for seed in measured[label]):
        return untested(text, "they are chosen with the networks and epochs of the profile paper")
    used = study_toml("tutek2020", "chosen.toml").get(corpus, {}).get(attention, {})
    evidence = f"here {in_words(ours)}; in use: {in_words(used) or 'none'}"
    return ClaimVerdict(text, ours == used, evidence)


def in_words(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{'δη'[name == 'eta']} = {weight:g}" for name, weight in weights.items())


# Drawing -------------------------------------------------------------------------------------------------------------


def figure(measured: Measurements) -> dict[str, Any]:
    """By corpus and quantity, attention and remedy: a list of seeds for each weight."""
    found: dict[str, Any] = {}
    for label, name in product(measured, DRAWN):
        if all(name in seed for seed in measured[label]):
            panel = found.setdefault(label.corpus, {}).setdefault(name, {})
            curve = panel.setdefault(label.attention, {}).setdefault(label.remedy, {})
            curve[f"{label.weight:g}"] = measured.values(label, name)
    return {"panels": found, "chosen": chosen(measured)}


ABLATION = Finding(
    name="ablation",
    title="How strong should the remedy be?",
    section="beyond; §3.1 mentions an ablation of δ and leaves it out",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    seeds=lambda sizes: SEEDS,
    notes=(
        "δ weighs the squared distance of a state and its word (eq. 4), or the distance itself, as in code of the same "
        "authors that came later; η weighs the masked words (eq. 5); conicity the mean cosine of a text's states with "
        "their mean (Mohankumar et al. 2020), at two weights of our choice. Base is weight 0.",
        "Tying as printed, by the squared length of a difference, costs 1 to 19 points of F1 on the validation split "
        "with the best δ, where the paper loses less than 2. As the mean over the 300 numbers of the difference, by "
        "which δ weighs 300 times less, it costs at most 0.3 (Yelp reviews: 2.2), and is the best of the three forms "
        "for every corpus and attention: so all other findings take it so. Whether the paper means it so is not known.",
        "From these runs δ and η are chosen for all other findings: by F1 on the validation split alone, in the "
        "profile paper, the mean over two seeds, which no other finding has; of equally good ones the smallest. "
        "Numbers of the test split stand beside, and decide nothing.",
        f"'Falls little' is at most {SIMILAR:g} points of F1 on the test split: the largest published gap between base "
        "and tying or MLM (table 1). Claims were written before any loss or any score on the test split was looked "
        "at. They take both attentions together, where both were trained, seed by seed; two seeds decide little.",
        f"Mutual information is that of {FEW['words']} words, {FEW['vectors']:,} occurrences in the test split and "
        f"{FEW['clusters']} clusters: a smaller sample than table 2 has, and not to be compared with it.",
        "IMDB is tried with additive attention only, and its weights are used for both. "
        "The profile quick has SST with additive attention only. The profile paper has, besides the four corpora, "
        "Yelp reviews in which people marked words (additive attention), for the agreement with people.",
        *decided.NOTES[2:5],
    ),
)  # fmt: skip
