"""Words removed until a decision flips, against texts that are shortened and read again one by one."""

import math
from dataclasses import replace

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models.classifier import Classifier, ClassifierSettings
from attnscope.probes.erasure import (
    PRESETS,
    SHARES,
    ComprehensivenessAccumulator,
    FlipAccumulator,
    RemovalGrid,
    erase_until_flip,
    probability_drops,
)
from attnscope.probes.removal import random_score, rank_by_score
from attnscope.probes.saliency import gradient_times_input
from attnscope.probes.scores import attention_scores
from attnscope.tasks import END, PAD, SPECIALS, START, Batch

WORDS = 15
LENGTHS = (9, 4, 1, 12, 2, 7)  # words, without their special tokens
WAYS = ["attention", "text"]


def texts(lengths=LENGTHS, classes=3, seed=0):
    torch.manual_seed(seed)
    rows = [[START, *torch.randint(len(SPECIALS), WORDS, (n,)).tolist(), END] for n in lengths]
    source = torch.tensor([row + [PAD] * (max(lengths) + 2 - len(row)) for row in rows])
    target = torch.arange(len(rows))[:, None] % classes + len(SPECIALS)
    return Batch(source, source != PAD, target, target > 0)


def classifier(classes=3, seed=1, **settings):
    """Small, and of strong opinions, so that words change them."""
    torch.manual_seed(seed)
    chosen = {"input_size": 6, "units": 5, "hidden": 4} | settings
    model = Classifier(ClassifierSettings(**chosen), WORDS, len(SPECIALS) + classes).double().eval()
    for parameter in model.parameters():
        parameter.data.mul_(3)
    model.output.bias.data.zero_()
    return model


def row(batch, i):
    """One text without padding."""
    length = int(batch.source_mask[i].sum())
    return Batch(
        batch.source[i : i + 1, :length], batch.source_mask[i : i + 1, :length], batch.target[i : i + 1],
        batch.target_mask[i : i + 1],
    )  # fmt: skip


@torch.no_grad()
def probabilities_without(model, one, gone=(), way="text"):
    """The probabilities of the classes of one text without some of its positions, in the plainest way."""
    if way == "text":
        keep = [i for i in range(one.source.shape[1]) if i not in gone]
        logits = model(replace(one, source=one.source[:, keep], source_mask=one.source_mask[:, keep])).logits
    else:
        weights = model(one).attention.clone()
        weights[..., list(gone)] = 0
        logits = model(one, attention=weights / weights.sum()).logits
    return logits[0, 0, len(SPECIALS) :].softmax(-1)


def order_of(score, one):
    """The positions of words, the highest score first."""
    words = [i for i, word in enumerate(one.source[0].tolist()) if word >= len(SPECIALS)]
    return sorted(words, key=lambda i: -score[i])


def slow_flip(model, one, score, way):
    """(fraction, mass, whether) of one text."""
    order, decision = order_of(score, one), probabilities_without(model, one).argmax()
    attention = model(one).attention[0, 0, 0].detach()
    for count in range(1, len(order)):
        if probabilities_without(model, one, order[:count], way).argmax() != decision:
            return count / len(order), float(attention[order[:count]].sum()), True
    return 1.0, 1.0, False


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("specials_attended", [True, False])
def test_decision_flips_equal_removing_words_one_by_one(way, classes, specials_attended):
    results = set()
    for seed in range(3):
        model, batch = classifier(classes, seed, specials_attended=specials_attended), texts(classes=classes, seed=seed)
        for score in (attention_scores(model(batch)).values[:, 0], random_score(batch, 7)):
            result = erase_until_flip(model, batch, score, way)
            long = [i for i, n in enumerate(LENGTHS) if n >= 2]
            expected = [slow_flip(model, row(batch, i), score[i], way) for i in long]
            for name, values in zip(("fraction", "mass", "flipped"), zip(*expected, strict=True), strict=True):
                torch.testing.assert_close(getattr(result, name)[:, 0], torch.tensor(values), check_dtype=False)
            results |= set(result.flipped.flatten().tolist())
    assert results == {True, False}


@pytest.mark.parametrize("way", WAYS)
def test_probability_drops_equal_removing_or_keeping_the_top_words(way):
    model, batch = classifier(), texts()
    score = gradient_times_input(model, batch)
    result = probability_drops(model, batch, score, way)
    for number, i in enumerate(i for i, n in enumerate(LENGTHS) if n >= 2):
        one = row(batch, i)
        order, whole = order_of(score.values[i, 0], one), probabilities_without(model, one)
        for place, share in enumerate(SHARES):
            top = math.ceil(round(share * len(order), 9))
            without, alone = (probabilities_without(model, one, part, way) for part in (order[:top], order[top:]))
            decision = whole.argmax()
            expected = torch.stack([whole[decision] - without[decision], whole[decision] - alone[decision]])
            both = torch.stack([result.comprehensiveness[number, 0, place], result.sufficiency[number, 0, place]])
            torch.testing.assert_close(both, expected)


def keyword_classifier(flat=False):
    """Reads embeddings only: word 14 is a reason for the second class, the others are a weak one for the first.

    Attention is high on word 14, or, if `flat`, the same on all words: then it knows nothing of what decides.
    """
    model = classifier(2, attention="dot", grounding="concat", specials_attended=False)
    for parameter in model.parameters():
        parameter.data.zero_()
    table, states = model.source_inputs.table.data, model.settings.encoder_size
    table[:, 0], table[14, 0] = -0.1, 1.0
    model.output.weight.data[0, states] = 9.0
    model.attend.query.weight.data[0, states] = 0.0 if flat else 20.0
    return model


def with_one_keyword(length=20, count=8):
    torch.manual_seed(0)
    source = torch.randint(len(SPECIALS), 14, (count, length))
    source[torch.arange(count), torch.randint(length, (count,))] = 14
    target = torch.full((count, 1), len(SPECIALS) + 1)
    return Batch(source, source > 0, target, target > 0)


@pytest.mark.parametrize("way", WAYS)
def test_attention_on_the_deciding_word_flips_the_decision_at_once_and_chance_at_half(way):
    model, erase = keyword_classifier(), FlipAccumulator(way, draws=40)
    erase.update(model, with_one_keyword())
    table = erase.result().table()
    assert table.loc["attention", "fraction"] == pytest.approx(1 / 20)
    assert table.loc["attention", "flipped"] == 1
    assert table.loc["random", "fraction"] == pytest.approx((1 + 20) / 2 / 20, abs=0.06)  # its place is uniform
    assert table.loc["attention", "earlier"] == pytest.approx(1, abs=0.04)
    assert table.loc["random", "earlier"] == pytest.approx(0.5)


def test_uninformative_attention_is_no_better_than_chance():
    model, erase = keyword_classifier(flat=True), FlipAccumulator("text", draws=20)
    model.source_inputs.table.data[:14, 0] = -0.01
    erase.update(model, with_one_keyword(count=60))
    table = erase.result().table()
    assert table.loc["attention", "fraction"] == pytest.approx(table.loc["random", "fraction"], abs=0.1)
    assert table.loc["attention", "earlier"] == pytest.approx(0.5, abs=0.1)


def test_comprehensiveness_is_high_and_sufficiency_low_where_the_top_word_decides():
    model, comprehend = keyword_classifier(), ComprehensivenessAccumulator(draws=10)
    comprehend.update(model, with_one_keyword())
    table = comprehend.result().table()
    assert table.loc["attention", "comprehensiveness"] > 0.5 > table.loc["random", "comprehensiveness"]
    assert table.loc["attention", "sufficiency"] < 0.05 < table.loc["random", "sufficiency"]


def test_any_score_may_be_compared_as_scores_or_as_a_tensor():
    model, batch = classifier(), texts()
    erase = FlipAccumulator(draws=2)
    erase.update(model, batch, {"gradient": gradient_times_input(model, batch), "mine": random_score(batch, 9)})
    assert list(erase.result().table().index) == ["attention", "gradient", "mine", "random"]


def test_a_grid_has_steps_of_one_word_and_then_even_steps():
    counts = RemovalGrid().counts(torch.tensor([2, 51, 101, 801]))
    assert counts[0].tolist() == [1] + [0] * 99
    assert counts[1].tolist() == [*range(1, 51)] + [0] * 50
    assert counts[2].tolist() == [*range(1, 101)]
    assert counts[3].tolist() == [*range(1, 51), *range(65, 801, 15)]
    fine = RemovalGrid(exact=0, steps=10).counts(torch.tensor([26]))
    assert fine.tolist() == [[3, 5, 8, 10, 13, 15, 18, 20, 23, 25]]


def test_a_coarse_grid_finds_a_flip_no_earlier_than_a_fine_one():
    model, batch = classifier(seed=2), texts((30, 28, 25), seed=3)
    score = random_score(batch, 1)
    fine, coarse = (
        erase_until_flip(model, batch, score, "text", grid) for grid in (RemovalGrid(), RemovalGrid(exact=2, steps=5))
    )
    assert (coarse.fraction >= fine.fraction).all()


@pytest.mark.parametrize("ask", [erase_until_flip, probability_drops])
@pytest.mark.parametrize("way", WAYS)
def test_results_do_not_depend_on_batch_padding_or_labels(ask, way):
    model, batch = classifier(), texts()
    whole = ask(model, batch, random_score(batch, 3), way)
    wide = replace(batch.widened(20, 1), target=torch.full_like(batch.target, len(SPECIALS)))
    padded = ask(model, wide, random_score(wide, 3), way)
    singles = [ask(model, one, random_score(one, 3), way) for one in (row(batch, i) for i in range(len(batch)))]
    for name in vars(whole):
        expected = getattr(whole, name)
        torch.testing.assert_close(getattr(padded, name), expected)
        torch.testing.assert_close(torch.cat([getattr(single, name) for single in singles]), expected)


@pytest.mark.parametrize("kind", [FlipAccumulator, ComprehensivenessAccumulator])
def test_two_halves_merged_are_the_whole_and_short_texts_are_counted(kind):
    model, batch = classifier(), texts()
    whole, one, other = kind(draws=3), kind(draws=3), kind(draws=3)
    whole.update(model, batch)
    half = {name: value.split(3) for name, value in batch.tensors().items()}
    for part, gathered in enumerate((one, other)):
        gathered.update(model, Batch(**{name: values[part] for name, values in half.items()}))
    one.merge(other)
    pd.testing.assert_frame_equal(one.result().table(), whole.result().table())
    assert (whole.result().texts, whole.result().left_out) == (5, 1)
    assert one.result().left_out == 1


def test_the_model_is_left_as_it_was():
    model, batch = classifier(dropout=0.5, layers=2), texts()
    model.train()
    model.output.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for way in WAYS:
        erase_until_flip(model, batch, random_score(batch, 0), way)
        probability_drops(model, batch, random_score(batch, 0), way)
    assert model.training
    assert not model.output.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_ties_are_broken_at_random_per_text_with_padding_last():
    batch = texts((40, 40))
    words = batch.source >= len(SPECIALS)
    places = rank_by_score(torch.zeros(batch.source.shape), words, random_score(batch, 0))
    assert not torch.equal(places[0], places[1])
    assert not torch.equal(places[0].argsort(), torch.arange(42))
    assert (places[~words] >= 40).all()


def test_random_scores_are_uniform_and_differ_by_text_and_seed():
    batch = texts((200,) * 50)
    scores = random_score(batch, 0)
    assert float(scores.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(scores.var()) == pytest.approx(1 / 12, abs=0.005)
    assert abs(float(torch.corrcoef(torch.stack([scores.flatten(), random_score(batch, 1).flatten()]))[0, 1])) < 0.03
    assert abs(float(torch.corrcoef(scores[:2])[0, 1])) < 0.3


def test_remaining_words_without_weight_get_uniform_attention():
    """All attention on one word: without it, nothing is left to renormalise."""
    model, batch = keyword_classifier(), with_one_keyword()
    model.attend.query.weight.data.mul_(1e5)
    result = erase_until_flip(model, batch, attention_scores(model(batch)).values[:, 0], "attention")
    assert result.fraction.tolist() == [[1 / 20]] * 8
    assert result.mass.tolist() == [[1.0]] * 8


@pytest.mark.parametrize("kind", [FlipAccumulator, ComprehensivenessAccumulator])
def test_results_have_figures(kind):
    accumulator = kind(draws=2)
    accumulator.update(classifier(), texts())
    ax = accumulator.result().plot()
    assert ax.get_ylabel()
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FlipAccumulator("words"), "no way to remove tokens 'words'; choose one of attention, text"),
        (lambda: FlipAccumulator(draws=0), "chance needs at least one random score"),
        (lambda: ComprehensivenessAccumulator(shares=(0.1, 1.5)), "shares lie between 0 and 1"),
        (lambda: RemovalGrid(-1, 5), "cannot be negative"),
        (
            lambda: FlipAccumulator().update(classifier(), texts(), {"random": torch.zeros(6, 14)}),
            "give yours another one",
        ),
    ],
)
def test_invalid_settings_are_refused_with_a_message(make, message):
    with pytest.raises(BadSetting, match=message):
        make()


def test_scores_that_do_not_fit_are_refused_with_a_sentence():
    model, batch = classifier(), texts()
    with pytest.raises(AttnscopeError, match=r"with one decision each, need \(6, 1, 14\)"):
        erase_until_flip(model, batch, torch.zeros(6, 3))
    with pytest.raises(AttnscopeError, match="the score is NaN at a word of a text"):
        erase_until_flip(model, batch, torch.full((6, 14), torch.nan))
    with pytest.raises(AttnscopeError, match="there is no data yet"):
        FlipAccumulator().result()
    erase = FlipAccumulator(draws=1)
    erase.update(model, texts((1, 1)))
    with pytest.raises(AttnscopeError, match="all 2 texts were left out"):
        erase.result()


def test_without_a_positive_score_the_values_equal_those_of_ferret():
    model, batch = classifier(), texts()
    result = probability_drops(model, batch, -1 - random_score(batch, 1), "text", PRESETS["ferret"])
    assert (result.comprehensiveness.nanmean(2) == 0).all()
    assert (result.sufficiency.nanmean(2) == 1).all()


def test_of_a_model_without_a_tokenizer_tokens_are_deleted():
    model, batch = classifier(), texts()
    ways = [
        probability_drops(model, batch, random_score(batch, 1), way, PRESETS["ferret"])
        for way in ("text", "retokenised text")
    ]
    torch.testing.assert_close(ways[0].comprehensiveness, ways[1].comprehensiveness, equal_nan=True)
    assert not ways[0].comprehensiveness[:, :, -1].isnan().all()  # words but one are removed
