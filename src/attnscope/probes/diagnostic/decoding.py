"""Can a linear classifier read a feature off these units? (baan2019 §4.1, tables 2 and 3)"""

# TODO(docstring) join:
#   Is a feature in the states, or did the classifier learn it by heart? Control tasks (Hewitt and Liang 2019)
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, choose, require
from attnscope.probes.diagnostic.classifier import (
    PENALTIES,
    SPLITS,
    LinearClassifier,
    Samples,
    Split,
    fit_linear,
    splits,
)


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
class DiagnosticResult(Displayed):
    """One classifier on all units for each repeat, with its accuracy on what was held out."""

    samples: Samples
    settings: DiagnosticSettings
    splits: tuple[Split, ...]
    classifiers: tuple[LinearClassifier, ...]
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


def fit_diagnostic(samples: Samples, settings: DiagnosticSettings | None = None) -> DiagnosticResult:
    """Fit and test a classifier on all units, on each of several splits."""
    settings = settings or DiagnosticSettings()
    drawn = tuple(splits(samples, settings.split, settings.held_out, settings.repeats, settings.seed))
    for split in drawn:
        check_classes(samples.labels, split)
    found = tuple(fit_on_split(samples, split, settings) for split in drawn)
    accuracies = tuple(held_out_accuracy(one, samples, split) for one, split in zip(found, drawn, strict=True))
    return DiagnosticResult(samples, settings, drawn, found, accuracies)


def fit_on_split(
    samples: Samples, split: Split, settings: DiagnosticSettings, units: Int[np.ndarray, " chosen"] | None = None
) -> LinearClassifier:
    """With `units`, on these alone."""
    states = samples.states if units is None else samples.states[:, units]
    return fit_linear(states[split.seen], samples.labels[split.seen], settings.penalty, settings.inverse_penalty)


def held_out_accuracy(
    classifier: LinearClassifier, samples: Samples, split: Split, units: np.ndarray | None = None
) -> float:
    states = samples.states if units is None else samples.states[:, units]
    return classifier.accuracy(states[split.unseen], samples.labels[split.unseen])


def fit_and_test(samples: Samples, split: Split, settings: DiagnosticSettings, units: np.ndarray | None) -> float:
    """Of a classifier of its own; with `units`, on these alone."""
    return held_out_accuracy(fit_on_split(samples, split, settings, units), samples, split, units)


def check_classes(labels: Int[np.ndarray, " steps"], split: Split) -> None:
    missing = sorted(set(labels.tolist()) - set(labels[split.seen].tolist()))
    require(not missing, f"no step of class {missing} is left to learn from; hold out less, or give more sequences")


def deviation(values: tuple[float, ...]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


MAX_ATTEMPTS = 1000  # of labels, before a control task is given up that never has two labels to tell apart


@dataclass(frozen=True)
class ControlTask(Displayed):
    """Real and control accuracies, a repeat each: on every repeat's split, with labels drawn anew."""

    real: tuple[float, ...]
    control: tuple[float, ...]
    kinds: int
    known: float  # the share of held-out steps whose kind was learned from; of the others nothing can be known

    @property
    def selectivities(self) -> tuple[float, ...]:
        return tuple(real - control for real, control in zip(self.real, self.control, strict=True))

    @property
    def selectivity(self) -> float:
        return float(np.mean(self.selectivities))

    def table(self) -> pd.DataFrame:
        row = {
            "accuracy": float(np.mean(self.real)), "control": float(np.mean(self.control)),
            "control_deviation": deviation(self.control), "selectivity": self.selectivity,
            "selectivity_deviation": deviation(self.selectivities), "kinds": self.kinds, "known": self.known,
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        means = pd.DataFrame({"accuracy": [np.mean(self.real), np.mean(self.control)]}, ["feature", "control task"])
        errors = pd.DataFrame({"accuracy": [deviation(self.real), deviation(self.control)]}, means.index)
        return plots.bars(means, ax=ax, errors=errors, ylabel="accuracy on what was held out")


def control_task(reading: DiagnosticResult, units: tuple[int, ...] | None = None) -> ControlTask:
    """The control task on the reading's own splits; with `units`, both tasks on these alone."""
    samples, settings = reading.samples, reading.settings
    kinds = samples.kinds
    if kinds is None:
        raise BadSetting("a control task needs to know of what kind each step is: give kinds= to Samples.of")
    chosen = None if units is None else np.array(units)
    random = np.random.default_rng((settings.seed, 1))
    real, controls, known = list[float](), list[float](), list[float]()
    for split, accuracy in zip(reading.splits, reading.accuracies, strict=True):
        made = replace(samples, labels=control_labels(samples.labels, kinds, split.seen, random))
        controls.append(fit_and_test(made, split, settings, chosen))
        real.append(accuracy if units is None else fit_and_test(samples, split, settings, chosen))
        known.append(float(np.isin(kinds[split.unseen], kinds[split.seen]).mean()))
    return ControlTask(tuple(real), tuple(controls), len(np.unique(kinds)), float(np.mean(known)))


def control_labels(
    labels: Int[np.ndarray, " steps"],
    kinds: Int[np.ndarray, " steps"],
    seen: Int[np.ndarray, " rows"],
    random: np.random.Generator,
) -> Int[np.ndarray, " steps"]:
    """A label for each kind, drawn from all steps' labels; at least two of them where something is learned from."""
    names, kind = np.unique(kinds, return_inverse=True)
    for _ in range(MAX_ATTEMPTS):
        made = random.choice(labels, len(names))[kind]
        if len(np.unique(made[seen])) > 1:
            return np.asarray(made)
    raise BadSetting(f"with {len(names)} kinds of steps no control task of two labels can be drawn; give finer kinds")


def last_tokens(
    words: Int[Tensor, "batch steps"], mask: Bool[Tensor, "batch steps"], vocabulary: int, span: int = 2
) -> Int[Tensor, "batch steps"]:
    """A number for the last `span` words at each step, the same in every batch; before the sentence there is a word of
    its own. `vocabulary` is how many words there are.

    >>> import torch
    >>> last_tokens(torch.tensor([[5, 6, 5, 6]]), torch.ones(1, 4, dtype=torch.bool), vocabulary=7)
    tensor([[61, 46, 53, 46]])
    """
    require(span > 0, f"span must be positive, not {span}")
    highest = int(words.max())
    require(highest < vocabulary, f"there is a word of number {highest}, but the vocabulary has {vocabulary} words")
    kinds = words.new_zeros(words.shape)
    for back in range(span):
        before = words.new_full(words.shape, vocabulary)  # no word: the number after the last
        before[:, back:] = words[:, : words.shape[1] - back]
        kinds = kinds + before * (vocabulary + 1) ** back
    return kinds.masked_fill(~mask, -1)
