"""Do guided networks generalise to new compositions of tables, and baselines not? (baan2019 A, tables 5 and 6)"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Run
from attnscope.studies.baan2019.experiments import (
    BASELINE,
    GUIDED,
    NOTES,
    both,
    network_of,
    published,
    sequence_accuracy,
)
from attnscope.studies.bars import INTERVAL, bar_values, draw_bars
from attnscope.studies.claims import UNIT, ClaimVerdict, Estimate, spread
from attnscope.studies.finding import FigureData, Finding, Measurement, Measurements, PublishedNumber
from attnscope.tasks.lookup_tables import LENGTHS

HARDER = {"heldout_compositions": "HC", "heldout_inputs": "HI", "heldout_tables": "HT", "new_compositions": "NC"}
THREE_TABLES = {
    "longer_seen": "three tables, all composed in training",
    "longer_incremental": "three tables, some never composed in training",
    "longer_new": "three tables, none composed in training",
}
SEEN = {"train": "training", "validation": "validation"}
QUANTITIES = {split: f"sequence accuracy, {text}" for split, text in (HARDER | THREE_TABLES | SEEN).items()} | {
    "step": "step of the lowest validation loss"
}
MANY = tuple(LENGTHS)[::2]  # tables: 4, 6, 8 and 10
MUCH_LONGER = {"heldout_compositions": "none of the last two tables", "new_compositions": "only the last two tables"}

SOLVED = 0.99  # 1.0 in all five runs of table 6, to two digits
FAILED = 0.5  # more sentences wrong than right
LOWEST = {"heldout_tables": 0.85, "new_compositions": 0.69}  # of the guided runs of table 6


def measure(run: Run) -> Measurement:
    model, log = network_of(run), run.log
    steps, losses = log["step"].to_numpy(), log["loss"].to_numpy()
    longer = {kind: [sequence_accuracy(model, run, f"{kind}{n}") for n in MANY] for kind in MUCH_LONGER}
    return {
        **{split: sequence_accuracy(model, run, split) for split in HARDER | THREE_TABLES | SEEN},
        "step": int(steps[losses.argmin()]),
        "picture": {kind: [sequence_accuracy(model, run, kind), *rest] for kind, rest in longer.items()},
    }


def published_number(model: str, split: str) -> PublishedNumber:
    return published(f"table5-6_{model}", split)


def claims(measured: Measurements) -> list[ClaimVerdict]:
    lowest = "is no lower than the lowest published run"
    failed = "with more sentences wrong than right"
    return [
        *(
            measured.at_least(f"guided: solves {HARDER[split]}", GUIDED, split, SOLVED)
            for split in ("heldout_compositions", "heldout_inputs")
        ),
        *(measured.at_least(f"guided: {HARDER[split]} {lowest}", GUIDED, split, low) for split, low in LOWEST.items()),
        *(
            measured.at_most(f"baseline: fails {name}, {failed}", BASELINE, split, FAILED)
            for split, name in HARDER.items()
        ),
    ]


def figure(measured: Measurements) -> dict[str, FigureData]:
    """Return every seed's accuracies, and by length the mean of seeds and their standard deviation."""
    return {
        model: {
            "splits": [{split: each[split] for split in HARDER | THREE_TABLES} for each in measured[model]],
            "longer": {kind: by_length([each["picture"][kind] for each in measured[model]]) for kind in MUCH_LONGER},
        }
        for model in measured
    }


def by_length(seeds: list[list[float]]) -> dict[str, list[float]]:
    columns = list(zip(*seeds, strict=True))
    return {"mean": [float(np.mean(column)) for column in columns], "sd": [spread(column) for column in columns]}


def draw(data: FigureData) -> Figure:
    picture, (splits, *longer) = plots.panels(1, 1 + len(MUCH_LONGER), size=(4.4, 3.4))
    draw_splits(data, splits)
    for (kind, name), ax in zip(MUCH_LONGER.items(), longer, strict=True):
        means = {model: content["longer"][kind]["mean"] for model, content in data.items()}
        bands = {
            model: longer_bands(content["longer"][kind], len(content["splits"])) for model, content in data.items()
        }
        plots.profiles([2, *MANY], means, ax=ax, bands=bands, bands_name=INTERVAL, xlabel="tables",
                       ylabel="sequence accuracy")  # fmt: skip
        ax.set(title=name, ylim=(-0.03, 1.03))
    return picture


def longer_bands(longer: FigureData, num_seeds: int) -> np.ndarray:
    """Return how far the intervals reach below and above the means, 2 x lengths."""
    pairs = zip(longer["mean"], longer["sd"], strict=True)
    return np.transpose([Estimate.of(mean, sd, num_seeds, UNIT).reach for mean, sd in pairs])


def draw_splits(data: FigureData, ax: Axes) -> None:
    names = HARDER | {"longer_seen": "three: seen", "longer_incremental": "three: some new", "longer_new": "three: new"}
    accuracies = {
        text: {
            model: bar_values([seed[split] for seed in data[model]["splits"]], published_number(model, split))
            for model in data
        }
        for split, text in names.items()
    }
    draw_bars(accuracies, ax, "sequence accuracy", dots=True)


TABLE5_6 = Finding(
    name="table5-6",
    title="Whether guided networks generalise to new compositions",
    section="appendix A, tables 5 and 6",
    experiments=both, measure=measure, table=QUANTITIES, published=published_number, claims=claims, figure=figure,
    draw=draw,
    notes=(
        "Sequence accuracy: the input, every intermediate result and the last one are right. NC has 32 sentences.",
        "The weights are those of the lowest validation loss, computed after every 200 sentences: that of the words, "
        "where the authors' code adds that of the attention in guided networks. The baseline's loss is lowest long "
        "before it has learned its training sentences (their accuracy is in the table); the finding `matched` takes "
        "it at the end of training.",
        "Sets of three tables are sampled by us from the published tables; published are the numbers on the authors' "
        "sample. No line of the paper is about them.",
        *NOTES,
    ),
)  # fmt: skip
