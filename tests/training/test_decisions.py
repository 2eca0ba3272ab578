"""F1, accuracy and area under the curve, against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from attnscope.models import ClassifierSettings, build, uniform
from attnscope.tasks import Keyword
from attnscope.training import Decisions, decide, evaluate


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(classes, seed):
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet(np.ones(classes), 60).round(1)  # some are tied
    probabilities /= probabilities.sum(1, keepdims=True)
    gold = random.integers(0, classes, 60)
    decisions = Decisions(probabilities, gold)
    chosen = probabilities.argmax(1)
    assert decisions.macro_f1 == pytest.approx(f1_score(gold, chosen, average="macro"))
    assert decisions.accuracy == pytest.approx((gold == chosen).mean())
    if classes == 2:
        assert decisions.f1 == pytest.approx(f1_score(gold, chosen))
        assert decisions.auc == pytest.approx(roc_auc_score(gold, probabilities[:, 1]))
    else:
        assert decisions.f1 == decisions.macro_f1
        assert decisions.auc == pytest.approx(roc_auc_score(gold, probabilities, multi_class="ovr"))


def test_a_class_that_is_never_chosen_has_an_f1_of_zero():
    decisions = Decisions(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1]))
    assert decisions.f1 == 0
    assert np.isnan(Decisions(decisions.probabilities, np.array([0, 0])).auc)


def test_decisions_are_those_of_the_model_under_any_attention():
    task = Keyword(num_words=8, length=6, test_size=50)
    torch.manual_seed(0)
    model = build(
        ClassifierSettings(input_size=5, units=4, hidden=3), len(task.source_vocabulary), len(task.target_vocabulary)
    )
    for forward in ({}, {"attention": uniform}):
        decisions = decide(model, task.batches("test", 16), **forward)
        assert decisions.probabilities.shape == (50, 2)
        np.testing.assert_allclose(decisions.probabilities.sum(1), 1)
        assert decisions.accuracy == pytest.approx(evaluate(model, task.batches("test"), **forward)["word_accuracy"])
