"""How is a logistic regression with an L1 penalty fitted in a fraction of a second?

Each weight is the difference of two that are not negative; then the penalty is their sum, and L-BFGS-B can lower it.
For 512 units that takes 0.4 s, where scikit-learn's SAGA, its only solver for L1 and several classes, takes 10 s for a
worse optimum.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import Bounds, minimize
from scipy.special import log_softmax

TOLERANCE = 1e-5  # no entry of the projected gradient of the mean loss is above it


def sparse_regression(
    states: Float[np.ndarray, "steps units"],
    labels: Int[np.ndarray, " steps"],
    inverse_penalty: float,
    longest: int,
) -> tuple[Float[np.ndarray, "classes units"], Float[np.ndarray, " classes"], bool]:
    """Weights, biases (without a penalty), and whether the tolerance was reached; `labels` count classes from 0."""
    right = np.eye(labels.max() + 1)[labels]  # steps x classes
    steps, classes = right.shape
    units, half = states.shape[1], classes * states.shape[1]
    price = 1 / (inverse_penalty * steps)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        weights = (values[:half] - values[half : 2 * half]).reshape(classes, units)
        said = log_softmax(states @ weights.T + values[2 * half :], 1)
        wrong = (np.exp(said) - right) / steps
        slope = (wrong.T @ states).ravel()
        total = price * values[: 2 * half].sum() - (said * right).sum() / steps
        return float(total), np.concatenate([price + slope, price - slope, wrong.sum(0)])

    floor = np.repeat([0.0, -np.inf], [2 * half, classes])
    found = minimize(
        loss, np.zeros(2 * half + classes), jac=True, method="L-BFGS-B", bounds=Bounds(floor, np.inf),
        options={"maxiter": longest, "maxfun": 2 * longest, "gtol": TOLERANCE, "ftol": 0.0},
    )  # fmt: skip
    weights = (found.x[:half] - found.x[half : 2 * half]).reshape(classes, units)
    return weights, found.x[2 * half :], bool(found.nit < longest)
