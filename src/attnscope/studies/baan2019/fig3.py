"""Do some units of guided networks have a narrow range of activations? (baan2019 §4.1, figure 3)"""

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.plots.bars import violins
from attnscope.probes.gates import NUM_SAMPLED, RANGE, Activations, activations, concatenate_activations
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, both, network_traces
from attnscope.studies.baan2019.fig4 import SIDES, SPLITS
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements

NARROW = 0.5  # a unit is narrow if it covers at most this share of the possible range
WIDE = 0.8  # and wide if it covers at least this share
QUANTILES = np.linspace(0, 1, 41)  # of each unit's activations, which stand for them in the figure
COLOURS = {BASELINE: "#0072B2", GUIDED: "#D55E00"}  # blue and orange, as in the paper

QUANTITIES = {
    f"{side}_{name}": f"{side}: {text}"
    for side in SIDES
    for name, text in (
        ("narrow", "share of units that cover at most half of the possible range"),
        ("wide", "share of units that cover 80 % of the possible range"),
        ("covered", "share of the possible range that a unit covers, mean of units"),
        ("concentration", "share of a unit's values in its fullest tenth of the range, mean of units"),
    )
}


def measure(run: Run) -> Measurement:
    by_side = activations_by_side(run)
    return {
        **{f"{side}_{name}": value for side, units in by_side.items() for name, value in statistics(units).items()},
        "picture": {side: sample_units(units) for side, units in by_side.items()},
    }


def activations_by_side(run: Run) -> dict[str, Activations]:
    """Return the activations of all units on all held-out sentences."""
    parts: dict[str, list[Activations]] = {side: [] for side in SIDES}
    for _, trace in network_traces(run, SPLITS):
        assert trace.decoder is not None
        parts["encoder"].append(activations(trace.encoder, trace.source_mask, num_sampled=None))
        parts["decoder"].append(activations(trace.decoder, trace.target_mask, num_sampled=None))
    return {side: concatenate_activations(each) for side, each in parts.items()}


def statistics(units: Activations) -> dict[str, float]:
    return {
        "narrow": float((units.covered <= NARROW).mean()),
        "wide": float((units.covered >= WIDE).mean()),
        "covered": float(units.covered.mean()),
        "concentration": float(units.concentration.mean()),
    }


def sample_units(units: Activations) -> dict[str, FigureData]:
    """Return the quantiles of 50 random units, minimum and maximum included, in the order of their medians."""
    total = len(units.units)
    chosen = np.sort(np.random.default_rng(0).permutation(total)[: min(NUM_SAMPLED, total)])
    values = np.quantile(units.values[:, chosen], QUANTILES, axis=0)  # quantiles x units
    order = np.argsort(np.median(values, axis=0), kind="stable")
    return {"units": chosen[order], "quantiles": values[:, order]}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    some = "some units have a narrow range of activations"
    more = "more units have one in guided networks than in the baseline"
    most = "decoder, guided: most units cover the whole range of activations"
    return [
        *(measured.proportion(f"{side}, guided: {some}", GUIDED, f"{side}_narrow", lambda s: s > 0) for side in SIDES),
        *(measured.more_than(f"{side}: {more}", GUIDED, BASELINE, f"{side}_narrow") for side in SIDES),
        measured.at_least(most, GUIDED, "decoder_wide", 0.5),
    ]


def draw(data: FigureData) -> Figure:
    picture, axes = plots.panels(len(SIDES), len(data), size=(6.2, 3.0))
    places = [(side, model) for side in SIDES for model in data]
    for (side, model), ax in zip(places, axes, strict=True):
        content, colour = data[model][side], COLOURS.get(model)
        quantiles = np.array(content["quantiles"])
        violins(quantiles, content["units"], ax=ax, limits=RANGE, colour=colour, xlabel="unit", ylabel="activation")
        ax.set_title(f"{side}: {model}")
    return picture


FIG3 = Finding(
    name="fig3",
    title="Whether some units of guided networks have a narrow range of activations",
    section="§4.1, figure 3",
    experiments=both, measure=measure, table=QUANTITIES, claims=claims, draw=draw,
    notes=(
        "Numbers are of all units, over all steps of held-out tables, held-out and new compositions, of two tables and "
        "of four; the figure shows 50 units of the first seed. Violins are drawn from 41 quantiles, their lines reach "
        "from the lowest to the highest value.",
        "The paper compares by eye; the claims put numbers in place of its words. An idle unit is narrow, too: "
        "specialised units are not distinguished from idle ones here.",
        *NOTES,
    ),
)  # fmt: skip
