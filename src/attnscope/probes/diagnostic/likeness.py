"""Do different splits find the same units? (baan2019 footnote 5)"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np


def likeness(groups: Sequence[set[int]]) -> float:
    """The mean share of common units, of all units of two groups (Jaccard); 1 if all groups are the same.

    >>> round(likeness([{1, 2}, {1, 2}, {2, 3}]), 3)
    0.556
    """
    return float(np.mean([len(one & other) / len(one | other) for one, other in combinations(groups, 2)]))
