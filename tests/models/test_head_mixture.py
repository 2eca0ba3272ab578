"""A mixture of heads, learned from removals: on synthetic effects whose answer is known, and on a model."""

import numpy as np
import pytest
from adapter_examples import adapter

from attnscope.errors import BadSetting
from attnscope.probes.heads.mixture import Removals, fit_mixture, head_mixture

WORDS = ["the", "old", "film", "dog", "sees", "a", "house", "were", "small"]


def made_up(coefficients, noise=0.0, texts=60, removals=20, seed=0):
    """Two layers of two heads, whose attention on what was removed has these effects."""
    random = np.random.default_rng(seed)
    attention = random.random((texts, removals, 4))
    change = attention @ np.array(coefficients, float) + noise * random.normal(size=(texts, removals))
    return Removals(attention, change, np.arange(texts))


def test_one_head_that_decides_is_found_and_no_mixture_is_better():
    mixture = fit_mixture(made_up([0, 2, 0, 0], noise=0.1), layers=2)
    table = mixture.table()["correlation"]
    assert mixture.best == (0, 1)
    assert table["best head"] == pytest.approx(table["mixture"], abs=0.02)
    assert table["best head"] > 0.9
    assert abs(table["mean of the last layer"]) < 0.2


def test_effects_of_several_heads_are_predicted_by_a_mixture_alone():
    mixture = fit_mixture(made_up([1, -1, 1, -1], noise=0.1), layers=2)
    table = mixture.table()["correlation"]
    assert table["mixture"] > 0.95
    assert table["best head"] < 0.7
    shares = mixture.coefficients / np.abs(mixture.coefficients).max()
    np.testing.assert_allclose(shares, [[1, -1], [1, -1]], atol=0.1)


def test_for_uninformative_attention_the_interval_of_the_mixture_contains_zero():
    mixture = fit_mixture(made_up([0, 0, 0, 0], noise=1.0), layers=2)
    row = mixture.table().loc["mixture"]
    assert row["low"] < 0 < row["high"] < 0.2


def test_equal_texts_are_on_one_side():
    keys = np.array([7, 3, 7, 5, 3])
    assert Removals(np.zeros((5, 3, 4)), np.zeros((5, 3)), keys).in_test.tolist() == [False, False, False, True, False]


def test_texts_without_any_effect_are_left_out():
    removals = made_up([0, 1, 0, 0])
    removals.change[:10] = 0
    mixture = fit_mixture(removals, layers=2)
    assert (mixture.learned_from, len(mixture.correlations)) == (25, 25)


def texts(count=24):
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(count)]


def test_it_runs_on_a_model_and_batches_do_not_matter():
    model = adapter("distilbert")
    mixture = head_mixture(model, texts(), removals=6)
    assert mixture.coefficients.shape == (2, 2)
    assert list(mixture.table().index) == ["mean of the last layer", "best head", "mixture"]
    assert mixture.learned_from + len(mixture.correlations) <= 24
    batches = [read.batch for read in model.reader.batches(texts(), size=5)]
    again = head_mixture(model, batches, removals=6)
    np.testing.assert_allclose(again.table(), mixture.table(), atol=1e-4)
    assert mixture.plot().get_ylabel()


def test_too_few_texts_are_refused():
    with pytest.raises(BadSetting, match="texts to learn from and to test on: give more, at least 5 each"):
        head_mixture(adapter("distilbert"), texts(6), removals=4)


def test_batches_of_single_words_are_left_out():
    model, given = adapter("distilbert"), texts()
    short = head_mixture(model, ["film"] * 32 + given, removals=6)
    np.testing.assert_allclose(short.table(), head_mixture(model, given, removals=6).table(), atol=1e-4)
    with pytest.raises(BadSetting, match="0 and 0 texts to learn from"):
        head_mixture(model, ["film", "dog"])
