"""What holds of decisions, whatever their numbers: reweighing, fragility, adversaries, grounding, optima, erasure.

That neither batches, padding nor the order of texts change anything, that JSD is symmetric and at most ln 2, that what
is called feasible is so by a forward pass: see test_fragility, test_adversary, test_grounding and test_erasure.
"""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lexical_examples import Added, encoder_decoder, random_batch
from reweighing_examples import FIRST, by_hand, classifier, texts
from torch.testing import assert_close

from attnscope.models.inference import device_of, traces
from attnscope.probes.adversary import exact_adversaries_in_batch, imitation
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.divergences import jsd, kl, tvd
from attnscope.probes.erasure import (
    ComprehensivenessAccumulator,
    FlipAccumulator,
    RemovalGrid,
    erase_until_flip,
    probability_drops,
    top_counts,
)
from attnscope.probes.fragility import fragility, permute_weights
from attnscope.probes.grounding import GroundingAccumulator, batch_token_probabilities
from attnscope.probes.optimal import as_problem, solve_optimal_attention
from attnscope.probes.removal import ErasedTexts, random_score, rank_by_score
from attnscope.probes.scores import attention_scores

few, fewer = (settings(max_examples=examples, deadline=None) for examples in (20, 5))
SEEDS = st.integers(0, 10_000)
BATCH = texts(6)


def distributions(seed, rows=8, positions=6):
    """Some entries are exactly zero."""
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.full(positions, 0.5), rows) * (random.random((rows, positions)) < 0.6)
    weights[:, 0] += 1e-3
    return torch.from_numpy(weights / weights.sum(1, keepdims=True))


def exchanged(model):
    """The same classifier with its two classes exchanged: they have one logit between them."""
    changed = copy.deepcopy(model)
    for parameter in changed.output.parameters():
        parameter.data.neg_()
    return changed


def as_other_class(batch):
    return replace(batch, target=2 * FIRST + 1 - batch.target)


# Asking


def test_passes_run_in_evaluation_mode_and_restore_it_between_batches():
    model = classifier().train()
    calls = []
    model.register_forward_pre_hook(lambda module, _: calls.append((module.training, torch.is_grad_enabled())))
    for _, trace in traces(model, [BATCH, BATCH]):
        assert model.training
        assert torch.is_grad_enabled()
        assert not trace.logits.requires_grad
    assert calls == [(False, False)] * 2
    assert device_of(lambda batch: batch) == device_of(torch.nn.ReLU()) == torch.device("cpu")


# CounterfactualAttention and fragility


def test_passing_the_models_own_attention_keeps_its_output():
    counterfactual = CounterfactualAttention.of_classifier(classifier(), BATCH)
    assert_close(counterfactual.probabilities(counterfactual.own[None])[0], counterfactual.own_probabilities)
    assert_close(counterfactual.verified_probabilities(counterfactual.own), counterfactual.own_probabilities)
    for model in (encoder_decoder(), encoder_decoder(context="input")):
        batch = random_batch(3, seed=2, longest=4)
        words = CounterfactualAttention.of(model, batch, tokens=batch.target_mask)
        assert_close(words.in_passes(words.own[None])[0], words.trace.attention)
        assert_close(words.probabilities(words.own[None])[0], words.own_probabilities)
        assert_close(words.verified_probabilities(words.own), words.own_probabilities)


@few
@given(SEEDS)
def test_a_shuffle_that_keeps_the_order_changes_nothing_and_any_other_keeps_the_weights(seed):
    random = torch.Generator().manual_seed(seed)
    weights, mask = torch.rand(3, 2, 7, generator=random), torch.rand(3, 7, generator=random) < 0.7
    assert torch.equal(
        permute_weights(weights, mask, torch.arange(7).expand(4, 3, 2, 7)), weights.expand(4, -1, -1, -1)
    )
    permuted = permute_weights(weights, mask, torch.randint(1 << 40, (4, 3, 2, 7), generator=random))
    assert torch.equal(permuted.sort().values, weights.sort().values.expand(4, -1, -1, -1))
    assert torch.equal(permuted * ~mask[:, None], (weights * ~mask[:, None]).expand(4, -1, -1, -1))


@fewer
@given(SEEDS)
def test_changes_are_between_zero_and_one_and_do_not_depend_on_the_order_of_classes(seed):
    model, batch = classifier(seed=seed), texts(6, seed=seed)
    result, other = fragility(model, [batch], draws=5), fragility(exchanged(model), [as_other_class(batch)], draws=5)
    assert ((result.changes >= 0) & (result.changes <= 1)).all()
    assert np.allclose(other.changes, result.changes)
    assert other.table()[["accuracy", "macro f1", "change"]].to_numpy() == pytest.approx(
        result.table()[["accuracy", "macro f1", "change"]].to_numpy()
    )
    assert result.losses(lambda decisions: 1.0) == (0, 0, 0)


def test_a_text_of_one_word_cannot_be_permuted():
    result = fragility(classifier(words=30), [by_hand([2], [5])], draws=4)
    assert np.allclose(result.changes, 0)
    assert result.highest.tolist() == [1, 1]


# Adversaries


@few
@given(SEEDS)
def test_divergences_satisfy_the_triangle_and_pinsker_inequalities(seed):
    p, q, r = (distributions(seed + i) for i in range(3))
    assert (tvd(p, q) <= tvd(p, r) + tvd(r, q) + 1e-12).all()
    assert (jsd(p, q).sqrt() <= jsd(p, r).sqrt() + jsd(r, q).sqrt() + 1e-7).all()
    assert ((tvd(p, q) >= 0) & (tvd(p, q) <= 1 + 1e-12)).all()
    assert ((jsd(p, q) <= math.log(2) * tvd(p, q) + 1e-12) & (jsd(p, q) >= tvd(p, q) ** 2 / 2 - 1e-12)).all()
    assert (kl(p, q) >= 2 * tvd(p, q) ** 2 - 1e-12).all()  # Pinsker
    assert not any(distance(p, p).any() for distance in (tvd, jsd, kl))


@fewer
@given(SEEDS, st.floats(0.002, 0.3), st.floats(0.002, 0.3))
def test_a_looser_bound_on_the_output_allows_attention_to_move_farther(seed, one, other):
    model, batch = classifier(seed=seed), texts(6, seed=seed)
    near, far = (exact_adversaries_in_batch(model, batch, epsilon) for epsilon in sorted((one, other)))
    assert (near.jsd <= far.jsd + 1e-6).all()
    assert ((far.jsd >= 0) & (far.jsd <= math.log(2)) & (far.tvd <= max(one, other))).all()
    assert_close(far.weights.sum(-1), torch.ones_like(far.jsd)[:, None])
    assert_close(exact_adversaries_in_batch(exchanged(model), as_other_class(batch), max(one, other)).jsd, far.jsd)


def test_the_distance_between_base_and_adversary_is_symmetric():
    one, other = classifier(seed=0), classifier(seed=1)
    here, there = imitation(one, other, [BATCH]), imitation(other, one, [BATCH])
    for name in ("jsd", "tvd", "changed"):
        assert np.allclose(getattr(here, name), getattr(there, name))
        assert ((getattr(here, name) >= 0) & (getattr(here, name) <= 1)).all()


# Grounding


@pytest.mark.parametrize("classes", [2, 3])
def test_token_probabilities_sum_to_one_over_classes(classes):
    model, batch = classifier(classes=classes), texts(6, classes=classes)
    each = [batch_token_probabilities(model, batch, number) for number in range(classes)]
    words = ~each[0].tokens.isnan()
    assert_close(sum(one.tokens for one in each)[words], torch.ones(int(words.sum())).double())
    assert_close(sum(one.decision for one in each), torch.ones(6).double())


@few
@given(SEEDS, st.floats(0, 0.9), st.floats(0, 0.9))
def test_leakage_is_a_share_that_grows_with_what_counts_as_near(seed, one, other):
    result = batch_token_probabilities(classifier(seed=seed), BATCH)
    near, far = (result.leakage(distance) for distance in sorted((one, other)))
    assert ((near >= 0) & (near <= far) & (far <= 1)).all()


def test_the_only_word_of_a_text_has_the_probability_of_the_text():
    model, batch = classifier(), texts(8, shortest=1, longest=1)
    result, ground = batch_token_probabilities(model, batch), GroundingAccumulator()
    assert_close(result.tokens.nansum(1), result.decision)
    ground.update(replace(result, gold=result.predicted))
    assert ground.result().probability == pytest.approx(ground.result().decision)
    assert ground.result().leakage == 1


# Optimal attention


@fewer
@given(SEEDS)
def test_the_optimum_follows_its_words_and_no_mixture_costs_more_than_its_parts(seed):
    model, batch = Added(seed=seed), random_batch(3, seed=seed, longest=4)
    trace = model(batch)
    result, problem = solve_optimal_attention(model, trace, tolerance=1e-9), as_problem(model, trace)
    assert_close(result.weights.sum(-1)[:, 0][batch.target_mask], torch.ones(int(batch.target_mask.sum())).double())
    assert not result.weights[(~batch.source_mask)[:, None, None].expand_as(result.weights)].any()
    assert (result.loss <= result.own_loss + 1e-9)[batch.target_mask].all()
    one, other = (torch.randn(*result.loss.shape, batch.source.shape[1]).double().softmax(-1) for _ in range(2))
    mixed = problem.loss((one + other) / 2)
    assert (mixed <= (problem.loss(one) + problem.loss(other)) / 2 + 1e-12).all()
    raised = replace(problem, fixed=problem.fixed + 5)
    assert_close(raised.loss(one), problem.loss(one))


# Erasure


@pytest.mark.parametrize("way", ["attention", "text"])
def test_removing_no_word_and_keeping_all_words_give_the_whole_text(way):
    score = random_score(BATCH, 1)
    result = ErasedTexts.of(classifier(), BATCH, score, way)
    rows = torch.arange(len(result.texts))
    assert_close(result.without(rows, torch.zeros_like(rows)[:, None])[:, 0], result.whole)
    assert_close(result.without_and_alone(result.lengths[:, None])[1][:, 0], result.whole)


@pytest.mark.parametrize("way", ["attention", "text"])
def test_erasure_depends_on_ranks_only_and_returns_shares(way):
    model, score = classifier(), random_score(BATCH, 1)
    flips, lost = erase_until_flip(model, BATCH, score, way), probability_drops(model, BATCH, score, way)
    again, once_more = (
        erase_until_flip(model, BATCH, score.exp(), way),
        probability_drops(model, BATCH, 7 * score - 3, way),
    )
    assert torch.equal(again.fraction, flips.fraction)
    assert torch.equal(once_more.comprehensiveness, lost.comprehensiveness)
    assert ((flips.fraction > 0) & (flips.fraction <= 1) & (flips.mass >= 0) & (flips.mass <= 1 + 1e-9)).all()
    assert (lost.comprehensiveness.abs() <= 1).all()
    other = probability_drops(exchanged(model), as_other_class(BATCH), score, way)
    assert_close(other.sufficiency, lost.sufficiency)


def test_flips_increase_with_removed_words_and_a_score_ties_with_itself():
    erase, comprehend = FlipAccumulator(draws=2), ComprehensivenessAccumulator(draws=2)
    for accumulator in (erase, comprehend):
        accumulator.update(classifier(), BATCH, {"again": attention_scores(classifier()(BATCH))})
    curves = erase.result().curves()
    assert (curves.diff().iloc[1:] >= 0).all(axis=None)
    assert erase.result().table().loc["random", "earlier"] == pytest.approx(0.5)
    table = comprehend.result().table()
    assert table.loc["again"].to_numpy() == pytest.approx(table.loc["attention"].to_numpy())


@few
@given(SEEDS, st.integers(0, 5), st.integers(1, 5))
def test_ranks_are_permutations_and_grids_increase(seed, exact, steps):
    random = torch.Generator().manual_seed(seed)
    values, lengths = torch.randint(4, (3, 9), generator=random).double(), torch.randint(2, 40, (5,), generator=random)
    words = torch.rand(3, 9, generator=random) < 0.7
    places = rank_by_score(values, words, torch.rand(3, 9, generator=random))
    assert (places.sort().values == torch.arange(9)).all()
    assert (places[words] < words.sum(1, keepdim=True).expand(-1, 9)[words]).all()
    for row, length in zip(RemovalGrid(exact, steps).counts(lengths).tolist(), lengths.tolist(), strict=True):
        counts = [count for count in row if count]
        assert counts == sorted(set(counts))
        assert counts[-1] == length - 1
    assert (top_counts(lengths, (0.1, 0.2, 0.5, 0.9)).diff(dim=1) >= 0).all()
