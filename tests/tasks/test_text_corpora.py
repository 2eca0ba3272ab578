"""The named corpora, as they are in the folder that ATTNSCOPE_DATA names."""

from dataclasses import fields, is_dataclass, replace

import pytest

from attnscope.tasks import CORPORA, SPECIALS, Classification, Preparation, Translation, Words, initial_embedding
from attnscope.tasks.text import PARTS, SETTINGS, UNKNOWN, UNKNOWN_WORD, statistics
from attnscope.tasks.text.preparation import group_duplicates, split_rows
from attnscope.tasks.text.tasks import load_corpus

PUBLISHED = {  # sentences for training, validation and test
    "imdb": (25000, 4000, 25000),
    "ag_news": (10000, 3800, 3800),
    "20newsgroups": (1197, 796, 796),
    "sst": (6920, 872, 1821),
    "multi30k_en_de": (29000, 1014, 1000),
    "multi30k_de_en": (29000, 1014, 1000),
    "multi30k_en_fr": (29000, 1014, 1000),
    "iwslt14_de_en": (4600, 7283, 6750),
}
DRAWN = {"amazon": 8000, "yelp": 1545, "sms": 5574, "tatoeba_en_de": 169813, "tatoeba_en_fr": 167130}  # in all
DISTINCT = {"tatoeba_en_de": 135534, "tatoeba_en_fr": 116830}  # English sentences
LONG_TO_LOAD = {"imdb", "tatoeba_en_de", "tatoeba_en_fr"}


def each(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG_TO_LOAD)) for name in names]


def of_corpora(names):
    """Tests of one corpus follow each other, whatever they test, so that it is read once."""
    return pytest.mark.parametrize("name", names, scope="module")


def kind(of):
    return [name for name, task in CORPORA.items() if isinstance(task, of) and name not in LONG_TO_LOAD]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    load_corpus.cache_clear()  # they are large


@pytest.fixture
def task(corpus, name):  # the fixture `corpus` skips the test where there are no corpora
    if isinstance(CORPORA[name], Translation):
        pytest.importorskip("sentencepiece")
    return CORPORA[name]


def sizes(task):
    """Sentences of each part, those that preparation dropped included."""
    table = statistics(task)
    return tuple((table["sentences"] + table["empty"] + table["dropped"])[list(PARTS)])


@pytest.mark.corpus
@of_corpora(each(PUBLISHED))
def test_published_splits_have_their_published_sizes(task, name):
    assert sizes(task) == PUBLISHED[name]


@pytest.mark.corpus
@of_corpora(each(sorted(DRAWN.keys() - {"tatoeba_en_de"})))  # read as the other pair
def test_random_splits_cover_every_sentence(task, name):
    assert sum(sizes(replace(task, vocabulary=Words()))) == DRAWN[name]  # whatever the vocabulary: words are faster


@pytest.mark.corpus
@of_corpora(each(DRAWN))
def test_no_source_is_in_two_random_splits(corpus, name):
    task = CORPORA[name]
    rows = corpus(task.file)
    sources = [row[task.source if isinstance(task, Translation) else "text"] for row in rows]
    parts = split_rows([row["split"] for row in rows], sources, task.splits, task.file)
    number = group_duplicates(sources)
    assert sum(map(len, parts.values())) == DRAWN[name]
    inside = {part: set(number[chosen].tolist()) for part, chosen in parts.items()}
    assert sum(map(len, inside.values())) == len(set(number.tolist()))
    if name in DISTINCT:
        assert len(set(sources)) == DISTINCT[name]


@pytest.mark.corpus
@of_corpora(kind(Classification))
def test_a_classification_has_two_classes_and_targets_of_one_word(task, name):
    assert len(task.classes) == 2
    batch = task.training_batch(0, 0, 32)
    assert batch.target.shape == (32, 1)
    assert set(batch.target.flatten().tolist()) == {len(SPECIALS), len(SPECIALS) + 1}
    assert len(task.source_vocabulary.tokens) == len(set(task.source_vocabulary.tokens))


@pytest.mark.corpus
@of_corpora(kind(Translation))
def test_a_translation_has_8000_subwords_for_both_sides_and_reads_back(task, name):
    assert len(task.source_vocabulary) == 8000  # times 256: the paper's 2,048,000 parameters of embeddings
    assert task.source_vocabulary == task.target_vocabulary
    assert task.source_vocabulary.tokens[: UNKNOWN + 1] == (*SPECIALS, UNKNOWN_WORD)
    batch = next(task.batches("validation", 200))
    decoded = [task.sentence(row.tolist()) for row in batch.target]
    references = [" ".join(reference.split()) for reference in task.references("validation")[:200]]
    assert (
        sum(one == other for one, other in zip(decoded, references, strict=True)) > 190
    )  # but for characters that SentencePiece normalises or never saw in training


@pytest.mark.corpus
@of_corpora(["20newsgroups"])
def test_headers_of_newsgroups_are_removed_by_default(task, name):
    assert "organization" in replace(task, preparation=Preparation()).source_vocabulary.tokens[:300]
    assert "organization" not in task.source_vocabulary.tokens[:300]
    with_headers = statistics(replace(task, preparation=replace(task.preparation, strip_headers=False)))
    assert tuple(with_headers["sentences"]) == PUBLISHED[name]  # two messages are all header
    assert statistics(task)["empty"].sum() == 2


@pytest.mark.corpus
@of_corpora(["20newsgroups", "ag_news"])
def test_integers_of_more_than_one_digit_are_unknown(task, name):
    integers = [word for word in task.source_vocabulary.tokens if word.isdecimal()]
    assert integers
    assert all(len(word) == 1 for word in integers)


@pytest.mark.corpus
@of_corpora(["20newsgroups"])
def test_newsgroups_have_no_underscores(task, name):
    assert not any("_" in word for word in task.source_vocabulary.tokens)


@pytest.mark.corpus
@of_corpora(["amazon"])
def test_amazon_reviews_are_of_fewer_than_400_words(task, name):
    table = statistics(task)
    assert (table["source_longest"] < 400).all()
    assert (table["dropped"] > 0).all()


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "covered"), [("sst", 0.976), ("ag_news", 0.950), ("amazon", 0.970)])
def test_word_vectors_cover_as_many_running_words_as_their_publisher_counted(task, name, covered):
    task = replace(task, vocabulary=Words(min_count=1), preparation=Preparation())
    start = initial_embedding(task.source_vocabulary, "glove/glove.6B.100d.float16.npz")
    assert start.matrix.shape == (len(task.source_vocabulary), 100)
    assert start.running_coverage(task) == pytest.approx(covered, abs=0.02)


def settings_in(value):
    if is_dataclass(value):
        yield type(value)
        for field in fields(value):
            yield from settings_in(getattr(value, field.name))


@of_corpora(CORPORA)
def test_every_kind_of_settings_has_a_name_in_a_runs_configuration(name):
    assert set(settings_in(CORPORA[name])) <= set(SETTINGS.values())
