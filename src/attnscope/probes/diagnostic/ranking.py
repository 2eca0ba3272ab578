"""Which units does a classifier lean on most? (baan2019 §4.1; footnote 5)"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from attnscope.errors import choose
from attnscope.probes.diagnostic.reading import Reading


def over_all_classes(reading: Reading) -> Float[np.ndarray, " units"]:
    """The mean |weight| over classes and repeats."""
    return np.asarray(np.abs(reading.weights).mean((0, 1)))


def of_the_first_class(reading: Reading) -> Float[np.ndarray, " units"]:
    """What the released code did: the first class's weights alone, averaged over repeats with their sign."""
    return np.asarray(np.abs(reading.weights[:, 0].mean(0)))


def by_shapley_values(reading: Reading) -> Float[np.ndarray, " units"]:
    """The mean |Shapley value| over steps, classes and repeats, the steps learned from being the background."""
    each = [
        np.abs(classifier.weights).mean(0) * spread(reading.samples.states[split.seen])
        for classifier, split in zip(reading.classifiers, reading.splits, strict=True)
    ]
    return np.asarray(np.mean(each, 0))


def shapley_values(
    weights: Float[np.ndarray, "classes units"],
    states: Float[np.ndarray, "steps units"],
    background: Float[np.ndarray, "others units"],
) -> Float[np.ndarray, "steps classes units"]:
    """What each unit adds to each class's score, beside the mean score of the background (Lundberg and Lee 2017).

    Of a linear model whose units are taken as independent they are exact: weight × (state − mean state). The paper had
    to approximate them, and blames that.

    >>> shapley_values(np.array([[2.0, 1.0]]), np.array([[3.0, 5.0]]), np.array([[1.0, 5.0]])).tolist()
    [[[4.0, 0.0]]]
    """
    return np.asarray(weights * (states - background.mean(0))[:, None])


def spread(states: Float[np.ndarray, "steps units"]) -> Float[np.ndarray, " units"]:
    """The mean |state − mean state|: with it, the mean |Shapley value| over steps is |weight| × spread."""
    return np.asarray(np.abs(states - states.mean(0)).mean(0))


RANKINGS: dict[str, Callable[[Reading], np.ndarray]] = {
    "all_classes": over_all_classes,
    "first_class": of_the_first_class,
    "shapley": by_shapley_values,
}


def ranked(reading: Reading, ranking: str = "all_classes") -> Int[np.ndarray, " units"]:
    """The units, the most important one first; of equals, the one of the lower number."""
    importance = RANKINGS[choose("ranking", ranking, RANKINGS)](reading)
    return np.argsort(-importance, kind="stable")
