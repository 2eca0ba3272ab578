"""Can a linear classifier read a feature off these units? (baan2019 §4.1, tables 2 and 3)"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from attnscope.display import Displayed
from attnscope.errors import choose, require
from attnscope.probes.diagnostic.classifier import PENALTIES, Linear, fitted
from attnscope.probes.diagnostic.samples import SPLITS, Samples, Split, splits
from attnscope.probes.drawing import Axes


@dataclass(frozen=True)
class DiagnosticSettings:
    """How classifiers are fitted and tested. The paper: no penalty; its code: L2 with C = 1, split by token."""

    penalty: str = "none"
    inverse_penalty: float = 1.0  # C of scikit-learn
    split: str = "sequence"
    held_out: float = 0.1  # released code: 90 to 10
    repeats: int = 5  # released code
    seed: int = 0

    def __post_init__(self) -> None:
        choose("penalty", self.penalty, PENALTIES)
        choose("way to split", self.split, SPLITS)
        require(self.inverse_penalty > 0, f"inverse_penalty must be positive, not {self.inverse_penalty}")
        require(0 < self.held_out < 1, f"held_out must be between 0 and 1, not {self.held_out}")
        require(self.repeats > 0, f"repeats must be positive, not {self.repeats}")


RELEASED = DiagnosticSettings(penalty="l2", inverse_penalty=1.0, split="token")


@dataclass(frozen=True)
class Reading(Displayed):
    """One classifier on all units for each repeat, with its accuracy on what was held out."""

    samples: Samples
    settings: DiagnosticSettings
    splits: tuple[Split, ...]
    classifiers: tuple[Linear, ...]
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def deviation(self) -> float:
        """Over repeats; NaN for a single one."""
        return deviation(self.accuracies)

    @property
    def converged(self) -> float:
        """The share of fits that reached their tolerance."""
        return float(np.mean([classifier.converged for classifier in self.classifiers]))

    @property
    def weights(self) -> Float[np.ndarray, "repeats classes units"]:
        return np.stack([classifier.weights for classifier in self.classifiers])

    def table(self) -> pd.DataFrame:
        row = {
            "accuracy": self.accuracy, "deviation": self.deviation, "majority": self.samples.majority,
            "units": self.samples.units, "steps": len(self.samples), "classes": len(self.samples.classes),
            "penalty": self.settings.penalty, "split": self.settings.split, "converged": self.converged,
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        rows = pd.DataFrame({"accuracy": [self.accuracy, self.samples.majority]}, ["classifier", "majority"])
        errors = pd.DataFrame({"accuracy": [self.deviation, np.nan]}, rows.index)
        return plots.bars(rows, ax=ax, errors=errors, ylabel="accuracy on what was held out")


def read(samples: Samples, settings: DiagnosticSettings | None = None) -> Reading:
    """Fit and test a classifier on all units, on each of several splits."""
    settings = settings or DiagnosticSettings()
    drawn = tuple(splits(samples, settings.split, settings.held_out, settings.repeats, settings.seed))
    for split in drawn:
        check_classes(samples.labels, split)
    found = tuple(fitted_on(samples, split, settings) for split in drawn)
    accuracies = tuple(unseen_accuracy(one, samples, split) for one, split in zip(found, drawn, strict=True))
    return Reading(samples, settings, drawn, found, accuracies)


def fitted_on(
    samples: Samples, split: Split, settings: DiagnosticSettings, units: Int[np.ndarray, " chosen"] | None = None
) -> Linear:
    """With `units`, on these alone."""
    states = samples.states if units is None else samples.states[:, units]
    return fitted(states[split.seen], samples.labels[split.seen], settings.penalty, settings.inverse_penalty)


def unseen_accuracy(classifier: Linear, samples: Samples, split: Split, units: np.ndarray | None = None) -> float:
    states = samples.states if units is None else samples.states[:, units]
    return classifier.accuracy(states[split.unseen], samples.labels[split.unseen])


def accuracy_of(samples: Samples, split: Split, settings: DiagnosticSettings, units: np.ndarray | None) -> float:
    """Of a classifier of its own; with `units`, on these alone."""
    return unseen_accuracy(fitted_on(samples, split, settings, units), samples, split, units)


def check_classes(labels: Int[np.ndarray, " steps"], split: Split) -> None:
    missing = sorted(set(labels.tolist()) - set(labels[split.seen].tolist()))
    require(not missing, f"no step of class {missing} is left to learn from; hold out less, or give more sequences")


def deviation(values: tuple[float, ...]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
