"""Do Shapley values select the same units, but more of them, and less consistently? (baan2019 footnote 5)

The paper checked its functional groups by Shapley values (Lundberg and Lee 2017), which it had to approximate. For a
linear classifier with independent units they are exact: weight × (state − mean state). The consistency of a ranking is
the mean Jaccard index of groups from different splits.
"""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.probes.diagnostic import DiagnosticSettings, fit_diagnostic
from attnscope.probes.functional_group import functional_group, mean_jaccard
from attnscope.studies.baan2019.experiments import GUIDED, NOTES, Sizes, both
from attnscope.studies.baan2019.functional_groups import NAMES, NETWORK, READINGS, diagnostic_samples
from attnscope.studies.bars import SeedTable, bar_values, draw_bars
from attnscope.studies.claims import UNIT, ClaimVerdict, Range
from attnscope.studies.finding import Case, Finding, Measurement, Measurements, TrainedCase

DECODED = ("h_enc", "time")  # readings with small groups in tables 2 and 3
RANKINGS = {"all_classes": "by weight", "shapley": "by Shapley values"}
TRIES = 3  # groups that are compared with each other
MOST = 0.5  # share of the group by weight that Shapley values confirm
QUANTITIES = {
    **{
        f"{name}_{what}_{ranking}": f"{NAMES[name]}, {by}: {text}"
        for name in DECODED
        for what, text in (("size", "units in the group"), ("alike", "Jaccard index of groups from different splits"))
        for ranking, by in RANKINGS.items()
    },
    **{
        f"{name}_confirmed": f"{NAMES[name]}: share of the group by weight in that by Shapley values"
        for name in DECODED
    },
}


def experiments(sizes: Sizes) -> dict[str, Case]:
    """The networks of tables 2 and 3; each group is fitted on one split."""
    how = DiagnosticSettings(repeats=1)
    return {model: Case({NETWORK: experiment}, how) for model, experiment in both(sizes).items()}


def measure(case: TrainedCase[DiagnosticSettings]) -> Measurement:
    numbers: dict[str, float] = {}
    for name in DECODED:
        groups = groups_of(case.runs[NETWORK], name, case.settings)
        for ranking, each in groups.items():
            numbers[f"{name}_size_{ranking}"] = float(np.mean([len(group) for group in each]))
            numbers[f"{name}_alike_{ranking}"] = mean_jaccard(each)
        pairs = zip(groups["all_classes"], groups["shapley"], strict=True)
        numbers[f"{name}_confirmed"] = float(np.mean([len(ours & theirs) / len(ours) for ours, theirs in pairs]))
    return numbers


def groups_of(run: Run, name: str, settings: DiagnosticSettings) -> dict[str, list[set[int]]]:
    """Return, by ranking, the groups that different splits give."""
    samples = diagnostic_samples(run, *READINGS[name])
    fits = [fit_diagnostic(samples, replace(settings, seed=seed)) for seed in range(TRIES)]
    return {ranking: [set(functional_group(fit, ranking).units) for fit in fits] for ranking in RANKINGS}


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [verdict for name in DECODED for verdict in claims_about(name, measured)]


def claims_about(name: str, measured: Measurements) -> list[ClaimVerdict]:
    text, size, alike = f"{NAMES[name]}, guided", f"{name}_size", f"{name}_alike"
    most = f"{text}: Shapley values confirm most of the units"
    return [
        measured.at_least(most, GUIDED, f"{name}_confirmed", MOST),
        measured.greater(f"{text}: they select more units", GUIDED, f"{size}_shapley", f"{size}_all_classes"),
        measured.greater(f"{text}: they are less consistent", GUIDED, f"{alike}_all_classes", f"{alike}_shapley"),
    ]


def draw(data: SeedTable) -> Figure:
    """Draw one group of bars per model and feature, one bar per ranking."""
    panels: dict[str, tuple[str, Range | None]] = {
        "size": ("units in the functional group", None),
        "alike": ("Jaccard index of groups", UNIT),
    }
    picture, axes = plots.panels(1, len(panels), size=(5.0, 3.6))
    for ax, (what, (ylabel, within)) in zip(axes, panels.items(), strict=True):
        bars = {
            f"{model}: {READINGS[name][1]}": {
                by: bar_values(data[model][f"{name}_{what}_{ranking}"]) for ranking, by in RANKINGS.items()
            }
            for name in DECODED
            for model in data
        }
        draw_bars(bars, ax, ylabel, within)
    return picture


SHAPLEY = Finding(
    name="fn5-shap",
    title="Functional groups by Shapley values",
    section="§4.1, footnote 5",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, figure=QUANTITIES,
    draw=draw,
    notes=(
        "A unit's importance is the mean |Shapley value| over training steps and classes; for a linear classifier this "
        "is exact, and |weight| × mean |state − mean state|.",
        f"Groups are fitted on each of {TRIES} splits; sizes are their mean. The Jaccard index of two groups is the "
        "share of their units that both have. By chance it is higher for larger groups.",
        "No penalty, a tenth of the sentences held out, a new classifier for each group, as in table 2.",
        *NOTES,
        "What this does not show: whether the paper's approximation, of which it says nothing, was at fault.",
    ),
)  # fmt: skip
