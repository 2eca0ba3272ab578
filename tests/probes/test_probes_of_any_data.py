"""Probes as functions of a model and data of any kind, with one decoding for all of them."""

from functools import partial

import pandas as pd
import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.models import EncoderDecoder, EncoderDecoderSettings
from attnscope.models.capabilities import MissingCapability
from attnscope.models.inference import traces
from attnscope.probes import PROBES
from attnscope.probes.agreement import AgreementAccumulator, agreement
from attnscope.probes.decomposition import decompose
from attnscope.probes.divergences import entropy, relative_entropy
from attnscope.probes.heads import head_formation, head_ranking
from attnscope.probes.lexical import lexical, lexical_scores
from attnscope.probes.optimal import optimal_attention
from attnscope.probes.saliency import influence
from attnscope.probes.scores import attention_scores
from attnscope.tasks import OneToOne
from probes.reweighing_examples import Closed, classifier, texts

TASK = OneToOne(min_length=2, max_length=4, test_size=20)


def translator(decoding="teacher_forced"):
    torch.manual_seed(0)
    settings = EncoderDecoderSettings(units=6, context="input")
    model = EncoderDecoder(settings, len(TASK.source_vocabulary), len(TASK.target_vocabulary))
    model.decoding = decoding
    return model


ANSWERS = {
    "decompose": decompose,
    "agreement": agreement,
    "lexical": lexical,
    "entropy": entropy,
    "head_formation": head_formation,
    "head_ranking": partial(head_ranking, saliency=None),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_probe_accepts_a_task_a_batch_batches_or_a_function(name):
    model, probe = translator(), ANSWERS[name]
    batches = list(TASK.batches("test", 32))
    whole = probe(model, TASK)
    assert whole.plot() is not None
    for data in (batches, lambda: iter(batches)):
        pd.testing.assert_frame_equal(probe(model, data).table(), whole.table())
    assert len(probe(model, batches[0]).table()) > 0


@pytest.mark.parametrize("name", ANSWERS)
def test_decoding_is_that_of_the_model_unless_it_is_given(name):
    probe, batches = ANSWERS[name], list(TASK.batches("test", 32))
    greedy, forced = probe(translator("greedy"), batches).table(), probe(translator(), batches).table()
    assert not greedy.equals(forced)
    pd.testing.assert_frame_equal(probe(translator(), batches, decoding="greedy").table(), greedy)
    pd.testing.assert_frame_equal(probe(translator("greedy"), batches, decoding="teacher_forced").table(), forced)


@pytest.mark.parametrize("decoding", ["teacher_forced", "greedy"])
def test_the_temporal_share_from_python_is_that_of_the_probe_by_name(decoding):
    model = translator(decoding)
    held_out = partial(TASK.batches, "validation")
    by_name = PROBES["decompose"](model, TASK, held_out=held_out).table()["temporal share"]
    from_python = decompose(model, TASK, held_out).table()["temporal share"]
    pd.testing.assert_series_equal(from_python, by_name)


def test_agreement_by_name_is_that_of_the_scores():
    model = translator("greedy")
    by_hand = {name: AgreementAccumulator() for name in ("lexical", "influence")}
    for batch, trace in traces(model, TASK):
        weights = attention_scores(trace).values
        by_hand["lexical"].update(weights, lexical_scores(model, trace).values, batch)
        by_hand["influence"].update(weights, influence(model, batch).values, batch)
    for name, accumulator in by_hand.items():
        assert agreement(model, TASK, "attention", name) == accumulator.result()
    with pytest.raises(BadSetting, match="there is no score 'gaze'"):
        agreement(model, TASK, "gaze")


def test_lexical_gives_one_row_per_text_output_token_and_source_token():
    model, batch = translator(), next(TASK.batches("test", 8))
    table = lexical(model, [batch]).table()
    assert len(table) == int((batch.target_mask.sum(1) * batch.source_mask.sum(1)).sum())
    values = lexical_scores(model, next(traces(model, batch))[1]).values
    places = (table[name].to_numpy(copy=True) for name in ("text", "target_position", "position"))
    assert torch.equal(torch.from_numpy(table["score"].to_numpy(copy=True)), values[tuple(places)])
    assert "target" not in lexical(classifier(), texts()).table()
    with pytest.raises(MissingCapability, match="ReadsOut"):
        lexical(Closed(classifier()), texts())


def test_entropy_is_the_mean_over_output_tokens():
    model, batch = classifier(), texts()
    expected = relative_entropy(model(batch).attention[:, 0, 0], batch.word_mask)
    table = entropy(model, [batch]).table()
    assert table["mean"].tolist() == pytest.approx([expected.mean().item()])
    assert table["tokens"].tolist() == [len(batch)]


def test_optimal_losses_are_no_larger_than_those_of_the_models_own_attention():
    result = optimal_attention(classifier(), [texts(), texts(seed=1)])
    assert (result.by_token["loss"] <= result.by_token["own loss"] + 1e-6).all()
    assert result.table()["tokens"].tolist() == [24]
    assert result.plot() is not None
    with pytest.raises(MissingCapability, match="ReadsOut"):
        optimal_attention(Closed(classifier()), texts())
