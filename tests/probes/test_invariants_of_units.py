"""What holds of labels, units and weights, whatever their numbers: information, diagnostics, weight graphs, surgery.

That information is symmetric, below either entropy and that of scikit-learn, that Shapley values sum to the score, that
a part put in and back again restores a model: see test_information, test_diagnostic, test_weights and test_surgery.
"""

import numpy as np
import pytest
import torch
from decomposition_examples import random_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from lexical_examples import encoder_decoder

from attnscope.probes.diagnostic import DiagnosticSettings, Samples, control_task, fit_diagnostic, last_tokens, splits
from attnscope.probes.functional_group import functional_group, overlap, shapley_values
from attnscope.probes.information import label_entropy, mutual_information, shuffled_information
from attnscope.probes.occurrences import cluster_vectors, sample_words, word_counts
from attnscope.probes.transplant import COMPONENTS, keep_neurons, transplant_component
from attnscope.probes.weights import (
    EmbeddingTable,
    polarity,
    pooled_threshold,
    strengths,
    strongest_units,
    weight_graph,
)

few = settings(max_examples=20, deadline=None)
SEEDS = st.integers(0, 10_000)
LABELS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=30)
BATCH = random_batch(5, seed=0)


def columns(pairs):
    return tuple(np.array(side) for side in zip(*pairs, strict=True))


# Information


@few
@given(LABELS, SEEDS)
def test_merging_labels_never_increases_information_and_a_constant_has_none(pairs, seed):
    one, other = columns(pairs)
    shared, order = mutual_information(one, other), np.random.default_rng(seed).permutation(len(one))
    assert mutual_information(one // 2, other) <= shared + 1e-12
    assert mutual_information(np.zeros_like(one), other) == pytest.approx(0, abs=1e-12)
    assert mutual_information(one, one) == pytest.approx(label_entropy(one), abs=1e-12)
    assert mutual_information(one[order], other[order]) == pytest.approx(shared, abs=1e-12)
    assert mutual_information(np.tile(one, 3), np.tile(other, 3)) == pytest.approx(shared, abs=1e-12)
    assert 0 <= shuffled_information(one, other) <= min(label_entropy(one), label_entropy(other)) + 1e-12


@few
@given(LABELS)
def test_joint_entropy_is_the_sum_of_entropies_less_the_mutual_information(pairs):
    one, other = columns(pairs)
    assert label_entropy(10 * one + other) == pytest.approx(
        label_entropy(one) + label_entropy(other) - mutual_information(one, other), abs=1e-12
    )


@settings(max_examples=3, deadline=None)
@given(SEEDS)
def test_equal_vectors_are_in_one_cluster_and_no_more_clusters_are_used_than_there_are(seed):
    vectors = np.random.default_rng(seed).normal(size=(30, 3)).astype(np.float32)
    result = cluster_vectors(np.concatenate([vectors, vectors]), k=7, batch_size=10)
    assert (result.labels[:30] == result.labels[30:]).all()
    assert result.occupied <= 7
    assert ((result.labels >= 0) & (result.labels < 7)).all()


@few
@given(SEEDS, st.integers(1, 6))
def test_counts_of_two_batches_add_up_and_no_more_words_are_sampled_than_occur(seed, number):
    batches = [random_batch(4, seed=seed + i) for i in range(2)]
    both, apart = word_counts(batches), [word_counts([batch]) for batch in batches]
    width = len(both)
    assert (both == sum(np.pad(counts, (0, width - len(counts))) for counts in apart)).all()
    assert (both == word_counts(reversed(batches))).all()
    sampled = sample_words(both, number, seed)
    assert len(sampled) == min(number, np.count_nonzero(both))
    assert (both[sampled] > 0).all()


# Diagnostics


def samples_of(seed, units=5, classes=3, sequences=30, steps=2):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, (sequences, steps))
    states = random.normal(size=(sequences, steps, units))
    states[..., :classes] += 3 * np.eye(classes)[labels]
    kinds = torch.from_numpy(10 * labels + random.integers(0, 10, labels.shape))
    return Samples.of(torch.from_numpy(states), torch.from_numpy(labels), torch.ones(sequences, steps).bool(), kinds)


@settings(max_examples=4, deadline=None)
@given(SEEDS)
def test_names_of_classes_and_numbers_of_units_do_not_matter(seed):
    samples, setting = samples_of(seed), DiagnosticSettings(penalty="l2", repeats=2)
    random = np.random.default_rng(seed)
    names, order = random.permutation([4, 17, -2]), random.permutation(samples.units)
    renamed = Samples(samples.states[:, order], names[samples.labels], samples.sequences, samples.types)
    one, other = fit_diagnostic(samples, setting), fit_diagnostic(renamed, setting)
    assert other.accuracies == one.accuracies
    assert renamed.majority == samples.majority
    groups = functional_group(one), functional_group(other)
    assert {int(order[unit]) for unit in groups[1].units} == set(groups[0].units)
    assert groups[0].full == one.accuracies
    assert 1 <= groups[0].size <= samples.units
    assert groups[0].accuracy >= 0.95 * one.accuracy - 1e-12
    assert control_task(one).selectivity == pytest.approx(one.accuracy - np.mean(control_task(one).control))
    assert control_task(one, tuple(range(samples.units))) == control_task(one)


@few
@given(SEEDS, st.sampled_from(["sequence", "token"]), st.floats(0.1, 0.9))
def test_every_step_is_either_for_training_or_held_out(seed, by, held_out):
    samples = samples_of(seed)
    for split in splits(samples, by, held_out, repeats=3, seed=seed):
        assert sorted([*split.train, *split.test]) == list(range(len(samples)))


@few
@given(SEEDS)
def test_shapley_values_of_two_classifiers_together_are_the_sum_of_each(seed):
    random = np.random.default_rng(seed)
    one, other = random.normal(size=(2, 3, 5))
    states, background = random.normal(size=(6, 5)), random.normal(size=(9, 5))
    each = [shapley_values(weights, states, background) for weights in (one, other)]
    assert np.allclose(shapley_values(one + other, states, background), sum(each))
    assert np.allclose(shapley_values(one, background, background).mean(0), 0)


@few
@given(SEEDS, st.integers(1, 3))
def test_labels_of_longer_spans_refine_those_of_shorter_ones(seed, span):
    batch = random_batch(4, seed=seed)
    short, long = (
        last_tokens(batch.source, batch.source_mask, 7, many)[batch.source_mask] for many in (span, span + 1)
    )
    assert all(len(short[long == kind].unique()) == 1 for kind in long.unique())
    assert torch.equal(
        last_tokens(batch.source, batch.source_mask, 7, 1)[batch.source_mask], batch.source[batch.source_mask]
    )


# Weights


@few
@given(SEEDS, st.floats(0, 2), st.floats(0, 2))
def test_a_higher_threshold_leaves_fewer_edges_and_every_edge_ends_in_both_layers(seed, one, other):
    matrix = np.random.default_rng(seed).normal(size=(6, 4))
    low, high = (weight_graph(matrix, threshold) for threshold in sorted((one, other)))
    assert low.edges >= high.edges
    assert low.largest_component >= high.largest_component
    assert low.positive + low.negative == low.edges == low.degrees("next").sum() == low.degrees("previous").sum()
    turned, minus = weight_graph(matrix.T, low.threshold), weight_graph(-matrix, low.threshold)
    assert (turned.degrees("next") == low.degrees("previous")).all()
    assert turned.largest_component == low.largest_component
    assert (minus.positive, minus.negative) == (low.negative, low.positive)
    assert weight_graph(matrix, pooled_threshold([matrix], 0.25)).edges == 6


@few
@given(SEEDS, st.floats(0.1, 1), st.floats(0.1, 1))
def test_strength_is_invariant_to_the_order_of_units_and_to_signs(seed, one, other):
    random = np.random.default_rng(seed)
    incoming, outgoing, order = random.normal(size=(6, 4)), random.normal(size=(5, 6)), random.permutation(6)
    result = strengths({"in": incoming}, {"out": outgoing})
    assert np.allclose(strengths({"in": -3 * incoming[order]}, {"out": 3 * outgoing[:, order]}), 3 * result[order])
    few_, many = (strongest_units(result, share) for share in sorted((one, other)))
    assert many[: len(few_)] == few_
    assert overlap(many, result, share=1.0).share == 1
    assert overlap(few_, result, share=max(one, other)).share == 1


@few
@given(SEEDS)
def test_polarities_change_sign_with_a_gate_and_ignore_the_order_of_dimensions(seed):
    random = np.random.default_rng(seed)
    update, reset, words = random.normal(size=(3, 8, 6))
    result, minus = polarity(update, reset), polarity(-2 * update, reset)
    assert -1 <= result.correlation <= 1
    assert minus.correlation == pytest.approx(-result.correlation)
    assert polarity(update, update).correlation == pytest.approx(1)
    assert polarity(update.T, reset.T, "previous").correlation == pytest.approx(result.correlation)
    dimensions = EmbeddingTable(words, tuple("abcdefgh"))
    assert 1 / 6 - 1e-12 <= dimensions.strong_dimensions <= 1
    other = EmbeddingTable(-words[:, random.permutation(6)], dimensions.words)
    assert other.strong_dimensions == pytest.approx(dimensions.strong_dimensions)


# Surgery


def outputs(model):
    with torch.no_grad():
        return model(BATCH).logits


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_models_own_part_put_into_it_changes_nothing(component):
    model = encoder_decoder(inputs="learned")
    assert torch.equal(outputs(transplant_component(model, model, component).model), outputs(model))


def test_encoder_and_decoder_of_a_donor_together_are_the_donor():
    receiver, donor = (encoder_decoder(seed, inputs="learned") for seed in (0, 1))
    half = transplant_component(receiver, donor, "encoder").model
    assert not torch.equal(outputs(half), outputs(donor))
    assert torch.equal(outputs(transplant_component(half, donor, "decoder").model), outputs(donor))


@few
@given(st.sets(st.integers(0, 7), min_size=1), st.sets(st.integers(0, 7), min_size=1), st.sampled_from(["gru", "lstm"]))
def test_pruning_is_idempotent_and_prunings_combine(one, other, cell):
    model = encoder_decoder(inputs="learned", attention="mlp", cell=cell)

    def kept(of, units):
        return keep_neurons(of, dict.fromkeys(("encoder", "decoder"), tuple(units))).model

    once = kept(model, one)
    assert torch.equal(outputs(kept(once, one)), outputs(once))
    assert torch.equal(outputs(kept(once, other)), outputs(kept(model, one & other)))
