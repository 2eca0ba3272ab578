"""Models with known answers: certificates against brute force, the contract, and texts."""

from itertools import combinations, permutations

import numpy as np
import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.models.capabilities import EmbedsSource, MasksInPlace
from attnscope.testing import check_adapter
from attnscope.testing.known_answers import (
    KINDS,
    Certificate,
    certificate,
    contributions,
    known_answer,
    shapley_contributions,
)
from attnscope.testing.known_models import ResidualStream
from attnscope.testing.known_texts import MARKERS, NEUTRAL, SHORT, WORDS, Texts, sentences

EXPECTED = {
    "importance": "faithful", "learned": "faithful", "pooling": "faithful", "translator": "faithful",
    "translator-reversed": "faithful", "translator-positional": "faithful", "translator-recurrent": "faithful",
    "bilstm-0": "faithful", "transformer-0": "faithful",
    **{f"{encoder}-{share}": "grey" for encoder in ("bilstm", "transformer") for share in (10, 15, 25)},
}  # fmt: skip
ON_A_BOUND = {
    "mixed", "layers", "layers-own", "layers-own-unplaced",
    *(f"{encoder}{share}" for encoder in ("bilstm", "transformer") for share in ("", "-5", "-50")),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_models_keep_the_contract_of_an_adapter(kind):
    known = known_answer(kind, seed=1)
    check_adapter(known.model, known.batches(6, seed=0, size=3))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ON_A_BOUND])
def test_most_models_of_a_kind_have_the_certificate_that_they_were_built_for(kind):
    labels = [known_answer(kind, seed).certificate.label for seed in range(3)]
    assert labels.count(EXPECTED.get(kind, "unfaithful")) >= 2, labels


@pytest.mark.parametrize("kind", ["importance", "hiding", "skip", "displaced", "mixed", "translator-permuted"])
@torch.no_grad()
def test_contributions_are_what_replacing_one_tokens_values_by_their_means_changes(kind):
    known = known_answer(kind, seed=0)
    batch = next(known.batches(12, seed=5))
    model, result = known.model, contributions(known.model, batch)
    paths = model.paths(model.source_inputs(batch.source), batch)
    outputs = batch.target_mask & (batch.target != 1)

    def logits(values, bypassing):
        weights = paths.scores.masked_fill(~batch.source_mask[:, None], -np.inf).softmax(-1)
        return weights @ model.mix(values, batch), paths.bypass @ bypassing

    own = logits(paths.values, paths.bypassing)
    means = [each[outputs].mean(0) for each in own]
    for text, target, source in [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 0)]:
        changed = [each.clone() for each in (paths.values, paths.bypassing)]
        for each, mean in zip(changed, means, strict=True):
            each[text, source] = mean
        without = logits(*changed)
        change = sum(a[text, target] - b[text, target] for a, b in zip(own, without, strict=True))
        predicted = result.predicted[text, target]
        expected = float(change[predicted] - change.mean())
        assert float(result.total[text, target, source]) == pytest.approx(expected, abs=1e-4)


def test_contributions_sum_to_the_logit_above_its_mean():
    known = known_answer("mixed", seed=3)
    batch = next(known.batches(40, seed=5))
    result = contributions(known.model, batch)
    logits = known.model(batch).logits[:, 0, 3:].detach().double()
    centred = (logits - logits.mean(0)) - (logits - logits.mean(0)).mean(1, keepdim=True)
    predicted = centred.gather(1, result.predicted)[:, 0]
    assert torch.allclose(result.total.sum(-1)[:, 0], predicted, atol=1e-4)


def test_shapley_contributions_of_states_that_are_sums_equal_the_closed_form():
    known = known_answer("importance", seed=3, texts=SHORT)
    batch = next(known.batches(40, seed=5))
    closed, shapley = contributions(known.model, batch), shapley_contributions(known.model, batch)
    assert torch.allclose(closed.own, shapley.own, atol=1e-5)
    assert torch.allclose(closed.other, shapley.other, atol=1e-5)
    assert torch.equal(closed.predicted, shapley.predicted)


def test_shapley_contributions_of_mixed_states_differ_from_the_closed_form_by_the_mean_alone():
    known = known_answer("mixed", seed=3, texts=SHORT)
    batch = next(known.batches(40, seed=5))
    closed, shapley = contributions(known.model, batch), shapley_contributions(known.model, batch)
    for name in ("own", "other"):
        apart = getattr(closed, name) - getattr(shapley, name)
        own = closed.attention * (1 - known.model.elsewhere)
        weight = own if name == "own" else closed.attention @ mixing(known.model, batch) - own
        for label in (0, 1):
            rows = (closed.predicted == label).expand(-1, apart.shape[2]) & batch.source_mask
            means = (apart[:, 0] / weight[:, 0])[rows]
            assert float(means.std()) < 1e-4 * float(means.abs().mean())


def mixing(model, batch):
    return model.mix(torch.eye(batch.source.shape[1], dtype=torch.float64).expand(len(batch), -1, -1), batch)


@pytest.mark.parametrize("kind", ["bilstm", "transformer", "layers", "bilstm-50", "transformer-50"])
@torch.no_grad()
def test_shapley_contributions_equal_means_over_all_orders(kind):
    known = known_answer(kind, seed=0)
    batch = next(known.batches(30, seed=5))
    model, result = known.model, shapley_contributions(known.model, batch)
    embedded = model.source_inputs(batch.source)
    mean = (result.attention.float() @ embedded).mean((0, 1))
    text = int((batch.source_mask.sum(1) == 4).nonzero()[0])
    one = batch.rows(slice(text, text + 1))
    effects, orders = np.zeros((4, 4)), list(permutations(range(4)))
    for order in orders:
        given = mean.expand(1, 4, -1).clone()
        before = model.paths(given, one).values[0]
        for token in order:
            given[0, token] = embedded[text, token]
            after = model.paths(given, one).values[0]
            change = (after - before) - (after - before).mean(1, keepdim=True)
            effects[token] += change[:, result.predicted[text, 0]].numpy() / len(orders)
            before = after
    attention = result.attention[text, 0, :4].numpy()
    assert result.own[text, 0, :4].numpy() == pytest.approx(attention * np.diag(effects), abs=1e-4)
    assert result.total[text, 0, :4].numpy() == pytest.approx(effects @ attention, abs=1e-4)


@pytest.mark.parametrize("encoder", ["bilstm", "transformer"])
def test_certificates_follow_the_share_of_mixing_of_the_encoder(encoder):
    assert known_answer(f"{encoder}-0", 0).certificate.share == pytest.approx((1.0, 1.0))
    assert known_answer(f"{encoder}-100", 0).certificate.share == pytest.approx((0.0, 0.0), abs=1e-6)
    shares = [min(known_answer(f"{encoder}-{percent}", 0).certificate.share) for percent in (25, 50, 75)]
    assert 1 > shares[0] > shares[1] > shares[2] > 0


def test_in_layers_without_mixing_every_state_is_the_tokens_own():
    assert known_answer("layers-own", 0).certificate.share == pytest.approx((1.0, 1.0))
    assert max(known_answer("layers", 0).certificate.share) < 0.9


def test_a_residual_stream_holds_the_token_itself():
    with pytest.raises(BadSetting, match="depends on the token itself"):
        ResidualStream(16, others=True)


def test_exact_shapley_values_of_long_texts_are_refused():
    known = known_answer("mixed", seed=0)
    with pytest.raises(BadSetting, match="at most 8 words"):
        shapley_contributions(known.model, next(known.batches(5, seed=0)))


def test_certificate_equals_loops_over_texts_and_pairs():
    known = known_answer("skip", seed=2)
    result = contributions(known.model, next(known.batches(30, seed=1)))
    shares, agreements = [], []
    for group in (0, 1):
        texts = [b for b in range(30) if int(result.predicted[b, 0]) == group]
        own = sum(float(result.own[b, 0].abs().sum()) for b in texts)
        other = sum(float(result.other[b, 0].abs().sum()) for b in texts)
        above = below = 0.0
        for b in texts:
            size, attention = result.total[b, 0].abs().tolist(), result.attention[b, 0].tolist()
            for i, j in combinations(range(int(result.words[b].sum())), 2):
                above += (size[i] - size[j]) * np.sign(round(attention[i] - attention[j], 9))
                below += abs(size[i] - size[j])
        shares.append(own / (own + other))
        agreements.append(above / below)
    assert certificate(result).share == pytest.approx(tuple(shares))
    assert certificate(result).agreement == pytest.approx(tuple(agreements), abs=1e-3)


def test_bounds_of_a_certificate_hold_in_every_class():
    assert Certificate((0.95, 0.92), (0.8, 0.75)).label == "faithful"
    assert Certificate((0.95, 0.5), (0.8, 0.75)).label == "grey"
    assert Certificate((1.0, 1.0), (0.1, -0.4)).label == "unfaithful"
    assert Certificate((0.3, 0.1), (1.0, 1.0)).label == "unfaithful"
    assert Certificate((0.3, 1.0), (0.1, 0.9)).label == "grey"


def test_a_displaced_model_has_the_logits_of_the_original():
    known = known_answer("displaced", seed=0)
    batch = next(known.batches(50, seed=0))
    before = known.model(batch).logits
    known.model.shift = 0
    after = known.model(batch).logits
    assert torch.allclose(before[..., 3:], after[..., 3:], atol=1e-5)


def test_translators_copy_forwards_and_backwards():
    for kind in ("translator", "translator-permuted", "translator-reversed", "translator-recurrent"):
        known = known_answer(kind, seed=0)
        batch = next(known.batches(20, seed=3))
        assert (known.model(batch).predictions == batch.target)[batch.target_mask].float().mean() > 0.99
        words = batch.target[0][batch.target_mask[0]][:-1] - 3
        order = -1 if kind == "translator-reversed" else 1
        assert words.tolist() == batch.source[0][: len(words)].tolist()[::order]


def test_states_of_a_recurrent_translator_hold_their_word_and_those_before():
    model = known_answer("translator-recurrent", seed=0).model
    batch = next(known_answer("translator-recurrent", seed=0).batches(5, seed=3))
    share, length = model.memory, batch.source.shape[1]
    expected = torch.zeros(length, length)
    for t in range(length):
        for j in range(t + 1):
            expected[t, j] = share**t if j == 0 else (1 - share) * share ** (t - j)
    assert torch.allclose(mixing(model, batch).float(), expected)
    assert share > 0
    assert isinstance(model, EmbedsSource)
    assert not isinstance(model, MasksInPlace)
    assert isinstance(known_answer("translator", seed=0).model, MasksInPlace)


def test_texts_have_their_balance_and_markers_and_depend_on_the_seed():
    texts, labels = Texts(balance=0.05).sample(500, seed=0)
    assert sum(labels) == 25
    assert texts != Texts(balance=0.05).sample(500, seed=1)[0]
    assert 15 < np.mean([len(text) for text in texts]) < 23
    assert min(map(len, texts)) >= 3
    assert all(any(word not in NEUTRAL for word in text) for text in texts)
    marked, labels = Texts(classes=6, markers=True).sample(60, seed=0)
    assert np.bincount(labels).tolist() == [10] * 6
    assert all(MARKERS[label] in text for text, label in zip(marked, labels, strict=True))
    assert len(set(WORDS)) == len(WORDS)
    assert all(len(set(s)) == len(s) for s in sentences(50, seed=0))


def test_an_unknown_kind_gives_one_error_message():
    with pytest.raises(BadSetting, match="kind of model"):
        known_answer("honest", seed=0)
