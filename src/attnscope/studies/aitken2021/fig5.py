"""Which features of time and word make the attention? (aitken2021 §4.1, figure 5)"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.studies.aitken2021.experiments import AED, AO, Sizes, escan, one_to_one
from attnscope.studies.aitken2021.look import between, look
from attnscope.studies.aitken2021.published import published
from attnscope.studies.claims import Verdict, always, at_least, at_most
from attnscope.studies.finding import Finding, Measured, Measurement
from attnscope.studies.result import Row, row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ESCAN = ("eSCAN, AED", "eSCAN, AO")


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    return {
        "one-to-one, AED": one_to_one(AED, sizes),
        "one-to-one, AO": one_to_one(AO, sizes),
        "eSCAN, AED": escan(AED, sizes),
        "eSCAN, AO": escan(AO, sizes),
    }


def spread(values: np.ndarray) -> float:
    """The standard deviation over seeds; none for a single one."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def task_of(label: str) -> str:
    return "escan" if label in ESCAN else "one_to_one"


# (a) Which of the nine terms make the alignment? -------------------------------------------------------------------


def measure_shares(run: Run) -> Measurement:
    seen = look(run)
    signed = seen.between.shares.signed[0]
    return {
        "temporal": seen.between.shares.temporal[0].item(),
        "temporal_query": seen.between.shares.temporal_query[0].item(),
        "temporal_held_out": between(seen.held_out).shares.temporal[0].item(),
        "temporal_query_held_out": between(seen.held_out).shares.temporal_query[0].item(),
        "temporal_signed": signed[0, 0].item(),
        "temporal_query_signed": signed[0].sum().item(),
        "rare": int(seen.between.rare.steps.sum()),
    }


def claims_shares(measured: Measured) -> list[Verdict]:
    stated = (
        ("temporal · temporal captures over 77 %", "temporal", 0.77),
        ("with two further terms (μ·χ, μ·Δ) over 87 %", "temporal_query", 0.87),
    )
    return [
        at_least(f"{label}: {text} of the alignment", measured.values(label, name), threshold)
        for label in ESCAN
        for text, name, threshold in stated
    ]


def table_shares(measured: Measured) -> list[Row]:
    quantities = {
        "temporal": "μ·μ, share of |terms|",
        "temporal_query": "μ·μ + μ·χ + μ·Δ, share of |terms|",
        "temporal_held_out": "μ·μ, held out",
        "temporal_query_held_out": "μ·μ + μ·χ + μ·Δ, held out",
        "temporal_signed": "μ·μ, signed share",
        "temporal_query_signed": "μ·μ + μ·χ + μ·Δ, signed share",
    }
    return [
        row(model=label, quantity=text, values=measured.values(label, name), **published(task_of(label), name))
        for label in measured
        for name, text in quantities.items()
    ]


def figure_shares(measured: Measured) -> Any:
    return {
        label: {name: measured.values(label, name) for name in ("temporal", "temporal_query")} for label in measured
    }


def draw_shares(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 3.8))
    first = {label: np.array(values["temporal"]) for label, values in data.items()}
    three = {label: np.array(values["temporal_query"]) for label, values in data.items()}
    parts = {label: (first[label], three[label] - first[label], 1 - three[label]) for label in data}
    columns = ["μ·μ", "μ·χ + μ·Δ", "the other six"]
    means = pd.DataFrame({label: [part.mean() for part in three] for label, three in parts.items()}, columns).T
    spreads = pd.DataFrame({label: [spread(part) for part in three] for label, three in parts.items()}, columns).T
    spreads["the other six"] = 0.0  # what the others leave has no spread of its own
    plots.stacked_shares(means, ax=ax, errors=spreads)
    ax.set_ylabel("share of the nine |terms|")
    return picture


# (b) At which offset from its own time does the decoder look? ------------------------------------------------------


def measure_offsets(run: Run) -> Measurement:
    seen = look(run)
    profile = seen.decomposition.offsets
    assert profile is not None
    table = profile.table().iloc[: seen.steps]
    shown = [int(step) for step in np.linspace(0, len(table) - 1, 5)]
    return {
        "distance": float((table["largest"] - table["expected"]).abs().mean()),
        "growth": float(table["largest"].iloc[-3:].mean() - table["largest"].iloc[:3].mean()),
        "expected_growth": float(table["expected"].iloc[-3:].mean() - table["expected"].iloc[:3].mean()),
        "picture": {
            "offsets": profile.offsets,
            "curves": {step: table.loc[step, profile.offsets.tolist()].to_numpy(float) for step in shown},
            "largest": table["largest"].to_numpy(),
            "expected": table["expected"].to_numpy(),
        },
    }


def claims_offsets(measured: Measured) -> list[Verdict]:
    return [
        at_most(
            f"{label}: the maximum of μ(s)·μ(t) follows the expected offset, within one position on average",
            measured.values(label, "distance"),
            1.0,
        )
        for label in measured
    ]


def table_offsets(measured: Measured) -> list[Row]:
    quantities = {
        "distance": "mean |offset of the maximum − expected offset|",
        "growth": "offset of the maximum, last three steps − first three",
        "expected_growth": "expected offset, last three steps − first three",
    }
    return [
        row(model=label, quantity=text, values=measured.values(label, name))
        for label in measured
        for name, text in quantities.items()
    ]


def draw_offsets(data: Any) -> "Figure":
    picture, axes = plots.panels(2, 4, size=(3.6, 3.2))
    for place, (label, content) in enumerate(data.items()):
        offsets = np.array(content["offsets"])
        curves = {f"s = {step}": np.array(curve, dtype=float) for step, curve in content["curves"].items()}
        plots.profiles(offsets, curves, ax=axes[place], xlabel="offset t − s", ylabel="μ(s) · μ(t)")
        axes[place].set_title(label)
        steps = np.arange(len(content["largest"]))
        follows = {name: np.array(content[name], dtype=float) for name in ("largest", "expected")}
        plots.profiles(steps, follows, ax=axes[4 + place], xlabel="decoder step s", ylabel="offset")
        axes[4 + place].set_ylim(-5.5, 5.5)
    return picture


# (c) How much of a word's variance is time? ------------------------------------------------------------------------


def measure_variance(run: Run) -> Measurement:
    seen = look(run)
    variance = seen.measured.encoder.variance
    return {
        "drop": 1 - variance.mean[0].item(),
        "drop_held_out": 1 - seen.held_out.encoder.variance.mean[0].item(),
        "rare": int((variance.rare & (variance.counts > 0)).sum()),
        "picture": variance.table(seen.source_words)["ratio"].to_dict(),
    }


def claims_variance(measured: Measured) -> list[Verdict]:
    return [
        at_least(
            "eSCAN, AED: the variance of a word's states drops by about 90 % (at least 85 %) without time",
            measured.values("eSCAN, AED", "drop"),
            0.85,
        ),
        at_least(
            "eSCAN, AO: the variance of a word's states drops by about 95 % (at least 90 %) without time",
            measured.values("eSCAN, AO", "drop"),
            0.90,
        ),
    ]


def table_variance(measured: Measured) -> list[Row]:
    quantities = {"drop": "drop of the variance", "drop_held_out": "the same, held out"}
    stated = {"eSCAN, AED": "variance_drop_aed", "eSCAN, AO": "variance_drop_ao"}
    return [
        row(
            model=label,
            quantity=text,
            values=measured.values(label, name),
            **(published("escan", stated.get(label, "")) if name == "drop" else {}),
        )
        for label in measured
        for name, text in quantities.items()
    ]


def figure_variance(measured: Measured) -> Any:
    return {label: measured.values(label, "drop") for label in measured}


def draw_variance(data: Any) -> "Figure":
    picture, (ax,) = plots.panels(1, 1, size=(6.4, 3.6))
    left = {label: 1 - np.array(drops) for label, drops in data.items()}
    means = pd.DataFrame({"variance left": {label: values.mean() for label, values in left.items()}})
    spreads = pd.DataFrame({"variance left": {label: spread(values) for label, values in left.items()}})
    stated = {label: 1 - value for label, value in (("eSCAN, AED", 0.90), ("eSCAN, AO", 0.95))}
    plots.bars(
        means,
        ax=ax,
        errors=spreads,
        published=pd.DataFrame({"variance left": stated}).reindex(means.index),
        ylabel="variance of h − μ / variance of h",
    )
    return picture


# (d) Do readouts and input components implement the dictionary? ----------------------------------------------------


def measure_readout(run: Run) -> Measurement:
    seen = look(run)
    alignment = seen.decomposition.readout(seen.model.context_readout)
    table = alignment.table(seen.target_words, seen.source_words)
    best = {
        str(action): str(table.columns[place])
        for action, place in zip(table.index, table.to_numpy().argmax(1), strict=True)
    }
    return {
        "errors": sum(word != named_by(action) for action, word in best.items()),
        "idle_words": sum(word in ("and", "twice") for word in best.values()),
        "picture": {"values": table.to_numpy(), "outputs": list(table.index), "inputs": list(table.columns)},
    }


def named_by(action: str) -> str:
    """The word that an action comes from.

    >>> named_by("LTURN"), named_by("RUN"), named_by(".")
    ('left', 'run', '.')
    """
    return "left" if action == "LTURN" else action.lower()


def claims_readout(measured: Measured) -> list[Verdict]:
    verdicts = []
    for model in measured:
        own = f"{model}: for each readout, the argmax over input words is its own word"
        idle = f"{model}: 'and' and 'twice' are the argmax of no readout"
        verdicts += [
            always(own, [errors == 0 for errors in measured.values(model, "errors")]),
            always(idle, [count == 0 for count in measured.values(model, "idle_words")]),
        ]
    return verdicts


def table_readout(measured: Measured) -> list[Row]:
    quantities = {
        "errors": "readouts that face another word than their own (of 5)",
        "idle_words": "readouts that face 'and' or 'twice'",
    }
    return [
        row(model=model, quantity=text, values=measured.values(model, name))
        for model in measured
        for name, text in quantities.items()
    ]


def draw_readout(data: Any) -> "Figure":
    picture, axes = plots.panels(1, 2, size=(5.0, 3.6))
    for (model, content), ax in zip(data.items(), axes, strict=True):
        plots.heatmap(
            np.array(content["values"]),
            rows=content["outputs"],
            columns=content["inputs"],
            ax=ax,
            title=f"{model}: readout · input component",
            diverging=True,
        )
    return picture


def pictures(measured: Measured) -> Any:
    return {label: measured.first(label)["picture"] for label in measured}


def finding(
    name: str, title: str, parts: tuple[Callable[..., Any], ...], notes: tuple[str, ...], section: str
) -> Finding:
    which, measure, table, claims, figure, draw = parts
    return Finding(name, title, section, which, measure, table, claims, figure, draw, notes)


FIG5A = finding(
    "fig5a",
    "Which of the nine terms make the alignment",
    (experiments, measure_shares, table_shares, claims_shares, figure_shares, draw_shares),
    (
        "A share is |term| over the sum of the nine |terms|, over the five largest positions of each decoder step, as "
        "the paper's author computed it. The signed share is Σ term / Σ alignment over the same positions.",
        "Held out: components from the test set, shares on sentences that it does not contain. No word of these tasks "
        "is rare (seen fewer than 10 times).",
        "What this does not show: that a term with a small share is unimportant; attention is decided by differences "
        "between positions, and a term that is large everywhere decides nothing.",
    ),
    "§4.1, figure 5a",
)
FIG5B = finding(
    "fig5b",
    "At which offset from its own time the decoder looks",
    (experiments, measure_offsets, table_offsets, claims_offsets, pictures, draw_offsets),
    (
        "The expected offset is the mean over the data of t − s, t being the word that called for the action s. Steps "
        "that fewer than half of the sentences reach are left out.",
        "What this does not show: where a single sentence looks; the temporal term is the same for all.",
    ),
    "§4.1, figure 5b",
)
FIG5C = finding(
    "fig5c",
    "How much of the variance of a word's states is time",
    (experiments, measure_variance, table_variance, claims_variance, figure_variance, draw_variance),
    (
        "Mean over words of the trace of the covariance, without the end and start tokens.",
        "What this does not show: variance is not use; what is left over may still be what the network decides by.",
    ),
    "§4.1, figure 5c",
)
FIG5D = finding(
    "fig5d",
    "Whether readouts and input components implement the dictionary",
    (
        lambda sizes: {"AED": escan(AED, sizes), "AO": escan(AO, sizes)},
        measure_readout,
        table_readout,
        claims_readout,
        pictures,
        draw_readout,
    ),
    (
        "For AED the half of the readout that meets the context (footnote 6 of the paper). The heatmaps are of the "
        "first seed.",
        "What this does not show: a dictionary of single words explains no output that depends on several.",
    ),
    "§4.1, figure 5d",
)
