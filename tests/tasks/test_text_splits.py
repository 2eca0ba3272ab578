from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import BadSetting
from attnscope.tasks import Splits
from attnscope.tasks.text.preparation import split_rows

ALL = Splits()


def sources_in(parts, sources):
    return {name: {sources[i].strip().casefold() for i in rows} for name, rows in parts.items()}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyzABC"), max_size=200), st.integers(0, 99))
def test_random_parts_cover_every_row_once_and_share_no_source(more, seed):
    sources = [*"ABCDEFGHIJ", *more, *"klmnop"]
    parts = split_rows(["all"] * len(sources), sources, Splits(seed=seed, validation_share=0.2, test_share=0.3), "x")
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(sources)))
    inside = sources_in(parts, sources)
    assert not inside["training"] & inside["validation"]
    assert not inside["training"] & inside["test"]
    assert not inside["validation"] & inside["test"]


def test_the_shares_are_of_the_distinct_sources():
    sources = [f"{i % 500}" for i in range(2000)]
    parts = split_rows(["all"] * 2000, sources, Splits(validation_share=0.1, test_share=0.2), "x")
    assert {name: len(inside) for name, inside in sources_in(parts, sources).items()} == {
        "training": 350, "validation": 50, "test": 100,
    }  # fmt: skip


def test_the_split_follows_from_its_seed():
    sources = [str(i) for i in range(100)]
    first, again, other = (split_rows(["all"] * 100, sources, Splits(seed=seed), "x") for seed in (1, 1, 2))
    assert (first["test"] == again["test"]).all()
    assert (first["test"] != other["test"]).any()


def test_published_splits_are_kept_whatever_they_share():
    published = ["train"] * 3 + ["dev"] * 2 + ["test"]
    parts = split_rows(published, ["same"] * 6, Splits(("train",), ("dev",), ("test",)), "x")
    assert {name: rows.tolist() for name, rows in parts.items()} == {
        "training": [0, 1, 2], "validation": [3, 4], "test": [5],
    }  # fmt: skip


def test_only_rows_without_a_split_are_assigned_at_random():
    published = ["train"] * 90 + ["test"] * 10
    parts = split_rows(published, [str(i) for i in range(100)], Splits(("train",), (), ("test",)), "x")
    assert parts["test"].tolist() == list(range(90, 100))
    assert len(parts["validation"]) == 9
    assert len(parts["training"]) == 81


def test_validation_may_be_a_sample_of_the_test_set_as_in_the_paper():
    published = ["train"] * 5 + ["test"] * 100
    options = Splits(("train",), ("test",), ("test",), max_validation=40)
    parts = split_rows(published, [str(i) for i in range(105)], options, "x")
    assert len(parts["validation"]) == 40
    assert set(parts["validation"]) < set(parts["test"])
    assert len(parts["test"]) == 100


def test_a_sample_of_the_test_set_is_random():
    options = Splits(("train",), ("test",), ("test",), max_test=200)
    rows = split_rows(["train"] + ["test"] * 1000, [str(i) for i in range(1001)], options, "x")["test"]
    halves = Counter(bool(row > 500) for row in rows)  # a corpus is often sorted by class
    assert 70 < halves[True] < 130


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Splits(("train",)), r"data.csv has no split 'train' for training; its splits are all \(3 rows\)"),
        (Splits(test=("test",)), "no split 'test' for test"),
        (ALL, "the validation split of data.csv is empty"),
    ],
)
def test_an_unknown_split_is_named_with_the_known_ones(options, message):
    with pytest.raises(BadSetting, match=message):
        split_rows(["all"] * 3, ["a", "b", "c"], options, "data.csv")


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"training": ()}, "must name the published split to train on"),
        ({"validation_share": 0.0}, "validation_share must be between 0 and 1"),
        ({"validation_share": 0.5, "test_share": 0.5}, "leave nothing to train on"),
        ({"max_validation": 0}, "max_validation must be positive"),
        ({"seed": -1}, "a whole number from 0"),
        ({"training": ("a", "b"), "test": ("b",)}, "b cannot be trained on and measured on"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(settings_, message):
    with pytest.raises(BadSetting, match=message):
        Splits(**settings_)
