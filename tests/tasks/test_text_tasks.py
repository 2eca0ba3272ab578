from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_corpora import pairs, reviews, write_jsonl

from attnscope.errors import BadSetting
from attnscope.files import Malformed, file_checksum
from attnscope.tasks import END, PAD, SPECIALS, START, Classification, Preparation, Splits, Subwords, Translation, Words
from attnscope.tasks.task import Buckets
from attnscope.tasks.text import PARTS, UNKNOWN, ChangedCorpus, rows, statistics


@pytest.fixture
def review_file(tmp_path):
    return write_jsonl(tmp_path / "reviews.jsonl", reviews())


@pytest.fixture
def pair_file(tmp_path):
    return write_jsonl(tmp_path / "pairs.jsonl.gz", pairs())


def classification(file, **settings_):
    return Classification(file, **{"vocabulary": Words(min_count=1)} | settings_)


def translation(file, **settings_):
    return Translation(file, **{"vocabulary": Words(min_count=1), "preparation": Preparation(lower=False)} | settings_)


def sentences(task, batch, side="source"):
    """The sentences of a batch in words, special ones included, as a multiset."""
    words, mask = getattr(batch, side), getattr(batch, f"{side}_mask")
    decode = getattr(task, f"{side}_vocabulary").decode
    return [tuple(decode(row[there].tolist())) for row, there in zip(words, mask, strict=True)]


def test_a_class_is_a_target_of_one_word_without_an_end(review_file):
    task = classification(review_file)
    for batch in task.batches("training", 8):
        assert batch.target.shape[1] == 1
        assert batch.target_mask.all()
        for source, (label,) in zip(sentences(task, batch), sentences(task, batch, "target"), strict=True):
            assert label == str(int("z" in source))


def test_there_may_be_many_classes_in_the_order_of_their_names_or_of_the_settings(tmp_path):
    file = write_jsonl(tmp_path / "a.jsonl", [{"text": f"x{i}", "label": str(i % 12)} for i in range(240)])
    assert classification(file).classes == tuple(str(i) for i in range(12))
    backwards = tuple(str(i) for i in reversed(range(12)))
    assert classification(file, labels=backwards).classes == backwards


def test_classes_that_are_left_out_leave_no_trace(tmp_path):
    rows = [*reviews(), *({"text": f"other {i}", "label": "other"} for i in range(9))]
    task = classification(write_jsonl(tmp_path / "a.jsonl", rows), exclude_labels=("other",))
    assert task.classes == ("0", "1")
    assert "other" not in task.source_vocabulary.tokens
    assert sum(len(task.part(part)) for part in PARTS) == 60
    assert task.corpus.left_out == 9


@pytest.mark.parametrize(("special", "first", "last"), [("none", None, None), ("end", None, END), ("both", START, END)])
def test_the_special_words_of_the_source_are_a_setting(review_file, special, first, last):
    for row in classification(review_file, special=special).part("test").source:
        assert (row[0] == START) == (first == START)
        assert (row[-1] == END) == (last == END)


def test_several_fields_make_one_text(tmp_path):
    rows = [{"title": f"t{i}", "text": f"x{i}", "label": i % 2} for i in range(30)]
    task = classification(write_jsonl(tmp_path / "a.jsonl", rows), text=("title", "text"))
    assert all(t[1:] == x[1:] for t, x, _ in sentences(task, task.sample_batch("training", 9)))


def test_a_translation_ends_on_both_sides(pair_file):
    task = translation(pair_file)
    for part in PARTS:
        for batch in task.batches(part, 7):
            both = zip(sentences(task, batch), sentences(task, batch, "target"), strict=True)
            for source, target in both:
                assert source[-1] == target[-1] == "<end>"
                assert sorted(word.upper() for word in source[:-1]) == sorted(word.upper() for word in target[:-1])


@pytest.mark.parametrize("size", [1, 7, 16, 1000])
def test_an_epoch_has_every_sentence_exactly_once(pair_file, size):
    task = translation(pair_file)
    whole = Counter(s for batch in task.batches("training", 50) for s in sentences(task, batch))
    for epoch in (0, 3):
        steps = range(epoch * task.steps(size), (epoch + 1) * task.steps(size))
        counts = Counter(s for step in steps for s in sentences(task, task.training_batch(5, step, size)))
        assert counts == whole


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=200), st.integers(1, 64), st.integers(0, 2**40))
def test_buckets_are_a_partition_of_the_sentences(lengths, size, seed):
    batches = Buckets(np.array(lengths)).epoch(seed, 0, size)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert len(batches) == Buckets(np.array(lengths)).steps(size)
    assert sorted(map(len, batches))[1:] == [size] * (len(batches) - 1)  # at most one is smaller


def test_buckets_waste_little_and_their_order_is_not_that_of_length():
    lengths = np.random.default_rng(0).geometric(1 / 100, 3000)  # like reviews: many short ones, few long ones
    batches = Buckets(lengths).epoch(0, 0, 32)
    padded = sum(lengths[batch].max() * len(batch) for batch in batches)
    assert lengths.sum() / padded > 0.85
    shuffled = np.random.default_rng(1).permutation(lengths)[:2976].reshape(-1, 32)
    assert lengths.sum() / (shuffled.max(1).sum() * 32) < 0.3
    means = np.array([lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4


def test_epochs_and_seeds_put_different_sentences_together():
    lengths = np.random.default_rng(0).integers(5, 50, 500)
    first, second, other = (Buckets(lengths).epoch(*at, 32) for at in ((0, 0), (0, 1), (1, 0)))
    together = {frozenset(batch.tolist()) for batch in first}
    assert not together & {frozenset(batch.tolist()) for batch in second}
    assert not together & {frozenset(batch.tolist()) for batch in other}


def test_a_training_batch_follows_from_its_arguments_alone(pair_file):
    for seed, step in ((0, 0), (0, 11), (3, 40)):
        first = translation(pair_file)
        first.training_batch(9, 2, 5)  # whatever was asked for before
        again = translation(pair_file, preparation=Preparation(lower=False, max_length=500))  # the same, but read anew
        assert torch.equal(first.training_batch(seed, step, 8).source, again.training_batch(seed, step, 8).source)


def test_batches_are_in_a_fixed_order_whatever_their_size(pair_file):
    task = translation(pair_file)
    one_by_one = [s for batch in task.batches("test", 1) for s in sentences(task, batch, "target")]
    assert one_by_one == [s for batch in task.batches("test", 4) for s in sentences(task, batch, "target")]
    assert [" ".join(s[:-1]) for s in one_by_one] == [
        " ".join(word if word in task.target_vocabulary.tokens else "<unknown>" for word in reference.split())
        for reference in task.references("test")
    ]


def test_padding_is_masked(review_file):
    batch = next(classification(review_file).batches("training", 60))
    assert (batch.source[~batch.source_mask] == PAD).all()
    assert (batch.source[batch.source_mask] != PAD).all()


def test_a_sample_is_random_and_not_the_shortest_sentences(review_file):
    task = classification(review_file)
    sample = task.sample_batch("training", 20)
    assert len(set(sentences(task, sample))) > 1
    assert sample.source_mask.sum() > next(task.batches("training", 20)).source_mask.sum()
    assert len(task.sample_batch("test", 10**6)) == len(task.part("test"))


def test_no_source_of_a_translation_is_in_two_parts(pair_file):
    """Every third source has two translations."""
    task = translation(pair_file, vocabulary=Words(min_count=1, shared=True))
    rows = {part: {row.tobytes() for row in task.part(part).source if UNKNOWN not in row} for part in PARTS}
    assert not rows["training"] & rows["validation"]
    assert not rows["training"] & rows["test"]
    targets = Counter(row.tobytes() for row in task.part("training").source)
    assert max(targets.values()) == 2


def test_long_sentences_are_dropped_or_truncated_and_counted(review_file):
    for how in ("drop", "truncate"):
        task = classification(review_file, preparation=Preparation(max_length=5, too_long=how))
        table = statistics(task)
        assert (table["source_longest"] <= 5).all()
        whole = len(list(reviews()))
        assert table["sentences"].sum() + table["dropped"].sum() == whole
        assert (table["dropped"].sum() > 0) == (how == "drop")
        assert (table["truncated"].sum() > 0) == (how == "truncate")


def test_a_translation_with_one_long_side_is_dropped(tmp_path):
    rows = [{"source": f"s{i}", "target": "t " * (1 + i % 2 * 5)} for i in range(40)]
    task = translation(write_jsonl(tmp_path / "a.jsonl", rows), preparation=Preparation(max_length=3))
    assert statistics(task)["dropped"].sum() == 20


def test_sentences_without_a_word_are_left_out_and_counted(tmp_path):
    rows = [*reviews(), *({"text": " \t", "label": 1} for _ in range(3))]
    table = statistics(classification(write_jsonl(tmp_path / "a.jsonl", rows)))
    assert table["empty"].sum() == 3
    assert table["sentences"].sum() == 60


def test_statistics_count_sentences_and_words(tmp_path):
    rows = [
        {"text": "a a b", "label": "x", "split": "train"},
        {"text": "a b c d e", "label": "y", "split": "train"},
        {"text": "a c", "label": "x", "split": "dev"},
        {"text": "a a b", "label": "x", "split": "test"},
        {"text": "b", "label": "y", "split": "unused"},
    ]
    task = Classification(
        write_jsonl(tmp_path / "a.jsonl", rows), splits=Splits(("train",), ("dev",), ("test",)), vocabulary=Words(2)
    )
    table = statistics(task)
    assert table["sentences"].to_dict() == {"training": 2, "validation": 1, "test": 1}
    assert table["source_mean"].to_dict() == {"training": 4, "validation": 2, "test": 3}
    assert table["source_median"]["training"] == 4
    assert table["source_longest"]["training"] == 5
    assert (table["source_vocabulary"] == len(SPECIALS) + 1 + 2).all()  # unknown, a, b
    assert table["unknown"].to_dict() == {"training": 3 / 8, "validation": 1 / 2, "test": 0}
    assert (table["classes"] == 2).all()
    assert table["repeated"].to_dict() == {"training": 0, "validation": 0, "test": 1}
    assert (table["left_out"] == 1).all()


def test_pairs_of_numbers_only_are_left_out_if_asked_for(tmp_path):
    rows = [*pairs(), {"source": "12 . 5", "target": "12 , 5"}]
    file = write_jsonl(tmp_path / "a.jsonl", rows)
    assert translation(file, skip_numeric=True).corpus.left_out == 1
    assert translation(file).corpus.left_out == 0


def test_the_checksum_is_part_of_the_resolved_settings_and_other_data_are_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    task = classification(write_jsonl(path, reviews())).resolved()
    assert task == task.resolved()
    assert len(task.fingerprint) == 64
    write_jsonl(path, reviews(seed=1))
    with pytest.raises(ChangedCorpus, match=r"a.jsonl has changed: its checksum is"):
        _ = replace(task).corpus
    assert replace(task, fingerprint=None).resolved() != task


def test_a_file_is_read_for_its_checksum_once_unless_it_changes(tmp_path, monkeypatch):
    path, read = tmp_path / "a.jsonl", []
    monkeypatch.setattr(rows, "file_checksum", lambda file: read.append(file) or file_checksum(file))
    tasks = [classification(write_jsonl(path, reviews())) for _ in range(2)]
    before = tasks[0].resolved()
    assert tasks[1].resolved() == before
    assert read == [path]
    path.write_text(path.read_text() + "\n")
    assert tasks[0].resolved() != before
    assert read == [path, path]


def test_settings_do_not_contain_paths(tmp_path, monkeypatch):
    resolved = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        write_jsonl(tmp_path / place / "a.jsonl", reviews())
        monkeypatch.setenv("ATTNSCOPE_DATA", str(tmp_path / place))
        resolved.append(classification("a.jsonl").resolved())
    assert resolved[0] == resolved[1]


def test_data_are_read_lazily():
    assert Classification("nowhere/at/all.jsonl") == Classification("nowhere/at/all.jsonl")


@pytest.mark.parametrize(
    ("rows", "settings_", "message"),
    [
        ([{"text": f"x{i}", "label": "ham"} for i in range(30)], {}, "are of one class, ham"),
        (list(reviews()), {"labels": ("0", "1", "2")}, "no training sentence .* is of the class 2"),
        (list(reviews()), {"exclude_labels": ("0", "1")}, "has 60 rows, but the settings leave all of them out"),
        ([{"text": "x", "label": 0, "split": "train"}, {"text": "y", "label": 1, "split": "train"},
          {"text": "z", "label": 2, "split": "test"}],
         {"splits": Splits(("train",), ("test",), ("test",))}, "2; the training split has 0, 1"),
    ],
)  # fmt: skip
def test_a_corpus_that_cannot_be_learned_is_refused_with_a_sentence(tmp_path, rows, settings_, message):
    with pytest.raises(Malformed, match=message):
        _ = classification(write_jsonl(tmp_path / "a.jsonl", rows), **settings_).corpus


def test_a_split_that_loses_all_its_sentences_is_refused_with_a_sentence(tmp_path):
    rows = [{"text": "a b c", "label": i % 2, "split": "train"} for i in range(4)]
    rows += [{"text": "a b c d e", "label": 1, "split": "test"}]
    task = classification(
        write_jsonl(tmp_path / "a.jsonl", rows),
        splits=Splits(("train",), ("test",), ("test",)),
        preparation=Preparation(max_length=3),
    )
    with pytest.raises(BadSetting, match=r"the validation split of .* is empty: 1 sentences were too long or"):
        _ = task.corpus


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"file": ""}, "a corpus needs a file"),
        ({"special": "start"}, "choose one of none, end, both"),
        ({"text": ()}, "at least one field of text"),
        ({"labels": ("a",)}, "at least two classes"),
        ({"labels": ("a", "a")}, "a class is named twice"),
        ({"labels": ("a", "b"), "exclude_labels": ("b",)}, "b cannot be a class and left out"),
        ({"vocabulary": Subwords(), "preparation": Preparation(unknown_integers=True)}, "needs a vocabulary of Words"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(settings_, message):
    with pytest.raises(BadSetting, match=message):
        Classification(**{"file": "a.jsonl"} | settings_)


def test_an_unknown_split_lists_the_known_ones(review_file):
    with pytest.raises(BadSetting, match="no split 'train'; choose one of training, validation, test"):
        next(classification(review_file).batches("train"))
