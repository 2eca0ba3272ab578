"""Are the units that know the current table among the strongest-connected ones? (baan2019 §4.1)"""

from typing import TYPE_CHECKING, Any

from attnscope import plots
from attnscope.studies.baan2019.diagnosed import CHOICES, experiments, measure, published
from attnscope.studies.baan2019.experiments import GUIDED, NOTES
from attnscope.studies.bars import bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict, at_least, more_than
from attnscope.studies.finding import Finding, Measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "sec4.1-overlap"
QUANTITIES = {
    "overlap": "functional group of the current table in h_enc: share among the strongest 5 % of units",
    "chance": "share of any unit, by chance",
    "h_enc_size": "units in the functional group",
}
STATED_SHARE = 0.93  # §4.1


def claims(measured: Measurements) -> list[ClaimVerdict]:
    shares = measured.values(GUIDED, "overlap")
    return [
        at_least("guided: at least 93 % of the group is among the strongest 5 % of units", shares, STATED_SHARE),
        more_than("guided: more of it is than by chance", shares, measured.values(GUIDED, "chance")),
    ]


def figure(measured: Measurements) -> dict[str, Any]:
    return {model: {name: measured.values(model, name) for name in ("overlap", "chance")} for model in measured}


def draw(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(size=(4.8, 3.4))
    theirs = {GUIDED: {"published": STATED_SHARE}}
    shares = {model: {"share": bar_values(content["overlap"], theirs.get(model))} for model, content in data.items()}
    draw_bars(shares, ax, "share among the strongest 5 %", dots=True)
    chance = next(iter(data.values()))["chance"][0]
    ax.axhline(chance, linestyle=":", color="black", linewidth=1)
    ax.set(ylim=(0, 1.05), title="units that know the table (dotted: chance)")
    return picture


OVERLAP = Finding(
    name=NAME,
    title="Whether units that know the current table are strongly connected",
    section="§4.1",
    experiments=experiments, measure=measure,
    table=lambda measured: measured.table(QUANTITIES, lambda model, name: published(f"{NAME}_{model}", name)),
    claims=claims, figure=figure, draw=draw,
    notes=(
        "A unit's strength is the mean |weight| over the encoder's gate matrices that lead to it (rows) or, of the "
        "recurrent ones, from it (columns); the paper says no more than 'strongest absolute weight values'.",
        "A share of a group of two units can only be 0, one half or 1.",
        *CHOICES,
        *NOTES,
    ),
)  # fmt: skip
