"""Do words sit on the vertices of a simplex, all equally far apart? (aitken2021 §3, figure 2b)"""

from itertools import combinations

import numpy as np
from jaxtyping import Float


def distance_from_simplex(words: Float[np.ndarray, "words key"]) -> float:
    """By how much the cosine of two centred words differs from −1 / (N − 1), that of a simplex' vertices, at most.

    >>> distance_from_simplex(np.array([[3.0, 0.0], [0.0, 3.0]])) < 1e-12
    True
    """
    centred = words - words.mean(0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return max(abs(float(a @ b) + 1 / (len(words) - 1)) for a, b in combinations(unit, 2))
