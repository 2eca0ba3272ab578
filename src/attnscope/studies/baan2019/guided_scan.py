"""Beyond the paper: does guidance help where attention is not diagonal? SCAN: longer commands and a new verb.

In lookup tables the k-th word of the answer comes from the k-th word of the question, so that guided attention is
diagonal. 'jump opposite left after walk' requires the end first, and 'thrice' the whole phrase three times. The gold
attention is that of Hupkes et al. 2018.
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from attnscope import plots
from attnscope.lab.experiment import Experiment, Run
from attnscope.probes.word_alignment import mean_attention_on_gold
from attnscope.studies.baan2019.experiments import BASELINE, GUIDED, Sizes, network, network_of, training
from attnscope.studies.bars import SeedTable, draw_bars, quantity_panel
from attnscope.studies.claims import ClaimVerdict, untested
from attnscope.studies.finding import Finding, Measurement, Measurements
from attnscope.tasks import Scan
from attnscope.training import CrossEntropy, Objective, evaluate
from attnscope.training.objectives import Guidance

SPLITS = {"length": "longer commands", "addprim_jump": "a new verb"}
OBJECTIVES: dict[str, Objective] = {BASELINE: CrossEntropy(), GUIDED: CrossEntropy() + Guidance(1.0)}
LEARNED = 0.9  # of the validation commands: below that, test accuracy is not judged
NOT_YET = f"not all networks have learned {LEARNED:.0%} of the validation commands"
QUANTITIES = {
    "validation": "accuracy on validation commands",
    "test": "on test commands",
    "test_words": "word accuracy on test commands",
    "attention": "attention on the gold position, test commands",
}


@dataclass(frozen=True)
class ScanSizes:
    """SCAN has 17,000 training commands with up to 22 actions, or 15,000 with up to 48."""

    seeds: int
    batch_size: int
    steps: int
    evaluate_every: int
    test_size: int | None


SIZES = {
    "paper": ScanSizes(seeds=3, batch_size=32, steps=20_000, evaluate_every=500, test_size=None),
    "quick": ScanSizes(seeds=2, batch_size=32, steps=200, evaluate_every=50, test_size=300),
}


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    return {
        label(split, kind): experiment(sizes, split, objective)
        for split in SPLITS
        for kind, objective in OBJECTIVES.items()
    }


def label(split: str, kind: str) -> str:
    return f"{SPLITS[split]}, {kind}"


def experiment(sizes: Sizes, split: str, objective: Objective) -> Experiment:
    """The paper's network and recipe; with an end token, for here the length of the answer is part of it."""
    own = SIZES[sizes.name]
    how = training(sizes, steps=own.steps, batch_size=own.batch_size, evaluate_every=own.evaluate_every)
    return Experiment(Scan(split, gold_attention=True, test_size=own.test_size), network(sizes), how, objective)


def measure(run: Run) -> Measurement:
    model = network_of(run)
    validation, test = (evaluate(model, run.task.batches(split)) for split in ("validation", "test"))
    return {
        "validation": validation["sentence_accuracy"],
        "test": test["sentence_accuracy"],
        "test_words": test["word_accuracy"],
        "attention": mean_attention_on_gold(model, run.task.batches("test")),
    }


def claims(measured: Measurements) -> list[ClaimVerdict]:
    return [verdict for split in SPLITS for verdict in claims_about(split, measured)]


def claims_about(split: str, measured: Measurements) -> list[ClaimVerdict]:
    one, other = label(split, GUIDED), label(split, BASELINE)
    attention = f"{SPLITS[split]}: more of a guided network's attention is on the gold position, on test commands"
    text = f"{SPLITS[split]}: guidance helps with test commands"
    learned = all(np.mean(measured.values(model, "validation") or [0.0]) >= LEARNED for model in (one, other))
    return [
        measured.more_than(attention, one, other, "attention"),
        measured.more_than(text, one, other, "test") if learned else untested(text, NOT_YET),
    ]


def draw(data: SeedTable) -> Figure:
    texts = {"validation": "validation", "test": "test", "test_words": "test, words", "attention": "attention, test"}
    picture, axes = plots.panels(1, len(SPLITS), size=(4.6, 3.4))
    for ax, split in zip(axes, SPLITS, strict=True):
        rows = {kind: data[label(split, kind)] for kind in OBJECTIVES if label(split, kind) in data}
        draw_bars(quantity_panel(rows, texts), ax, "share that is right")
        ax.set(ylim=(0, 1.05), title=SPLITS[split])
    return picture


GUIDED_SCAN = Finding(
    name="guided-scan",
    title="Beyond the paper: guidance on SCAN, where gold attention is not diagonal",
    section="beyond; §2",
    experiments=experiments, measure=measure, table=QUANTITIES, claims=claims, figure=QUANTITIES, draw=draw,
    seeds=lambda sizes: SIZES[sizes.name].seeds,
    notes=(
        "Network and optimiser are those of the lookup tables, with larger batches and the mean over words in place of "
        "their sum; both losses are means, in the proportion of 1 to 1. The weights with the lowest validation loss "
        "are kept. An answer is right if every action and its end are.",
        "The claims are ours, written before any full run. The quick profile has less than one epoch: there only "
        "attention can be compared.",
        "Without the files of SCAN (ATTNSCOPE_DATA names the folder of corpora) nothing is trained.",
        "What this does not show: whether attention in the right place is what is missing for the new verb, which "
        "training shows in isolation only.",
    ),
)  # fmt: skip
