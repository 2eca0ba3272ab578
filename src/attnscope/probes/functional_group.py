"""What is the smallest set of units from which a feature can be decoded nearly as well as from all? (baan2019 §4.1)

Units are added in the order of their ranking until the accuracy reaches 95 % of that of all units (tables 2 and 3).
Accuracy need not grow with every unit, so bisection could end anywhere. Sizes are tried upwards: each one up to 16,
after that each a quarter above the last; once one is enough, all sizes since the last that was not are tried, from
below. A smaller group than the one returned can only have been skipped where a larger one failed again. `every_size`
skips none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from attnscope.display import Axes, Displayed
from attnscope.errors import choose, require
from attnscope.probes.diagnostic import DiagnosticResult, LinearClassifier, Samples, Split, deviation, fit_and_test
from attnscope.probes.weights import STRONGEST, strongest_units

MIN_SHARE = 0.95  # of the accuracy of all units
DENSE_SIZES = 16  # sizes up to this are all tried
GROWTH = 1.25

Accuracies = tuple[float, ...]  # one per repeat


@dataclass(frozen=True)
class FunctionalGroup(Displayed):
    """The units in the order of their ranking, and the accuracies of every size that was tried."""

    units: tuple[int, ...]
    ranking: str
    masked: bool
    min_share: float
    accuracies: dict[int, Accuracies]  # by size
    full: Accuracies  # of all units
    num_units: int  # in all

    @property
    def size(self) -> int:
        return len(self.units)

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.accuracies[self.size]))

    @property
    def full_accuracy(self) -> float:
        return float(np.mean(self.full))

    def table(self) -> pd.DataFrame:
        """One row, as in tables 2 and 3: the group's accuracy, that of all units (there in brackets), and its size."""
        row = {
            "accuracy": self.accuracy, "deviation": deviation(self.accuracies[self.size]), "full": self.full_accuracy,
            "full_deviation": deviation(self.full), "size": self.size, "units": self.num_units,
            "ranking": self.ranking, "masked": self.masked,
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Accuracy against the number of units, with a mark at the group's size."""
        from attnscope import plots

        sizes = sorted(self.accuracies)
        means = [np.mean(self.accuracies[size]) for size in sizes]
        bands = {"group": [np.std(self.accuracies[size]) for size in sizes]}
        full = [self.full_accuracy] * len(sizes)
        return plots.profiles(
            sizes, {"group": means, "all units": full}, ax=ax, xlabel="units, in the order of their ranking",
            ylabel="accuracy", marks={"group": self.size}, bands=bands,
        )  # fmt: skip


def functional_group(
    result: DiagnosticResult,
    ranking: str = "all_classes",
    min_share: float = MIN_SHARE,
    masked: bool = False,
    every_size: bool = False,
) -> FunctionalGroup:
    """Return the smallest group of top-ranked units that reaches `min_share` of the accuracy of all units.

    Args:
        result: Classifiers on all units.
        ranking: A name in RANKINGS.
        min_share: The share of the accuracy of all units to reach.
        masked: Keep the classifiers on all units and set other units to zero, in place of fitting new ones.
        every_size: Try all sizes from below.
    """
    require(0 < min_share <= 1, f"min_share must be above 0 and at most 1, not {min_share}")
    order = rank_units(result, ranking)
    measure: Callable[[int], Accuracies] = cache((masked_accuracies if masked else refitted_accuracies)(result, order))
    accuracies = dict[int, Accuracies]()

    def suffices(size: int) -> bool:
        # All units are not fitted again: theirs is the accuracy to reach.
        accuracies[size] = result.accuracies if size == result.samples.units else measure(size)
        return bool(np.mean(accuracies[size]) >= min_share * result.accuracy - 1e-12)

    size = smallest_sufficient(suffices, result.samples.units, every_size or masked)
    units = tuple(order[:size].tolist())
    return FunctionalGroup(units, ranking, masked, min_share, accuracies, result.accuracies, result.samples.units)


def smallest_sufficient(suffices: Callable[[int], bool], max_size: int, every_size: bool = False) -> int:
    """Return the first size that suffices, by the search described above; `max_size` always does."""
    below = 0
    for size in range(1, max_size + 1) if every_size else candidate_sizes(max_size):
        if suffices(size) or size == max_size:
            return next((between for between in range(below + 1, size) if suffices(between)), size)
        below = size
    raise AssertionError("all units together always suffice")


def candidate_sizes(max_size: int) -> Iterator[int]:
    """
    >>> list(candidate_sizes(40))
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 25, 31, 38, 40]
    """
    size = 1
    while size < max_size:
        yield size
        size = size + 1 if size < DENSE_SIZES else int(size * GROWTH)
    yield max_size


def refitted_accuracies(result: DiagnosticResult, order: Int[np.ndarray, " units"]) -> Callable[[int], Accuracies]:
    samples, settings = result.samples, result.settings
    return lambda size: tuple(fit_and_test(samples, split, settings, order[:size]) for split in result.splits)


def masked_accuracies(result: DiagnosticResult, order: Int[np.ndarray, " units"]) -> Callable[[int], Accuracies]:
    """All sizes at once: each unit adds its part to the logits of those before it."""
    pairs = zip(result.classifiers, result.splits, strict=True)
    curves = [masked_curve(classifier, result.samples, split, order) for classifier, split in pairs]
    return lambda size: tuple(float(curve[size - 1]) for curve in curves)


def masked_curve(
    classifier: LinearClassifier, samples: Samples, split: Split, order: Int[np.ndarray, " units"]
) -> Float[np.ndarray, " units"]:
    """Return the accuracy of one unit, of two, ..., of all."""
    logits = np.tile(classifier.biases, (len(split.test), 1))  # steps x classes
    states, labels = samples.states[split.test], samples.labels[split.test]
    curve = np.empty(len(order))
    for size, unit in enumerate(order):
        logits += np.outer(states[:, unit], classifier.weights[:, unit])
        curve[size] = (classifier.classes[logits.argmax(1)] == labels).mean()
    return curve


# Rankings of units (baan2019 §4.1, footnote 5)


def mean_absolute_weight(result: DiagnosticResult) -> Float[np.ndarray, " units"]:
    """Return the mean |weight| over classes and repeats."""
    return np.asarray(np.abs(result.weights).mean((0, 1)))


def first_class_weight(result: DiagnosticResult) -> Float[np.ndarray, " units"]:
    """Return what the released code used: the first class's weights alone, averaged over repeats with their sign."""
    return np.asarray(np.abs(result.weights[:, 0].mean(0)))


def mean_absolute_shapley(result: DiagnosticResult) -> Float[np.ndarray, " units"]:
    """Return the mean |Shapley value| over steps, classes and repeats, the training set being the background.

    Over steps, it is |weight| times the mean |state − mean state|.
    """
    importance = []
    for classifier, split in zip(result.classifiers, result.splits, strict=True):
        states = result.samples.states[split.train]
        importance.append(np.abs(classifier.weights).mean(0) * np.abs(states - states.mean(0)).mean(0))
    return np.asarray(np.mean(importance, 0))


def shapley_values(
    weights: Float[np.ndarray, "classes units"],
    states: Float[np.ndarray, "steps units"],
    background: Float[np.ndarray, "others units"],
) -> Float[np.ndarray, "steps classes units"]:
    """Return what each unit adds to each class's logit, beyond the mean logit of the background.

    Shapley values of Lundberg and Lee (2017).

    For a linear model whose units are taken as independent they are exact: weight × (state − mean state). The paper had
    to approximate them, and blames that.

    >>> shapley_values(np.array([[2.0, 1.0]]), np.array([[3.0, 5.0]]), np.array([[1.0, 5.0]])).tolist()
    [[[4.0, 0.0]]]
    """
    return np.asarray(weights * (states - background.mean(0))[:, None])


RANKINGS: dict[str, Callable[[DiagnosticResult], np.ndarray]] = {
    "all_classes": mean_absolute_weight,
    "first_class": first_class_weight,
    "shapley": mean_absolute_shapley,
}


def rank_units(result: DiagnosticResult, ranking: str = "all_classes") -> Int[np.ndarray, " units"]:
    """Return the units, the most important one first; ties in the order of their indices."""
    importance = RANKINGS[choose("ranking", ranking, RANKINGS)](result)
    return np.argsort(-importance, kind="stable")


# Comparison of groups


def mean_jaccard(groups: Sequence[set[int]]) -> float:
    """Return the mean Jaccard index of pairs of groups; 1 if all are the same (footnote 5).

    >>> round(mean_jaccard([{1, 2}, {1, 2}, {2, 3}]), 3)
    0.556
    """
    return float(np.mean([len(one & other) / len(one | other) for one, other in combinations(groups, 2)]))


@dataclass(frozen=True)
class Overlap(Displayed):
    """The share of the group's units among the strongest-connected ones, and that of any unit (`chance`)."""

    group: tuple[int, ...]
    strongest: tuple[int, ...]
    num_units: int

    @property
    def share(self) -> float:
        return len(set(self.group) & set(self.strongest)) / len(self.group)

    @property
    def chance(self) -> float:
        return len(self.strongest) / self.num_units

    def table(self) -> pd.DataFrame:
        """One row."""
        row = {"share": self.share, "chance": self.chance, "group": len(self.group), "strongest": len(self.strongest)}
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        rows = pd.DataFrame({"share": [self.share, self.chance]}, ["functional group", "any unit"])
        return plots.bars(rows, ax=ax, ylabel="share among the strongest-connected units")


def overlap(group: Sequence[int], strengths: Float[np.ndarray, " units"], share: float = STRONGEST) -> Overlap:
    """Return the overlap of a group with the strongest units; `strengths` are those of weights.unit_strengths."""
    require(bool(group), "an empty group overlaps with nothing; give at least one unit")
    beyond = [unit for unit in group if not 0 <= unit < len(strengths)]
    require(not beyond, f"units {beyond} have no strength: there are strengths of {len(strengths)} units")
    return Overlap(tuple(group), strongest_units(strengths, share), len(strengths))
