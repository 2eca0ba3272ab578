"""Multinomial logistic regression, with or without a penalty (baan2019 §4.1).

The paper uses no penalty; the released code left scikit-learn's L2 penalty with C = 1 on. With an L1 penalty, each
weight is the difference of two that are not negative; the penalty is then their sum, and L-BFGS-B can lower it. For 512
units that takes 0.4 s, where scikit-learn's SAGA, its only solver for L1 and several classes, takes 10 s for a worse
optimum.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import Bounds, minimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import ThreadpoolController

from attnscope.errors import choose, require

PENALTIES = ("none", "l1", "l2")

# Where classes can be separated and nothing is penalised, the likelihood has no maximum: weights grow for ever, ever
# more slowly. The fit then ends where no entry of the gradient of the mean loss is above the tolerance.
TOLERANCE = 1e-4
SPARSE_TOLERANCE = 1e-5  # no entry of the projected gradient of the mean loss is above it
MAX_STEPS = 3000
THREADS = ThreadpoolController()  # of the libraries that multiply matrices

Fit = tuple[Float[np.ndarray, "classes units"], Float[np.ndarray, " classes"], bool]  # weights, biases, converged


@dataclass(frozen=True)
class LinearClassifier:
    """A fitted classifier: weights and biases of each class, and whether the fit reached its tolerance."""

    weights: Float[np.ndarray, "classes units"]
    biases: Float[np.ndarray, " classes"]
    classes: Int[np.ndarray, " classes"]
    converged: bool

    def predict(self, states: Float[np.ndarray, "steps units"]) -> Int[np.ndarray, " steps"]:
        return np.asarray(self.classes[(states @ self.weights.T + self.biases).argmax(1)])

    def accuracy(self, states: Float[np.ndarray, "steps units"], labels: Int[np.ndarray, " steps"]) -> float:
        return float((self.predict(states) == labels).mean())


def fit_linear(
    states: Float[np.ndarray, "steps units"],
    labels: Int[np.ndarray, " steps"],
    penalty: str = "none",
    inverse_penalty: float = 1.0,
) -> LinearClassifier:
    """Return a classifier fitted to these states.

    Args:
        states: One row per step.
        labels: The class of each step.
        penalty: "none", "l1" or "l2".
        inverse_penalty: scikit-learn's C; without a penalty it has no effect.
    """
    choose("penalty", penalty, PENALTIES)
    require(inverse_penalty > 0, f"inverse_penalty must be positive, not {inverse_penalty}")
    classes, indices = np.unique(labels, return_inverse=True)
    require(len(classes) > 1, "all labels are the same: there is nothing to tell apart")
    with THREADS.limit(limits=1, user_api="blas"):  # these matrices are too small to be shared among cores
        if penalty == "l1":
            weights, biases, converged = fit_sparse(states, indices, inverse_penalty)
        else:
            weights, biases, converged = fit_smooth(states, labels, np.inf if penalty == "none" else inverse_penalty)
    return LinearClassifier(weights, biases, classes, converged)


def fit_smooth(
    states: Float[np.ndarray, "steps units"], labels: Int[np.ndarray, " steps"], inverse_penalty: float
) -> Fit:
    """Fit with an L2 penalty; with an infinite `inverse_penalty`, with none."""
    fitter = LogisticRegression(C=inverse_penalty, solver="lbfgs", tol=TOLERANCE, max_iter=MAX_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `converged` says so instead
        fitter.fit(states, labels)
    weights, biases = fitter.coef_, fitter.intercept_
    if len(weights) == 1:
        # Of two classes scikit-learn has only the log-odds of the second; here they are shared between the two. More
        # classes need no such care: L-BFGS starts at zero and every gradient sums to zero over classes.
        weights, biases = np.concatenate([-weights, weights]) / 2, np.concatenate([-biases, biases]) / 2
    return weights, biases, bool(np.max(fitter.n_iter_) < MAX_STEPS)


def fit_sparse(
    states: Float[np.ndarray, "steps units"], labels: Int[np.ndarray, " steps"], inverse_penalty: float
) -> Fit:
    """Fit with an L1 penalty on weights, none on biases; `labels` count classes from 0."""
    right = np.eye(labels.max() + 1)[labels]  # steps x classes
    steps, classes = right.shape
    units, half = states.shape[1], classes * states.shape[1]
    penalty = 1 / (inverse_penalty * steps)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        weights = (values[:half] - values[half : 2 * half]).reshape(classes, units)
        log_probabilities = log_softmax(states @ weights.T + values[2 * half :], 1)
        wrong = (np.exp(log_probabilities) - right) / steps
        slope = (wrong.T @ states).ravel()
        total = penalty * values[: 2 * half].sum() - (log_probabilities * right).sum() / steps
        return float(total), np.concatenate([penalty + slope, penalty - slope, wrong.sum(0)])

    floor = np.repeat([0.0, -np.inf], [2 * half, classes])
    optimum = minimize(
        loss, np.zeros(2 * half + classes), jac=True, method="L-BFGS-B", bounds=Bounds(floor, np.inf),
        options={"maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS, "gtol": SPARSE_TOLERANCE, "ftol": 0.0},
    )  # fmt: skip
    weights = (optimum.x[:half] - optimum.x[half : 2 * half]).reshape(classes, units)
    return weights, optimum.x[2 * half :], bool(optimum.nit < MAX_STEPS)
