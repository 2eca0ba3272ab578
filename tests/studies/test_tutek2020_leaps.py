"""Candidates for the largest published losses: each arm changes one setting; and a tiny run of all."""

from dataclasses import replace

import pytest
import torch
from small_texts import TINY, corpora

import attnscope.studies.tutek2020 as tutek2020
from attnscope.studies.tutek2020.experiments import BASE, MLM
from attnscope.studies.tutek2020.reduction import (
    AS_BEFORE,
    GLOVE_ONLY,
    LEAPING,
    TRAINED,
    LeapLabel,
    leap_experiments,
    uniform_over,
)
from studies import well_formed


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    with corpora(tmp_path_factory.mktemp("data")) as folder:
        yield folder


def test_each_arm_changes_one_setting(texts):
    cases = leap_experiments(TINY)
    assert {(label.corpus, label.attention, label.model) for label in cases} == {
        ("20newsgroups", "dot", BASE), ("20newsgroups", "dot", MLM),
    }  # fmt: skip
    for model in (BASE, MLM):
        runs = {arm: cases[LeapLabel("20newsgroups", "dot", model, arm)].runs["model"] for arm in (AS_BEFORE, TRAINED)}
        glove = cases[LeapLabel("20newsgroups", "dot", model, GLOVE_ONLY)].runs["model"]
        before = runs[AS_BEFORE]
        assert replace(runs[TRAINED], training=before.training) == before
        assert (runs[TRAINED].training.trained, before.training.trained) == ("all", "all but words")
        assert replace(glove, model=before.model) == before
        assert glove.model.input_size == 2 * glove.model.units == 100


def test_uniform_attention_over_padding_leaves_a_text_its_share_of_positions():
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    weights = uniform_over(8)(torch.zeros(2, 1, 1, 4), mask)
    assert weights.sum(-1).flatten().tolist() == pytest.approx([2 / 8, 4 / 8])


@pytest.mark.slow
def test_the_arms_write_a_well_formed_result(texts, tmp_path):
    with well_formed.tiny(tutek2020, (LEAPING,), TINY) as study:
        (result,) = well_formed.results_of(study, tmp_path).values()
    well_formed.check(LEAPING, result)
    assert len(result.claims) == 3 * 2
    well_formed.check_without_runs(LEAPING, TINY)
