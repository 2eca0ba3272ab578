"""The findings `learned` and `elimination` at a tiny size: mismatched pairs, interventions, and what is claimed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import well_formed

import attnscope.studies.transformers as transformers
from attnscope.lab.engines import LocalEngine
from attnscope.lab.experiment import Experiment
from attnscope.models import Start, TransformerSettings
from attnscope.studies.finding import Measurements, Profile
from attnscope.studies.reproduce import reproduce
from attnscope.studies.snell2021 import toys
from attnscope.studies.transformers import elimination, learned
from attnscope.studies.transformers.elimination import ELIMINATION, EliminationLabel, on_copied_word, on_others
from attnscope.studies.transformers.learned import (
    CONTROL,
    CORPUS,
    GIVEN,
    LEARNED,
    PERMUTATIONS,
    SCRAMBLED,
    LearnedLabel,
    beta_at_gold,
    matched_and_not,
)
from attnscope.tasks import CORPORA, Batch, Copying, Splits, Translation, Words
from attnscope.training import TrainingSettings
from tasks.small_corpora import write_jsonl

TINY = Profile("tiny", seeds=1)
SIZES = learned.Sizes(
    units=8, vocabulary=Words(), translator_heads=(2,), batch_size=4, learning_rate=1e-3, steps=8,
    num_checkpoints=2, sentences=20,
    copier_units=8, length=4, copying_batch=4, copying_steps=4, evaluate_every=2, test_size=8,
)  # fmt: skip


def sentences():
    random = np.random.default_rng(0)
    for _ in range(120):
        words = random.choice(["red", "blue", "dog", "cat", "runs"], random.integers(2, 6)).tolist()
        yield {"source": " ".join(words), "target": " ".join(word[::-1] for word in words), "split": "all"}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    write_jsonl(file, sentences())
    with pytest.MonkeyPatch.context() as patch:
        splits = Splits(validation_share=0.2, test_share=0.1)
        patch.setitem(CORPORA, CORPUS, Translation(str(file), splits=splits))
        patch.setitem(learned.SIZES, "tiny", SIZES)
        patch.setattr(learned, "HEADS", (1, 2))
        tiny_toys = replace(toys.QUICK, units=8, batch_size=4, length=4, test_size=8, steps=20)
        patch.setitem(toys.SIZES, "tiny", tiny_toys)
        patch.setitem(elimination.LSTM_STEPS, "tiny", 20)
        with well_formed.tiny(transformers, (LEARNED, ELIMINATION), TINY) as tiny_study:
            yield tiny_study


def test_the_result_is_well_formed(study, tmp_path):
    result = well_formed.results_of(study, tmp_path)["learned"]
    well_formed.check(LEARNED, result)
    well_formed.check_without_runs(LEARNED, TINY)
    curves = result.figure[f"{CORPUS}, 1 layer, 2 heads"]
    assert all(np.shape(seeds) == (1, len(curves["steps"])) for seeds in curves["curves"].values())


def test_the_result_of_elimination_is_well_formed(study, tmp_path):
    well_formed.check(ELIMINATION, well_formed.results_of(study, tmp_path)["elimination"])
    well_formed.check_without_runs(ELIMINATION, TINY)


def test_interventions_leave_the_copied_word_alone_or_leave_it_out():
    batch = next(Copying(test_size=2, num_words=4, length=3).batches("test"))
    weights = torch.full((2, 1, 4, 4), 0.25)
    alone = on_copied_word(batch, weights, batch.source_mask)
    assert torch.equal(alone[:, 0], torch.eye(4).expand(2, 4, 4))
    others = on_others(batch, weights, batch.source_mask)
    torch.testing.assert_close(others[:, 0], ((1 - torch.eye(4)) / 3).expand(2, 4, 4))


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"eliminates": 1.0, "attended": 0.1, "without": 0.99, "alone": 0.02, "steps_needed": 900.0}, "holds"),
        ({"eliminates": 1.0, "attended": 2.0, "without": 0.02, "alone": 0.99, "steps_needed": 90.0}, "fails"),
    ],
)
def test_claims_on_elimination_are_about_the_networks_that_eliminate(numbers, verdict):
    label = EliminationLabel(elimination.TRANSFORMER, PERMUTATIONS)
    other = {"eliminates": 0.0, "attended": 40.0, "without": 0.0, "alone": 1.0, "steps_needed": 300.0}
    seeds = [{name: value + 0.001 * seed * (name != "eliminates") for name, value in kind.items()} | {"learnt": True}
             for kind in (numbers, other) for seed in range(8)]  # fmt: skip
    seeds += [{**numbers, "attended": 1.0, "without": 0.5, "alone": 0.5, "learnt": False}]  # counts for nothing
    claims = [claim for claim in elimination.claims(Measurements({label: seeds})) if "that eliminate:" in claim.text]
    assert [claim.verdict for claim in claims] == 4 * [verdict]


def test_without_the_corpus_copying_is_still_measured(study, tmp_path, monkeypatch):
    monkeypatch.setitem(CORPORA, CORPUS, Translation("nowhere/pairs.jsonl"))
    (result,) = reproduce(study, [LEARNED], "tiny", 1, tmp_path, LocalEngine(0))
    assert any("nowhere" in note for note in result.notes)
    assert CORPUS not in " ".join(result.figure)
    assert LEARNED.draw(result.figure).axes


def test_mismatched_pairs_have_the_source_of_another_sentence_of_the_same_length():
    lengths = torch.tensor([3, 2, 3, 4, 3])
    mask = torch.arange(4) < lengths[:, None]
    source = torch.where(mask, 10 * torch.arange(1, 6)[:, None] + torch.arange(4), 0)
    matched, other = matched_and_not(Batch(source, mask, source.clone(), mask.clone()))
    assert matched.source[:, 0].tolist() == [10, 30, 50]  # the sentences of two and four words have no partner
    assert other.source[:, 0].tolist() == [50, 10, 30]
    assert torch.equal(other.target, matched.target)
    assert torch.equal(other.source > 0, matched.source_mask)


def test_given_lexical_weights_translate_and_scrambled_ones_do_not():
    task = Copying(test_size=16, num_words=12, length=12)
    experiment = Experiment(task, TransformerSettings(units=64, layers=1, heads=1), TrainingSettings(steps=1))
    batch = next(task.batches())
    beta = {
        start: beta_at_gold(replace(experiment, start=Start(copying=start)).new_model().eval(), batch)
        for start in ("random", GIVEN, SCRAMBLED)
    }
    assert beta[GIVEN] > 3 * max(beta["random"], beta[SCRAMBLED])


def test_claims_of_a_delay_compare_steps_of_the_same_network():
    def copied(task, heads, steps, start="random"):
        label = LearnedLabel(task, 1, heads, start)
        return {label: [{"learnt": True, "steps_needed": step, "lexical_first": 0.1} for step in steps]}

    measured = Measurements(
        copied(PERMUTATIONS, 1, (90, 95, 100)) | copied(CONTROL, 1, (30, 36, 39))
        | copied(PERMUTATIONS, 8, (30, 34, 38)) | copied(CONTROL, 8, (60, 66, 69))
        | copied(PERMUTATIONS, 1, (10, 12, 13), GIVEN) | copied(PERMUTATIONS, 1, (99, 98, 97), SCRAMBLED)
    )  # fmt: skip
    verdicts = {claim.text: claim.verdict for claim in learned.claims(measured)}
    delay = "{}: delay: permutations are learnt later than the control"
    assert verdicts[delay.format("1 layer, 1 head")] == "holds"
    assert verdicts[delay.format("1 layer, 8 heads")] == "fails"
    assert verdicts["permutations are learnt earlier from given lexical weights than from random ones"] == "holds"
