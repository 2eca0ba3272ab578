"""Tables are bijections, answers follow from them, and no test sentence is in the training split."""

from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.errors import BadSetting
from attnscope.lab.configuration import describe, rebuild
from attnscope.tasks import END, NOWHERE, LookupTables, MissingCorpus, PublishedLookupTables
from attnscope.tasks.lookup_tables import LONGER, MUCH_LONGER, PAIRS, SPLITS, Tables, kind_of
from attnscope.tasks.text import ChangedCorpus

SIZES = {  # baan2019, counted in the published files
    "train": 232,
    "validation": 16,
    "heldout_inputs": 40,
    "heldout_compositions": 64,
    "heldout_tables": 192,
    "new_compositions": 32,
}
SMALL = LookupTables(bits=2, tables=5, heldout_compositions=2, heldout_inputs=1, validation=3, seed=1)
TASKS = {"three bits": LookupTables(), "another seed": LookupTables(seed=7, end=False), "two bits": SMALL}


@pytest.fixture(params=TASKS.values(), ids=TASKS)
def task(request):
    return request.param


def spelled(task, split):
    """Each sentence of a split as (input, tables, answer), read off the numbers."""
    for batch in task.batches(split, size=50):
        for i in range(len(batch)):
            source = task.source_vocabulary.decode(batch.source[i][batch.source_mask[i]].tolist())
            target = task.target_vocabulary.decode(batch.target[i][batch.target_mask[i]].tolist())
            assert source.pop() == "<end>"
            if task.end:
                assert target.pop() == "<end>"
            yield source[0], tuple(source[1:]), target


def queries_of(task, split):
    return {(string, tables) for string, tables, _ in spelled(task, split)}


def test_the_splits_have_the_published_sizes():
    task = LookupTables(seed=3)
    assert {split: len(task.part(split)) for split in SIZES} == SIZES
    assert [len(task.part(split)) for split in LONGER] == [544, 1084, 32]
    assert len(task.part("all")) == 576
    assert [len(task.part(f"new_compositions{n}")) for n in range(4, 11)] == [64, 128, 256, 512, 1024, 2000, 2000]


def test_every_table_is_a_bijection_and_no_two_are_alike(task):
    assert len(set(task.table_set.outputs)) == task.tables
    for outputs in task.table_set.outputs:
        assert sorted(outputs) == list(range(2**task.bits))


@pytest.mark.parametrize("split", SPLITS)
def test_an_answer_copies_the_input_and_then_looks_up_one_table_after_the_other(task, split):
    lookup = task.table_set.mapping
    for string, tables, answer in spelled(task, split):
        assert answer[0] == string
        assert len(answer) == len(tables) + 1
        for table, before, after in zip(tables, answer, answer[1:], strict=False):
            assert lookup[table][before] == after


def test_a_worked_example():
    """t1 turns the bit, t2 leaves it; the third word of `0 t1 t2 .` is t2(t1(0)) = 1."""
    tables = Tables(1, ((1, 0), (0, 1)), alone=1)
    assert tables.answer(("0", ("t1", "t2"))) == ["0", "1", "1"]


def test_the_guide_is_diagonal_and_the_end_attends_to_the_full_stop():
    for end, expected in ((True, [0, 1, 2, 3]), (False, [0, 1, 2])):
        batch = next(LookupTables(end=end).batches("new_compositions", size=4))
        assert batch.gold_attention.tolist() == [expected] * 4
        assert (batch.source[:, 3] == END).all()
    mixed = next(LookupTables(end=False).batches("all", size=576))
    assert (mixed.gold_attention[~mixed.target_mask] == NOWHERE).all()


def test_training_has_every_table_alone_and_the_last_ones_only_alone(task):
    single = {(string, tables) for string, tables in queries_of(task, "train") if len(tables) == 1}
    assert single == {(string, (name,)) for string in task.table_set.strings for name in task.table_set.names}
    composed = {name for _, tables in queries_of(task, "train") if len(tables) == 2 for name in tables}
    assert composed == set(task.table_set.composed)
    assert len(task.table_set.held_out) == task.heldout_tables


def test_single_tables_and_pairs_fall_into_one_split_each(task):
    parts = [queries_of(task, split) for split in PAIRS]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert set.union(*parts) == queries_of(task, "all")
    assert len(queries_of(task, "all")) == 2**task.bits * (task.tables + task.tables**2)


def test_each_trained_pair_lacks_the_same_number_of_inputs(task):
    pairs = Counter(tables for _, tables in queries_of(task, "train") if len(tables) == 2)
    assert set(pairs.values()) == {2**task.bits - task.heldout_inputs}
    assert len(pairs) == len(task.table_set.composed) ** 2 - task.heldout_compositions
    left_out = queries_of(task, "validation") | queries_of(task, "heldout_inputs")
    assert {tables for _, tables in left_out} <= set(pairs)


def test_held_out_pairs_are_told_apart_by_their_tables(task):
    last = set(task.table_set.held_out)
    counts = {"heldout_compositions": 0, "heldout_tables": 1, "new_compositions": 2}
    for split, count in counts.items():
        assert {sum(name in last for name in tables) for _, tables in queries_of(task, split)} == {count}
    assert {tables for _, tables in queries_of(task, "heldout_tables")} == {
        pair for pair in product(task.table_set.names, repeat=2) if kind_of(pair, task.table_set) == "heldout_tables"
    }


@pytest.mark.parametrize("split", [*LONGER, *MUCH_LONGER])
def test_longer_compositions_are_as_long_and_of_the_kind_that_they_are_said_to_be(split):
    task = LookupTables()
    length = 3 if split in LONGER else int(split.lstrip("abcdefghijklmnopqrstuvwxyz_"))
    kinds = {"longer_seen": "heldout_compositions", "longer_incremental": "heldout_tables"}
    kind = kinds.get(split, "new_compositions") if split in LONGER else split.removesuffix(str(length))
    rows = Counter(tables for _, tables, _ in spelled(task, split))
    assert {len(tables) for tables in rows} == {length}
    assert {kind_of(tables, task.table_set) for tables in rows} == {kind}
    assert set(rows.values()) == {4}  # four of the eight inputs each
    assert len(queries_of(task, split)) == len(task.part(split))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**40), st.integers(0, 50), st.sampled_from([1, 7, 32]))
def test_an_epoch_has_each_training_sentence_once(seed, epoch, size):
    steps = SMALL.steps(size)
    batches = [SMALL.training_batch(seed, epoch * steps + step, size) for step in range(steps)]
    rows = [tuple(row[row > 0].tolist()) for batch in batches for row in batch.source]
    assert sorted(rows) == sorted(tuple(source) for source in SMALL.part("training").source)


def test_another_seed_or_epoch_has_another_order():
    task, words = LookupTables(end=False), []
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        batches = [task.training_batch(seed, epoch * 232 + step, 1) for step in range(232)]
        words.append([tuple(batch.source[0].tolist()) for batch in batches])
    assert words[0] != words[1] != words[2] != words[0]
    assert sorted(words[0]) == sorted(words[1]) == sorted(words[2])


def test_a_sample_of_a_split_is_random_without_repetition():
    sample, again, other = (SMALL.sample_batch("all", 20, seed) for seed in (0, 0, 1))
    assert torch.equal(sample.source, again.source)
    assert not torch.equal(sample.source, other.source)
    assert len({tuple(row.tolist()) for row in sample.source}) == 20
    assert len(SMALL.sample_batch("all", 10**6)) == len(SMALL.part("all"))


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_without_a_sentence_is_refused(size):
    for ask in (
        SMALL.steps,
        lambda size: SMALL.training_batch(0, 0, size),
        lambda size: next(SMALL.batches(size=size)),
    ):
        with pytest.raises(BadSetting, match=f"a batch needs at least one sentence, not {size}"):
            ask(size)


def test_splits_have_the_common_names_too():
    task = LookupTables()
    assert torch.equal(next(task.batches()).source, next(task.batches("heldout_compositions")).source)
    assert task.part("training") is task.part("train")
    with pytest.raises(BadSetting, match="there is no split 'tests'; choose one of train, validation"):
        next(task.batches("tests"))


def test_at_most_test_size_sentences_are_measured_on_and_all_are_trained_on():
    task = LookupTables(test_size=10)
    assert len(task.part("heldout_tables")) == 10
    assert queries_of(task, "heldout_tables") < queries_of(LookupTables(), "heldout_tables")
    assert len(task.part("training")) == 232


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 0}, "bits must be positive"),
        ({"bits": 1, "tables": 3}, "1 bits have 2 different tables only, not 3"),
        ({"heldout_tables": 8}, "heldout_tables=8 leaves none of the 8 tables"),
        ({"heldout_inputs": 8}, "heldout_inputs=8 leaves none of the 8 inputs"),
        ({"heldout_compositions": 36}, "leaves none of the 36 pairs"),
        ({"validation": 56}, "validation=56 leaves none of the 56 inputs left out of training"),
        ({"seed": -1}, "must not be negative"),
        ({"test_size": 0}, "test_size must be positive"),
    ],
)
def test_settings_that_leave_nothing_are_refused(wrong, message):
    with pytest.raises(BadSetting, match=message):
        LookupTables(**wrong)


def test_missing_files_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNSCOPE_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingCorpus, match=r"looked for .*lookup_tables .*Expected is .*'alignment'"):
        PublishedLookupTables().part("training")


def test_published_tables_come_back_from_json():
    task = PublishedLookupTables("sample2", end=False, test_size=5)
    assert rebuild(describe(task)) == task


@pytest.mark.corpus
@pytest.mark.parametrize("sample", ["sample1", "sample2", "sample3"])
def test_published_splits_have_the_sizes_of_generated_ones(corpus, sample):
    corpus("lookup_tables/lookup_tables.jsonl.gz")
    task = PublishedLookupTables(sample, end=False)
    assert {split: len(task.part(split)) for split in SIZES} == SIZES
    for split in (*PAIRS, "all"):
        assert len(task.part(split)) == len(LookupTables().part(split))
    assert (task.table_set.bits, len(task.table_set.names), task.table_set.alone) == (3, 8, 2)
    assert len(task.source_vocabulary) == len(LookupTables().source_vocabulary) == 19


@pytest.mark.corpus
def test_published_tables_are_bijections_and_published_targets_follow_from_them(corpus):
    task = PublishedLookupTables("sample1", end=True)
    for outputs in task.table_set.outputs:
        assert sorted(outputs) == list(range(8))
    files = ("lookup_tables/lookup_tables.jsonl.gz", "lookup_tables/longer_compositions.jsonl.gz")
    rows = [row for file in files for row in corpus(file) if row["sample"] == "sample1"]
    expected = {}
    for row in rows:
        *words, _ = row["source"].split()
        assert task.table_set.answer((words[0], tuple(words[1:]))) == row["target"].split()
        expected.setdefault(row["split"], []).append((words[0], tuple(words[1:]), row["target"].split()))
    for split, sentences in expected.items():
        assert list(spelled(task, split)) == sentences


@pytest.mark.corpus
def test_the_published_alignment_is_the_guide(corpus):
    first = corpus("lookup_tables/lookup_tables.jsonl.gz")[0]
    batch = next(PublishedLookupTables(first["sample"]).batches(first["split"], size=1))
    assert " ".join(map(str, batch.gold_attention[0].tolist())) == first["alignment"]


@pytest.mark.corpus
def test_other_files_than_those_of_the_settings_are_refused(corpus):
    corpus("lookup_tables/lookup_tables.jsonl.gz")
    task = PublishedLookupTables().resolved()
    assert task.fingerprint is not None
    assert task.resolved() == task
    with pytest.raises(ChangedCorpus, match=r"lookup_tables has changed: its checksum is .*, the settings say 0{12}…"):
        PublishedLookupTables(fingerprint="0" * 64).part("training")


@pytest.mark.corpus
def test_an_unknown_sample_is_refused(corpus):
    corpus("lookup_tables/lookup_tables.jsonl.gz")
    with pytest.raises(BadSetting, match="there is no sample 'sample9'; choose one of sample1, sample2, sample3"):
        PublishedLookupTables("sample9").part("training")
