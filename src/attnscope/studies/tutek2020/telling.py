"""Which words tell the class? Those that a deceptive model is to use unseen. (finding `deceptive`)"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

from attnscope.errors import require
from attnscope.models.logistic import logistic_regression
from attnscope.tasks import Batch, Classification
from attnscope.tasks.batch import SPECIALS
from attnscope.tasks.text import UNKNOWN


@lru_cache(maxsize=16)
def telling_words(task: Classification, share: float) -> tuple[int, ...]:
    """The numbers of the words with the largest weights in a bag-of-words regression on the training split.

    As many as make up this share of its running words: so a text is left with others to attend to.
    """
    words, classes = len(task.source_words), len(task.classes)
    with threadpool_limits(1):  # vectors are too short to share among cores
        found = logistic_regression(counted(task, "training"), counted(task, "validation"), words, classes)
    running = np.bincount(np.concatenate(task.part("training").source), minlength=words)
    running[: UNKNOWN + 1] = 0  # special tokens and the unknown one are no words
    return heaviest(np.ptp(found.word_weights.double().numpy(), axis=1), running, share)


def counted(task: Classification, split: str) -> Iterator[Batch]:
    """Batches whose targets are classes counted from zero, without the special words before them."""
    for batch in task.batches(split, size=512):
        yield replace(batch, target=batch.target - len(SPECIALS))


def heaviest(weights: Float[np.ndarray, " words"], running: Int[np.ndarray, " words"], share: float) -> tuple[int, ...]:
    """Words in the order of their weights, until the next one would make them more than this share; at least one.

    >>> heaviest(np.array([0.1, 3.0, 2.0, 1.0]), np.array([5, 1, 2, 2]), share=0.4)
    (1, 2)
    """
    require(0 < share < 1, f"words to hide are a share of all between 0 and 1, not {share}")
    order = np.argsort(-weights, kind="stable")
    order = order[running[order] > 0]
    within = np.cumsum(running[order]) <= share * running.sum()
    return tuple(sorted(order[: max(1, int(within.sum()))].tolist()))
