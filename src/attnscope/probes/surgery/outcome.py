"""What did an operation do to a network's accuracy? Before, after it, and after training on (baan2019 §5, table 4)"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import nn

from attnscope.display import Displayed
from attnscope.probes.drawing import Axes
from attnscope.probes.surgery.retraining import Operated, retrained
from attnscope.tasks import Task

Measure = Callable[[nn.Module], float]


@dataclass(frozen=True)
class Outcome:
    """One operation on one model, by whatever was measured: in the paper, sequence accuracy on new compositions."""

    operation: str
    before: float
    operated: float
    retrained: float
    free: bool = False  # nothing was held while it was trained on


@dataclass(frozen=True)
class Outcomes(Displayed):
    """Those of several operations, or of one on several models."""

    each: tuple[Outcome, ...]

    def table(self) -> pd.DataFrame:
        return pd.DataFrame([vars(outcome) for outcome in self.each])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Means over models, a group an operation, with standard deviations."""
        from attnscope import plots

        groups = self.table().groupby("operation", sort=False)[["before", "operated", "retrained"]]
        return plots.bars(groups.mean(), ax=ax, errors=groups.std(), ylabel="accuracy")


def outcome(
    operation: str,
    model: nn.Module,
    operated: Operated,
    measure: Measure,
    task: Task,
    free: bool = False,
    **options: Any,
) -> tuple[Outcome, nn.Module]:
    """Measure before and after an operation and after training on; and the model that came of it.

    What else is given, such as objective= and settings=, goes to `retrained`.
    """
    made, _ = retrained(operated, task, free=free, **options)
    return Outcome(operation, measure(model), measure(operated.model), measure(made), free), made
