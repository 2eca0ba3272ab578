"""The experiments of snell2021 on artificial sequences, copying and the keyword, and their learning curves.

(snell2021 §3.3, §5.2, §6.) Settings are the paper's; where it is silent, those of the author's code: batches of 128,
Adam with a learning rate of 1e-3 and no clipping, fresh sentences at every step, an evaluation every ten steps, teacher
forcing throughout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope.lab.experiment import Experiment, Run
from attnscope.models import PRESETS, ClassifierSettings, EncoderDecoderSettings, Start
from attnscope.plots.style import axes, legend, name_axes, styled
from attnscope.studies.claims import ClaimVerdict, Values
from attnscope.studies.finding import Measurement, Measurements, PublishedOf
from attnscope.studies.result import Row, row
from attnscope.tasks import Copying, Keyword
from attnscope.training import TrainingSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class HeadSizes:
    """How many first heads are tried, and how (§5.2)."""

    together: int  # K
    bases: tuple[int, ...]  # seeds of all other weights
    groups: int  # of as many heads as there are seeds, with each base
    data_seeds: int  # must agree on whether a head is good or bad
    steps: int  # for a head to show what it is
    shown: int  # steps of the networks of K heads


@dataclass(frozen=True)
class KeywordSizes:
    """The classifier of §6.1, of which the paper says nothing: `paper` takes the one of A.8."""

    seeds: int
    units: int  # of each direction; the attention has as many
    input_size: int
    length: int
    test_size: int
    steps: int


@dataclass(frozen=True)
class ToySizes:
    """How large, how long, how many seeds."""

    seeds: int
    units: int  # of encoder and decoder, of their words and of N
    batch_size: int
    length: int
    test_size: int
    steps: int  # of copying: what the paper shows, and on
    enough: float | None  # word accuracy at which copying is stopped
    reorderings: int  # fixed permutations of positions (§6.2)
    heads: HeadSizes
    keyword: KeywordSizes


PAPER = ToySizes(
    seeds=20, units=256, batch_size=128, length=40, test_size=128, steps=1500, enough=None, reorderings=1,
    heads=HeadSizes(together=8, bases=(0, 1, 2), groups=2, data_seeds=3, steps=200, shown=300),
    keyword=KeywordSizes(seeds=5, units=256, input_size=300, length=40, test_size=1000, steps=10_000),
)  # fmt: skip
QUICK = ToySizes(
    seeds=4, units=128, batch_size=64, length=40, test_size=64, steps=300, enough=0.99, reorderings=1,
    heads=HeadSizes(together=2, bases=(0, 1), groups=4, data_seeds=1, steps=200, shown=200),
    keyword=KeywordSizes(seeds=3, units=64, input_size=64, length=40, test_size=500, steps=3000),
)  # fmt: skip
SIZES = {"quick": QUICK, "paper": PAPER}

# Copying -----------------------------------------------------------------------------------------------------------

ADAM = TrainingSettings(
    learning_rate=1e-3, betas=(0.9, 0.999), max_grad_norm=None, teacher_forcing=1.0, evaluate_every=10, batch_size=128
)


def copying(sizes: ToySizes, distribution: str, reordering: int | None = None) -> Experiment:
    """Permutations of 40 words, 40 of 60, or permutations of 40 words mixed with those of 40 others (§3.3, A.3)."""
    words = {"permutations": sizes.length, "sampled": sizes.length * 3 // 2, "mixture": 2 * sizes.length}
    return Experiment(
        task=Copying(sizes.test_size, distribution, words[distribution], sizes.length, permutation_seed=reordering),
        model=network(sizes),
        training=replace(ADAM, steps=sizes.steps, batch_size=sizes.batch_size, stop_at_accuracy=sizes.enough),
    )


def with_heads(
    sizes: ToySizes, base: int, heads: tuple[int, ...], steps: int, data: int, combine: str = "sum"
) -> Experiment:
    """Permutations, from the same first weights for all of a base but for W of each head, which has its own seed."""
    alone = copying(sizes, "permutations")
    return replace(
        alone,
        model=replace(network(sizes), heads=len(heads), combine=combine),  # summed: eq. 21
        training=replace(alone.training, steps=steps, stop_at_accuracy=None),
        start=Start(weights=base, heads=heads),
        seed=data,
    )


def network(sizes: ToySizes) -> EncoderDecoderSettings:
    return replace(PRESETS["copying"], units=sizes.units, input_size=sizes.units, hidden=sizes.units)


# The keyword -------------------------------------------------------------------------------------------------------

PER_DECADE = 8  # checkpoints


def keyword(sizes: KeywordSizes, bidirectional: bool) -> Experiment:
    """Trained under uniform attention; batches of 32 as in A.8. No end token: the last position is a word."""
    return Experiment(
        task=Keyword(test_size=sizes.test_size, length=sizes.length, end=False),
        model=ClassifierSettings(sizes.input_size, sizes.units, hidden=sizes.units, bidirectional=bidirectional),
        training=replace(
            ADAM,
            steps=sizes.steps,
            batch_size=32,
            attention="uniform",
            evaluate_every=sizes.steps,
            checkpoints=checkpoints(sizes.steps),
        ),
    )


def checkpoints(last: int, first: int = 10) -> tuple[int, ...]:
    """Steps from the first to the last, each as many times the one before.

    >>> checkpoints(100)
    (10, 13, 18, 24, 32, 42, 56, 75, 100)
    """
    count = round(PER_DECADE * np.log10(last / first)) + 1
    return tuple(np.geomspace(first, last, count).round().astype(int).tolist())


LEARNT = 0.99  # of the words are right; the paper speaks of perfect accuracy
WINDOW = 300  # steps, within which the paper looks (§6.2)
SEEDS_OF_THE_PAPER = 20  # of the paper

QUANTITIES = {
    "learnt_in_time": f"seeds that have learnt (99 % of the words) within {WINDOW} steps",
    "accuracy_in_time": f"word accuracy at step {WINDOW}",
    "learnt": "seeds that have learnt at the end",
    "step_learnt": "step at which they have, mean of those that do",
    "accuracy": "word accuracy at the end",
}
RED, BLUE, GREEN = "#D55E00", "#0072B2", "#009E73"  # the paper's, as colour-blind readers can tell them apart


@dataclass(frozen=True)
class Curve:
    """Word accuracy on the validation set at each evaluation. A run that was stopped stays where it was."""

    steps: np.ndarray
    accuracy: np.ndarray

    @classmethod
    def of(cls, run: Run) -> "Curve":
        return cls(run.log["step"].to_numpy(), run.log["word_accuracy"].to_numpy())

    def first(self, mark: float) -> float:
        """The step at which this accuracy is first seen; NaN if it never is."""
        there = self.steps[self.accuracy >= mark]
        return float(there[0]) if len(there) else float("nan")

    def at(self, step: int) -> float:
        return float(self.accuracy[self.steps <= step][-1])

    def reaches(self, mark: float, within: int) -> bool:
        return self.first(mark) <= within  # not so for NaN

    @property
    def picture(self) -> dict[str, Any]:
        return {"steps": self.steps, "accuracy": self.accuracy}


def measure(run: Run) -> Measurement:
    curve = Curve.of(run)
    step = curve.first(LEARNT)
    return {
        "learnt_in_time": curve.reaches(LEARNT, WINDOW),
        "accuracy_in_time": curve.at(WINDOW),
        "learnt": bool(np.isfinite(step)),
        "step_learnt": step,
        # Who never learns would have needed more steps than there were.
        "steps_needed": step if np.isfinite(step) else float(run.experiment.training.steps),
        "accuracy": float(curve.accuracy[-1]),
        "picture": curve.picture,
    }


def table_of(measured: Measurements, stated: PublishedOf) -> list[Row]:
    """Of a task that is learnt or not, with what the paper states of it."""
    return measured.table(QUANTITIES, stated) + medians(measured)


def medians(measured: Measurements) -> list[Row]:
    """The median over all seeds of the step at which a task is learnt: none where more than half never get there."""
    text = "step at which they have, median of all seeds (one number)"
    return [row(model=label, quantity=text, values=[median(measured, label)]) for label in measured]


def median(measured: Measurements, label: str) -> float:
    steps = np.array(measured.values(label, "step_learnt"))
    return float(np.median(np.where(np.isnan(steps), np.inf, steps))) if len(steps) else float("nan")


def sometimes(text: str, flags: Values) -> ClaimVerdict:
    """Is it so in at least one seed? Fewer than the paper had may miss it.

    >>> sometimes("it fails", [False, True]).word, sometimes("it fails", [False, False]).word
    ('holds', 'undecided')
    """
    n, true = np.size(flags), int(np.sum(np.asarray(flags, dtype=bool)))
    evidence = f"in {true} of {n} seeds"
    if true == 0 and n < SEEDS_OF_THE_PAPER:
        return ClaimVerdict(
            text, None, evidence, f"{n} seeds may miss what the paper saw in some of {SEEDS_OF_THE_PAPER}"
        )
    return ClaimVerdict(text, true > 0, evidence)


# Drawing -----------------------------------------------------------------------------------------------------------


def pictures(measured: Measurements, labels: Sequence[str]) -> dict[str, Any]:
    """The curves of all seeds."""
    return {label: [each["picture"] for each in measured[label]] for label in labels}


def ends(data: Mapping[str, Any]) -> list[int]:
    """How far to show the curves: as far as the paper looks, and, if training went on, to the end."""
    last = last_step(data)
    return [WINDOW, last] if last > WINDOW else [last]


def last_step(data: Mapping[str, Any]) -> int:
    return max(int(curve["steps"][-1]) for curves in data.values() for curve in curves)


@styled
def draw_curves(data: Mapping[str, Any], paint: Mapping[str, str], ax: "Axes", last: int, title: str) -> None:
    """A thin curve a seed, a colour a group; where a run was stopped, a line goes on from there."""
    ax = axes(ax)
    handles = []
    for label, colour in paint.items():
        for curve in data[label]:
            seen = [(step, y) for step, y in zip(curve["steps"], curve["accuracy"], strict=True) if step <= last]
            steps, accuracy = zip(*seen, (last, seen[-1][1]), strict=True)
            (line,) = ax.plot(steps, accuracy, color=colour, linewidth=1.0, alpha=0.65)
        handles.append(line)
    ax.set_xlim(0, last)
    ax.set_ylim(-0.02, 1.02)
    ax.set_title(title)
    name_axes(ax, "training step", "word accuracy")
    legend(ax, handles, list(paint))
