"""The bag-of-words proxy: a model with uniform attention whose states depend on their own word only (snell2021 §2.3).

It is the mean of the source embeddings and one linear layer, with the same prediction for every target token. A
classifier is the same network with one target token, the class (§2.4).

Logistic regression on bags of words (A.10) is the proxy with a penalty: eq. 56 is eq. 5 with W e as one matrix. So the
fitted model is a BagOfWords, whose embeddings are the words' weights and whose W is the identity, and every probe can
be run on it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array, diags_array
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import embedding

from attnscope.errors import check_kinds, choose, require
from attnscope.models.attention import intervene, uniform
from attnscope.models.capabilities import GivesTrace, ReadsOut
from attnscope.models.ibm import bag, check_ids, unpadded
from attnscope.models.initialise import INITIALISATIONS
from attnscope.models.trace import Attention, Intervention, Trace
from attnscope.tasks import Batch


@dataclass(frozen=True)
class BagOfWordsSettings:
    """Everything that defines the proxy except the vocabularies."""

    size: int = 256  # d: snell2021 A.10
    initialisation: str = "fan_in"  # every e_i and W_o from N(0, I / d): snell2021 §4.1

    def __post_init__(self) -> None:
        check_kinds(self)
        require(self.size > 0, f"size must be positive, not {self.size}")
        choose("initialisation", self.initialisation, INITIALISATIONS)


@dataclass(frozen=True)
class ProxyRecipe:
    """Training of the proxy: Adam on the summed loss, the weights of lowest validation loss (author's code)."""

    learning_rate: float
    epochs: int
    batch_size: int = 64


LONG_REVIEWS = ProxyRecipe(learning_rate=5e-5, epochs=60)  # snell2021, author's code: IMDB, Yelp, Amazon
SHORT_TEXTS = ProxyRecipe(learning_rate=1.5e-4, epochs=60)  # snell2021, author's code: the other classification sets
TRANSLATION = ProxyRecipe(learning_rate=1e-3, epochs=30)  # snell2021, author's code: all translation sets
RECIPES: dict[str, ProxyRecipe] = {
    "imdb": LONG_REVIEWS,
    "yelp": LONG_REVIEWS,
    "amazon_reviews": LONG_REVIEWS,
    "ag_news": SHORT_TEXTS,
    "20newsgroups_sports": SHORT_TEXTS,
    "sst": SHORT_TEXTS,
    "sms_spam": SHORT_TEXTS,
    "multi30k": TRANSLATION,
    "iwslt14": TRANSLATION,
    "tatoeba": TRANSLATION,
}


class BagOfWords(GivesTrace, ReadsOut, nn.Module):
    """p_t = softmax of the mean of W e over the source (eq. 5), for every t."""

    readout_is_exact = True

    def __init__(self, settings: BagOfWordsSettings, source_words: int, target_words: int):
        super().__init__()
        self.settings = settings
        self.embedding = nn.Parameter(torch.randn(source_words, settings.size))  # e
        self.output = nn.Linear(settings.size, target_words, bias=False)  # W
        INITIALISATIONS[settings.initialisation](self)

    def forward(
        self,
        batch: Batch,
        attention: Intervention | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        """Run a forward pass. There is no decoder and there are no gates, so the last two arguments change nothing."""
        embedded = embedding(batch.source, self.embedding)
        attended = uniform_attention(embedded, batch, attention)
        # Without an intervention every target token has the same context, which is computed once.
        weights = attended.weights if attention is not None else attended.weights[:, :, :1]
        context = self.context_of(weights @ attended.values)  # batch x (target or 1) x size
        steps = batch.target.shape[1]
        return Trace.of(
            batch,
            embedded=embedded,
            encoder=embedded,
            layers=(attended,),
            context=context.expand(-1, steps, -1),
            logits=self.readout(context).expand(-1, steps, -1),
        )

    def readout(
        self, context: Float[Tensor, "*any size"], decoder: Tensor | None = None
    ) -> Float[Tensor, "*any words"]:
        """Return the logits with this context, W c; there is no decoder state.

        With the embedding of a single token as context, their softmax is β of the proxy (eq. 6).
        """
        return self.output(context)  # type: ignore[no-any-return]

    def context_of(self, values: Float[Tensor, "batch 1 target size"]) -> Float[Tensor, "batch target size"]:
        return values[:, 0]

    def total_loss(self, batch: Batch) -> Float[Tensor, ""]:
        """Return the loss summed over all target tokens (eq. 14), with one softmax per sentence."""
        weights = batch.source_mask / batch.source_mask.sum(1, keepdim=True)  # batch x source
        bag = (weights.to(self.embedding)[:, None] @ embedding(batch.source, self.embedding))[:, 0]
        log_probability = self.readout(bag).log_softmax(-1).gather(1, batch.target)  # batch x target
        return -log_probability.masked_fill(~batch.target_mask, 0.0).sum()

    @torch.no_grad()
    def translations(self, words: Int[Tensor, " chosen"] | None = None) -> Float[Tensor, "chosen target_words"]:
        """Return θ of the proxy (eq. 13): the translation of each source token alone, or of those chosen."""
        table = self.embedding if words is None else self.embedding[words]
        return self.readout(table).softmax(-1)

    @torch.no_grad()
    def translation_probabilities(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        """Return β of the proxy (eq. 6); zero on padding."""
        probabilities = self.readout(embedding(batch.source, self.embedding)).softmax(-1)  # batch x source x words
        gold = batch.target[:, None].expand(-1, batch.source.shape[1], -1)  # batch x source x target
        return probabilities.gather(-1, gold).mT * (batch.target_mask[:, :, None] & batch.source_mask[:, None])


def uniform_attention(
    embedded: Float[Tensor, "batch source size"], batch: Batch, intervention: Intervention | None
) -> Attention:
    """Return one head of uniform attention, unless an intervention says otherwise."""
    scores = embedded.new_zeros(len(batch), 1, batch.target.shape[1], batch.source.shape[1])
    own = uniform(scores, batch.source_mask)
    weights = intervene(own, batch.source_mask, intervention)
    return Attention(queries=None, keys=None, values=embedded[:, None], scores=scores, weights=weights)


# Logistic regression on bags of words (snell2021 A.10) ---------------------------------------------------------------


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
        require(bool(sentences), "logistic regression needs at least one sentence")
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
    """Return the best of one regression per penalty, from the strongest on, each starting from the one before.

    Args:
        training: Batches to fit.
        validation: Batches whose accuracy selects the penalty.
        words: Size of the source vocabulary.
        classes: Size of the target vocabulary.
        inverse_penalties: Values of scikit-learn's C.
    """
    fit_on, validate_on = Documents.of(training, words, classes), Documents.of(validation, words, classes)
    missing = sorted(set(range(classes)) - set(fit_on.labels.tolist()))
    require(not missing, f"no training sentence is of class {missing}; all {classes} classes are needed")
    # No intercept: shares add up to one, so that a constant added to every word's weight does the same.
    fitter = LogisticRegression(
        solver="newton-cg", fit_intercept=False, tol=TOLERANCE, max_iter=MAX_STEPS, warm_start=True
    )
    accuracies, weights = dict[float, float](), dict[float, np.ndarray]()
    for inverse in sorted(inverse_penalties):
        fitter.set_params(C=inverse).fit(fit_on.shares, fit_on.labels)
        accuracies[inverse] = float((fitter.predict(validate_on.shares) == validate_on.labels).mean())
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
