"""Which features can a linear classifier decode from hidden states? Diagnostic classifiers (baan2019 §4.1)

The classifier is multinomial logistic regression. The paper uses no penalty; the released code left scikit-learn's L2
penalty with C = 1 on. With an L1 penalty, each weight is the difference of two that are not negative; the penalty is
then their sum, and L-BFGS-B can lower it. For 512 units that takes 0.4 s, where scikit-learn's SAGA, its only solver
for L1 and several classes, takes 10 s for a worse optimum.

Control tasks (Hewitt and Liang 2019) tell whether the feature is in the states, or the classifier memorises it. In a
control task each type of step gets a random label, sampled as often as the real labels occur; all steps of a type
share it, in training and test. Selectivity is the real accuracy less that of the control task.

Hewitt and Liang's types are words. Where the feature is the word itself (the current table), that would only rename
its classes; there take the last two tokens (`last_tokens`), of which lookup tables have 128 that occur several times
each.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import Bounds, minimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import ThreadpoolController
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import BadSetting, choose, require
from attnscope.models.capabilities import Decoding, GivesTrace, needs
from attnscope.models.inference import Model, traces
from attnscope.models.inputs import Data
from attnscope.models.trace import Trace

PENALTIES = ("none", "l1", "l2")

# Where classes can be separated and nothing is penalised, the likelihood has no maximum: weights grow without bound,
# ever more slowly. The fit then ends where no entry of the gradient of the mean loss is above the tolerance.
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
    with THREADS.limit(limits=1, user_api="blas"):  # these matrices are too small for several cores
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
        warnings.simplefilter("ignore", ConvergenceWarning)  # reported as `converged`
        fitter.fit(states, labels)
    weights, biases = fitter.coef_, fitter.intercept_
    if len(weights) == 1:
        # For two classes scikit-learn has only the log-odds of the second; here they are split between the two. For
        # more classes this holds already: L-BFGS starts at zero and every gradient sums to zero over classes.
        weights, biases = np.concatenate([-weights, weights]) / 2, np.concatenate([-biases, biases]) / 2
    return weights, biases, bool(np.max(fitter.n_iter_) < MAX_STEPS)


def fit_sparse(
    states: Float[np.ndarray, "steps units"], labels: Int[np.ndarray, " steps"], inverse_penalty: float
) -> Fit:
    """Fit with an L1 penalty on weights, none on biases; `labels` count classes from 0."""
    one_hot = np.eye(labels.max() + 1)[labels]  # steps x classes
    steps, classes = one_hot.shape
    units, half = states.shape[1], classes * states.shape[1]
    penalty = 1 / (inverse_penalty * steps)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        weights = (values[:half] - values[half : 2 * half]).reshape(classes, units)
        log_probabilities = log_softmax(states @ weights.T + values[2 * half :], 1)
        error = (np.exp(log_probabilities) - one_hot) / steps
        slope = (error.T @ states).ravel()
        total = penalty * values[: 2 * half].sum() - (log_probabilities * one_hot).sum() / steps
        return float(total), np.concatenate([penalty + slope, penalty - slope, error.sum(0)])

    floor = np.repeat([0.0, -np.inf], [2 * half, classes])
    optimum = minimize(
        loss, np.zeros(2 * half + classes), jac=True, method="L-BFGS-B", bounds=Bounds(floor, np.inf),
        options={"maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS, "gtol": SPARSE_TOLERANCE, "ftol": 0.0},
    )  # fmt: skip
    weights = (optimum.x[:half] - optimum.x[half : 2 * half]).reshape(classes, units)
    return weights, optimum.x[2 * half :], bool(optimum.nit < MAX_STEPS)


# Diagnostic classifiers and control tasks ----------------------------------------------------------------------------


SPLITS = ("sequence", "token")
FEATURES = ("token", "position")
STATES = ("encoder", "decoder")
MAX_CLASSES = 20  # of a feature, the most frequent values
MAX_ATTEMPTS = 1000  # to sample a control task that has two labels


@dataclass(frozen=True)
class Samples:
    """One row per step: the states, the feature, its sequence, and its type, for control tasks."""

    states: Float[np.ndarray, "steps units"]
    labels: Int[np.ndarray, " steps"]
    sequences: Int[np.ndarray, " steps"]
    types: Int[np.ndarray, " steps"] | None = None

    @classmethod
    def of(
        cls,
        states: Float[Tensor, "batch steps units"],
        labels: Int[Tensor, "batch steps"],
        mask: Bool[Tensor, "batch steps"],
        types: Int[Tensor, "batch steps"] | None = None,
    ) -> "Samples":
        """Return the steps of a batch that are in the mask: those at which the feature has a value."""
        chosen = mask.cpu().numpy()
        rows = np.broadcast_to(np.arange(len(chosen))[:, None], chosen.shape)
        values = states.detach().double().cpu().numpy()[chosen]
        require(bool(np.isfinite(values).all()), "a state within the mask is not finite")
        type_ids = None if types is None else types.cpu().numpy()[chosen]
        return cls(values, labels.cpu().numpy()[chosen], rows[chosen], type_ids)

    @classmethod
    def joined(cls, parts: Sequence["Samples"]) -> "Samples":
        """Return the samples of several batches as one; sequences of different batches are different sequences."""
        require(bool(parts), "there are no samples to join; give at least one batch")
        firsts = np.cumsum([0] + [int(part.sequences.max(initial=-1)) + 1 for part in parts[:-1]])
        types = [part.types for part in parts if part.types is not None]
        require(len(types) in (0, len(parts)), "some batches give the types of their steps, others do not")
        return cls(
            np.concatenate([part.states for part in parts]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.sequences + first for part, first in zip(parts, firsts, strict=True)]),
            np.concatenate(types) if types else None,
        )

    def where(self, chosen: Bool[np.ndarray, " steps"]) -> "Samples":
        """Return some of the steps."""
        types = None if self.types is None else self.types[chosen]
        return Samples(self.states[chosen], self.labels[chosen], self.sequences[chosen], types)

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
        """The accuracy of always predicting the most frequent label (footnote 6)."""
        return float(np.unique(self.labels, return_counts=True)[1].max() / len(self))


@dataclass(frozen=True)
class Split:
    """The rows of a training and a test set."""

    train: Int[np.ndarray, " train"]
    test: Int[np.ndarray, " test"]


def splits(samples: Samples, by: str, held_out: float, repeats: int, seed: int) -> Iterator[Split]:
    """Yield independent random splits.

    Args:
        samples: What is split.
        by: "sequence": all steps of one are on the same side; "token" (the released code): each step on its own, so
            that a state may be tested on its neighbours.
        held_out: The share of sequences or steps in the test set.
        repeats: Number of splits.
        seed: Random seed.
    """
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


@dataclass(frozen=True)
class DiagnosticSettings:
    """How classifiers are fitted and tested. The paper: no penalty; its code: L2 with C = 1, split by token."""

    penalty: str = "none"
    inverse_penalty: float = 1.0  # C of scikit-learn
    split: str = "sequence"
    held_out: float = 0.1  # released code: 90 to 10
    repeats: int = 5  # released code
    seed: int = 0

    def __post_init__(self) -> None:
        choose("penalty", self.penalty, PENALTIES)
        choose("way to split", self.split, SPLITS)
        require(self.inverse_penalty > 0, f"inverse_penalty must be positive, not {self.inverse_penalty}")
        require(0 < self.held_out < 1, f"held_out must be between 0 and 1, not {self.held_out}")
        require(self.repeats > 0, f"repeats must be positive, not {self.repeats}")


RELEASED = DiagnosticSettings(penalty="l2", inverse_penalty=1.0, split="token")


@dataclass(frozen=True)
class DiagnosticResult(Displayed):
    """One classifier on all units per repeat, with its accuracy on the test set."""

    samples: Samples
    settings: DiagnosticSettings
    splits: tuple[Split, ...]
    classifiers: tuple[LinearClassifier, ...]
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def deviation(self) -> float:
        """The standard deviation over repeats; NaN for a single one."""
        return deviation(self.accuracies)

    @property
    def converged(self) -> float:
        """The share of fits that reached their tolerance."""
        return float(np.mean([classifier.converged for classifier in self.classifiers]))

    @property
    def weights(self) -> Float[np.ndarray, "repeats classes units"]:
        return np.stack([classifier.weights for classifier in self.classifiers])

    def table(self) -> pd.DataFrame:
        """One row."""
        row = {
            "accuracy": self.accuracy, "deviation": self.deviation, "majority": self.samples.majority,
            "units": self.samples.units, "steps": len(self.samples), "classes": len(self.samples.classes),
            "penalty": self.settings.penalty, "split": self.settings.split, "converged": self.converged,
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        rows = pd.DataFrame({"accuracy": [self.accuracy, self.samples.majority]}, ["classifier", "majority"])
        errors = pd.DataFrame({"accuracy": [self.deviation, np.nan]}, rows.index)
        return plots.bars(rows, ax=ax, errors=errors, ylabel="test accuracy")


def fit_diagnostic(samples: Samples, settings: DiagnosticSettings | None = None) -> DiagnosticResult:
    """Fit and test a classifier on all units, on each of several random splits."""
    settings = settings or DiagnosticSettings()
    chosen = tuple(splits(samples, settings.split, settings.held_out, settings.repeats, settings.seed))
    for split in chosen:
        check_classes(samples.labels, split)
    classifiers = tuple(
        fit_linear(samples.states[split.train], samples.labels[split.train], settings.penalty, settings.inverse_penalty)
        for split in chosen
    )
    accuracies = tuple(
        classifier.accuracy(samples.states[split.test], samples.labels[split.test])
        for classifier, split in zip(classifiers, chosen, strict=True)
    )
    return DiagnosticResult(samples, settings, chosen, classifiers, accuracies)


def diagnostic(
    model: Model,
    data: Data = None,
    feature: str = "token",
    states: str = "encoder",
    max_classes: int = MAX_CLASSES,
    settings: DiagnosticSettings | None = None,
    decoding: Decoding | None = None,
) -> DiagnosticResult:
    """Return how well a linear classifier decodes a feature from hidden states; see also `functional_group`.

    Args:
        model: A model that gives Traces.
        data: See `as_batches`.
        feature: "token": its id; "position": counted from 0.
        states: "encoder" or "decoder".
        max_classes: Only the most frequent values of the feature are decoded.
        settings: Settings of the classifiers.
        decoding: See `traces`.
    """
    choose("feature", feature, FEATURES)
    choose("states", states, STATES)
    needs(model, GivesTrace, by="the diagnostic probe")
    parts = [samples_of(trace, feature, states) for _, trace in traces(model, data, decoding=decoding)]
    samples = Samples.joined(parts)
    values, counts = np.unique(samples.labels, return_counts=True)
    frequent = values[np.argsort(-counts, kind="stable")[:max_classes]]
    return fit_diagnostic(samples.where(np.isin(samples.labels, frequent)), settings)


def samples_of(trace: Trace, feature: str, states: str) -> Samples:
    """Return the states of a trace with their token ids or positions; types, for control tasks, are token ids."""
    if states == "encoder":
        values, tokens, mask = trace.encoder, trace.source, trace.batch.word_mask
    elif trace.decoder is None:
        raise BadSetting("this model has no decoder states; choose states='encoder'")
    else:
        values, tokens, mask = trace.decoder, trace.target, trace.target_mask
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    return Samples.of(values, tokens if feature == "token" else positions, mask, tokens)


def fit_and_test(
    samples: Samples, split: Split, settings: DiagnosticSettings, units: Int[np.ndarray, " chosen"] | None
) -> float:
    """Return the test accuracy of a new classifier, on these units alone, if any."""
    states = samples.states if units is None else samples.states[:, units]
    train, test = ((states[rows], samples.labels[rows]) for rows in (split.train, split.test))
    return fit_linear(*train, settings.penalty, settings.inverse_penalty).accuracy(*test)


def check_classes(labels: Int[np.ndarray, " steps"], split: Split) -> None:
    missing = sorted(set(labels.tolist()) - set(labels[split.train].tolist()))
    require(not missing, f"no step of class {missing} is left to learn from; hold out less, or give more sequences")


def deviation(values: tuple[float, ...]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


# Control tasks


@dataclass(frozen=True)
class ControlTask(Displayed):
    """Real and control accuracies, one per repeat: on every repeat's split, with new random labels."""

    real: tuple[float, ...]
    control: tuple[float, ...]
    types: int
    known: float  # the share of test steps whose type is in the training set; no classifier could learn the others

    @property
    def selectivities(self) -> tuple[float, ...]:
        return tuple(real - control for real, control in zip(self.real, self.control, strict=True))

    @property
    def selectivity(self) -> float:
        return float(np.mean(self.selectivities))

    def table(self) -> pd.DataFrame:
        """One row."""
        row = {
            "accuracy": float(np.mean(self.real)), "control": float(np.mean(self.control)),
            "control_deviation": deviation(self.control), "selectivity": self.selectivity,
            "selectivity_deviation": deviation(self.selectivities), "types": self.types, "known": self.known,
        }  # fmt: skip
        return pd.DataFrame([row])

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        means = pd.DataFrame({"accuracy": [np.mean(self.real), np.mean(self.control)]}, ["feature", "control task"])
        errors = pd.DataFrame({"accuracy": [deviation(self.real), deviation(self.control)]}, means.index)
        return plots.bars(means, ax=ax, errors=errors, ylabel="test accuracy")


def control_task(result: DiagnosticResult, units: tuple[int, ...] | None = None) -> ControlTask:
    """Return the accuracy of a control task on the result's own splits; with `units`, both tasks on these alone."""
    samples, settings = result.samples, result.settings
    types = samples.types
    if types is None:
        raise BadSetting("a control task needs the type of each step: give types= to Samples.of")
    chosen = None if units is None else np.array(units)
    random = np.random.default_rng((settings.seed, 1))
    real, controls, known = list[float](), list[float](), list[float]()
    for split, accuracy in zip(result.splits, result.accuracies, strict=True):
        relabelled = replace(samples, labels=control_labels(samples.labels, types, split.train, random))
        controls.append(fit_and_test(relabelled, split, settings, chosen))
        real.append(accuracy if units is None else fit_and_test(samples, split, settings, chosen))
        known.append(float(np.isin(types[split.test], types[split.train]).mean()))
    return ControlTask(tuple(real), tuple(controls), len(np.unique(types)), float(np.mean(known)))


def control_labels(
    labels: Int[np.ndarray, " steps"],
    types: Int[np.ndarray, " steps"],
    train: Int[np.ndarray, " rows"],
    random: np.random.Generator,
) -> Int[np.ndarray, " steps"]:
    """Return a label for each type, sampled from all steps' labels; at least two in the training set."""
    names, indices = np.unique(types, return_inverse=True)
    for _ in range(MAX_ATTEMPTS):
        sampled = random.choice(labels, len(names))[indices]
        if len(np.unique(sampled[train])) > 1:
            return np.asarray(sampled)
    raise BadSetting(f"with {len(names)} types of steps no control task of two labels can be sampled; give finer types")


def last_tokens(
    tokens: Int[Tensor, "batch steps"], mask: Bool[Tensor, "batch steps"], vocabulary: int, span: int = 2
) -> Int[Tensor, "batch steps"]:
    """Return one number per sequence of the last `span` tokens at each step, the same in every batch.

    Args:
        tokens: Token ids.
        mask: Steps that are not padding; elsewhere -1 is returned.
        vocabulary: The number of token ids. The start of a sequence counts as one more.
        span: How many tokens count.

    >>> import torch
    >>> last_tokens(torch.tensor([[5, 6, 5, 6]]), torch.ones(1, 4, dtype=torch.bool), vocabulary=7)
    tensor([[61, 46, 53, 46]])
    """
    require(span > 0, f"span must be positive, not {span}")
    highest = int(tokens.max())
    require(highest < vocabulary, f"there is a token id {highest}, but the vocabulary has {vocabulary} tokens")
    types = tokens.new_zeros(tokens.shape)
    for back in range(span):
        before = tokens.new_full(tokens.shape, vocabulary)  # no token: the id after the last
        before[:, back:] = tokens[:, : tokens.shape[1] - back]
        types = types + before * (vocabulary + 1) ** back
    return types.masked_fill(~mask, -1)
