"""Comprehensiveness and sufficiency by named definitions, against texts that are shortened and tokenised again."""

import math

import pytest
import torch
from adapter_examples import SOURCES, adapter
from scipy.stats import kendalltau

from attnscope.errors import BadSetting
from attnscope.probes.erasure import (
    PRESETS,
    ComprehensivenessAccumulator,
    erasure,
    leave_one_out_tau,
    probability_drops,
)
from attnscope.probes.removal import random_score

LONG = [SOURCES[0] + " and " + SOURCES[3], SOURCES[1], SOURCES[3], SOURCES[2]]


@pytest.fixture(params=["distilbert", "roberta"])
def model(request):
    return adapter(request.param).double()


def probability(model, text, label):
    """As the library has it, from a text."""
    inputs = model.reader.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        return model.model(**inputs).logits[0].softmax(-1)[label].item()


def signed_score(batch):
    return random_score(batch, 3) - 0.4  # some words have a negative one


def by_hand(model, batch, score, number):
    """ferret's definitions of one text, written out: comprehensiveness, sufficiency, τ."""
    tokenizer, ids = model.reader.tokenizer, batch.source[number][batch.word_mask[number]].tolist()
    values = score[number][batch.word_mask[number]].tolist()
    with torch.no_grad():
        label = int(model(batch).logits[number, 0].argmax()) - 3
    whole = probability(model, tokenizer.decode(ids), label)
    order = sorted(range(len(ids)), key=lambda i: -values[i])
    chosen = [{i for i in order[: math.floor(len(ids) * tens / 10)] if values[i] > 0} for tens in range(1, 11)]
    different = [top for i, top in enumerate(chosen) if top and (i == 0 or top != chosen[i - 1])]

    def lost(keep):
        return whole - probability(model, tokenizer.decode([ids[i] for i in keep]), label)

    every = range(len(ids))
    without = [lost([i for i in every if i not in top]) for top in different]
    alone = [lost(sorted(top)) for top in different]
    effects = [lost([i for i in every if i != gone]) for gone in every]
    means = [sum(losses) / len(losses) for losses in (without, alone)]
    return [*means, kendalltau(effects, values).statistic]


def test_measures_of_ferret_equal_those_of_shortened_and_retokenised_texts(model):
    batch = model.reader.read(LONG).batch
    score = signed_score(batch)
    result = probability_drops(model, batch, score, "retokenised text", PRESETS["ferret"])
    taus = leave_one_out_tau(model, batch, {"mine": score})["mine"]
    ours = [result.comprehensiveness[:, 0].nanmean(1), result.sufficiency[:, 0].nanmean(1), taus]
    expected = torch.tensor([by_hand(model, batch, score, i) for i in range(len(LONG))])
    torch.testing.assert_close(torch.stack(ours, 1), expected.double(), atol=1e-9, rtol=0)
    assert bool(result.comprehensiveness.isnan().any())  # some share added no word


def test_retokenising_differs_from_deleting_tokens():
    model = adapter("distilbert").double()
    batch = model.reader.read(LONG).batch
    from_the_left = 1 / torch.arange(1.0, 1 + batch.source.shape[1]).expand(batch.source.shape)  # leaves ##able
    ways = [
        probability_drops(model, batch, from_the_left, way, PRESETS["ferret"]).comprehensiveness.nanmean(2)
        for way in ("text", "retokenised text")
    ]
    assert not torch.allclose(*ways, atol=1e-4)


@pytest.mark.parametrize(("preset", "removal", "shares"), [("eraser", "text", 5), ("ferret", "retokenised text", 10)])
def test_a_result_names_its_definition(preset, removal, shares):
    result = erasure(adapter("distilbert"), LONG, draws=2, preset=preset)
    drops = result.comprehensiveness
    assert (drops.preset, drops.removal, len(drops.shares)) == (preset, removal, shares)
    assert result.table().index.name == f"score ({preset})"
    assert result.table().notna().all(None)
    assert preset in drops.plot().get_ylabel()


def test_an_unknown_preset_is_refused():
    with pytest.raises(BadSetting, match="no preset 'captum'; choose one of eraser, ferret"):
        ComprehensivenessAccumulator(preset="captum")
