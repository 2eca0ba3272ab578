"""Repeated sequences and real text as next-token prediction."""

from dataclasses import replace

import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.lab.configuration import describe, rebuild
from attnscope.tasks import END, START, Classification, NextTokens, RepeatedSequences, Splits
from attnscope.tasks.task import check_task
from tasks.small_corpora import reviews, write_jsonl

SMALL = RepeatedSequences(num_words=12, length=16, min_period=4, max_period=7, test_size=30)


def test_every_target_is_the_next_token_and_has_occurred_before():
    batch = next(SMALL.batches())
    check_task(SMALL)
    assert (batch.source[:, 0] == START).all()
    count = batch.target.shape[1]
    assert torch.equal(batch.target[:, :-1], batch.source[:, -count + 1 :])  # predicted from the position before
    at_gold = batch.source.gather(1, batch.gold_attention)
    assert torch.equal(at_gold, batch.target)
    before = batch.source.gather(1, batch.gold_attention - 1)  # the earlier occurrence of the present token
    assert torch.equal(before, batch.source[:, -count:])


def test_no_fixed_distance_predicts_the_next_token():
    batch = next(SMALL.batches())
    places = torch.arange(batch.source.shape[1])[-batch.target.shape[1] :]
    assert len((places - batch.gold_attention).unique()) > 1


def test_a_permuted_vocabulary_changes_targets_and_nothing_else():
    other = replace(SMALL, permutation_seed=0)
    plain, mapped = next(SMALL.batches()), next(other.batches())
    assert torch.equal(plain.source, mapped.source)
    assert torch.equal(torch.from_numpy(other.output_ids)[plain.target], mapped.target)
    assert sorted(other.output_ids) == list(range(15))
    assert not torch.equal(plain.target, mapped.target)


def test_a_period_that_does_not_fit_is_refused():
    with pytest.raises(BadSetting, match="must fit into sequences of 16"):
        RepeatedSequences(length=16, min_period=4, max_period=15)


def test_windows_of_real_text_predict_the_next_token(tmp_path):
    corpus = Classification(
        write_jsonl(tmp_path / "reviews.jsonl", reviews()),
        splits=Splits(("all",), validation_share=0.3, test_share=0.3),
    )
    task = NextTokens(corpus, length=10, max_test=3)
    check_task(task)
    batch = next(task.batches())
    assert len(batch) == 3
    assert torch.equal(batch.source[:, 1:], batch.target[:, :-1])
    assert not (batch.source == END).any()
    assert rebuild(describe(task)) == task
