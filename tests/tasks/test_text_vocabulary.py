import numpy as np
import pytest
from small_corpora import pairs, reviews, write_jsonl

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.files import Damaged, read_checked
from attnscope.tasks import END, SPECIALS, Classification, Preparation, Subwords, Translation, Words
from attnscope.tasks.text import UNKNOWN, UNKNOWN_WORD
from attnscope.tasks.text.vocabularies import sentencepiece_model, train_sentencepiece

SENTENCES = [["a", "b", "a"], ["c", "a", "b"], ["b", "d"], ["e", "c"]]  # a and b three times, c twice


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_words_seen_fewer_than_three_times_are_unknown():
    coder = Words().coder(SENTENCES)
    assert coder.vocabulary.tokens == (*SPECIALS, UNKNOWN_WORD, "a", "b")
    assert coder.encode([["a", "c", "b", "never"]])[0].tolist() == [4, UNKNOWN, 5, UNKNOWN]


def test_the_most_frequent_words_are_kept_and_come_first():
    assert Words(min_count=1, max_size=3).coder(SENTENCES).vocabulary.tokens[UNKNOWN + 1 :] == ("a", "b", "c")


def test_special_words_in_the_text_itself_are_unknown_words():
    coder = Words(min_count=1).coder([["<pad>", "<end>", "x", "<unknown>"]] * 3)
    assert coder.vocabulary.tokens == (*SPECIALS, UNKNOWN_WORD, "x")
    assert coder.encode([["<pad>", "<end>", "<start>", "<unknown>", "x"]])[0].tolist() == [UNKNOWN] * 4 + [4]


def test_words_are_read_back_without_the_special_ones():
    coder = Words(min_count=1).coder(SENTENCES)
    assert coder.text([*coder.encode([["a", "e", "c"]])[0].tolist(), END, 0, 0]) == "a e c"


def test_only_the_training_split_is_counted(tmp_path):
    rows = [{"text": f"a w{i}", "label": i % 2} for i in range(40)]
    task = Classification(write_jsonl(tmp_path / "a.jsonl", rows), vocabulary=Words(min_count=1))
    assert len(task.source_vocabulary) == len(SPECIALS) + 1 + 1 + len(task.part("training"))  # unknown, a, and each w


def test_the_two_sides_may_share_their_words(tmp_path):
    file = write_jsonl(tmp_path / "a.jsonl", pairs())
    apart = Translation(file, preparation=Preparation(lower=False))
    shared = Translation(file, preparation=Preparation(lower=False), vocabulary=Words(shared=True))
    assert set(apart.source_vocabulary.tokens) & set(apart.target_vocabulary.tokens) == {*SPECIALS, UNKNOWN_WORD}
    assert shared.source_vocabulary == shared.target_vocabulary
    assert set(shared.source_vocabulary.tokens) == {*apart.source_vocabulary.tokens, *apart.target_vocabulary.tokens}


@pytest.fixture
def phrases():
    pytest.importorskip("sentencepiece")
    random = np.random.default_rng(0)
    syllables = ["ka", "to", "mi", "re", "su"]
    return ["".join(random.choice(syllables, 3)) + " " + "".join(random.choice(syllables, 2)) for _ in range(300)]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_special_words_of_subwords_are_those_of_every_vocabulary(phrases, kind):
    coder = Subwords(size=40, kind=kind).coder([phrase.split() for phrase in phrases])
    assert coder.vocabulary.tokens[: UNKNOWN + 1] == (*SPECIALS, UNKNOWN_WORD)
    assert len(coder.vocabulary) == 40


def test_subwords_decode_to_the_original_sentence(phrases):
    coder = Subwords(size=40).coder([phrase.split() for phrase in phrases])
    numbers = coder.encode([phrase.split() for phrase in phrases])
    assert [coder.text([*row.tolist(), END, 0]) for row in numbers] == phrases
    assert all((row > UNKNOWN).all() for row in numbers)


def test_an_unseen_character_is_the_unknown_subword(phrases):
    coder = Subwords(size=40).coder([phrase.split() for phrase in phrases])
    assert UNKNOWN in coder.encode([["kä"]])[0]


def test_subwords_are_trained_once_and_then_found(phrases, cache, monkeypatch):
    first = sentencepiece_model(phrases, Subwords(size=40))
    assert len(list(cache.rglob("*.model"))) == 1
    train = "attnscope.tasks.text.vocabularies.train_sentencepiece"
    monkeypatch.setattr(train, lambda *_: pytest.fail("trained again"))
    assert sentencepiece_model(phrases, Subwords(size=40)) == first
    monkeypatch.undo()


def test_other_sentences_or_settings_make_other_subwords(phrases, cache):
    sentencepiece_model(phrases, Subwords(size=40))
    sentencepiece_model(phrases[1:], Subwords(size=40))
    sentencepiece_model(phrases, Subwords(size=40, kind="bpe"))
    assert len(list(cache.rglob("*.model"))) == 3


def test_training_subwords_twice_gives_the_same_bytes(phrases):
    assert train_sentencepiece(phrases, Subwords(size=40)) == train_sentencepiece(phrases, Subwords(size=40))


def test_a_damaged_file_in_the_cache_is_replaced(phrases, cache):
    first = sentencepiece_model(phrases, Subwords(size=40))
    (path,) = cache.rglob("*.model")
    path.write_bytes(b"spoilt")
    with pytest.warns(Damaged, match="its checksum is wrong or missing"):
        assert sentencepiece_model(phrases, Subwords(size=40)) == first
    assert read_checked(path) == first


def test_a_long_text_is_learned_from_as_well(phrases):
    long = " ".join(phrases * 2)  # SentencePiece by itself passes over more than 4192 bytes without a word
    assert len(long) > 4192
    assert len(Subwords(size=30).coder([long.split()]).vocabulary) == 30


def test_too_many_subwords_for_the_text_give_one_error_message(phrases):
    with pytest.raises(AttnscopeError, match=r"cannot train 5000 subwords on 300 sentences: .* try a smaller size"):
        Subwords(size=5000).coder([phrase.split() for phrase in phrases])


def test_subwords_are_shared_between_the_sides_unless_told_otherwise(tmp_path, phrases):
    rows = [{"source": phrase, "target": phrase.upper()} for phrase in phrases]
    file = write_jsonl(tmp_path / "a.jsonl", rows)
    plain = Preparation("spaces", lower=False)
    shared = Translation(file, preparation=plain, vocabulary=Subwords(size=60))
    apart = Translation(file, preparation=plain, vocabulary=Subwords(size=40, shared=False))
    assert shared.source_vocabulary == shared.target_vocabulary
    assert apart.source_vocabulary != apart.target_vocabulary
    batch = next(shared.batches("validation", 5))
    decoded = [shared.sentence(row.tolist()) for row in batch.target]
    assert decoded == shared.references("validation")[:5]


def test_a_missing_library_is_asked_for_by_the_name_of_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    task = Classification(write_jsonl(tmp_path / "a.jsonl", reviews()), vocabulary=Subwords())
    with pytest.raises(AttnscopeError, match=r"needs the library sentencepiece: pip install 'attnscope\[text\]'"):
        _ = task.corpus


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Words(min_count=0), "min_count must be at least 1"),
        (lambda: Words(max_size=0), "max_size must be positive"),
        (lambda: Subwords(kind="wordpiece"), "choose one of unigram, bpe"),
        (lambda: Subwords(size=3), "size must be more than"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(make, message):
    with pytest.raises(BadSetting, match=message):
        make()
