"""Mutual information equals scikit-learn's and the closed forms; a state that keeps its word shares more with it."""

import math
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information
from threadpoolctl import threadpool_limits

from attnscope.errors import BadSetting
from attnscope.models import ClassifierSettings, build
from attnscope.probes.information import (
    compute_information,
    information,
    label_entropy,
    mutual_information,
    shuffled_information,
)
from attnscope.probes.occurrences import (
    Occurrences,
    cluster_vectors,
    gather_occurrences,
    most_frequent_words,
    sample_mask,
    sample_words,
    word_counts,
)
from attnscope.tasks import SPECIALS, Batch
from attnscope.tasks.batch import END, START
from attnscope.tasks.text.corpora import CLASSIFICATIONS
from attnscope.tasks.text.vocabularies import UNKNOWN

SEEDS = range(5)
RANDOM = np.random.default_rng(0)
LABELS = st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 3)), min_size=1, max_size=40)


def columns(pairs):
    return tuple(np.array(side) for side in zip(*pairs, strict=True))


@given(LABELS)
def test_it_equals_scikit_learn(pairs):
    one, other = columns(pairs)
    assert mutual_information(one, other) == pytest.approx(mutual_info_score(one, other), abs=1e-12)


@given(LABELS)
def test_it_is_symmetric_and_at_most_the_lower_entropy(pairs):
    one, other = columns(pairs)
    shared = mutual_information(one, other)
    assert shared == pytest.approx(mutual_information(other, one), abs=1e-12)
    assert 0 <= shared <= min(label_entropy(one), label_entropy(other)) + 1e-12


def test_names_of_labels_do_not_matter():
    one, other = RANDOM.integers(0, 6, 500), RANDOM.integers(0, 4, 500)
    renamed = np.array([30, -2, 700, 11, 5, 8])[one]
    assert mutual_information(renamed, other) == pytest.approx(mutual_information(one, other), abs=1e-15)


def test_information_of_a_label_about_itself_is_its_entropy():
    labels = np.repeat([0, 1, 2], [2, 4, 2])
    assert label_entropy(labels) == pytest.approx(1.5 * math.log(2))
    assert mutual_information(labels, labels) == pytest.approx(label_entropy(labels))


def test_information_about_a_function_is_the_entropy_of_its_value():
    words = RANDOM.integers(0, 12, 1000)
    assert mutual_information(words, words // 3) == pytest.approx(label_entropy(words // 3))


def test_independent_labels_have_the_known_bias():
    one, other = RANDOM.integers(0, 10, 20_000), RANDOM.integers(0, 8, 20_000)
    bias = 9 * 7 / (2 * 20_000)
    assert mutual_information(one, other) == pytest.approx(bias, rel=0.5)
    assert shuffled_information(one, other, shuffles=50) == pytest.approx(bias, rel=0.1)


def test_the_value_by_chance_is_the_exact_expectation():
    one = RANDOM.integers(0, 10, 200)
    other = one // 2
    exact = expected_mutual_information(contingency_matrix(one, other, sparse=True), 200)
    assert shuffled_information(one, other, shuffles=400) == pytest.approx(exact, rel=0.05)


def test_labels_that_make_no_pairs_are_refused():
    with pytest.raises(BadSetting, match="not 2 of one with 3 of another"):
        mutual_information(np.zeros(2, int), np.zeros(3, int))
    with pytest.raises(BadSetting, match="no labels"):
        mutual_information(np.zeros(0, int), np.zeros(0, int))


def blobs(tokens=600, words=20, size=5, noise=0.0, seed=0):
    random = np.random.default_rng(seed)
    kinds = random.integers(0, words, tokens)
    vectors = random.standard_normal((words, size))[kinds] * 10 + noise * random.standard_normal((tokens, size))
    return kinds, vectors.astype(np.float32)


def test_far_apart_clouds_are_clusters():
    kinds, vectors = blobs(words=5, noise=0.01)
    result = cluster_vectors(vectors, k=5, num_starts=10)
    assert result.occupied == 5
    assert mutual_information(result.labels, kinds) == pytest.approx(label_entropy(kinds))


def spread(vectors, labels):
    """The sum of squared distances to the middle of each cluster."""
    clusters = [vectors[labels == label] for label in np.unique(labels)]
    return sum(float(np.square(some - some.mean(0)).sum()) for some in clusters)


def test_the_clusters_are_as_tight_as_those_of_scikit_learn_by_its_own_draws():
    _, vectors = blobs(3000, noise=3.0)
    with threadpool_limits(1):
        theirs = [
            MiniBatchKMeans(12, batch_size=100, n_init=3, random_state=seed).fit_predict(vectors) for seed in SEEDS
        ]
    ours = [cluster_vectors(vectors, k=12, seed=seed).labels for seed in SEEDS]
    means = [np.mean([spread(vectors, labels) for labels in some]) for some in (ours, theirs)]
    assert means[0] == pytest.approx(means[1], rel=0.05)


def test_clustering_one_vector_per_kind_labels_all():
    kinds, vectors = blobs()
    np.testing.assert_array_equal(
        cluster_vectors(vectors, k=15, kinds=kinds).labels, cluster_vectors(vectors, k=15).labels
    )


def test_kinds_with_different_vectors_are_clustered_one_by_one():
    kinds, vectors = blobs(noise=5.0)
    np.testing.assert_array_equal(
        cluster_vectors(vectors, k=15, kinds=kinds).labels, cluster_vectors(vectors, k=15).labels
    )


def test_more_clusters_than_distinct_vectors_leave_some_empty_without_a_warning():
    kinds, vectors = blobs(words=5)
    result = cluster_vectors(vectors, k=50, kinds=kinds)
    assert result.occupied == 5
    assert mutual_information(result.labels, kinds) == pytest.approx(label_entropy(kinds))


def test_too_few_vectors_are_refused():
    with pytest.raises(BadSetting, match="600 vectors do not make k=1000 clusters"):
        cluster_vectors(blobs()[1])
    with pytest.raises(BadSetting, match="not finite"):
        cluster_vectors(np.full((3, 2), np.nan, dtype=np.float32), k=2)


def test_clusters_are_reproducible_from_the_seed():
    _, vectors = blobs(noise=3.0)
    again = [cluster_vectors(vectors, k=12, seed=seed).labels for seed in (1, 1, 2)]
    np.testing.assert_array_equal(again[0], again[1])
    assert (again[0] != again[2]).any()


def test_sampled_words_follow_the_unigram_distribution_to_the_three_quarters():
    counts = np.array([0, 0, 0, 81, 16, 1])
    sampled = [int(sample_words(counts, 1, seed=seed)[0]) for seed in range(3000)]
    share = np.bincount(sampled, minlength=6)[3:] / 3000
    assert share == pytest.approx(np.array([27, 8, 1]) / 36, abs=0.03)


def test_sampled_words_are_distinct_and_occur():
    counts = RANDOM.integers(0, 5, 100)
    words = sample_words(counts, 30, seed=1)
    assert len(set(words.tolist())) == 30
    assert (counts[words] > 0).all()
    np.testing.assert_array_equal(sample_words(counts, 1000), np.flatnonzero(counts))
    np.testing.assert_array_equal(most_frequent_words(counts, 1000), np.flatnonzero(counts))


WORDS = 12


def corpus(sentences=60, seed=0):
    """Start, words of a steep distribution, end; lengths differ."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, WORDS + 1)
    words = [
        random.choice(WORDS, random.integers(3, 9), p=share / share.sum()) + len(SPECIALS) for _ in range(sentences)
    ]
    return [torch.tensor([START, *some.tolist(), END]) for some in words]


def cut(sentences, size):
    for start in range(0, len(sentences), size):
        rows = sentences[start : start + size]
        source = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True).bool()
        label = torch.full((len(rows), 1), len(SPECIALS))
        yield Batch(source, mask, label, torch.ones_like(label).bool())


def classifier(grounding="none", size=8, **settings):
    torch.manual_seed(0)
    chosen = ClassifierSettings(input_size=size, units=size // 2, hidden=4, grounding=grounding, **settings)
    return build(chosen, WORDS + len(SPECIALS), 2 + len(SPECIALS)).eval()


SENTENCES = corpus()
TOKENS = torch.cat(SENTENCES).numpy()


def test_words_are_counted_without_special_ones():
    counts = word_counts(cut(SENTENCES, 7))
    assert counts[: len(SPECIALS)].tolist() == [0] * len(SPECIALS)
    np.testing.assert_array_equal(counts[3:], np.bincount(TOKENS)[3:])
    assert word_counts(cut(SENTENCES, 7), without=(4, 999))[4] == 0


@pytest.mark.parametrize("most", [50, 10_000])
def test_gathered_vectors_do_not_depend_on_the_batch_size(most):
    model, words = classifier(), np.array([3, 5, 6])
    one, other = (gather_occurrences(model, list(cut(SENTENCES, size)), words, most) for size in (1, 16))
    np.testing.assert_array_equal(one.words, other.words)
    np.testing.assert_array_equal(one.embedded, other.embedded)
    np.testing.assert_allclose(one.states, other.states, atol=1e-6)
    assert len(one) == min(most, one.total) == len(one.states)


def test_only_the_chosen_words_are_gathered_each_with_its_own_vectors():
    model, batch = classifier(), next(cut(SENTENCES, 60))
    result = gather_occurrences(model, [batch], np.array([3, 5, 6]))
    trace = model(batch)
    where = batch.source_mask & torch.isin(batch.source, torch.tensor([3, 5, 6]))
    np.testing.assert_array_equal(result.words, TOKENS[np.isin(TOKENS, [3, 5, 6])])
    np.testing.assert_array_equal(result.embedded, trace.embedded[where].detach().numpy())
    np.testing.assert_array_equal(result.states, trace.encoder[where].detach().numpy())


def test_kept_vectors_are_a_uniform_sample_of_the_sentences():
    masks = np.stack([sample_mask(40, 20, seed) for seed in range(1000)])
    assert set(masks.sum(1).tolist()) == {20}
    assert masks.mean(0) == pytest.approx(np.full(40, 0.5), abs=0.07)


def test_batches_from_a_single_use_iterator_are_refused():
    with pytest.raises(BadSetting, match="an iterator"):
        gather_occurrences(classifier(), cut(SENTENCES, 7), np.array([3]))


def test_words_that_do_not_occur_are_refused():
    with pytest.raises(BadSetting, match="none of the chosen words occurs"):
        gather_occurrences(classifier(), list(cut(SENTENCES, 7)), np.array([999]))


def made_up(states, kinds, embedded):
    return Occurrences(kinds, embedded, states.astype(np.float32), len(kinds))


def test_states_near_their_embeddings_share_more_than_states_of_their_own():
    kinds, embedded = blobs(3000)
    noise = np.random.default_rng(1).standard_normal(embedded.shape)
    near = compute_information(made_up(embedded + 0.1 * noise, kinds, embedded), k=25)
    apart = compute_information(made_up(noise, kinds, embedded), k=25)
    assert near.embedding.nats > 0.9 * near.embedding.at_most
    assert apart.embedding.nats == pytest.approx(apart.embedding.by_chance, abs=0.05)


def test_a_residual_classifier_keeps_more_of_its_words_than_a_plain_one():
    batches = list(cut(corpus(400), 50))
    plain, residual = (information(classifier(grounding), batches, k=10) for grounding in ("none", "residual"))
    assert residual.embedding.nats > plain.embedding.nats
    assert residual.word.nats > plain.word.nats


def test_clusters_of_words_tell_no_more_than_words():
    for choice in ("frequent", "sampled"):
        result = information(classifier(), lambda: cut(SENTENCES, 20), choice=choice, num_words=8, k=20)
        assert result.embedding.nats <= result.word.nats + 1e-12
        assert result.embedding.nats <= result.embedding.at_most + 1e-12
        assert result.words <= 8
        assert result.tokens_per_cluster == result.tokens / 20


def test_states_of_another_size_than_the_embeddings_can_be_measured():
    result = information(classifier("concat"), list(cut(SENTENCES, 20)), k=10)
    assert result.embedding.nats > result.embedding.by_chance


def test_settings_that_cannot_work_are_refused():
    batches = list(cut(SENTENCES, 20))
    with pytest.raises(BadSetting, match="choose one of frequent, sampled"):
        information(classifier(), batches, choice="rare")
    with pytest.raises(BadSetting, match="do not make k=1000 clusters"):
        information(classifier(), batches, k=1000)


def test_the_model_is_left_as_it_was():
    model = classifier(dropout=0.5).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    one, other = (information(model, list(cut(SENTENCES, 20)), k=10) for _ in range(2))
    assert one == other
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_result_has_a_table_and_a_figure():
    result = information(classifier(), list(cut(SENTENCES, 20)), k=10)
    table = result.table()
    assert list(table.index) == ["embedding", "word"]
    assert table.loc["word", "nats"] == result.word.nats
    assert set(table) >= {"by_chance", "at_most", "tokens", "words", "k", "tokens_per_cluster", "state_clusters"}
    ax = result.plot()
    assert "nats" in ax.get_ylabel()
    plt.close(ax.figure)


@pytest.mark.corpus
def test_of_real_text_the_unknown_word_can_be_left_out_and_a_residual_state_keeps_most(corpus):
    corpus("sst/sst.jsonl.gz")
    task = CLASSIFICATIONS["sst"]
    torch.manual_seed(0)
    settings = ClassifierSettings(input_size=8, units=4, hidden=4, grounding="residual")
    model = build(settings, len(task.source_vocabulary), len(task.target_vocabulary)).eval()
    known = information(model, partial(task.batches, "validation"), num_words=50, k=60, without=(UNKNOWN,))
    counts = word_counts(task.batches("validation"))
    assert known.total == np.sort(np.delete(counts, UNKNOWN))[-50:].sum()
    assert known.word.nats > 0.8 * known.word.at_most > 10 * known.word.by_chance
