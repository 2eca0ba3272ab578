"""Logistic regression on bags of words (snell2021 A.10).

It is the proxy with a penalty: eq. 56 is eq. 5 with W e as one matrix. So the fitted model is a BagOfWords, whose
embeddings are the words' weights and whose W is the identity, and every probe can be run on it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array, diags_array
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from attnscope.errors import require
from attnscope.models.bag_of_words import BagOfWords, BagOfWordsSettings
from attnscope.models.ibm import bag, check_ids, unpadded
from attnscope.tasks import Batch

# C of scikit-learn, the inverse of the penalty: ten orders of magnitude (snell2021 A.10), 19 values (author's code).
INVERSE_PENALTIES = tuple(10 ** (half / 2) for half in range(-10, 9))

# A word's share of a sentence is small, and so is its gradient: at scikit-learn's own 1e-4, weak penalties all stop
# where a stronger one did (on SST, from C = 30 on).
# Newton's steps get there; L-BFGS takes minutes for 25,000 long texts, where these take seconds.
TOLERANCE = 1e-7
MAX_STEPS = 10_000


@dataclass(frozen=True)
class Documents:
    """Word frequencies of each sentence, x of eq. 55, and its class."""

    shares: csr_array  # sentences x words
    labels: Int[np.ndarray, " sentences"]

    @classmethod
    def of(cls, batches: Iterable[Batch], words: int, classes: int) -> "Documents":
        sentences, labels = list[np.ndarray](), list[int]()
        for batch in batches:
            outputs = batch.target.shape[1]
            require(outputs == 1, f"a classified sentence has one target word, its class, but these have {outputs}")
            sentences += unpadded(batch.source, batch.source_mask)
            labels += batch.target[:, 0].tolist()
        require(bool(sentences), "logistic regression was given no sentence")
        check_ids(np.array(labels), classes, "target")
        counts = bag(sentences, words, "source")
        return cls(csr_array(diags_array(1 / np.maximum(counts.sum(1), 1)) @ counts), np.array(labels))


@dataclass(frozen=True)
class Regression:
    """The regression with the best validation accuracy; of equals, the one with the strongest penalty."""

    model: BagOfWords
    inverse_penalty: float
    accuracies: dict[float, float]  # on validation, by inverse penalty

    @property
    def word_weights(self) -> Float[Tensor, "words classes"]:
        """β^log (eq. 55), transposed."""
        return self.model.embedding.detach()

    def token_scores(self, batch: Batch) -> Float[Tensor, "batch 1 source"]:
        """Return the log-odds of the gold class by each word alone, zero on padding.

        They have the ranks of the probabilities, which under a weak penalty tie at 1 in single precision.
        """
        scores = log_odds(self.word_weights)[batch.source, batch.target]  # batch x source
        return (scores * batch.source_mask)[:, None]


def logistic_regression(
    training: Iterable[Batch],
    validation: Iterable[Batch],
    words: int,
    classes: int,
    inverse_penalties: Sequence[float] = INVERSE_PENALTIES,
) -> Regression:
    """Return the best of one regression per penalty, from the strongest on, each starting from the one before."""
    seen, unseen = Documents.of(training, words, classes), Documents.of(validation, words, classes)
    missing = sorted(set(range(classes)) - set(seen.labels.tolist()))
    require(not missing, f"no training sentence is of class {missing}; all {classes} classes are needed")
    # No intercept: shares add up to one, so that a constant added to every word's weight does the same.
    fitter = LogisticRegression(
        solver="newton-cg", fit_intercept=False, tol=TOLERANCE, max_iter=MAX_STEPS, warm_start=True
    )
    accuracies, weights = dict[float, float](), dict[float, np.ndarray]()
    for inverse in sorted(inverse_penalties):
        fitter.set_params(C=inverse).fit(seen.shares, seen.labels)
        accuracies[inverse] = float((fitter.predict(unseen.shares) == unseen.labels).mean())
        weights[inverse] = fitter.coef_.copy()
    best = max(accuracies, key=accuracies.__getitem__)
    return Regression(as_bag_of_words(weights[best]), best, accuracies)


def log_odds(weights: Float[Tensor, "words classes"]) -> Float[Tensor, "words classes"]:
    """Return the log-odds of each class against all others."""
    itself = torch.eye(weights.shape[1], dtype=torch.bool, device=weights.device)
    others = weights[:, None].masked_fill(itself, -torch.inf)  # words x classes x classes
    return weights - others.logsumexp(-1)


def as_bag_of_words(weights: Float[np.ndarray, "rows words"]) -> BagOfWords:
    """Return a BagOfWords of scikit-learn's weights: one row per class; of two classes, one row of log-odds."""
    rows = np.concatenate([-weights, weights]) / 2 if len(weights) == 1 else weights
    model = BagOfWords(BagOfWordsSettings(size=len(rows)), source_words=rows.shape[1], target_words=len(rows))
    with torch.no_grad():
        model.embedding.copy_(torch.from_numpy(rows.T))
        model.output.weight.copy_(torch.eye(len(rows)))
    return model
