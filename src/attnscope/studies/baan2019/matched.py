"""Beyond the paper: do tables 2 and 3 hold for a baseline that has learned its training sentences?

The paper's networks are those of the lowest validation loss. A baseline's is lowest long before it has learned its
training sentences, a guided network's near the end; so a partly trained network is compared with a trained one. Here
both are also taken at the end of training. Units are ranked over all classes, and by the first class alone as in the
released code, which also had a penalty. Control tasks measure what a classifier memorises.
"""

from dataclasses import replace

from matplotlib.figure import Figure

from attnscope import plots
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, NOTES, Sizes, baseline, guided, published
from attnscope.studies.baan2019.functional_groups import (
    AROUND_HALF,
    CLAIMED,
    NAMES,
    ORDER,
    READINGS,
    measure,
    with_all_classifiers,
)
from attnscope.studies.bars import SeedTable, draw_bars, quantity_panel
from attnscope.studies.claims import UNIT, ClaimVerdict
from attnscope.studies.finding import Case, Finding, Measurements, PublishedNumber

SELECTED, CONVERGED, IN_THE_END = "baseline, selected", "baseline, converged", "guided, converged"
EPOCHS = {"paper": 100, "quick": 60}  # after which a baseline has learned its training sentences
RANKINGS = {"all_classes": "units ranked over all classes", "first_class": "units ranked by the first class"}
TEXTS = {
    "full": "accuracy of all units",
    "control": "accuracy of the control task",
    "selectivity": "accuracy less that of the control task",
    **{f"size_{ranking}": f"functional group, {text}" for ranking, text in RANKINGS.items()},
    "size_released": "functional group, released procedure",
}
QUANTITIES = {
    "training": "accuracy on training sentences",
    **{f"{name}_{what}": f"{NAMES[name]}: {text}" for name in READINGS for what, text in TEXTS.items()},
}


def experiments(sizes: Sizes) -> dict[str, Case]:
    longer = replace(sizes, epochs=EPOCHS[sizes.name])
    runs = {
        SELECTED: baseline(sizes),
        CONVERGED: baseline(longer, keep_weights="last"),
        IN_THE_END: guided(longer, keep_weights="last"),
    }
    return {model: with_all_classifiers(run, sizes) for model, run in runs.items()}


def published_number(model: str, quantity: str) -> PublishedNumber:
    """Return the paper's number: its baseline was selected, its group sizes are those of the released procedure."""
    kind = {SELECTED: BASELINE, IN_THE_END: GUIDED}.get(model)
    table = "table3" if quantity.startswith("time") else "table2"
    return published(f"{table}_{kind}", quantity.replace("_size_released", "_size"))


def claims(measured: Measurements) -> list[ClaimVerdict]:
    fewer = "the selected baseline has learned fewer of its training sentences than the converged one"
    return [
        measured.more_than(fewer, CONVERGED, SELECTED, "training"),
        *(verdict for name in CLAIMED for verdict in claims_about_sizes(measured, name)),
        *(verdict for gate in ("z_dec", "r_dec") for verdict in claims_about_gate(measured, gate)),
    ]


def claims_about_sizes(measured: Measurements, name: str) -> list[ClaimVerdict]:
    """Claim the direction under each ranking of units, and the size of the difference."""
    rankings = {"all_classes": "over all classes", "first_class": "by the first class", "released": "as released"}
    more = "a converged baseline needs more units than a guided network"
    order = f"{NAMES[name]}, ranked over all classes: it needs more by an order of magnitude"
    return [
        *(
            measured.more_than(f"{NAMES[name]}, ranked {text}: {more}", CONVERGED, IN_THE_END, f"{name}_size_{ranking}")
            for ranking, text in rankings.items()
        ),
        measured.more_than(order, CONVERGED, IN_THE_END, f"{name}_size_all_classes", ORDER),
    ]


def claims_about_gate(measured: Measurements, gate: str) -> list[ClaimVerdict]:
    half = f"{NAMES[gate]}: about half is right in a converged baseline, too"
    more = f"{NAMES[gate]}: more is right in a guided network than in a converged baseline"
    control = f"{NAMES[gate]}: also less the accuracy of the control task"
    return [
        measured.at_most(half, CONVERGED, f"{gate}_full", AROUND_HALF),
        measured.more_than(more, IN_THE_END, CONVERGED, f"{gate}_full"),
        measured.more_than(control, IN_THE_END, CONVERGED, f"{gate}_selectivity"),
    ]


def draw(data: SeedTable) -> Figure:
    """Draw one group of bars per feature, one bar per model."""
    panels = {
        "size_all_classes": "units in the functional group",
        "full": "accuracy of all units",
        "selectivity": "accuracy less that of the control task",
    }
    picture, axes = plots.panels(1, len(panels), size=(4.6, 3.6))
    for ax, (what, ylabel) in zip(axes, panels.items(), strict=True):
        draw_bars(quantity_panel(data, {f"{name}_{what}": NAMES[name] for name in READINGS}), ax, ylabel,
                  UNIT if what == "full" else None)  # fmt: skip
    return picture


MATCHED = Finding(
    name="matched",
    title="Beyond the paper: tables 2 and 3 with a baseline at the end of training",
    section="beyond; §4.1, tables 2 and 3",
    experiments=experiments, measure=measure, table=QUANTITIES, published=published_number, claims=claims,
    figure=QUANTITIES, draw=draw,
    notes=(
        "The claims are those of tables 2 and 3, about a converged baseline. The order of "
        "magnitude is that of 35 and 40 units against 2.",
        "'Converged' is after twice as many epochs as the selected networks had at most, without selection by "
        "validation loss; the accuracy on training sentences is in the table.",
        "Control tasks give each pair of successive words a random label. 'Released procedure': L2 penalty, single "
        "steps held out, units ranked by the first class. Published sizes stand beside it, as they come from it.",
        *NOTES,
        "What this does not show: that a feature which can be decoded is used by the network.",
    ),
)  # fmt: skip
