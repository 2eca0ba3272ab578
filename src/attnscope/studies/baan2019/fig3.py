"""Do some units of guided networks keep to a range of values? (baan2019 §4.1, figure 3)"""

from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.plots.bars import violins
from attnscope.probes.activations import RANGE, SAMPLED, Activations, activations, joined
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, both
from attnscope.studies.baan2019.fig4 import SIDES, SPLITS
from attnscope.studies.baan2019.recorded import answers
from attnscope.studies.claims import ClaimVerdict, always, at_least, more_than
from attnscope.studies.finding import Finding, Measurement, Measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NARROW = 0.5  # a unit keeps to a range if it never leaves half of the values that it could have
WIDE = 0.8  # it covers the whole range if it uses so much of it
QUANTILES = np.linspace(0, 1, 41)  # of each unit, drawn in place of all its values
COLOURS = {BASELINE: "#0072B2", GUIDED: "#D55E00"}  # blue and orange, as in the paper

QUANTITIES = {
    f"{side}_{name}": f"{side}: {text}"
    for side in SIDES
    for name, text in (
        ("narrow", "units that keep to half of the possible range, share"),
        ("wide", "units that cover 80 % of the possible range, share"),
        ("covered", "share of the possible range that a unit covers, mean of units"),
        ("concentration", "share of a unit's values in its fullest tenth of the range, mean of units"),
    )
}


def measure(run: Run) -> Measurement:
    seen = states(run)
    return {
        **{f"{side}_{name}": value for side, units in seen.items() for name, value in numbers(units).items()},
        "picture": {side: sampled(units) for side, units in seen.items()},
    }


def states(run: Run) -> dict[str, Activations]:
    """Of all units, on all that is held out."""
    parts: dict[str, list[Activations]] = {side: [] for side in SIDES}
    for _, trace in answers(run, SPLITS):
        assert trace.decoder is not None
        parts["encoder"].append(activations(trace.encoder, trace.source_mask, sampled=None))
        parts["decoder"].append(activations(trace.decoder, trace.target_mask, sampled=None))
    return {side: joined(each) for side, each in parts.items()}


def numbers(units: Activations) -> dict[str, float]:
    return {
        "narrow": float((units.covered <= NARROW).mean()),
        "wide": float((units.covered >= WIDE).mean()),
        "covered": float(units.covered.mean()),
        "concentration": float(units.concentration.mean()),
    }


def sampled(units: Activations) -> dict[str, Any]:
    """50 units at random, in the order of their medians, each by its quantiles, lowest and highest value included."""
    total = len(units.units)
    drawn = np.sort(np.random.default_rng(0).permutation(total)[: min(SAMPLED, total)])
    values = np.quantile(units.values[:, drawn], QUANTILES, axis=0)  # quantiles x units
    order = np.argsort(np.median(values, axis=0), kind="stable")
    return {"units": drawn[order], "quantiles": values[:, order]}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    keeping = [
        always(
            f"{side}, guided: some units keep to a range of values",
            [share > 0 for share in measured.values(GUIDED, f"{side}_narrow")],
        )
        for side in SIDES
    ]
    more = [
        more_than(
            f"{side}: more units do in guided networks than in the baseline",
            measured.values(GUIDED, f"{side}_narrow"),
            measured.values(BASELINE, f"{side}_narrow"),
        )
        for side in SIDES
    ]
    most = "decoder, guided: most units cover the whole range of values"
    return [*keeping, *more, at_least(most, measured.values(GUIDED, "decoder_wide"), 0.5)]


def draw(data: Any) -> "Figure":
    picture, axes = plots.panels(len(SIDES), len(data), size=(8.0, 3.0))
    places = [(side, model) for side in SIDES for model in data]
    for (side, model), ax in zip(places, axes, strict=True):
        content = data[model][side]
        violins(
            np.array(content["quantiles"]),
            content["units"],
            ax=ax,
            limits=RANGE,
            colour=COLOURS.get(model),
            xlabel="unit",
            ylabel="activation",
        )
        ax.set_title(f"{side}: {model}")
    return picture


FIG3 = Finding(
    name="fig3",
    title="Whether some units of guided networks keep to a range of values",
    section="§4.1, figure 3",
    experiments=both, measure=measure, table=lambda measured: measured.table(QUANTITIES), claims=claims, draw=draw,
    notes=(
        "Numbers are of all units, over all steps of held-out tables, held-out and new compositions, of two tables and "
        "of four; the figure shows 50 units of the first seed. Violins are drawn from 41 quantiles, their lines reach "
        "from the lowest to the highest value.",
        "The paper compares by eye; the claims put numbers in place of its words. A unit also keeps to a range if it "
        "does nothing at all: specialised units are not told apart from idle ones here.",
        *NOTES,
    ),
)  # fmt: skip
