"""Logistic regression against its own optimality condition, scikit-learn on dense features, and planted keywords."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from attnscope.errors import BadSetting
from attnscope.models.bag_of_words import INVERSE_PENALTIES, Documents, logistic_regression
from attnscope.tasks import Batch, pad

WORDS = 20


def reviews(classes, sentences=200, seed=0):
    """Sentences of random words; word k, if it is there, makes class k likely."""
    random = np.random.default_rng(seed)
    source = [random.integers(0, WORDS, n) for n in random.integers(3, 12, sentences)]
    labels = [likely_class(words, classes, random) for words in source]
    return Batch(*pad(source), *pad([np.array([label]) for label in labels]))


def likely_class(words, classes, random):
    votes = np.array([(words == k).sum() for k in range(classes)])
    return random.choice(classes, p=softmax(3.0 * votes))


def halves(batch):
    middle = len(batch) // 2
    return [Batch(*(part[rows] for part in batch.tensors().values())) for rows in (slice(middle), slice(middle, None))]


def shares(batch):
    """x of eq. 55 by a loop, dense."""
    x = np.zeros((len(batch), WORDS))
    for row, (words, mask) in enumerate(zip(batch.source.tolist(), batch.source_mask.tolist(), strict=True)):
        for word, real in zip(words, mask, strict=True):
            x[row, word] += real / sum(mask)
    return x


@pytest.fixture(params=[2, 3], ids=["two classes", "three classes"])
def classes(request):
    return request.param


@pytest.fixture
def batch(classes):
    return reviews(classes)


def fitted(batch, classes, inverse_penalties):
    return logistic_regression([batch], [batch], WORDS, classes, inverse_penalties)


def test_penalties_are_nineteen_from_1e_minus_5_to_1e4():
    np.testing.assert_allclose(INVERSE_PENALTIES, np.logspace(-5, 4, 19))


def test_features_are_shares_of_the_sentence(batch, classes):
    documents = Documents.of([batch], WORDS, classes)
    np.testing.assert_allclose(documents.shares.toarray(), shares(batch))
    np.testing.assert_array_equal(documents.labels, batch.target[:, 0])


@pytest.mark.parametrize("inverse_penalty", [0.1, 100.0, 10_000.0])
def test_weights_are_where_the_penalised_loss_is_flat(batch, classes, inverse_penalty):
    """The gradient of |w|² / 2 + C · loss, for two classes in the log-odds of the second."""
    weights = fitted(batch, classes, [inverse_penalty]).word_weights.double().numpy()  # words x classes
    x, gold = shares(batch), np.eye(classes)[batch.target[:, 0]]
    pull = x.T @ (softmax(x @ weights, axis=1) - gold)  # words x classes
    gradient = weights / inverse_penalty + pull
    if classes == 2:
        gradient = (weights[:, 1] - weights[:, 0]) / inverse_penalty + pull[:, 1]
    assert np.abs(gradient).max() < 1e-4


def test_probabilities_are_those_of_scikit_learn_on_dense_features(batch, classes):
    reference = LogisticRegression(C=30.0, fit_intercept=False, tol=1e-10, max_iter=10_000)
    expected = reference.fit(shares(batch), batch.target[:, 0].numpy()).predict_proba(shares(batch))
    ours = fitted(batch, classes, [30.0]).model(batch).logits[:, 0].softmax(-1)
    np.testing.assert_allclose(ours.detach(), expected, atol=1e-4)


def test_the_penalty_that_does_best_on_validation_is_chosen(batch, classes):
    training, validation = halves(batch)
    chosen = logistic_regression([training], [validation], WORDS, classes)
    assert list(chosen.accuracies) == list(INVERSE_PENALTIES)
    best = max(chosen.accuracies.values())
    assert chosen.inverse_penalty == min(c for c, accuracy in chosen.accuracies.items() if accuracy == best)
    right = chosen.model(validation).predictions[:, 0] == validation.target[:, 0]
    assert right.double().mean().item() == pytest.approx(best)


def test_starting_from_a_stronger_penalty_changes_nothing(batch, classes):
    path, direct = fitted(batch, classes, [0.01, 1.0, 100.0]), fitted(batch, classes, [100.0])
    assert path.inverse_penalty == 100.0
    torch.testing.assert_close(path.word_weights, direct.word_weights, atol=1e-3, rtol=1e-3)


def test_each_token_is_scored_by_its_weight_for_the_gold_class(batch, classes):
    regression = fitted(batch, classes, [100.0])
    alone = regression.word_weights.double().softmax(-1)[batch.source, batch.target]  # batch x source
    result = regression.model.translation_probabilities(batch)[:, 0].double()
    torch.testing.assert_close(result, alone * batch.source_mask, atol=1e-6, rtol=1e-5)
    scores = regression.token_scores(batch)[:, 0].double()
    torch.testing.assert_close(scores, torch.logit(alone) * batch.source_mask, atol=1e-4, rtol=1e-4)
    assert regression.word_weights.argmax(0).tolist() == list(range(classes))


def test_results_do_not_depend_on_batch_boundaries_or_padding(batch, classes):
    whole, parts = Documents.of([batch], WORDS, classes), Documents.of(halves(batch), WORDS, classes)
    np.testing.assert_array_equal(whole.shares.toarray(), parts.shares.toarray())
    np.testing.assert_array_equal(whole.labels, parts.labels)


def test_data_that_cannot_be_fitted_are_refused():
    two = reviews(2)
    with pytest.raises(BadSetting, match=r"no training sentence is of class \[2\]; all 3 classes are needed"):
        logistic_regression([two], [two], WORDS, 3)
    with pytest.raises(BadSetting, match="needs at least one sentence"):
        logistic_regression([], [two], WORDS, 2)
    with pytest.raises(BadSetting, match=r"\[19, 19, 19\] are not among the 19 source words"):
        logistic_regression([two], [two], WORDS - 1, 2)
    translation = Batch(two.source, two.source_mask, two.source, two.source_mask)
    with pytest.raises(BadSetting, match="a classified sentence has one target word, its class, but these have 11"):
        logistic_regression([translation], [two], WORDS, 2)
