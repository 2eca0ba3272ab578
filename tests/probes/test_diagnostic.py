"""Diagnostic classifiers on synthetic states with known units that carry the label."""

import numpy as np
import pytest
import sklearn
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

from attnscope import plots
from attnscope.errors import BadSetting
from attnscope.probes.diagnostic import (
    RELEASED,
    DiagnosticSettings,
    Samples,
    control_task,
    fit_diagnostic,
    fit_linear,
    last_tokens,
    splits,
)
from attnscope.probes.functional_group import (
    RANKINGS,
    functional_group,
    overlap,
    rank_units,
    shapley_values,
    smallest_sufficient,
)

SEQUENCES, STEPS, UNITS = 80, 3, 12


def two_units(seed=0, carriers=(7, 3)):
    """Four classes, told by the signs of two units together; all other units are noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, (SEQUENCES, STEPS))
    states = random.normal(0, 0.05, (SEQUENCES, STEPS, UNITS))
    for bit, unit in enumerate(carriers):
        states[..., unit] += np.where(labels >> bit & 1, 1.0, -1.0)
    return torch.from_numpy(states), torch.from_numpy(labels)


def samples_of(states, labels, **more):
    return Samples.of(states, labels, torch.ones_like(labels, dtype=torch.bool), **more)


SAMPLES = samples_of(*two_units())
SCIKIT = tuple(map(int, sklearn.__version__.split(".")[:2]))


@pytest.mark.parametrize("penalty", ["none", "l1", "l2"])
@pytest.mark.parametrize("ranking", ["all_classes", "shapley"])
def test_two_units_that_carry_the_label_are_the_functional_group(penalty, ranking):
    reading = fit_diagnostic(SAMPLES, DiagnosticSettings(penalty=penalty, repeats=2))
    group = functional_group(reading, ranking)
    assert (reading.accuracy, reading.converged) == (1.0, 1.0)
    assert set(group.units) == {3, 7}
    assert group.accuracy == 1.0
    assert np.mean(group.accuracies[1]) < 0.8  # either bit alone leaves two classes apiece


def test_the_classifier_on_all_units_with_the_others_masked_finds_them_too():
    group = functional_group(fit_diagnostic(SAMPLES, DiagnosticSettings(penalty="l2", repeats=2)), masked=True)
    assert set(group.units) == {3, 7}
    assert list(group.accuracies) == [1, 2]


def test_masking_equals_putting_the_other_units_to_zero():
    reading = fit_diagnostic(SAMPLES, DiagnosticSettings(penalty="l2", repeats=1, held_out=0.5))
    group = functional_group(reading, masked=True, min_share=1.0)
    (split,), (classifier,) = reading.splits, reading.classifiers
    for size, (accuracy,) in group.accuracies.items():
        masked = np.zeros_like(SAMPLES.states[split.test])
        units = rank_units(reading)[:size]
        masked[:, units] = SAMPLES.states[split.test][:, units]
        assert accuracy == classifier.accuracy(masked, SAMPLES.labels[split.test])


def test_the_released_ranking_sees_the_first_class_alone():
    """Unit 0 tells class 0 from the others; units 1 and 2, twice as far apart, tell these from each other."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, (SEQUENCES, STEPS))
    states = random.normal(0, 0.05, (SEQUENCES, STEPS, 3))
    states[..., 0] += labels == 0
    states[..., 1] += 0.7 * (labels == 1)
    states[..., 2] += 0.7 * (labels == 2)
    reading = fit_diagnostic(samples_of(torch.from_numpy(states), torch.from_numpy(labels)), RELEASED)
    assert rank_units(reading, "first_class")[0] == 0
    signed = np.abs(reading.weights[:, 0].mean(0))
    assert rank_units(reading, "first_class").tolist() == np.argsort(-signed).tolist()
    assert rank_units(reading).tolist() == np.argsort(-np.abs(reading.weights).mean((0, 1))).tolist()


def test_splits_by_sequence_keep_sequences_together_and_splits_by_token_do_not():
    by_sequence, by_token = (list(splits(SAMPLES, by, 0.1, 3, seed=0)) for by in ("sequence", "token"))
    for split in by_sequence:
        assert not set(SAMPLES.sequences[split.train]) & set(SAMPLES.sequences[split.test])
        assert len(split.test) == 0.1 * len(SAMPLES)
    assert set(SAMPLES.sequences[by_token[0].train]) & set(SAMPLES.sequences[by_token[0].test])
    assert not np.array_equal(by_token[0].test, by_token[1].test)


def test_padding_is_ignored_and_batches_are_merged():
    states, labels = two_units()
    mask = torch.ones_like(labels, dtype=torch.bool)
    mask[::2, -1] = False
    spoilt = states.masked_fill(~mask[..., None], torch.nan)
    whole = Samples.of(spoilt, labels, mask)
    parts = [Samples.of(spoilt[rows], labels[rows], mask[rows]) for rows in (slice(0, 30), slice(30, None))]
    joined = Samples.joined(parts)
    assert len(whole) == int(mask.sum())
    for name in ("states", "labels", "sequences"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def mean_loss(weights, biases, states, labels):
    scores = states @ weights.T + biases
    odds = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return -odds[np.arange(len(labels)), labels].mean()


def test_the_l1_fit_is_at_least_as_good_as_scikit_learns():
    states, labels = SAMPLES.states, SAMPLES.labels
    mine = fit_linear(states, labels, "l1", 0.5)
    options = {"penalty": "l1"} if SCIKIT < (1, 8) else {"l1_ratio": 1.0}
    saga = LogisticRegression(C=0.5, solver="saga", tol=1e-6, max_iter=20_000, random_state=0, **options)
    saga.fit(states, labels)

    def price(weights, biases):
        return mean_loss(weights, biases, states, labels) + np.abs(weights).sum() / (0.5 * len(labels))

    assert price(mine.weights, mine.biases) == pytest.approx(price(saga.coef_, saga.intercept_), abs=1e-5)
    assert np.flatnonzero(np.abs(mine.weights).max(0) > 1e-3).tolist() == [3, 7]


@pytest.mark.parametrize("classes", [2, 4])
def test_with_l2_it_is_scikit_learns_classifier(classes):
    states, labels = SAMPLES.states, SAMPLES.labels % classes
    mine, theirs = fit_linear(states, labels, "l2", 0.3), LogisticRegression(C=0.3).fit(states, labels)
    np.testing.assert_array_equal(mine.predict(states), theirs.predict(states))
    np.testing.assert_allclose(mine.weights.sum(0), 0, atol=1e-8)


def test_shapley_values_sum_to_the_score_less_that_of_the_background():
    random = check_random_state(0)
    weights, states, background = random.normal(size=(3, 5)), random.normal(size=(4, 5)), random.normal(size=(9, 5))
    values = shapley_values(weights, states, background)
    np.testing.assert_allclose(values.sum(-1), states @ weights.T - (background @ weights.T).mean(0))


def test_the_ranking_by_shapley_values_is_that_of_their_mean_size():
    reading = fit_diagnostic(SAMPLES, DiagnosticSettings(penalty="l2", repeats=1))
    states = SAMPLES.states[reading.splits[0].train]
    sizes = np.abs(shapley_values(reading.classifiers[0].weights, states, states)).mean((0, 1))
    np.testing.assert_allclose(RANKINGS["shapley"](reading), sizes)


def test_a_unit_that_never_moves_has_no_shapley_value_however_large_its_weight():
    states, labels = two_units()
    states[..., 0] = 5.0
    reading = fit_diagnostic(samples_of(states, labels), DiagnosticSettings(penalty="l2", repeats=1))
    assert RANKINGS["shapley"](reading)[0] == 0


def test_the_smallest_size_is_found_where_accuracy_only_grows():
    for answer in (1, 15, 16, 17, 33, 199, 200):
        assert smallest_sufficient(lambda size, answer=answer: size >= answer, 200) == answer


def test_where_accuracy_falls_again_every_size_finds_what_growing_sizes_pass_over():
    enough = {18, 40, *range(90, 201)}
    assert smallest_sufficient(enough.__contains__, 200, every_size=True) == 18
    assert smallest_sufficient(enough.__contains__, 200) == 90  # 20, 25, ... fail; 92 does not


def test_a_control_task_is_learned_where_kinds_can_be_read_off_the_states_and_not_elsewhere():
    random = np.random.default_rng(0)
    kinds = torch.from_numpy(random.integers(0, 10, (SEQUENCES, STEPS)))
    labels = kinds % 2
    noise = torch.from_numpy(random.normal(0, 0.05, (SEQUENCES, STEPS, 10)))
    by_heart = noise + torch.nn.functional.one_hot(kinds, 10)
    only_label = noise.clone()
    only_label[..., 0] += labels
    settings = DiagnosticSettings(penalty="l2", inverse_penalty=10.0, repeats=5, held_out=0.3)
    first, second = (
        control_task(fit_diagnostic(samples_of(x, labels, types=kinds), settings)) for x in (by_heart, only_label)
    )
    assert first.real == second.real == (1.0,) * 5
    assert first.selectivity == 0
    assert second.selectivity > 0.2
    assert (first.types, first.known) == (10, 1.0)


def test_a_control_task_on_a_group_is_on_its_units_alone():
    states, labels = two_units()
    reading = fit_diagnostic(samples_of(states, labels, types=labels), DiagnosticSettings(penalty="l2", repeats=2))
    assert control_task(reading, units=(3, 7)).real == (1.0, 1.0)
    assert max(control_task(reading, units=(0, 1)).real) < 0.7


def test_the_last_words_tell_sentences_apart_that_end_alike_only_by_a_longer_span():
    words, mask = torch.tensor([[4, 5, 6], [3, 5, 6]]), torch.tensor([[True] * 3, [True, True, False]])
    one, two = last_tokens(words, mask, 7, span=1), last_tokens(words, mask, 7)
    assert one[0, 1] == one[1, 1]
    assert two[0, 1] != two[1, 1]
    assert two[1, 2] == -1
    torch.testing.assert_close(last_tokens(words[1:], mask[1:], 7), two[1:])  # whatever else is in the batch
    with pytest.raises(BadSetting, match="a token id 6, but the vocabulary has 6 tokens"):
        last_tokens(words, mask, 6)


def test_the_overlap_is_the_share_of_the_group_among_the_strongest():
    strengths = np.arange(40.0)
    result = overlap((39, 0), strengths, share=0.05)
    assert result.strongest == (39, 38)
    assert (result.share, result.chance) == (0.5, 0.05)
    assert result.table()["group"].item() == 2


def test_tables_have_a_row_and_pictures_are_drawn():
    states, labels = two_units()
    reading = fit_diagnostic(samples_of(states, labels, types=labels), DiagnosticSettings(repeats=2))
    for answer in (reading, functional_group(reading), control_task(reading), overlap((1,), np.ones(4))):
        assert len(answer.table()) == 1
        _, (ax,) = plots.panels()
        assert answer.plot(ax) is ax
    assert reading.table()["majority"].item() == np.bincount(labels.flatten()).max() / labels.numel()


def test_invalid_input_is_refused():
    states, labels = two_units()
    with pytest.raises(BadSetting, match="there is no penalty 'l3'; choose one of none, l1, l2"):
        DiagnosticSettings(penalty="l3")
    with pytest.raises(BadSetting, match="there is no way to split 'word'"):
        DiagnosticSettings(split="word")
    with pytest.raises(BadSetting, match="there is no ranking 'best'"):
        functional_group(fit_diagnostic(SAMPLES, DiagnosticSettings(repeats=1)), "best")
    with pytest.raises(BadSetting, match="all labels are the same"):
        fit_linear(SAMPLES.states, np.zeros(len(SAMPLES), dtype=int))
    with pytest.raises(BadSetting, match="give types="):
        control_task(fit_diagnostic(SAMPLES, DiagnosticSettings(repeats=1)))
    with pytest.raises(BadSetting, match="leaves nothing on one of the two sides"):
        fit_diagnostic(samples_of(states[:2], labels[:2]))
    rare = torch.zeros_like(labels)
    rare[0] = 1
    with pytest.raises(BadSetting, match="no step of class"):
        fit_diagnostic(samples_of(states, rare), DiagnosticSettings(held_out=0.9, repeats=20))
    with pytest.raises(BadSetting, match=r"units \[9\] have no strength"):
        overlap((9,), np.ones(4))
