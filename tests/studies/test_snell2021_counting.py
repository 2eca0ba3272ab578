"""The findings of snell2021 that count words: at a tiny size on synthetic corpora, and functions on known tables."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.lab.engines import LocalEngine
from attnscope.models import BagOfWords, BagOfWordsSettings
from attnscope.models.ibm import Bags, IBMModel1
from attnscope.probes.word_alignment import AlignmentAccumulator
from attnscope.studies import snell2021
from attnscope.studies.finding import MissingData, Study, TrainedCase
from attnscope.studies.reproduce import reproduce
from attnscope.studies.result import Result
from attnscope.studies.snell2021 import a1, aligners, count_tables, counting, eq15, table9
from attnscope.studies.snell2021.counting import MULTI30K, MULTI30K_FRENCH, SIZES, NetworkSizes, in_words, reverse
from attnscope.studies.snell2021.experiments import PROFILES
from attnscope.tasks import CORPORA, END, Copying, Keyword, Preparation, Words
from attnscope.tasks.text import UNKNOWN
from attnscope.tasks.text.tasks import load_corpus
from tasks.small_corpora import write_jsonl

FINDINGS = (
    table9.TABLE9, eq15.EQ15, count_tables.FIG1, count_tables.FIG4, count_tables.FIG5, count_tables.FIG8, a1.A1,
    aligners.ALIGNERS,
)  # fmt: skip
DICTIONARY = {
    "cat": "katze", "house": "haus", "river": "fluss", "tree": "baum", "bread": "brot", "light": "licht",
    "stone": "stein", "snow": "schnee", "garden": "garten", "water": "wasser",
}  # fmt: skip
RARE = ["zebra", "yacht"]  # in the gold sentences only


def sentences(count, seed, splits):
    """Words and their translations, in the same order."""
    random = np.random.default_rng(seed)
    for i in range(count):
        words = random.choice(list(DICTIONARY), random.integers(2, 7)).tolist()
        target = [DICTIONARY[word] for word in words]
        yield {"source": " ".join(words), "target": " ".join(target), "split": splits[i % len(splits)]}


def reviews(count, seed=0):
    random = np.random.default_rng(seed)
    for i in range(count):
        words = [*random.choice(list(DICTIONARY), 5).tolist(), ("bad", "good")[i % 2], "."]
        yield {"tokens": words, "binary_label": i % 2, "split": ("train", "train", "dev", "test")[i // 2 % 4]}


def gold(count, seed=1):
    """The n-th word translates to the n-th one; what comes before it is possible."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        words = [*random.choice(list(DICTIONARY), 3, replace=False).tolist(), random.choice(RARE)]
        target = [DICTIONARY.get(word, f"{word}-de") for word in words]
        links = [[i, i] for i in range(len(words))]
        yield {"split": "test", "source": words, "target": target, "alignment": links, "possible": [[0, 1]]}


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """A folder of made-up sentences, named as the real corpora are."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("multi30k", "sst", "word_alignments"):
        (folder / name).mkdir()
    for language in ("de", "fr"):
        rows = sentences(200, 0, ("train", "train", "train", "val", "test2016"))
        write_jsonl(folder / "multi30k" / f"en-{language}.jsonl.gz", rows)
    write_jsonl(folder / "sst" / "sst.jsonl.gz", reviews(120))
    write_jsonl(folder / "word_alignments" / "en-fr_hansards.jsonl.gz", gold(12))
    yield folder
    load_corpus.cache_clear()


@pytest.fixture
def data(made_up, monkeypatch):
    monkeypatch.setenv("ATTNSCOPE_DATA", str(made_up))
    return made_up


TINY = replace(
    SIZES["quick"],
    corpora=("sst", "imdb"),
    widths=(16, 64, 256),
    pairs=20,
    initialisations=2,
    sentences=50,
    samples=2,
    optimal=NetworkSizes(in_words(MULTI30K), units=8, steps=4, batch_size=4, checkpoints=(), sentences=6),
    aligner=NetworkSizes(MULTI30K_FRENCH, units=8, steps=20, batch_size=4, checkpoints=(0, 1, 2, 20), sentences=8),
)


@pytest.fixture(scope="module")
def results(made_up, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    tiny = replace(PROFILES["quick"], name="tiny", seeds=2, counting=TINY)
    study = Study("snell2021", FINDINGS, {"tiny": tiny})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNSCOPE_DATA", str(made_up))
        patch.setattr(snell2021, "STUDY", study)
        actual = reproduce(study, FINDINGS, "tiny", None, store, LocalEngine(0))
    return {result.finding: Result.from_json(result.to_json()) for result in actual}


def verdicts(result):
    return {claim.text: claim.verdict for claim in result.claims}


def numbers(result, **labels):
    """The means of the rows that have these labels, by quantity."""
    return {
        line["quantity"]: line["mean"]
        for line in result.table
        if all(line[name] == value for name, value in labels.items())
    }


@pytest.mark.slow
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_every_finding_writes_a_table_claims_and_a_figure(results, finding):
    result = results[finding.name]
    failed = [note for note in result.notes if "Runs failed" in note]
    assert all(note.startswith("Runs failed: imdb, seed") for note in failed)  # which is not here
    assert result.table
    assert result.claims
    assert finding.draw(result.figure).axes


@pytest.mark.slow
def test_missing_corpora_have_no_claims(results):
    words = verdicts(results["table9"])
    assert words["imdb: as many training sentences as in table 9"] == "undecided"
    assert words["sst: median training lengths within 10 % of those published"] == "fails"
    rows = numbers(results["table9"], corpus="sst")
    assert rows["training sentences"] == 60
    assert rows["median length, training"] == 7
    assert rows["median length without punctuation, training"] == 6


@pytest.mark.slow
def test_the_proxy_begins_by_counting(results):
    for corpus in ("made up", "Multi30k"):
        actual = numbers(results["eq15"], corpus=corpus, d="256")
        assert actual["relative error: d(We)/dτ against 2 (C − mean C), eq. 53"] < 0.6
        assert actual["correlation of d(We)/dτ with 2 (C − mean C)"] > 0.85


@pytest.mark.slow
def test_counting_claims_hold_on_made_up_sentences(results):
    for name in ("fig1", "fig4", "fig5", "fig8"):
        assert set(verdicts(results[name]).values()) == {"holds"}, name
    assert numbers(results["fig1"], model="figure 1's own row")["Trans(movie | Film), eq. 17"] == pytest.approx(20 / 62)


@pytest.mark.slow
def test_counts_align_made_up_sentences_and_an_untrained_network_does_not(results):
    actual = {line["aligner"]: line["mean"] for line in results["aligners"].table if line["quantity"] == "AER"}
    assert actual["IBM Model 1, EM"] == pytest.approx(1 - (3 + 3) / (3 + 4))  # all but the rare word of each sentence
    assert actual["IBM Model 1, EM, with the gold pairs and all words"] < 0.05
    assert actual["a source word at random"] > 0.5
    unknown = numbers(results["aligners"], aligner="network")["unknown words in the gold pairs"]
    assert unknown == pytest.approx((1 + 3) / (4 + 6))  # a rare word and the three pieces of its translation


@pytest.mark.slow
def test_a_small_network_is_not_compared_with_published_numbers(results):
    words = verdicts(results["a1"])
    assert words["counter-example: the best attention is (0, ½, ½)"] == "holds"
    assert words["Multi30k: BLEU is comparable to 38.2 (at least 35.2)"] == "undecided"
    assert any("nrefs:1" in line["quantity"] for line in results["a1"].table)


# Table 9 ------------------------------------------------------------------------------------------------------------


def test_a_missing_corpus_stays_among_the_cases(data):
    cases = table9.experiments(replace(PROFILES["quick"], counting=TINY))
    assert {label for label, case in cases.items() if isinstance(case.settings, MissingData)} == {"imdb"}
    assert cases["sst"].settings.fingerprint == CORPORA["sst"].resolved().fingerprint


@pytest.mark.corpus
def test_the_published_medians_are_those_without_punctuation_and_with_headers():
    messages = table9.experiments(replace(PROFILES["quick"], counting=replace(TINY, corpora=("20newsgroups",))))
    if any(isinstance(case.settings, MissingData) for case in messages.values()):
        pytest.skip("ATTNSCOPE_DATA does not name a folder with 20 Newsgroups")
    assert list(messages) == ["20newsgroups", table9.WITH_HEADERS]
    assert table9.median_length_without_punctuation(messages[table9.WITH_HEADERS].settings) == 183


# Equation 15 --------------------------------------------------------------------------------------------------------


def random_pairs(seed=0):
    random = np.random.default_rng(seed)
    return [
        (random.integers(0, 7, random.integers(1, 6)), random.integers(0, 5, random.integers(1, 6))) for _ in "abcd"
    ]


def proxy(size=6, seed=0):
    torch.manual_seed(seed)
    return BagOfWords(BagOfWordsSettings(size=size), 7, 5).double()


def test_the_first_derivative_is_that_of_a_small_step_downhill():
    model, pairs, step = proxy(), random_pairs(), 1e-6
    before = (model.embedding @ model.output.weight.T).detach()
    actual = eq15.first_derivative(model, pairs)
    assert model.embedding.grad is None
    for batch in eq15.pair_batches(pairs, 6):
        model.total_loss(batch).backward()
    with torch.no_grad():
        after = (model.embedding - step * model.embedding.grad) @ (
            model.output.weight - step * model.output.weight.grad
        ).T
    torch.testing.assert_close((after - before) / step, actual, rtol=1e-4, atol=1e-4)


def test_the_first_derivative_does_not_depend_on_how_many_sentences_memory_holds(monkeypatch):
    whole = eq15.first_derivative(proxy(), random_pairs())
    monkeypatch.setattr(eq15, "MAX_NUMBERS", 1)
    torch.testing.assert_close(eq15.first_derivative(proxy(), random_pairs()), whole)


def test_a_wide_proxy_has_the_derivative_of_the_counts_and_through_the_softmax_a_share_of_it():
    pairs = random_pairs()
    counts = torch.from_numpy(Bags.of(pairs, 7, 5).cooccurrences().toarray())
    expected = 2 * (counts - counts.mean(1, keepdim=True))
    model = proxy(size=40_000)
    logits = eq15.first_derivative(model, pairs)
    assert eq15.relative_error(logits, expected) < 0.05
    assert eq15.relative_error(eq15.through_softmax(model.translations(), logits), expected / 5) < 0.05


def test_the_derivative_through_the_softmax_equals_a_finite_difference():
    logits, change = torch.randn(3, 4).double(), torch.randn(3, 4).double()
    expected = ((logits + 1e-7 * change).softmax(-1) - logits.softmax(-1)) / 1e-7
    torch.testing.assert_close(eq15.through_softmax(logits.softmax(-1), change), expected, rtol=1e-5, atol=1e-6)


def test_renumbered_pairs_keep_their_words():
    pairs = [(np.array([9, 4, 9]), np.array([7])), (np.array([4]), np.array([2, 7]))]
    actual, sources, targets = eq15.renumber(pairs)
    assert (sources, targets) == (2, 2)
    assert [x.tolist() for x, _ in actual] == [[1, 0, 1], [0]]
    assert [y.tolist() for _, y in actual] == [[1], [0, 1]]


def test_the_exponent_of_d_is_recovered():
    assert eq15.slope((16, 64, 256), [1.0, 0.5, 0.25]) == pytest.approx(-0.5)


# Count tables -------------------------------------------------------------------------------------------------------


def test_the_worked_row_of_figure_1():
    actual = count_tables.worked_example()
    assert actual["translation"] == pytest.approx(20 / 62)
    assert round(actual["translation"], 2) == 0.32
    assert actual["alignment"] == pytest.approx(0.74, abs=0.01)


def test_words_of_figure_1_are_the_readers_or_frequent_ones(data):
    task = reverse(in_words(MULTI30K))
    assert count_tables.ids_of(task, ("haus", "baum")) == task.source_vocabulary.encode(["haus", "baum"])
    with pytest.raises(BadSetting, match="palast: no source word"):
        count_tables.ids_of(task, ("haus", "palast"))
    bags = counting.bags_of(task, task.batches("training"))
    frequent = task.source_vocabulary.decode(count_tables.frequent_words(task, bags))
    assert len(frequent) == 5
    assert set(frequent) <= set(DICTIONARY.values())
    translated = count_tables.best_translations(IBMModel1.fitted(bags), task.source_vocabulary.encode(["haus"]))
    assert task.target_vocabulary.decode(translated) == ["house"]


def test_end_tokens_are_not_counted(data):
    task = in_words(MULTI30K)
    bags = counting.bags_of(task, task.batches("training"))
    assert bags.source[:, [END]].sum() == bags.target[:, [END]].sum() == 0


def subject(settings, seed=0):
    return TrainedCase({}, settings, seed, "cpu")


def test_a_word_occurs_with_itself_59_times_as_often_as_39_times_with_another():
    """40 of 60 words: whenever a word is there it is there with itself, and with 39 of the 59 others."""
    control = count_tables.permutations(replace(PROFILES["quick"], counting=TINY))[count_tables.CONTROL]
    actual = count_tables.measure_evenness(subject(control.settings))
    assert actual["diagonal"] == pytest.approx(59 / 39)
    assert actual["stands_out"] == 1


def test_a_sentence_in_order_has_its_copy_on_the_diagonal():
    batch = Copying(distribution="sampled", num_words=60).training_batch(0, 0, 3)
    ordered = count_tables.sorted_sentence(batch)
    assert sorted(batch.source[0, :-1].tolist()) == ordered.source[0].tolist() == ordered.target[0].tolist()


def test_the_class_of_most_words_is_guessed():
    task = Keyword(num_words=5, length=6)
    model = IBMModel1.counted(counting.bags_of(task, [task.training_batch(0, 0, 500)]))
    assert count_tables.accuracies(model, task)["accuracy"] > 0.95


# The optimal attention ----------------------------------------------------------------------------------------------


def test_the_counter_example_is_solved():
    actual = a1.measure(subject(a1.CounterExample()))
    assert [actual[f"attention_{i}"] for i in (1, 2, 3)] == pytest.approx([0, 0.5, 0.5], abs=1e-5)
    assert actual["lexical_1"] == pytest.approx(1 / 3)


# Aligners -----------------------------------------------------------------------------------------------------------


def test_words_are_split_as_by_the_task_and_links_are_between_words():
    side = aligners.Side.of(["Mr.", "Speaker", "can't"], Preparation())
    assert side.pieces == ["mr", ".", "speaker", "ca", "n't"]
    assert side.words == [0, 0, 1, 2, 2]
    pair = aligners.AlignedPair(side, side, aligners.GoldAlignment.of([[0, 0], [2, 2]]))
    counts = AlignmentAccumulator()
    pair.score(frozenset([(0, 0), (1, 1), (3, 4)]), counts)
    assert counts.result().error_rate == 0


def test_gold_sentences_must_be_words(data, tmp_path, monkeypatch):
    (tmp_path / "word_alignments").mkdir()
    row = {"source": "one two", "target": "un deux", "alignment": [], "possible": []}
    write_jsonl(tmp_path / aligners.FILE, [row])
    monkeypatch.setenv("ATTNSCOPE_DATA", str(tmp_path))
    with pytest.raises(Malformed, match="lists of words"):
        aligners.load_gold(Preparation(), 1)


def test_every_word_has_its_own_id_when_all_are_known(data):
    task = replace(MULTI30K_FRENCH, vocabulary=Words(min_count=1))
    pairs = aligners.load_gold(task.preparation, 12)
    _, words = aligners.encode_pairs(task, pairs)
    _, all_known = aligners.encode_all_words(task, pairs)
    for (few, _), (all_, _), pair in zip(words, all_known, pairs, strict=True):
        assert (few == all_).tolist() == [word in DICTIONARY for word in pair.source.pieces]
        assert few[-1] == UNKNOWN
        assert all_[-1] >= len(task.source_vocabulary)


def test_half_of_the_way_and_the_first_tenth():
    steps, curve = [0, 10, 50, 100, 1000], [0.9, 0.8, 0.7, 0.5, 0.5]
    assert aligners.half_way(steps, curve) == 50
    assert aligners.early_mean(steps, curve) == pytest.approx((0.8 + 0.7 + 0.5) / 3)


def test_the_network_keeps_one_table_of_words_only_where_the_languages_share_one():
    shared = NetworkSizes(MULTI30K, units=16, steps=1, batch_size=1, checkpoints=(), sentences=1)
    settings = aligners.PRESETS["translation"]
    assert shared.network(settings).shared_inputs
    assert not replace(shared, task=MULTI30K_FRENCH).network(settings).shared_inputs
    assert shared.network(settings).hidden == 16
    assert shared.network(aligners.PRESETS["translation_linear"]).hidden is None


@pytest.mark.corpus
def test_there_are_447_gold_sentences(corpus):
    rows = corpus(aligners.FILE)
    pairs = aligners.load_gold(Preparation(), 1000)
    assert len(pairs) == len(rows) == 447
    assert sum(len(pair.gold.sure) for pair in pairs) == 4038
