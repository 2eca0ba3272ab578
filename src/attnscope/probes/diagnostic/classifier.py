"""How well can a linear classifier tell the feature from these units? Multinomial logistic regression (baan2019 §4.1)

The paper says that it uses no penalty; the released code left scikit-learn's L2 penalty with C = 1 on.
"""

# TODO(docstring) join:
#   How is a logistic regression with an L1 penalty fitted in a fraction of a second?
#   What is a classifier given? Recorded states, their labels, and what must be held out together (baan2019 §4.1)
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import Bounds, minimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import ThreadpoolController
from torch import Tensor

from attnscope.errors import choose, require

PENALTIES = ("none", "l1", "l2")

# Where classes can be separated and nothing is penalised, the likelihood has no maximum: weights grow for ever, ever
# more slowly. The fit then ends where no entry of the gradient of the mean loss is above the tolerance.
TOLERANCE = 1e-4
MAX_STEPS = 3000  # steps
THREADS = ThreadpoolController()  # of the libraries that multiply matrices


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
    """`inverse_penalty` is scikit-learn's C; without a penalty it has no meaning."""
    choose("penalty", penalty, PENALTIES)
    require(inverse_penalty > 0, f"inverse_penalty must be positive, not {inverse_penalty}")
    classes, numbers = np.unique(labels, return_inverse=True)
    require(len(classes) > 1, "all labels are the same: there is nothing to tell apart")
    with THREADS.limit(limits=1, user_api="blas"):  # these matrices are too small to be shared among cores
        if penalty == "l1":
            weights, biases, converged = sparse_regression(states, numbers, inverse_penalty, MAX_STEPS)
        else:
            strength = np.inf if penalty == "none" else inverse_penalty
            weights, biases, converged = smooth_regression(states, labels, strength)
    return LinearClassifier(weights, biases, classes, converged)


def smooth_regression(
    states: Float[np.ndarray, "steps units"], labels: Int[np.ndarray, " steps"], inverse_penalty: float
) -> tuple[Float[np.ndarray, "classes units"], Float[np.ndarray, " classes"], bool]:
    """With L2, or with an infinite `inverse_penalty` nothing, as the penalty."""
    fitter = LogisticRegression(C=inverse_penalty, solver="lbfgs", tol=TOLERANCE, max_iter=MAX_STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said by `converged` instead
        fitter.fit(states, labels)
    weights, biases = both_classes(fitter.coef_, fitter.intercept_)
    return weights, biases, bool(np.max(fitter.n_iter_) < MAX_STEPS)


def both_classes(weights: np.ndarray, biases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of two classes scikit-learn has only the log-odds of the second; here they are shared between the two.

    More classes need no such care: L-BFGS starts at zero and every gradient sums to zero over classes, so the weights
    do as well, and their size has a meaning.
    """
    if len(weights) > 1:
        return weights, biases
    return np.concatenate([-weights, weights]) / 2, np.concatenate([-biases, biases]) / 2


SPARSE_TOLERANCE = 1e-5  # no entry of the projected gradient of the mean loss is above it


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
        options={"maxiter": longest, "maxfun": 2 * longest, "gtol": SPARSE_TOLERANCE, "ftol": 0.0},
    )  # fmt: skip
    weights = (found.x[:half] - found.x[half : 2 * half]).reshape(classes, units)
    return weights, found.x[2 * half :], bool(found.nit < longest)


SPLITS = ("sequence", "token")


@dataclass(frozen=True)
class Samples:
    """A row a step: what the units did, the feature, the sequence that it is of, and its kind, for control tasks."""

    states: Float[np.ndarray, "steps units"]
    labels: Int[np.ndarray, " steps"]
    sequences: Int[np.ndarray, " steps"]
    kinds: Int[np.ndarray, " steps"] | None = None

    @classmethod
    def of(
        cls,
        states: Float[Tensor, "batch steps units"],
        labels: Int[Tensor, "batch steps"],
        mask: Bool[Tensor, "batch steps"],
        kinds: Int[Tensor, "batch steps"] | None = None,
    ) -> "Samples":
        """Only the steps in the mask: those at which the feature has a value."""
        kept = mask.cpu().numpy()
        rows = np.broadcast_to(np.arange(len(kept))[:, None], kept.shape)
        read = states.detach().double().cpu().numpy()[kept]
        require(bool(np.isfinite(read).all()), "a state within the mask is no number; give finite states")
        return cls(read, labels.cpu().numpy()[kept], rows[kept], None if kinds is None else kinds.cpu().numpy()[kept])

    @classmethod
    def joined(cls, parts: Sequence["Samples"]) -> "Samples":
        """Those of several batches as one; sequences of different batches are different sequences."""
        require(bool(parts), "there are no samples to join; give at least one batch")
        firsts = np.cumsum([0] + [int(part.sequences.max(initial=-1)) + 1 for part in parts[:-1]])
        kinds = [part.kinds for part in parts if part.kinds is not None]
        require(len(kinds) in (0, len(parts)), "some batches say of what kind their steps are, others do not")
        return cls(
            np.concatenate([part.states for part in parts]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.sequences + first for part, first in zip(parts, firsts, strict=True)]),
            np.concatenate(kinds) if kinds else None,
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def units(self) -> int:
        return int(self.states.shape[1])

    @property
    def classes(self) -> Int[np.ndarray, " classes"]:
        return np.unique(self.labels)

    @property
    def majority(self) -> float:
        """What always saying the most frequent label would get right (footnote 6)."""
        return float(np.unique(self.labels, return_counts=True)[1].max() / len(self))


@dataclass(frozen=True)
class Split:
    """Which rows are learned from, and which are held out."""

    seen: Int[np.ndarray, " seen"]
    unseen: Int[np.ndarray, " unseen"]


def splits(samples: Samples, by: str, held_out: float, repeats: int, seed: int) -> Iterator[Split]:
    """So many independent draws. By sequence, all steps of one are on the same side; by token (the released code),
    each step goes where chance puts it, so that a state may be tested on its neighbours."""
    choose("way to split", by, SPLITS)
    groups = samples.sequences if by == "sequence" else np.arange(len(samples))
    names = np.unique(groups)
    out = round(held_out * len(names))
    require(
        0 < out < len(names),
        f"held_out={held_out} of {len(names)} {by}s leaves nothing on one of the two sides; both need at least one",
    )
    random = np.random.default_rng(seed)
    for _ in range(repeats):
        chosen = np.isin(groups, random.permutation(names)[:out])
        yield Split(np.flatnonzero(~chosen), np.flatnonzero(chosen))
