"""What is the smallest group of units that does nearly as well as all of them? (baan2019 §4.1, tables 2 and 3)

Units are added in the order of their ranking until the accuracy reaches 95 % of that of all units. Accuracy does not
have to grow with every unit, so bisection could end anywhere. Sizes are tried upwards: each one up to 16, after that
each a quarter above the last; once one is enough, all sizes since the last that was not are tried, from below. A
smaller group than the one found can only have been passed over where a larger one failed again. `every_size` passes
over none.
"""

# TODO(docstring) join:
#   Which units does a classifier lean on most? (baan2019 §4.1; footnote 5)
#   Do different splits find the same units? (baan2019 footnote 5)
#   Are the units of a functional group among the strongest-connected ones? (baan2019 §4.1)
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.probes.diagnostic.classifier import LinearClassifier, Samples, Split
from attnscope.probes.diagnostic.decoding import DiagnosticResult, deviation, fit_and_test
from attnscope.probes.weights import STRONGEST, strongest_units

MIN_SHARE = 0.95  # of the accuracy of all units
DENSE_SIZES = 16  # sizes up to this are all tried
GROWTH = 1.25

Accuracies = tuple[float, ...]  # a repeat


@dataclass(frozen=True)
class FunctionalGroup(Displayed):
    """The units in the order of their ranking, and the accuracy of every size that was tried, a repeat each."""

    units: tuple[int, ...]
    ranking: str
    masked: bool
    enough: float
    tried: dict[int, Accuracies]  # size to accuracies
    full: Accuracies
    of_units: int

    @property
    def size(self) -> int:
        return len(self.units)

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.tried[self.size]))

    @property
    def full_accuracy(self) -> float:
        return float(np.mean(self.full))

    def table(self) -> pd.DataFrame:
        """One row, as in tables 2 and 3: the group's accuracy, in brackets there that of all units, and its size."""
        row = {
            "accuracy": self.accuracy, "deviation": deviation(self.tried[self.size]), "full": self.full_accuracy,
            "full_deviation": deviation(self.full), "size": self.size, "units": self.of_units,
            "ranking": self.ranking, "masked": self.masked,
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Accuracy against the number of units, with a mark at the group's size."""
        from attnscope import plots

        sizes = sorted(self.tried)
        means = [np.mean(self.tried[size]) for size in sizes]
        bands = {"group": [np.std(self.tried[size]) for size in sizes]}
        full = [self.full_accuracy] * len(sizes)
        return plots.profiles(
            sizes, {"group": means, "all units": full}, ax=ax, xlabel="units, in the order of their ranking",
            ylabel="accuracy", marks={"group": self.size}, bands=bands,
        )  # fmt: skip


def functional_group(
    reading: DiagnosticResult,
    ranking: str = "all_classes",
    enough: float = MIN_SHARE,
    masked: bool = False,
    every_size: bool = False,
) -> FunctionalGroup:
    """The classifier is fitted anew on each prefix of the ranking; `masked`: the one on all units is kept, and the
    units outside of the prefix are put to zero."""
    require(0 < enough <= 1, f"enough must be above 0 and at most 1, not {enough}")
    order = rank_units(reading, ranking)
    measure: Callable[[int], Accuracies] = cache(
        masked_accuracies(reading, order) if masked else refitted_accuracies(reading, order)
    )
    tried = dict[int, Accuracies]()

    def reaches(size: int) -> bool:
        # Of all units, nothing is fitted anew: it is the accuracy that is to be reached.
        tried[size] = reading.accuracies if size == reading.samples.units else measure(size)
        return bool(np.mean(tried[size]) >= enough * reading.accuracy - 1e-12)

    size = smallest_sufficient(reaches, reading.samples.units, every_size or masked)
    units = tuple(order[:size].tolist())
    return FunctionalGroup(units, ranking, masked, enough, tried, reading.accuracies, reading.samples.units)


def smallest_sufficient(reaches: Callable[[int], bool], most: int, every_size: bool = False) -> int:
    """The first size that is enough, by the search described above; `most` always is."""
    below = 0
    for size in range(1, most + 1) if every_size else candidate_sizes(most):
        if reaches(size) or size == most:
            return next((between for between in range(below + 1, size) if reaches(between)), size)
        below = size
    raise AssertionError("all units together are always enough")


def candidate_sizes(most: int) -> Iterator[int]:
    """
    >>> list(candidate_sizes(40))
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 25, 31, 38, 40]
    """
    size = 1
    while size < most:
        yield size
        size = size + 1 if size < DENSE_SIZES else int(size * GROWTH)
    yield most


def refitted_accuracies(reading: DiagnosticResult, order: Int[np.ndarray, " units"]) -> Callable[[int], Accuracies]:
    samples, settings = reading.samples, reading.settings
    return lambda size: tuple(fit_and_test(samples, split, settings, order[:size]) for split in reading.splits)


def masked_accuracies(reading: DiagnosticResult, order: Int[np.ndarray, " units"]) -> Callable[[int], Accuracies]:
    """All sizes at once: each unit adds its part to the scores of those before it."""
    pairs = zip(reading.classifiers, reading.splits, strict=True)
    curves = [masked_curve(one, reading.samples, split, order) for one, split in pairs]
    return lambda size: tuple(float(curve[size - 1]) for curve in curves)


def masked_curve(
    classifier: LinearClassifier, samples: Samples, split: Split, order: Int[np.ndarray, " units"]
) -> np.ndarray:
    """The accuracy of one unit, of two, ..., of all."""
    scores = np.tile(classifier.biases, (len(split.unseen), 1))  # steps x classes
    states, labels = samples.states[split.unseen], samples.labels[split.unseen]
    found = np.empty(len(order))
    for size, unit in enumerate(order):
        scores += np.outer(states[:, unit], classifier.weights[:, unit])
        found[size] = (classifier.classes[scores.argmax(1)] == labels).mean()
    return found


def mean_absolute_weight(reading: DiagnosticResult) -> Float[np.ndarray, " units"]:
    """The mean |weight| over classes and repeats."""
    return np.asarray(np.abs(reading.weights).mean((0, 1)))


def first_class_weight(reading: DiagnosticResult) -> Float[np.ndarray, " units"]:
    """What the released code did: the first class's weights alone, averaged over repeats with their sign."""
    return np.asarray(np.abs(reading.weights[:, 0].mean(0)))


def mean_absolute_shapley(reading: DiagnosticResult) -> Float[np.ndarray, " units"]:
    """The mean |Shapley value| over steps, classes and repeats, the steps learned from being the background."""
    each = [
        np.abs(classifier.weights).mean(0) * mean_absolute_deviation(reading.samples.states[split.seen])
        for classifier, split in zip(reading.classifiers, reading.splits, strict=True)
    ]
    return np.asarray(np.mean(each, 0))


def shapley_values(
    weights: Float[np.ndarray, "classes units"],
    states: Float[np.ndarray, "steps units"],
    background: Float[np.ndarray, "others units"],
) -> Float[np.ndarray, "steps classes units"]:
    """What each unit adds to each class's score, on_device_of the mean score of the background (Lundberg and Lee 2017).

    Of a linear model whose units are taken as independent they are exact: weight × (state − mean state). The paper had
    to approximate them, and blames that.

    >>> shapley_values(np.array([[2.0, 1.0]]), np.array([[3.0, 5.0]]), np.array([[1.0, 5.0]])).tolist()
    [[[4.0, 0.0]]]
    """
    return np.asarray(weights * (states - background.mean(0))[:, None])


def mean_absolute_deviation(states: Float[np.ndarray, "steps units"]) -> Float[np.ndarray, " units"]:
    """The mean |state − mean state|: with it, the mean |Shapley value| over steps is |weight| × spread."""
    return np.asarray(np.abs(states - states.mean(0)).mean(0))


RANKINGS: dict[str, Callable[[DiagnosticResult], np.ndarray]] = {
    "all_classes": mean_absolute_weight,
    "first_class": first_class_weight,
    "shapley": mean_absolute_shapley,
}


def rank_units(reading: DiagnosticResult, ranking: str = "all_classes") -> Int[np.ndarray, " units"]:
    """The units, the most important one first; of equals, the one of the lower number."""
    importance = RANKINGS[choose("ranking", ranking, RANKINGS)](reading)
    return np.argsort(-importance, kind="stable")


def mean_jaccard(groups: Sequence[set[int]]) -> float:
    """The mean share of common units, of all units of two groups (Jaccard); 1 if all groups are the same.

    >>> round(mean_jaccard([{1, 2}, {1, 2}, {2, 3}]), 3)
    0.556
    """
    return float(np.mean([len(one & other) / len(one | other) for one, other in combinations(groups, 2)]))


@dataclass(frozen=True)
class Overlap(Displayed):
    """How many of the group's units are among the strongest; any unit is by chance with `chance`."""

    group: tuple[int, ...]
    strongest: tuple[int, ...]
    of_units: int

    @property
    def share(self) -> float:
        return len(set(self.group) & set(self.strongest)) / len(self.group)

    @property
    def chance(self) -> float:
        return len(self.strongest) / self.of_units

    def table(self) -> pd.DataFrame:
        row = {"share": self.share, "chance": self.chance, "group": len(self.group), "strongest": len(self.strongest)}
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        rows = pd.DataFrame({"share": [self.share, self.chance]}, ["functional group", "any unit"])
        return plots.bars(rows, ax=ax, ylabel="share among the strongest-connected units")


def overlap(group: Sequence[int], strengths: Float[np.ndarray, " units"], share: float = STRONGEST) -> Overlap:
    """`strengths` of all units are those of attnscope.probes.weights.strengths."""
    require(bool(group), "an empty group overlaps with nothing; give at least one unit")
    beyond = [unit for unit in group if not 0 <= unit < len(strengths)]
    require(not beyond, f"units {beyond} have no strength: there are strengths of {len(strengths)} units")
    return Overlap(tuple(group), strongest_units(strengths, share), len(strengths))
