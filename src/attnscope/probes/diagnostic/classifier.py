"""How well can a linear classifier tell the feature from these units? Multinomial logistic regression (baan2019 §4.1)

The paper says that it uses no penalty; the released code left scikit-learn's L2 penalty with C = 1 on.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import ThreadpoolController

from attnscope.errors import choose, require
from attnscope.probes.diagnostic.sparse import sparse_regression

PENALTIES = ("none", "l1", "l2")

# Where classes can be separated and nothing is penalised, the likelihood has no maximum: weights grow for ever, ever
# more slowly. The fit then ends where no entry of the gradient of the mean loss is above the tolerance.
TOLERANCE = 1e-4
LONGEST = 3000  # steps
THREADS = ThreadpoolController()  # of the libraries that multiply matrices


@dataclass(frozen=True)
class Linear:
    """A fitted classifier: weights and biases of each class, and whether the fit reached its tolerance."""

    weights: Float[np.ndarray, "classes units"]
    biases: Float[np.ndarray, " classes"]
    classes: Int[np.ndarray, " classes"]
    converged: bool

    def predict(self, states: Float[np.ndarray, "steps units"]) -> Int[np.ndarray, " steps"]:
        return np.asarray(self.classes[(states @ self.weights.T + self.biases).argmax(1)])

    def accuracy(self, states: Float[np.ndarray, "steps units"], labels: Int[np.ndarray, " steps"]) -> float:
        return float((self.predict(states) == labels).mean())


def fitted(
    states: Float[np.ndarray, "steps units"],
    labels: Int[np.ndarray, " steps"],
    penalty: str = "none",
    inverse_penalty: float = 1.0,
) -> Linear:
    """`inverse_penalty` is scikit-learn's C; without a penalty it has no meaning."""
    choose("penalty", penalty, PENALTIES)
    require(inverse_penalty > 0, f"inverse_penalty must be positive, not {inverse_penalty}")
    classes, numbers = np.unique(labels, return_inverse=True)
    require(len(classes) > 1, "all labels are the same: there is nothing to tell apart")
    with THREADS.limit(limits=1, user_api="blas"):  # these matrices are too small to be shared among cores
        if penalty == "l1":
            weights, biases, converged = sparse_regression(states, numbers, inverse_penalty, LONGEST)
        else:
            strength = np.inf if penalty == "none" else inverse_penalty
            weights, biases, converged = smooth_regression(states, labels, strength)
    return Linear(weights, biases, classes, converged)


def smooth_regression(
    states: Float[np.ndarray, "steps units"], labels: Int[np.ndarray, " steps"], inverse_penalty: float
) -> tuple[Float[np.ndarray, "classes units"], Float[np.ndarray, " classes"], bool]:
    """With L2, or with an infinite `inverse_penalty` nothing, as the penalty."""
    fitter = LogisticRegression(C=inverse_penalty, solver="lbfgs", tol=TOLERANCE, max_iter=LONGEST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said by `converged` instead
        fitter.fit(states, labels)
    weights, biases = both_classes(fitter.coef_, fitter.intercept_)
    return weights, biases, bool(np.max(fitter.n_iter_) < LONGEST)


def both_classes(weights: np.ndarray, biases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of two classes scikit-learn has only the log-odds of the second; here they are shared between the two.

    More classes need no such care: L-BFGS starts at zero and every gradient sums to zero over classes, so the weights
    do as well, and their size has a meaning.
    """
    if len(weights) > 1:
        return weights, biases
    return np.concatenate([-weights, weights]) / 2, np.concatenate([-biases, biases]) / 2
