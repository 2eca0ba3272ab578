"""How far had training come when attention agreed as much? Contextualised agreement ξ. (snell2021 eq. 11, figure 2)"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import numpy as np
import pandas as pd

from attnscope.display import Axes, Displayed
from attnscope.errors import AttnscopeError, require


def classification_checkpoints(last: int = 4000) -> tuple[int, ...]:
    """Return steps 0, 10, 50, 100, 150, 200, 250, then every 250, and the last (snell2021 A.8).

    >>> classification_checkpoints(600)
    (0, 10, 50, 100, 150, 200, 250, 500, 600)
    """
    return checkpoints_until(last, first=(0, 10, 50, 100, 150, 200), every=250)


def translation_checkpoints(last: int) -> tuple[int, ...]:
    """Return steps 0, 50, 100, 500, 1000, 1500, then every 2000, and the last (snell2021 A.8).

    The author counts the 2000 from zero, not from 1500.

    >>> translation_checkpoints(6000)
    (0, 50, 100, 500, 1000, 1500, 2000, 4000, 6000)
    """
    return checkpoints_until(last, first=(0, 50, 100, 500, 1000, 1500), every=2000)


def checkpoints_until(last: int, first: Sequence[int], every: int) -> tuple[int, ...]:
    require(last >= 0, f"training ends at a step of 0 or more, not {last}")
    return tuple(sorted({step for step in (*first, *range(every, last, every)) if step < last} | {last}))


@dataclass(frozen=True)
class Contextualised:
    """ξ: the performance of another seed when its attention first agreed more; ξ* (asterisk) if it never did."""

    value: float
    step: int
    exceeded: bool

    def __str__(self) -> str:
        return f"{self.value:.4g}{'' if self.exceeded else '*'}"


@dataclass(frozen=True)
class LearningCurve(Displayed):
    """Another seed during training: the agreement of its attention α̂(τ) with the trained α, and its performance."""

    steps: tuple[int, ...]
    agreement: tuple[float, ...]  # A(α, α̂(τ))
    performance: tuple[float, ...]  # p̂(τ)

    def __post_init__(self) -> None:
        check_curve(self.steps, self.agreement, self.performance)

    @classmethod
    def mean(cls, curves: Sequence["LearningCurve"]) -> "LearningCurve":
        """Return the mean curve of several seeds (the author averages five for classification)."""
        require(len({curve.steps for curve in curves}) == 1, "curves are averaged at the same steps; these differ")
        agreement, performance = (
            np.mean([getattr(curve, name) for curve in curves], axis=0).tolist()
            for name in ("agreement", "performance")
        )
        return cls(curves[0].steps, tuple(agreement), tuple(performance))

    def on(self, checkpoints: Sequence[int]) -> "LearningCurve":
        """Return the same curve at these steps and no others: with more of them an earlier τ would be found."""
        missing = sorted(set(checkpoints) - set(self.steps))
        if missing:
            raise AttnscopeError(f"the curve lacks the steps {', '.join(map(str, missing))}")
        places = [bisect_left(self.steps, step) for step in checkpoints]
        return LearningCurve(
            tuple(checkpoints), tuple(self.agreement[i] for i in places), tuple(self.performance[i] for i in places)
        )

    @property
    def final(self) -> float:
        """ξ*, the performance when training ends."""
        return self.performance[-1]

    def contextualise(self, agreement: float) -> Contextualised:
        """Return ξ(u, v) of an agreement A(u, v): p̂ at the first step with A(α, α̂(τ)) > A(u, v)."""
        require(isfinite(agreement), f"an agreement must be a number to be put in context, not {agreement}")
        for step, reached, performance in zip(self.steps, self.agreement, self.performance, strict=True):
            if reached > agreement:
                return Contextualised(performance, step, exceeded=True)
        return Contextualised(self.final, self.steps[-1], exceeded=False)

    def table(self) -> pd.DataFrame:
        """Return one row per step."""
        columns = {"agreement": self.agreement, "performance": self.performance}
        return pd.DataFrame(columns, pd.Index(self.steps, name="step"))

    def plot(self, ax: Axes | None = None, agreements: Mapping[str, float] | None = None) -> Axes:
        """Draw figure 2: both curves; for each given A(u, v), its height and the step where it is exceeded."""
        from attnscope import plots

        levels = agreements or {}
        curves = {"A(α, α̂(τ))": list(self.agreement), "p̂(τ)": list(self.performance)}
        flat = {name: [level] * len(self.steps) for name, level in levels.items()}
        reached = {name: self.contextualise(level) for name, level in levels.items()}
        marks = {name: at.step for name, at in reached.items() if at.exceeded}
        return plots.profiles(self.steps, curves | flat, ax=ax, xlabel="training step τ", marks=marks or None)


@dataclass(frozen=True)
class OverTraining(Displayed):
    """An agreement at each checkpoint, such as A(α, β^uf(τ)): the best, as published (A.7), and the last."""

    steps: tuple[int, ...]
    agreement: tuple[float, ...]

    def __post_init__(self) -> None:
        check_curve(self.steps, self.agreement)

    @property
    def best(self) -> float:
        return max(self.agreement)

    @property
    def best_step(self) -> int:
        return self.steps[self.agreement.index(self.best)]

    @property
    def last(self) -> float:
        return self.agreement[-1]

    def table(self) -> pd.DataFrame:
        """Return one row per step, with the best and the last marked."""
        table = pd.DataFrame({"agreement": self.agreement}, pd.Index(self.steps, name="step"))
        return table.assign(best=table.index == self.best_step, last=table.index == self.steps[-1])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        name = "agreement"
        return plots.profiles(
            self.steps, {name: self.agreement}, ax=ax, xlabel="training step τ", ylabel=name,
            marks={name: self.best_step},
        )  # fmt: skip


def check_curve(steps: Sequence[int], *curves: Sequence[float]) -> None:
    require(len(steps) > 0, "a curve needs at least one step")
    require(all(a < b for a, b in pairwise(steps)), f"steps must rise, not {tuple(steps)}")
    require(
        all(len(curve) == len(steps) for curve in curves), f"each curve needs a number for each of {len(steps)} steps"
    )
    require(all(isfinite(value) for curve in curves for value in curve), "a curve has a value that is not finite")
