"""Do other cells and another attention give the same result? (aitken2021 footnotes 1 and 2)"""

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.models import EncoderDecoderSettings
from attnscope.probes.decomposition.terms import TERMS
from attnscope.studies.aitken2021.analysis import analyse
from attnscope.studies.aitken2021.experiments import AED, AO, NetworkLabel, Sizes, escan, one_to_one
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Finding, Measurement, Measurements

ONE_TO_ONE = "one-to-one"
TASKS = {ONE_TO_ONE: one_to_one, "eSCAN": escan}
NETWORKS: dict[str, EncoderDecoderSettings] = {
    "AED, GRU": AED,
    "AED, LSTM": replace(AED, cell="lstm"),
    "AED, UGRNN": replace(AED, cell="ugrnn"),
    "AED, query-key-value": replace(AED, attention="query_key_value"),
    "AO, gated": AO,
    "AO, not gated": replace(AO, cell="ungated_feedforward"),
    "AO, query-key-value": replace(AO, attention="query_key_value"),
}
QUANTITIES = {
    "word_accuracy": "word accuracy",
    "temporal": "share of μ·μ",
    "temporal_query": "share of μ·μ + μ·χ + μ·Δ",
}


def experiments(sizes: Sizes) -> dict[NetworkLabel, Experiment]:
    tasks = TASKS if sizes.all_cells else {ONE_TO_ONE: one_to_one}
    return {
        NetworkLabel(task, name): make(model, sizes) for task, make in tasks.items() for name, model in NETWORKS.items()
    }


def measure(run: Run) -> Measurement:
    shares = analyse(run).between.shares.absolute[0]
    return {
        "word_accuracy": run.summary["word_accuracy"],
        "temporal": shares[0, 0].item(),
        "temporal_query": shares[0].sum().item(),
        "largest_is_temporal": TERMS[int(shares.flatten().argmax())] == ("temporal", "temporal"),
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    text = "temporal · temporal is the largest term"
    return [measured.proportion(f"{label}: {text}", label, "largest_is_temporal") for label in measured]


def figure(measured: Measurements) -> dict[str, list[float]]:
    shares = measured.seed_values(("temporal", "temporal_query"))
    return {label: [float(np.mean(seeds)) for seeds in values.values()] for label, values in shares.items()}


def draw(data: dict[str, list[float]]) -> Figure:
    tasks = [task for task in TASKS if any(label.startswith(task) for label in data)]
    picture, axes = plots.panels(len(tasks), 1, size=(8.4, 3.6))
    for task, ax in zip(tasks, axes, strict=True):
        own = {label.removeprefix(f"{task}, "): pair for label, pair in data.items() if label.startswith(task)}
        parts = {label: [one, three - one, 1 - three] for label, (one, three) in own.items()}
        plots.stacked_shares(pd.DataFrame(parts, ["μ·μ", "μ·χ + μ·Δ", "the other six"]).T, ax=ax)
        ax.set(title=task, ylabel="share of the nine |terms|")
    return picture


CELLS_AND_ATTENTIONS = Finding(
    name="cells",
    title="Other cells and another attention",
    section="footnotes 1 and 2",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, figure=figure, draw=draw,
    notes=(
        "'Qualitatively the same' is read as: the temporal term is the largest of the nine. For query-key-value "
        "attention, queries and keys are decomposed.",
        "What this does not show: networks that did not learn their task (see word accuracy) say nothing about those "
        "that did.",
    ),
)  # fmt: skip
