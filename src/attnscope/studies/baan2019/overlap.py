"""Are the units that know the current table among the strongest-connected ones? (baan2019 §4.1)"""

from typing import TYPE_CHECKING, Any

import pandas as pd

from attnscope import plots
from attnscope.studies.baan2019.diagnosed import CHOICES, PUBLISHED, experiments, measure
from attnscope.studies.baan2019.experiments import GUIDED, NOTES
from attnscope.studies.claims import Verdict, at_least, more_than
from attnscope.studies.finding import Finding, Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "sec4.1-overlap"
QUANTITIES = {
    "overlap": "functional group of the current table in h_enc: share among the strongest 5 % of units",
    "chance": "share of any unit, by chance",
    "h_enc_size": "units in the functional group",
}
STATED = 0.93  # §4.1


def claims(measured: Measured) -> list[Verdict]:
    shares = measured.values(GUIDED, "overlap")
    return [
        at_least("guided: at least 93 % of the group is among the strongest 5 % of units", shares, STATED),
        more_than("guided: more of it is than by chance", shares, measured.values(GUIDED, "chance")),
    ]


def figure(measured: Measured) -> dict[str, Any]:
    return {model: {name: measured.values(model, name) for name in ("overlap", "chance")} for model in measured}


def draw(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(size=(4.8, 3.4))
    seeds = [
        pd.DataFrame({"share": {model: content["overlap"][seed] for model, content in data.items()}})
        for seed in range(min(len(content["overlap"]) for content in data.values()))
    ]
    means = pd.DataFrame({"share": {model: sum(c["overlap"]) / len(c["overlap"]) for model, c in data.items()}})
    stated = pd.DataFrame({"share": {GUIDED: STATED}})
    plots.bars(means, ax=ax, ylabel="share among the strongest 5 %", published=stated, seeds=seeds)
    chance = next(iter(data.values()))["chance"][0]
    ax.axhline(chance, linestyle=":", color="black", linewidth=1)
    ax.set(ylim=(0, 1.05), title="units that know the table (dotted: chance)")
    return picture


OVERLAP = Finding(
    name=NAME,
    title="Whether units that know the current table are strongly connected",
    section="§4.1",
    experiments=experiments, measure=measure,
    table=lambda measured: measured.table(QUANTITIES, lambda model, name: PUBLISHED(f"{NAME}_{model}", name)),
    claims=claims, figure=figure, draw=draw,
    notes=(
        "A unit's strength is the mean |weight| over the encoder's gate matrices that lead to it (rows) or, of the "
        "recurrent ones, from it (columns); the paper says no more than 'strongest absolute weight values'.",
        "A share of a group of two units can only be 0, one half or 1.",
        *CHOICES,
        *NOTES,
    ),
)  # fmt: skip
