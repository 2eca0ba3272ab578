"""Human rationales stay on the words that were marked."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_corpora import LETTERS, write_jsonl

from attnscope.errors import BadSetting
from attnscope.files import Malformed
from attnscope.lab.configuration import describe, rebuild
from attnscope.tasks import CORPORA, SPECIALS, Classification, Preparation, Subwords, Words
from attnscope.tasks.text import PARTS, UNKNOWN_WORD
from attnscope.training.replicas import stack_batches


def rows(count=60, seed=0):
    """Letters over several lines; capital ones are marked, and 'Z' says the class."""
    random = np.random.default_rng(seed)
    for i in range(count):
        words = [*random.choice(LETTERS, random.integers(1, 12)).tolist(), *["z"] * (i % 2)]
        marks = random.integers(0, 2, len(words)).tolist()
        text = " \n".join(word.upper() if mark else word for word, mark in zip(words, marks, strict=True))
        yield {"text": text, "label": i % 2, "rationale": marks}


def classification(file, **settings):
    chosen = {"vocabulary": Words(min_count=1), "preparation": Preparation("whitespace", lower=False)} | settings
    return Classification(file, **{"rationale": "rationale"} | chosen)


@pytest.fixture
def file(tmp_path):
    return write_jsonl(tmp_path / "a.jsonl", rows())


def marked_words(task, batch):
    """Each text as pairs of a word and its mark."""
    for source, mask, marks in zip(batch.source, batch.source_mask, batch.rationale, strict=True):
        yield list(zip(task.source_vocabulary.decode(source[mask].tolist()), marks[mask].tolist(), strict=True))


@pytest.mark.parametrize("special", ["none", "end", "both"])
def test_marks_are_on_the_words_that_were_marked_and_on_no_special_word(file, special):
    task = classification(file, special=special)
    for part in PARTS:
        for batch in task.batches(part, 7):
            assert batch.rationale.dtype == torch.float32
            assert (batch.rationale[~batch.source_mask] == 0).all()
            for pairs in marked_words(task, batch):
                known_words = [(word, mark) for word, mark in pairs if word != UNKNOWN_WORD]
                assert all(mark == float(word.isupper()) for word, mark in known_words)


@pytest.mark.parametrize(
    "preparation",
    [Preparation("whitespace", lower=False, max_length=4, too_long="truncate"),
     Preparation("whitespace", lower=False, max_length=4), Preparation("trimmed", lower=False)],
)  # fmt: skip
def test_rationales_stay_aligned_when_texts_are_truncated_or_dropped(file, preparation):
    task = classification(file, preparation=preparation, vocabulary=Words(min_count=8))
    all_words = [pair for batch in task.batches("training", 5) for pairs in marked_words(task, batch) for pair in pairs]
    known_words = [(word, mark) for word, mark in all_words if word not in (UNKNOWN_WORD, *SPECIALS)]
    assert known_words
    assert all(mark == float(word.isupper()) for word, mark in known_words)
    assert {mark for word, mark in all_words if word == UNKNOWN_WORD} == {0.0, 1.0}


def test_lower_case_changes_no_mark(file):
    plain, lowered = classification(file), classification(file, preparation=Preparation("whitespace"))
    for one, other in zip(plain.part("test").rationale, lowered.part("test").rationale, strict=True):
        np.testing.assert_array_equal(one, other)


def test_lists_of_words_keep_their_marks(tmp_path):
    records = [row | {"text": row["text"].split()} for row in rows()]
    listed = classification(write_jsonl(tmp_path / "b.jsonl", records))
    raw = classification(write_jsonl(tmp_path / "a.jsonl", rows()))
    for one, other in zip(listed.part("training").rationale, raw.part("training").rationale, strict=True):
        np.testing.assert_array_equal(one, other)


def test_marks_of_several_people_become_the_share_of_them(tmp_path):
    records = [{"text": f"a b c{i}", "label": i % 2, "marks": [[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 1, 0]]}
             for i in range(30)]  # fmt: skip
    task = classification(write_jsonl(tmp_path / "a.jsonl", records), rationale="marks")
    assert task.sample_batch("test", 1).rationale.tolist() == [[1.0, 0.25, 0.25, 0.0]]


def test_a_task_without_rationales_has_batches_without(file):
    task = classification(file, rationale=None)
    assert next(task.batches("test")).rationale is None
    assert "rationale" not in next(task.batches("test")).tensors()


def test_rationales_travel_with_their_batch(file):
    task = classification(file)
    batch = task.sample_batch("training", 5)
    wide = batch.widened(30, 3)
    assert wide.rationale.shape == wide.source.shape
    assert torch.equal(wide.rationale[:, : batch.source.shape[1]], batch.rationale)
    assert not wide.rationale[:, batch.source.shape[1] :].any()
    assert torch.equal(batch.to("cpu").rationale, batch.rationale)
    copy = batch.clone()
    copy.rationale.zero_()
    assert batch.rationale.any()
    copy.copy_from(batch)
    assert torch.equal(copy.rationale, batch.rationale)
    both = stack_batches([batch, task.sample_batch("training", 5, seed=1)])
    assert both.rationale.shape == both.source.shape


def test_settings_with_a_rationale_come_back_from_json(file):
    task = classification(file)
    assert rebuild(describe(task)) == task
    assert "rationale" in task.fields()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preparation": Preparation()}, "use the tokeniser whitespace, spaces or trimmed"),
        ({"preparation": Preparation("whitespace", split_underscores=True)}, "and strip or split nothing"),
        ({"preparation": Preparation("spaces", strip_tags=True)}, "which the preparation would change"),
        ({"preparation": Preparation("spaces", strip_headers=True)}, "which the preparation would change"),
        ({"vocabulary": Subwords()}, "marks whole words; with Subwords its marks would lose their places"),
        ({"text": ("title", "text")}, "a rationale marks one field of text, not title, text together"),
    ],
)
def test_settings_that_would_misalign_rationales_are_refused(settings, message):
    with pytest.raises(BadSetting, match=message):
        classification("a.jsonl", **settings)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ([1, 0], "line 41: 'rationale' has marks for 2 words, but the text has 3"),
        ([[1, 0, 0], [1, 0]], "line 41: 'rationale' has lists of 2 and 3 words for one text"),
        ([1, 0, 2], r"line 41: 'rationale' must be a list with a number from 0 to 1 .*, not \[1, 0, 2\]"),
        ("one", "must be a list with a number"),
        ([[1, 0, "x"]], "must be a list with a number"),
        (None, "must be a list with a number"),
    ],
)
def test_a_line_whose_marks_do_not_fit_is_named(tmp_path, marks, message):
    wrong = {"text": "a b c", "label": 1, "rationale": marks}
    with pytest.raises(Malformed, match=message):
        _ = classification(write_jsonl(tmp_path / "a.jsonl", [*rows(40), wrong])).corpus


def test_a_line_without_marks_is_named(tmp_path):
    with pytest.raises(Malformed, match="line 41: there is no field 'rationale'"):
        _ = classification(write_jsonl(tmp_path / "a.jsonl", [*rows(40), {"text": "a", "label": 1}])).corpus


@pytest.mark.corpus
def test_movie_reviews_are_marked_as_published(corpus):
    task = CORPORA["eraser_movies"]
    published = corpus(task.file)
    assert [len(task.part(part)) for part in PARTS] == [1600, 200, 199]
    assert task.classes == ("NEG", "POS")
    train = [row for row in published if row["split"] == "train"]
    for row, source, marks in zip(train, task.part("training").source, task.part("training").rationale, strict=True):
        assert len(source) == len(marks) == len(row["text"].split()) + 1
        assert marks[:-1].tolist() == row["rationale"]
    shares = {part: np.concatenate([row[:-1] for row in task.part(part).rationale]).mean() for part in PARTS}
    assert shares == pytest.approx({"training": 0.086, "validation": 0.065, "test": 0.303}, abs=0.001)


@pytest.mark.corpus
def test_a_truncated_review_keeps_the_marks_of_the_rest(corpus):
    whole = CORPORA["eraser_movies"]
    cut = replace(whole, preparation=replace(whole.preparation, max_length=100, too_long="truncate"))
    for one, other in zip(whole.part("test").rationale, cut.part("test").rationale, strict=True):
        np.testing.assert_array_equal(one[:-1][:100], other[:-1])


@pytest.mark.corpus
def test_yelp_reviews_are_marked_by_half_of_their_readers_as_published(corpus):
    task, plain = CORPORA["yelp_rationales"], CORPORA["yelp"]
    hard = {row["text"]: row["rationale"] for row in corpus(task.file)}
    marks = sorted(tuple((row[:-1] >= 0.5).astype(int)) for part in PARTS for row in task.part(part).rationale)
    assert marks == sorted(map(tuple, hard.values()))
    for part in PARTS:  # the same texts in the same splits
        assert [row.tolist() for row in task.part(part).target] == [row.tolist() for row in plain.part(part).target]
