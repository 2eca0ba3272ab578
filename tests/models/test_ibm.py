"""IBM Model 1 against a slow EM over dictionaries, snell2021's worked figure and closed forms."""

import math
from collections import defaultdict
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save
from scipy.sparse import csc_array

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.files import Malformed
from attnscope.models.ibm import Bags, IBMModel1, alone, translation
from attnscope.tasks import NOWHERE, Batch, Vocabulary, pad

SOURCE, TARGET = 7, 9  # words
DIESER, FILM, GROSSARTIG, IST, SCHLECHT = range(5)
BAD, GREAT, IS, MOVIE, THIS = range(5)
# snell2021 figure 1, rows and columns in that order. The picture's own sum for Film counts 21 where the table shows 12.
FIGURE = [[22, 26, 97, 13, 200], [4, 2, 15, 20, 21], [1, 43, 2, 3, 35], [18, 22, 100, 8, 54], [44, 1, 19, 3, 35]]


def random_pairs(sentences=30, seed=0):
    """Short sentences of few words, so that words repeat within a sentence, on both sides."""
    random = np.random.default_rng(seed)
    sides = ((SOURCE, random.integers(1, 7, sentences)), (TARGET, random.integers(1, 8, sentences)))
    source, target = ([random.integers(0, words, n).tolist() for n in lengths] for words, lengths in sides)
    return list(zip(source, target, strict=True))


def with_null(pairs):
    return [([*source, SOURCE], target) for source, target in pairs]


def slow_em(pairs, rounds, null):
    """As in the textbook: a loop over sentences, target positions and source positions."""
    pairs = with_null(pairs) if null else pairs
    table = defaultdict(lambda: 1.0)  # uniform, to begin with
    for _ in range(rounds):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            for o in target:
                explained = sum(table[i, o] for i in source)
                for i in source:
                    counts[i, o] += table[i, o] / explained
                    totals[i] += table[i, o] / explained
        table = {(i, o): count / totals[i] for (i, o), count in counts.items()}
    return table


def slow_log_likelihood(pairs, table, null):
    sentences = with_null(pairs) if null else pairs
    return sum(math.log(sum(table[i, o] for i in x) / len(x)) for x, y in sentences for o in y)


def batch_of(pairs):
    return Batch(*(part for side in zip(*pairs, strict=True) for part in pad([np.array(words) for words in side])))


def bags_of(pairs, null=False):
    return Bags.of(pairs, SOURCE, TARGET, null)


@pytest.fixture(params=[False, True], ids=["without NULL", "with NULL"])
def null(request):
    return request.param


@pytest.fixture
def model(null):
    return IBMModel1.fitted(bags_of(random_pairs(), null))


def test_figure_1_adds_up_the_count_tables_of_sentence_pairs():
    great = ([DIESER, FILM, IST, GROSSARTIG], [THIS, MOVIE, IS, GREAT])
    bad = ([DIESER, FILM, IST, SCHLECHT], [THIS, MOVIE, IS, BAD])
    counts = Bags.of([great, bad], 5, 5).cooccurrences().toarray()
    np.testing.assert_allclose(counts[FILM], [0.25, 0.25, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(counts[[GROSSARTIG, SCHLECHT]], [[0, *[0.25] * 4], [0.25, 0, 0.25, 0.25, 0.25]])


def test_translations_and_alignments_of_figure_1_follow_from_the_counts():
    model = IBMModel1(translation(csc_array(np.array(FIGURE, dtype=float))))
    movie = model.translation_probabilities(alone([DIESER, FILM, IST, SCHLECHT, GROSSARTIG], [MOVIE]))[0, 0]
    np.testing.assert_allclose(movie, [0.04, 0.32, 0.04, 0.03, 0.04], atol=0.005)
    rounded = IBMModel1(csc_array(np.array([[0.04], [0.32], [0.04], [0.03]])))  # the alignment is made of these
    assert rounded.posteriors(alone([0, 1, 2, 3], [0]))[0, 0, 1].item() == pytest.approx(0.74, abs=0.005)


def test_counts_are_the_sums_of_eq_16(null):
    pairs, expected = random_pairs(), np.zeros((SOURCE + null, TARGET))
    for source, target in with_null(pairs) if null else pairs:
        for i, o in product(source, target):
            expected[i, o] += 1 / len(source)
    np.testing.assert_allclose(bags_of(pairs, null).cooccurrences().toarray(), expected)


@pytest.mark.parametrize("rounds", [0, 1, 2, 10])
def test_em_follows_a_slow_em_that_starts_from_a_uniform_table(rounds, null):
    pairs = random_pairs()
    model = IBMModel1.fitted(bags_of(pairs, null), rounds=rounds, tolerance=0)
    slow = slow_em(pairs, rounds + 1, null)  # the counts are the first round
    entries = model.table.tocoo()
    assert dict(zip(zip(entries.row, entries.col, strict=True), entries.data, strict=True)) == pytest.approx(slow)
    assert len(model.log_likelihoods) == rounds + 1
    assert model.log_likelihoods[-1] == pytest.approx(slow_log_likelihood(pairs, slow, null))


def test_one_step_is_em_without_a_further_round(null):
    bags = bags_of(random_pairs(), null)
    np.testing.assert_array_equal(IBMModel1.counted(bags).table.data, IBMModel1.fitted(bags, rounds=0).table.data)


sentence = st.lists(st.integers(0, 4), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(sentence, sentence), min_size=1, max_size=8), st.booleans())
def test_likelihood_never_falls_and_rows_stay_distributions(pairs, null):
    model = IBMModel1.fitted(Bags.of(pairs, 5, 5, null), rounds=50)
    assert (np.diff(model.log_likelihoods) >= -1e-9).all()
    sums = model.table.sum(1)
    np.testing.assert_allclose(sums[sums > 0], 1)


def test_em_stops_when_the_likelihood_settles():
    loose, tight = (IBMModel1.fitted(bags_of(random_pairs()), tolerance=share) for share in (1e-2, 1e-6))
    assert len(loose.log_likelihoods) < len(tight.log_likelihoods) < 1000
    assert tight.log_likelihoods[-2] == pytest.approx(tight.log_likelihoods[-1], rel=1e-6)


@pytest.mark.parametrize("sets", [1, 2])
def test_permutations_teach_the_set_of_words_but_not_the_word(sets):
    """snell2021 figures 4 and 8: in a set, every word is seen with every other, equally often."""
    random = np.random.default_rng(0)
    pairs = [(words, words) for words in (random.permutation(4) + 4 * (n % sets) for n in range(20))]
    model = IBMModel1.fitted(Bags.of(pairs, 4 * sets, 4 * sets))
    np.testing.assert_allclose(model.table.toarray(), np.kron(np.eye(sets), np.full((4, 4), 0.25)))
    torch.testing.assert_close(model.posteriors(batch_of(pairs)), torch.full((20, 4, 4), 0.25).double())


def test_samples_of_a_larger_vocabulary_teach_the_word():
    random = np.random.default_rng(0)
    pairs = [(words, random.permutation(words)) for words in (random.permutation(12)[:4] for _ in range(100))]
    assert IBMModel1.fitted(Bags.of(pairs, 12, 12)).table.toarray().argmax(1).tolist() == list(range(12))


def test_posteriors_are_shares_of_the_translation_probabilities(model):
    source, target = random_pairs()[3]
    whole = model.table.toarray()
    each = whole[np.ix_(source, target)].T
    of_null = whole[SOURCE, target] if model.null else 0
    pair = alone(source, target)
    np.testing.assert_allclose(model.translation_probabilities(pair)[0], each)
    np.testing.assert_allclose(model.posteriors(pair)[0], each / (each.sum(1) + of_null)[:, None])


def test_posteriors_of_words_sum_to_one_unless_null_takes_a_share(model):
    batch = batch_of(random_pairs())
    sums = model.posteriors(batch).sum(-1)
    assert (sums[~batch.target_mask] == 0).all()
    if model.null:
        assert sums.max() <= 1 + 1e-12
        assert sums[batch.target_mask].min() < 0.9
    else:
        torch.testing.assert_close(sums[batch.target_mask], torch.ones_like(sums[batch.target_mask]))


@pytest.mark.parametrize("ask", [IBMModel1.translation_probabilities, IBMModel1.posteriors, IBMModel1.viterbi])
def test_a_batch_equals_its_pairs_one_by_one_and_padding_changes_nothing(model, ask):
    pairs = random_pairs()
    together = ask(model, batch_of(pairs))
    nothing = NOWHERE if together.dim() == 2 else 0
    for row, pair in zip(together, pairs, strict=True):
        expected, single = torch.full_like(row, nothing), ask(model, alone(*pair))[0]
        expected[tuple(map(slice, single.shape))] = single
        torch.testing.assert_close(row, expected)


def test_viterbi_takes_the_likeliest_position_and_the_first_of_equals():
    model = IBMModel1(csc_array(np.array([[0.9, 0.0, 0.5], [0.1, 0.0, 0.5]])))
    assert model.viterbi(alone([1, 0], [0, 1, 2])).tolist() == [[1, NOWHERE, 0]]
    assert model.word_alignment([1, 0], [0, 1, 2]) == [(1, 0), (0, 2)]


def test_viterbi_gives_a_word_to_null_only_where_null_is_likelier():
    table = csc_array(np.array([[0.6, 0.1, 0.3], [0.2, 0.5, 0.3]]))  # the second row is NULL's
    assert IBMModel1(table, null=True).viterbi(alone([0], [0, 1, 2])).tolist() == [[0, NOWHERE, 0]]


def test_an_unseen_target_word_is_aligned_uniformly(null):
    model = IBMModel1.counted(Bags.of([([0], [0]), ([1], [1])], 2, 3, null))
    assert model.posteriors(alone([0, 1], [2])).tolist() == [[[1 / 3, 1 / 3] if null else [1 / 2, 1 / 2]]]
    assert model.word_alignment([0, 1], [2]) == []


def test_batches_and_pairs_are_the_same_corpus(null):
    pairs = random_pairs()
    batches = [batch_of(pairs[:10]), batch_of(pairs[10:])]
    for ours, theirs in zip(vars(bags_of(batches, null)).values(), vars(bags_of(pairs, null)).values(), strict=True):
        assert ours is theirs or (ours != theirs).nnz == 0


def test_masked_tokens_are_ignored():
    whole = batch_of([([3, 4, 1], [5, 1])])
    masked = Batch(whole.source, whole.source != 1, whole.target, whole.target != 1)
    assert (bags_of([masked]).cooccurrences() != bags_of([([3, 4], [5])]).cooccurrences()).nnz == 0


def test_a_saved_model_loads_back_equal(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    loaded = IBMModel1.load(tmp_path / "model.safetensors")
    assert_equal(loaded, model)
    assert loaded.log_likelihoods == model.log_likelihoods


def test_an_exported_table_imports_back_equal_with_all_its_entries(model, tmp_path):
    words = [Vocabulary(tuple(f"{side}{i}" for i in range(n))) for side, n in (("x", SOURCE), ("y", TARGET))]
    model.export(tmp_path / "table.tsv", *words)
    assert len((tmp_path / "table.tsv").read_text().splitlines()) == 1 + model.table.nnz
    assert_equal(IBMModel1.imported(tmp_path / "table.tsv", *words), model)


def test_an_exported_table_reads_likeliest_first(tmp_path):
    model = IBMModel1(csc_array(np.array([[0.25, 0.75]])))
    model.export(tmp_path / "table.tsv", Vocabulary(("Film",)), Vocabulary(("is", "movie")))
    assert (tmp_path / "table.tsv").read_text() == ("source\ttarget\tprobability\nFilm\tmovie\t0.75\nFilm\tis\t0.25\n")


def assert_equal(ours, theirs):
    assert (ours.null, ours.table.shape) == (theirs.null, theirs.table.shape)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(ours.table, part), getattr(theirs.table, part))


HEADER = "source\ttarget\tprobability\n"
BROKEN_TABLES = {
    "Film\tmovie\t0.5\n": "its first line must be",
    HEADER: "its first line must be",
    HEADER + "Film\tmovie\n": "line 2: expected word, word, probability",
    HEADER + "Film\tmovie\t0.5\nFilm\tis\tmany\n": "line 3: expected word, word, probability",
    HEADER + "Film\tmovie\t1.5\n": "line 2: expected word, word, probability .1.5 is no probability",
    HEADER + "Film\tmovie\tnan\n": "line 2: expected word, word, probability .nan is no probability",
    HEADER + "Filme\tmovie\t0.5\n": "line 2: the word 'Filme' is not in the vocabulary",
    HEADER + "Film\tmovie\t0.5\nFilm\tmovie\t0.5\n": "more than one line for the same two words",
}


@pytest.mark.parametrize(("text", "sentence"), BROKEN_TABLES.items(), ids=BROKEN_TABLES.values())
def test_a_malformed_table_is_refused_with_a_sentence(text, sentence, tmp_path):
    path = tmp_path / "table.tsv"
    path.write_text(text)
    with pytest.raises(Malformed, match=sentence):
        IBMModel1.imported(path, Vocabulary(("Film",)), Vocabulary(("is", "movie")))


def test_a_malformed_model_is_refused_with_a_sentence(tmp_path):
    whole, path = IBMModel1.counted(bags_of(random_pairs())), tmp_path / "model"
    whole.save(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(Malformed, match="not a readable safetensors file"):
        IBMModel1.load(path)
    path.write_bytes(save({"probability": whole.table.data}))
    with pytest.raises(Malformed, match="does not hold a whole IBM Model 1: 'IBM Model 1'"):
        IBMModel1.load(path)
    IBMModel1(whole.table * 20).save(path)
    with pytest.raises(Malformed, match="holds more than probabilities"):
        IBMModel1.load(path)
    with pytest.raises(AttnscopeError, match=r"cannot read .*nowhere"):
        IBMModel1.load(tmp_path / "nowhere")


def test_corpora_that_cannot_be_counted_are_refused():
    for nothing in ([], [([1], [])]):
        with pytest.raises(BadSetting, match="no sentence pair has target words"):
            bags_of(nothing)
    with pytest.raises(BadSetting, match="sentence pair 1, counted from 0, has no source word"):
        bags_of([([1], [1]), ([], [1])])
    with pytest.raises(BadSetting, match=r"\[7\] are not among the 7 source words"):
        bags_of([([7], [1])])
    with pytest.raises(BadSetting, match=r"\[-1\] are not among the 9 target words"):
        bags_of([([1], [-1])])
    with pytest.raises(BadSetting, match="there cannot be -1 iterations"):
        IBMModel1.fitted(bags_of([([1], [1])]), rounds=-1)
    with pytest.raises(BadSetting, match=r"\[7\] are not among the 7 source words"):
        IBMModel1.counted(bags_of([([1], [1])], null=True)).posteriors(alone([SOURCE], [1]))


def test_words_that_cannot_be_written_are_refused_with_a_sentence(tmp_path):
    model = IBMModel1(csc_array(np.array([[0.25, 0.75]])))
    with pytest.raises(BadSetting, match="cannot be written"):
        model.export(tmp_path / "table.tsv", Vocabulary(("a\tb",)), Vocabulary(("c", "d")))
    with pytest.raises(BadSetting, match=r"have \(2, 2\) words, source and target; the table has \(1, 2\)"):
        model.export(tmp_path / "table.tsv", Vocabulary(("a", "b")), Vocabulary(("c", "d")))
    with pytest.raises(BadSetting, match="<null> stands for no word"):
        IBMModel1.imported(tmp_path / "table.tsv", Vocabulary(("<null>",)), Vocabulary(("c", "d")))
