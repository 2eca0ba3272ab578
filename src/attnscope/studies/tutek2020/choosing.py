"""Which δ and η are used? Those with the best F1 on the validation split. (tutek2020 §3.1)"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attnscope.studies.finding import Measurements
from attnscope.studies.result import Result, Row
from attnscope.studies.tutek2020.experiments import BASE, DELTAS, ETAS, MLM, TEXTS, TYING

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
