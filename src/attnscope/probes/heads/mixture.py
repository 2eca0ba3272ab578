"""Does any mixture of heads predict what removing tokens does? (the idea of AT2: Cohen-Wang et al. 2025, 2504.13752)

Random halves of the tokens of a text are removed and the rest is read again. A score of tokens predicts the effect of a
removal by its sum over the removed tokens; how well is the correlation, over the removals of one text, with the change
of the log-odds of the prediction. The mixture is a ridge regression of these changes on the attention of every layer
and head, learned on half of the texts. It is tested on the other half, beside the mean of the last layer and the
single head that was best on the first half; chance is 0, for all removals of a text are equally large. If the last
layer fails and the mixture does not, attention shows which tokens decide, but not in the last layer.

Equal texts are never in both halves.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Axes, Displayed
from attnscope.errors import require
from attnscope.models.inference import Model
from attnscope.models.inputs import Data, as_batches
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.removal import has_two_words, random_score, remove_tokens, text_keys
from attnscope.tasks.batch import Batch
from attnscope.training.objectives import splitmix64

PENALTIES = np.logspace(-3, 5, 17)  # of the ridge regression, chosen by leave-one-out error
RESAMPLES, LEVEL = 2000, 0.95  # of the bootstrap over texts
MIN_TEXTS = 5  # in each half
SCORES = ("mean of the last layer", "best head", "mixture")


@dataclass(frozen=True)
class Removals:
    """Random removals from some texts: attention on what was removed, by head, and the change of the log-odds."""

    attention: Float[np.ndarray, "texts removals heads"]
    change: Float[np.ndarray, "texts removals"]
    keys: Int[np.ndarray, " texts"]  # random numbers, the same for equal texts

    @property
    def in_test(self) -> Bool[np.ndarray, " texts"]:
        """Which texts are in the test half: every other one in the order of their keys."""
        return np.asarray(np.unique(self.keys, return_inverse=True)[1] % 2 == 1)


@dataclass(frozen=True)
class HeadMixture(Displayed):
    """How well scores predict the effects of removals, on texts that the mixture was not learned from."""

    correlations: pd.DataFrame  # one row per test text, one column per score
    coefficients: Float[np.ndarray, "layers heads"]  # of the mixture, per unit of attention
    best: tuple[int, int]  # layer and head, by the learning half
    learned_from: int  # texts
    removals: int  # of each text
    test_keys: Int[np.ndarray, " texts"]  # `removal_keys` of the test texts

    @property
    def weights(self) -> dict[str, Float[np.ndarray, "layers heads"]]:
        """The weight of every layer and head in each score."""
        last, single = np.zeros_like(self.coefficients), np.zeros_like(self.coefficients)
        last[-1], single[self.best] = 1 / last.shape[1], 1
        return dict(zip(SCORES, (last, single, self.coefficients), strict=True))

    def table(self) -> pd.DataFrame:
        """One row per score: the mean correlation over test texts with its bootstrap interval."""
        random = np.random.default_rng(0)
        values = self.correlations.to_numpy()
        means = values[random.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)  # resamples x scores
        low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
        columns = {"correlation": values.mean(0), "low": low, "high": high, "texts": len(values)}
        return pd.DataFrame(columns, self.correlations.columns).rename_axis("score")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Bars with standard errors over test texts."""
        from attnscope import plots

        table = self.table()
        errors = self.correlations.sem().to_frame("correlation")
        return plots.bars(
            table[["correlation"]], ax=ax, errors=errors, ylabel="correlation with the effect of removals"
        )


def head_mixture(model: Model, data: Data = None, removals: int = 24, seed: int = 0) -> HeadMixture:
    """Return how well the attention of all heads, mixed, predicts which tokens decide, on held-out texts.

    Args:
        model: A classifier.
        data: See `as_batches`.
        removals: Random halves of the tokens that are removed from each text.
        seed: Random seed.
    """
    require(removals >= 3, f"removals={removals}: a correlation needs at least 3")
    layers, parts = 0, list[Removals]()
    for batch in as_batches(model, data):
        reading = CounterfactualAttention.of_classifier(model, batch)
        layers = len(reading.trace.layers)
        parts.append(random_removals(reading, removals, seed))
    require(bool(parts), "there is no text: the data are empty")
    joined = Removals(*(np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])))
    return fit_mixture(joined, layers)


@torch.no_grad()
def random_removals(reading: CounterfactualAttention, removals: int, seed: int) -> Removals:
    """Return the effects of random removals from the texts of at least two tokens."""
    batch = reading.batch
    texts, words = has_two_words(batch).nonzero()[:, 0], batch.word_mask
    orders = [random_score(batch, seed + 1 + i).masked_fill(~words, torch.inf).argsort(1) for i in range(removals)]
    half = (words.sum(1, keepdim=True) / 2).ceil()
    removed = torch.stack([order.argsort(1) < half for order in orders], 1)[texts] & words[texts, None]
    after = remove_tokens(reading, batch)(texts, batch.source_mask[texts, None] & ~removed)
    decision = reading.own_probabilities[texts].argmax(-1)[:, None, None]
    change = log_odds(reading.own_probabilities[texts, None]) - log_odds(after)  # texts x removals x classes
    change = change.gather(2, decision.expand(-1, removals, 1))[..., 0]
    layers = reading.layer_weights[:, :, :, 0]  # layers x batch x heads x source
    heads = layers.transpose(0, 1).flatten(1, 2)[texts]  # texts x (layers heads) x source
    attention = torch.einsum("ths,trs->trh", heads.double(), removed.double())
    return Removals(*(part.cpu().numpy() for part in (attention, change, removal_keys(batch, seed)[texts])))


def removal_keys(batch: Batch, seed: int) -> Int[Tensor, " batch"]:
    """Return a random number for each text, which decides in which half it is."""
    return splitmix64(text_keys(batch) + seed)


def log_odds(probabilities: Float[Tensor, "*any classes"]) -> Float[Tensor, "*any classes"]:
    """Return the log-odds of each class, finite where a probability is 0 or 1."""
    return torch.logit(probabilities.double(), eps=1e-9)


def fit_mixture(removals: Removals, layers: int) -> HeadMixture:
    """Return the mixture learned on one half of the texts, tested on the other."""
    from sklearn.linear_model import RidgeCV

    usable = removals.change.std(1) > 0  # where no removal changes anything there is nothing to predict
    learn, test = usable & ~removals.in_test, usable & removals.in_test
    counts = [int(half.sum()) for half in (learn, test)]
    require(
        min(counts) >= MIN_TEXTS,
        f"{counts[0]} and {counts[1]} texts to learn from and to test on: give more, at least {MIN_TEXTS} each",
    )
    heads = removals.attention.shape[2]
    x = removals.attention - removals.attention.mean(1, keepdims=True)  # within each text
    y = removals.change - removals.change.mean(1, keepdims=True)
    y = y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-12)  # every text counts the same
    scale = np.maximum(x[learn].std((0, 1)), 1e-12)
    ridge = RidgeCV(PENALTIES, fit_intercept=False).fit((x[learn] / scale).reshape(-1, heads), y[learn].reshape(-1))
    coefficients = ridge.coef_ / scale
    single = np.stack([correlation(x[learn, :, head], y[learn]) for head in range(heads)])  # heads x texts
    best = int(single.mean(1).argmax())
    last = x[:, :, heads - heads // layers :].mean(2)
    scores = dict(zip(SCORES, (last, x[:, :, best], x @ coefficients), strict=True))
    tested = {name: correlation(score[test], y[test]) for name, score in scores.items()}
    return HeadMixture(
        pd.DataFrame(tested), coefficients.reshape(layers, -1), divmod(best, heads // layers), counts[0],
        removals.change.shape[1], removals.keys[test],
    )  # fmt: skip


def correlation(
    x: Float[np.ndarray, "texts removals"], y: Float[np.ndarray, "texts removals"]
) -> Float[np.ndarray, " texts"]:
    """Return the correlation of the rows of two centred tables; 0 where one does not vary."""
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    return np.asarray((x * y).sum(1) / np.maximum(norms, 1e-12))
