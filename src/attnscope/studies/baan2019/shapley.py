"""Do Shapley values find the same units, but more of them, and less consistently? (baan2019 footnote 5)

The paper checked its functional groups by Shapley values (Lundberg and Lee 2017), which it had to approximate. Of a
linear classifier whose units are taken as independent they are exact: weight × (state − mean state). So only that
assumption is left to blame. How consistent a ranking is, is how alike the groups are that come of different splits.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.probes.diagnostic import DiagnosticSettings, fit_diagnostic
from attnscope.probes.functional_group import functional_group, mean_jaccard
from attnscope.studies.baan2019.diagnosed import NAMES, NETWORK, READINGS
from attnscope.studies.baan2019.experiments import GUIDED, NOTES, Sizes, both
from attnscope.studies.baan2019.recorded import samples
from attnscope.studies.bars import bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict, at_least, more_than
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase
from attnscope.studies.result import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

READ = ("h_enc", "time")  # what the groups of tables 2 and 3 are small for
RANKINGS = {"all_classes": "by weight", "shapley": "by Shapley values"}
TRIES = 3  # groups that are compared with each other
MOST = 0.5  # of the units that the weights name, at the least, for Shapley values to confirm them
QUANTITIES = {
    **{
        f"{name}_{what}_{ranking}": f"{NAMES[name]}, {by}: {text}"
        for name in READ
        for what, text in (("size", "units in the group"), ("alike", "likeness of groups from different splits"))
        for ranking, by in RANKINGS.items()
    },
    **{f"{name}_confirmed": f"{NAMES[name]}: share of the group by weight in that by Shapley values" for name in READ},
}


def experiments(sizes: Sizes) -> dict[str, Case]:
    """On one split a group, so that each is the ranking's own; the same networks as in tables 2 and 3."""
    how = DiagnosticSettings(repeats=1)
    return {model: Case({NETWORK: experiment}, how) for model, experiment in both(sizes).items()}


def measure(subject: TrainedCase) -> Measurement:
    found: dict[str, float] = {}
    for name in READ:
        groups = groups_of(subject.runs[NETWORK], name, subject.settings)
        for ranking, each in groups.items():
            found[f"{name}_size_{ranking}"] = float(np.mean([len(group) for group in each]))
            found[f"{name}_alike_{ranking}"] = mean_jaccard(each)
        pairs = zip(groups["all_classes"], groups["shapley"], strict=True)
        found[f"{name}_confirmed"] = float(np.mean([len(ours & theirs) / len(ours) for ours, theirs in pairs]))
    return found


def groups_of(run: Run, name: str, how: DiagnosticSettings) -> dict[str, list[set[int]]]:
    """Of each ranking, the groups that different splits give."""
    recorded = samples(run, *READINGS[name])
    readings = [fit_diagnostic(recorded, replace(how, seed=seed)) for seed in range(TRIES)]
    return {ranking: [set(functional_group(reading, ranking).units) for reading in readings] for ranking in RANKINGS}


# What it says ------------------------------------------------------------------------------------------------------


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [verdict for name in READ for verdict in claims_about(name, measured)]


def claims_about(name: str, measured: Measurements) -> list[ClaimVerdict]:
    def values(quantity: str) -> list[float]:
        return measured.values(GUIDED, f"{name}_{quantity}")

    return [
        at_least(f"{NAMES[name]}, guided: Shapley values confirm most of the units found", values("confirmed"), MOST),
        more_than(f"{NAMES[name]}, guided: they select more units", values("size_shapley"), values("size_all_classes")),
        more_than(
            f"{NAMES[name]}, guided: they are less consistent", values("alike_all_classes"), values("alike_shapley")
        ),
    ]


def table(measured: Measurements) -> list[Row]:
    return measured.table(QUANTITIES)


def figure(measured: Measurements) -> dict[str, dict[str, list[float]]]:
    return {model: {name: measured.values(model, name) for name in QUANTITIES} for model in measured}


def draw(data: Any) -> "Figure":
    """A group a model and feature, a bar a ranking."""
    panels = {"size": "units in the functional group", "alike": "likeness of groups (Jaccard)"}
    whole, axes = plots.panels(1, len(panels), size=(5.0, 3.6))
    for ax, (what, ylabel) in zip(axes, panels.items(), strict=True):
        found = {
            f"{model}: {NAMES[name].split(' from')[0]}": {
                by: bar_values(data[model][f"{name}_{what}_{ranking}"]) for ranking, by in RANKINGS.items()
            }
            for name in READ
            for model in data
        }
        draw_bars(found, ax, ylabel)
    return whole


SHAPLEY = Finding(
    name="fn5-shap",
    title="Functional groups by Shapley values",
    section="§4.1, footnote 5",
    experiments=experiments, measure=measure, table=table, claims=claims, figure=figure, draw=draw,
    notes=(
        "A unit's importance is the mean |Shapley value| over steps and classes, those of the steps learned from; of "
        "a linear classifier this is exact, and |weight| × mean |state − mean state|.",
        f"Groups are found on {TRIES} splits each by itself; sizes are their mean. Two groups are as alike as the "
        "share of their units that both have. A larger group is alike by chance more often.",
        "No penalty, a tenth of the sentences held out, classifiers fitted anew on each group, as in table 2.",
        *NOTES,
        "What this does not show: whether the paper's approximation, of which it says nothing, was at fault.",
    ),
)  # fmt: skip
