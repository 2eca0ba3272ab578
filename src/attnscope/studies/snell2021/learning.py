"""When has a network learnt its task? Word accuracy over training, seed by seed. (snell2021 §3.3, §5.2, §6.2)"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope.lab.experiment import Run
from attnscope.plots.style import axes, legend, name_axes, styled
from attnscope.studies.claims import ClaimVerdict, Values
from attnscope.studies.finding import Measurement, Measurements, PublishedOf
from attnscope.studies.result import Row, row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
