"""The smallest sets of units from which the current table and the time step can be decoded. (baan2019 §4.1)

Tables 2 and 3, and whether these units are among the strongest-connected ones. Classifiers are those of the text: no
penalty (footnote 4), units ranked over all classes, a new fit for each group. `h_enc` are the encoder's states; `z_dec`
and `r_dec` are the decoder's update gate, as torch computes it (open, it keeps the old state), and its reset gate.
Networks decode greedily, as in training. The finding `matched` uses the same measurement on further networks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attnscope import plots
from attnscope.errors import choose
from attnscope.lab.experiment import Experiment, Run
from attnscope.models import EncoderDecoder, Trace
from attnscope.probes.diagnostic import (
    RELEASED,
    DiagnosticResult,
    DiagnosticSettings,
    Samples,
    control_task,
    fit_diagnostic,
    last_tokens,
)
from attnscope.probes.functional_group import FunctionalGroup, functional_group, overlap
from attnscope.probes.weights import unit_strengths
from attnscope.studies.baan2019.experiments import (
    ALL_SENTENCES,
    BASELINE,
    GUIDED,
    NOTES,
    Sizes,
    baseline,
    guided,
    network_of,
    network_traces,
    published,
    sequence_accuracy,
)
from attnscope.studies.bars import bar_values, draw_bars
from attnscope.studies.claims import ClaimVerdict
from attnscope.studies.finding import Case, FigureData, Finding, Measurement, Measurements, PublishedNumber, TrainedCase
from attnscope.tasks import END, NOWHERE, Batch, LookupTables, PublishedLookupTables

NETWORK = "network"  # the role of the one network of a case
READINGS = {  # the signal, and what is decoded from it
    "h_enc": ("h_enc", "current table"),
    "z_dec": ("z_dec", "current table"),
    "r_dec": ("r_dec", "current table"),
    "time": ("h_enc", "time step"),
}
NAMES = {name: f"{feature} from {signal}" for name, (signal, feature) in READINGS.items()}
IN_TABLE = {"table2": ("h_enc", "z_dec", "r_dec"), "table3": ("time",)}
CLAIMED = ("h_enc", "time")  # what the paper's sizes are claimed for: units of gates are ranked in one way only

DECODABLE = 0.95  # tables 2 and 3 have .98 and 1. where the text says that all models know
PERFECT = 0.99  # "perfectly predict", 1. in table 2
AROUND_HALF = 0.6  # "only around 50 %", .53 and .52 in table 2
TWO_UNITS = 2.5  # a mean that is 2 when rounded
ORDER = 10  # of magnitude: 35 against 2 and 40 against 2


# Signals and features ------------------------------------------------------------------------------------------------

SIGNALS: dict[str, Callable[[Trace], Tensor]] = {
    "h_enc": lambda trace: trace.encoder,
    "z_dec": lambda trace: trace.gates["decoder.keep"],
    "r_dec": lambda trace: trace.gates["decoder.reset"],
}
FEATURES = ("current table", "time step")


def diagnostic_samples(
    run: Run,
    signal: str,
    feature: str = "current table",
    splits: Sequence[str] = ALL_SENTENCES,
    model: EncoderDecoder | None = None,
) -> Samples:
    """Return the signal with its feature at every step that has one; kinds, for control tasks, are the last two words.

    Args:
        run: A run on lookup tables.
        signal: A key of SIGNALS.
        feature: One of FEATURES.
        splits: The splits whose sentences are read.
        model: A network in place of the run's own.
    """
    signal_of = SIGNALS[choose("signal", signal, SIGNALS)]
    choose("feature", feature, FEATURES)
    assert isinstance(run.task, PublishedLookupTables | LookupTables)
    signals = ((batch, signal_of(trace)) for batch, trace in network_traces(run, splits, model))
    return labelled_samples(signals, run.task, feature, of_encoder=signal == "h_enc")


def labelled_samples(
    signals: Iterable[tuple[Batch, Tensor]],
    task: PublishedLookupTables | LookupTables,
    feature: str,
    of_encoder: bool,
) -> Samples:
    """Return signals with the feature at every step that has one.

    Args:
        signals: Batches with a signal of the encoder or of the decoder (batch x steps x units).
        task: The task of the batches.
        feature: One of FEATURES.
        of_encoder: Whether steps are those of the source; else a step has the feature of its gold position.
    """
    parts = []
    for batch, signal in signals:
        words, kinds = batch.source, last_tokens(batch.source, batch.source_mask, len(task.source_vocabulary))
        if not of_encoder:
            words, kinds = (at_gold_position(column, batch) for column in (words, kinds))
        labels, has_one = feature_labels(words, feature, task)
        parts.append(Samples.of(signal, labels, has_one, kinds))
    return Samples.joined(parts)


def at_gold_position(column: Int[Tensor, "batch source"], batch: Batch) -> Int[Tensor, "batch target"]:
    """Return the column's value at the gold attention of each target step, or NOWHERE."""
    assert batch.gold_attention is not None
    values = column.gather(1, batch.gold_attention.clamp(min=0))
    return values.masked_fill(batch.gold_attention == NOWHERE, NOWHERE)


def feature_labels(
    words: Int[Tensor, "batch steps"], feature: str, task: PublishedLookupTables | LookupTables
) -> tuple[Int[Tensor, "batch steps"], Bool[Tensor, "batch steps"]]:
    """Return the feature at each step, and where it is defined.

    The current table is the word that is read; the time step counts the words before, the full stop left out
    (footnote 7). Padding, the full stop and NOWHERE have the lowest ids.
    """
    if feature == "current table":
        tables = torch.tensor(task.source_vocabulary.encode(task.table_set.names), device=words.device)
        return words, torch.isin(words, tables)
    return torch.arange(words.shape[1], device=words.device).expand_as(words), words > END


# Measurement ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classifiers:
    """Settings as in the text; and, for the finding `matched`, as in the released code."""

    stated: DiagnosticSettings
    released: DiagnosticSettings | None = None


def experiments(sizes: Sizes) -> dict[str, Case]:
    """The baseline with all classifiers: it is one of the networks of `matched`, and is measured once for both."""
    as_stated = Classifiers(DiagnosticSettings(repeats=sizes.repeats))
    return {BASELINE: with_all_classifiers(baseline(sizes), sizes), GUIDED: Case({NETWORK: guided(sizes)}, as_stated)}


def with_all_classifiers(network: Experiment, sizes: Sizes) -> Case:
    stated, released = (replace(how, repeats=sizes.repeats) for how in (DiagnosticSettings(), RELEASED))
    return Case({NETWORK: network}, Classifiers(stated, released))


def measure(case: TrainedCase[Classifiers]) -> Measurement:
    """Return tables 2 and 3, and the share of the encoder's group for the current table among the strongest units."""
    run, classifiers = case.runs[NETWORK], case.settings
    model = network_of(run)
    fits = {
        name: fit_diagnostic(diagnostic_samples(run, *reading, model=model), classifiers.stated)
        for name, reading in READINGS.items()
    }
    groups = {name: functional_group(fit) for name, fit in fits.items()}
    numbers: dict[str, dict[str, float]] = {
        name: {"group": group.accuracy, "full": group.full_accuracy, "size": group.size}
        for name, group in groups.items()
    }
    if classifiers.released is not None:
        for name, fit in fits.items():
            numbers[name] |= control_and_rankings(name, fit, groups[name], classifiers.released)
    among = overlap(groups["h_enc"].units, unit_strengths(model, "encoder"))
    return {
        "training": sequence_accuracy(model, run, "train"),
        **{f"{name}_{what}": value for name, each in numbers.items() for what, value in each.items()},
        "overlap": among.share,
        "chance": among.chance,
        "picture": {name: accuracy_curve(group) for name, group in groups.items()},
    }


def control_and_rankings(
    name: str, fit: DiagnosticResult, group: FunctionalGroup, released: DiagnosticSettings
) -> dict[str, float]:
    """Return the accuracy of a control task, and the size of the group by other rankings."""
    control = control_task(fit)
    numbers: dict[str, float] = {
        "control": float(np.mean(control.control)),
        "selectivity": control.selectivity,
        "size_all_classes": group.size,
    }
    if name in CLAIMED:
        numbers["size_first_class"] = functional_group(fit, "first_class").size
        numbers["size_released"] = functional_group(fit_diagnostic(fit.samples, released), "first_class").size
    return numbers


def accuracy_curve(group: FunctionalGroup) -> dict[str, FigureData]:
    """Return accuracy against the number of units, for the numbers that were tried."""
    sizes = sorted(group.accuracies)
    accuracy = [sum(group.accuracies[size]) / len(group.accuracies[size]) for size in sizes]
    return {"sizes": sizes, "accuracy": accuracy, "group": group.size, "full": group.full_accuracy}


# Tables 2 and 3 ------------------------------------------------------------------------------------------------------


def quantities(table: str) -> dict[str, str]:
    texts = {
        "group": "accuracy of the functional group",
        "full": "accuracy of all units",
        "size": "units in the functional group",
    }
    return {f"{name}_{what}": f"{NAMES[name]}: {text}" for name in IN_TABLE[table] for what, text in texts.items()}


def published_number(table: str, model: str, name: str) -> PublishedNumber:
    return published(f"{table}_{model}", name)


def claims_about_group(measured: Measurements, name: str, paper: str) -> list[ClaimVerdict]:
    """Claim that all units suffice in both networks, and few units in guided ones."""
    size, text = f"{name}_size", NAMES[name]
    return [
        *(
            measured.at_least(f"{text}, {model}: decodable from all units", model, f"{name}_full", DECODABLE)
            for model in (BASELINE, GUIDED)
        ),
        measured.at_most(f"{text}, guided: two units suffice", GUIDED, size, TWO_UNITS),
        measured.more_than(f"{text}: the baseline needs more units than the guided network", BASELINE, GUIDED, size),
        measured.more_than(f"{text}: it needs more by an order of magnitude ({paper})", BASELINE, GUIDED, size, ORDER),
    ]


def claims_about_gate(measured: Measurements, gate: str) -> list[ClaimVerdict]:
    text, size = NAMES[gate], f"{gate}_size"
    return [
        measured.at_least(f"{text}, guided: it is perfectly predicted", GUIDED, f"{gate}_full", PERFECT),
        measured.at_most(f"{text}, baseline: about half is right", BASELINE, f"{gate}_full", AROUND_HALF),
        measured.greater(f"{text}, guided: the group is larger than that of h_enc", GUIDED, size, "h_enc_size"),
    ]


def claims_of_table2(measured: Measurements) -> list[ClaimVerdict]:
    gates = [verdict for gate in ("z_dec", "r_dec") for verdict in claims_about_gate(measured, gate)]
    return [*claims_about_group(measured, "h_enc", "35 against 2"), *gates]


def figure(table: str, measured: Measurements) -> dict[str, FigureData]:
    """Return the sizes and accuracies of all seeds, and the first seed's curves."""
    return {
        model: {
            name: {
                "sizes": measured.values(model, f"{name}_size"),
                "full": measured.values(model, f"{name}_full"),
                "curve": measured.first(model)["picture"][name],
            }
            for name in IN_TABLE[table]
        }
        for model in measured
    }


def draw(table: str, data: FigureData) -> list[Figure]:
    """Draw units and accuracies with one dot per seed, and accuracy against the number of units."""
    names = IN_TABLE[table]
    bars_figure, (units, accuracies) = plots.panels(1, 2, size=(4.6, 3.2))
    curves_figure, curves = plots.panels(1, len(names), size=(4.2, 3.2))
    for content, quantity, ax, ylabel in (
        ("sizes", "size", units, "units in the functional group"),
        ("full", "full", accuracies, "accuracy of all units"),
    ):
        bars = {
            name: {
                model: bar_values(data[model][name][content], published_number(table, model, f"{name}_{quantity}"))
                for model in data
            }
            for name in names
        }
        draw_bars(bars, ax, ylabel, dots=True)
    for name, ax in zip(names, curves, strict=True):
        draw_curves({model: content[name]["curve"] for model, content in data.items()}, ax)
        ax.set_title(f"{NAMES[name]}, first seed")
    return [bars_figure, curves_figure]


def draw_curves(curves: FigureData, ax: Axes) -> None:
    """Draw one line per model over the sizes that were tried, and a dotted one at the size of its group."""
    paint = plots.colours(curves)
    for model, each in curves.items():
        ax.plot(each["sizes"], each["accuracy"], color=paint[model], label=model, marker=".")
        ax.axvline(each["group"], color=paint[model], linestyle=":", linewidth=1.2)
    ax.set(xscale="log", ylim=(-0.03, 1.03), xlabel="units, in the order of their ranking", ylabel="accuracy")
    ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500]
    ax.set_xticks(ticks, labels=[str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set_xlim(right=1.1 * max(size for each in curves.values() for size in each["sizes"]))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


CHOICES = (
    "Every table and pair with every input (576 sentences); a tenth of the sentences is held out, and accuracies are "
    "those on it. The authors' code held out single steps, left scikit-learn's L2 penalty on, and ranked units by the "
    "weights of the first class alone; the finding `matched` does both, and measures by control tasks what a "
    "classifier memorises.",
    "The baseline is the network with the lowest validation loss, which has not learned all of its training sentences.",
    "Sizes of groups depend on the size of the network; those of the paper are of 512 units.",
)


def decoding_finding(
    table: str, feature: str, section: str, claims: Callable[[Measurements], list[ClaimVerdict]]
) -> Finding:
    return Finding(
        name=table,
        title=f"The smallest set of units from which the {feature} can be decoded",
        section=section,
        experiments=experiments, measure=measure, table=quantities(table), published=partial(published_number, table),
        claims=claims, figure=partial(figure, table), draw=partial(draw, table),
        notes=(*CHOICES, *NOTES),
    )  # fmt: skip


TABLE2 = decoding_finding("table2", "current table", "§4.1, table 2", claims_of_table2)
TABLE3 = decoding_finding(
    "table3", "time step", "§4.1, table 3", partial(claims_about_group, name="time", paper="40 against 2")
)


# Overlap with the strongest units ------------------------------------------------------------------------------------

OVERLAP_NAME = "sec4.1-overlap"
PUBLISHED_SHARE = 0.93  # §4.1


def claims_of_overlap(measured: Measurements) -> list[ClaimVerdict]:
    text = "guided: at least 93 % of the group is among the strongest 5 % of units"
    return [
        measured.at_least(text, GUIDED, "overlap", PUBLISHED_SHARE),
        measured.greater("guided: more of it is than by chance", GUIDED, "overlap", "chance"),
    ]


def draw_overlap(data: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    picture, (ax,) = plots.panels(size=(4.8, 3.4))
    theirs: dict[str, PublishedNumber] = {GUIDED: {"published": PUBLISHED_SHARE}}
    shares = {model: {"share": bar_values(content["overlap"], theirs.get(model))} for model, content in data.items()}
    draw_bars(shares, ax, "share among the strongest 5 %", dots=True)
    chance = next(iter(data.values()))["chance"][0]
    ax.axhline(chance, linestyle=":", color="black", linewidth=1)
    ax.set(ylim=(0, 1.05), title="units that encode the table (dotted: chance)")
    return picture


OVERLAP = Finding(
    name=OVERLAP_NAME,
    title="Whether units that encode the current table are strongly connected",
    section="§4.1",
    experiments=experiments, measure=measure,
    table={
        "overlap": "functional group of the current table in h_enc: share among the strongest 5 % of units",
        "chance": "share of any unit, by chance",
        "h_enc_size": "units in the functional group",
    },
    published=partial(published_number, OVERLAP_NAME), claims=claims_of_overlap, figure=("overlap", "chance"),
    draw=draw_overlap,
    notes=(
        "A unit's strength is the mean |weight| over the encoder's gate matrices that lead to it (rows) or, of the "
        "recurrent ones, from it (columns); the paper says no more than 'strongest absolute weight values'.",
        "A share of a group of two units can only be 0, one half or 1.",
        *CHOICES,
        *NOTES,
    ),
)  # fmt: skip
