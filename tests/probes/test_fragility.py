"""Decisions under other attention: `readout` equals a forward pass, and permutations depend on texts alone."""

from itertools import permutations

import numpy as np
import pytest
import torch
from lexical_examples import encoder_decoder, random_batch
from reweighing_examples import FIRST, ByHand, Closed, by_hand, classifier, texts

from attnscope import plots
from attnscope.errors import BadSetting
from attnscope.models import BagOfWords, BagOfWordsSettings, uniform
from attnscope.probes.counterfactual import CounterfactualAttention, random_keys
from attnscope.probes.fragility import FragilityAccumulator, fragility, permute_attention
from attnscope.training import Decisions, decide

BATCH = texts()


def any_weights(trace, draws=3, seed=0):
    torch.manual_seed(seed)
    scores = torch.randn(draws, *trace.attention.shape).to(trace.attention)
    return scores.masked_fill(~trace.source_mask[:, None, None], -torch.inf).softmax(-1)


def bag_of_words():
    torch.manual_seed(0)
    return BagOfWords(BagOfWordsSettings(size=4), 30, 5).double()


def in_parts(batch, size):
    return [batch.rows(slice(start, start + size)) for start in range(0, len(batch), size)]


MODELS = {
    "additive": (classifier(), BATCH),
    "dot": (classifier(attention="dot", classes=4), texts(classes=4)),
    "concat": (classifier(grounding="concat"), BATCH),
    "two heads": (
        ByHand([0.0, 1, 2], [[1.0, 0], [0, 2], [1, 1]], [[1.0, 0], [0, 1]], heads=2),
        by_hand([0, 1, 2], [2]),
    ),
    "bag of words": (bag_of_words(), BATCH),
    "no second door": (Closed(classifier()), BATCH),
    "encoder-decoder": (encoder_decoder(), random_batch(4, seed=1, longest=4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_counterfactual_outputs_equal_a_forward_pass_with_these_weights(name):
    model, batch = MODELS[name]
    counterfactual = CounterfactualAttention.of(model, batch)
    weights = any_weights(counterfactual.trace)
    for cells in (1, 1000, 1 << 24):
        logits = counterfactual.logits(weights, max_elements=cells)
        for one, sample in zip(logits, weights, strict=True):
            torch.testing.assert_close(one, model(batch, attention=sample).logits)
    torch.testing.assert_close(counterfactual.logits(weights[0]), logits[0])
    torch.testing.assert_close(counterfactual.logits(weights[None]), logits[None])


@pytest.mark.parametrize("name", MODELS)
def test_its_gradients_are_those_of_a_forward_pass(name):
    model, batch = MODELS[name]
    counterfactual = CounterfactualAttention.of(model, batch)
    weights = any_weights(counterfactual.trace, draws=1)[0].requires_grad_()
    for logits in (counterfactual.logits(weights), model(batch, attention=weights).logits):
        part = logits[..., FIRST:].log_softmax(-1)[..., 0].sum()
        weights.grad, before = torch.autograd.grad(part, weights)[0], weights.grad
    torch.testing.assert_close(weights.grad, before)
    assert not counterfactual.logits(weights.detach()).requires_grad


def test_the_encoder_runs_once():
    model, passes = classifier(), []
    model.encoder.register_forward_hook(lambda *_: passes.append(1))
    read = model.encoder.read
    model.encoder.read = lambda *args, **more: (passes.append(1), read(*args, **more))[1]
    fragility(model, [BATCH], draws=7)
    assert len(passes) == 1


def test_only_linear_readouts_are_recognised_as_linear():
    for model in (classifier(), classifier(classes=4), bag_of_words()):
        assert CounterfactualAttention.of_classifier(model, BATCH).contributions is not None
    states, output = [[1.0, 0], [0, 2], [1, 1]], [[1.0, 0], [0, 1]]
    one_sided = ByHand([100.0, 0, -100], states, output, bend=torch.tanh)  # all attention is on one position
    assert CounterfactualAttention.of_classifier(one_sided, by_hand([0, 1, 2], [2, 0])).contributions is None
    assert CounterfactualAttention.of_classifier(Closed(classifier()), BATCH).contributions is None


def test_weights_of_another_shape_are_refused():
    model = classifier()
    counterfactual = CounterfactualAttention.of(model, BATCH)
    with pytest.raises(BadSetting, match="do not fit this pass"):
        counterfactual.logits(counterfactual.trace.attention[..., :-1])


@pytest.mark.parametrize("specials", [True, False])
def test_a_shuffle_moves_weights_among_attended_words_only(specials):
    model = classifier(specials_attended=specials)
    counterfactual = CounterfactualAttention.of_classifier(model, BATCH)
    attended = BATCH.source_mask if specials else BATCH.source_mask & (BATCH.source >= FIRST)
    assert torch.equal(counterfactual.attended, attended)
    permuted = permute_attention(counterfactual, range(20), seed=0)[:, :, 0]
    assert (permuted[:, ~attended] == 0).all()
    for row, own, mask in zip(permuted.transpose(0, 1), counterfactual.own[:, 0], attended, strict=True):
        expected = own[mask].sort().values.expand(20, -1)
        assert torch.equal(row[:, mask].sort(-1).values, expected)
        assert len(row.unique(dim=0)) > 1


def test_all_permutations_are_equally_likely():
    model = ByHand([0.0, 1, 2], [[0.0]] * 3, [[0.0], [0.0]])
    permuted = permute_attention(CounterfactualAttention.of_classifier(model, by_hand([0, 1, 2])), range(6000), seed=1)[
        :, 0, 0
    ]
    orders = permuted.argsort(-1).tolist()
    counts = np.array([orders.count(list(order)) for order in permutations(range(3))])
    assert counts.sum() == 6000
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5  # χ² of five degrees of freedom, 0.1 %


def test_permutations_differ_between_texts_samples_heads_and_seeds():
    model = ByHand([0.0, 1, 2], [[0.0]] * 3, [[0.0], [0.0]], heads=2)
    trace = model(by_hand([0, 1, 2], [0, 2, 1]))
    both = torch.stack([random_keys(trace, range(5), seed) for seed in (0, 1)])
    assert len(both.unique()) == both.numel()
    assert torch.equal(random_keys(trace, range(2, 5), 0), both[0, 2:])


@pytest.mark.parametrize("name", ["additive", "dot", "concat", "no second door"])
def test_fragility_equals_explicit_passes_with_shuffled_attention(name):
    model, batch = MODELS[name]
    result = fragility(model, in_parts(batch, 5), draws=4, seed=3)
    even = decide(model, [batch], attention=uniform)
    np.testing.assert_allclose(result.own.probabilities, decide(model, [batch]).probabilities)
    np.testing.assert_allclose(result.uniform.probabilities, even.probabilities, atol=1e-12)
    slow = [
        decide(model, [batch], attention=one)
        for one in permute_attention(CounterfactualAttention.of_classifier(model, batch), range(4), 3)[:, :, :, None]
    ]
    np.testing.assert_allclose(result.permuted, [decisions.probabilities for decisions in slow], atol=1e-12)
    losses = np.array([result.own.f1 - decisions.f1 for decisions in slow])
    assert result.losses() == pytest.approx((result.own.f1 - even.f1, losses.mean(), losses.std(ddof=1)))
    table = result.table()
    assert table.loc["permuted", "f1 loss"] == pytest.approx(losses.mean())
    assert table.loc["permuted", "f1 loss sd"] == pytest.approx(losses.std(ddof=1))
    assert table.loc["permuted", "macro f1"] == pytest.approx(np.mean([decisions.macro_f1 for decisions in slow]))
    changed = np.mean([decisions.chosen != result.own.chosen for decisions in slow])
    assert table.loc["permuted", "changed"] == pytest.approx(changed)
    assert result.losses(lambda decisions: decisions.accuracy)[0] == pytest.approx(result.own.accuracy - even.accuracy)


def test_swapping_two_weights_flips_a_decision_computed_by_hand():
    """All attention is on the good word, p = σ(2); swapped, 1 − p; evenly spread, a half."""
    model = ByHand([0.0, -1000.0], [[1.0], [-1.0]], [[-1.0], [1.0]])
    result = fragility(model, [by_hand([0, 1], [1, 0])], draws=400)
    p = 1 / (1 + np.exp(-2))
    np.testing.assert_allclose(result.own.probabilities[:, 1], p)
    np.testing.assert_allclose(result.uniform.probabilities, 0.5)
    swapped = result.permuted[:, :, 1] < 0.5
    np.testing.assert_allclose(result.changes, swapped * (2 * p - 1), atol=1e-12)
    table = result.table()
    assert table.loc["uniform", "change"] == pytest.approx(p - 0.5)
    assert table.loc["permuted", "changed"] == pytest.approx(swapped.mean())
    assert swapped.mean() == pytest.approx(0.5, abs=0.06)
    np.testing.assert_allclose(result.highest, 1)
    np.testing.assert_allclose(result.median_changes, np.median(result.changes, 0))


@pytest.mark.parametrize("classes", [2, 3])
def test_a_model_with_uniform_attention_is_not_fragile(classes):
    model, batch = classifier(classes=classes, sharp=1.0), texts(classes=classes)
    with torch.no_grad():
        model.attend.score.weight.zero_()
    table = fragility(model, [batch], draws=10).table()
    np.testing.assert_allclose(table.loc[["uniform", "permuted"], ["f1 loss", "macro f1 loss", "changed"]], 0)
    np.testing.assert_allclose(table["change"], 0, atol=1e-7)  # even weights are in single precision


@pytest.mark.parametrize("classes", [2, 5])
def test_results_do_not_depend_on_batches_padding_or_order(classes):
    model, batch = classifier(classes=classes), texts(classes=classes)
    whole = fragility(model, [batch.widened(20, 1)], draws=6)
    for size in (1, 5):
        parts = fragility(model, in_parts(batch, size), draws=6)
        np.testing.assert_allclose(parts.permuted, whole.permuted, atol=1e-12)
        np.testing.assert_allclose(parts.table(), whole.table())
    back = fragility(model, reversed(in_parts(batch, 1)), draws=6)
    np.testing.assert_allclose(back.permuted[:, ::-1], whole.permuted, atol=1e-12)


def test_results_do_not_depend_on_shuffles_per_pass():
    model = classifier()
    accumulators = [FragilityAccumulator(model, draws=7, max_weights=cells) for cells in (1, 300, 1 << 20)]
    for perturb in accumulators:
        perturb.update(BATCH)
    for perturb in accumulators[1:]:
        np.testing.assert_allclose(perturb.result().permuted, accumulators[0].result().permuted, atol=1e-12)


def test_the_model_is_left_as_it_was():
    model = classifier(dropout=0.5, layers=2).train()
    model.output.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, again = fragility(model, [BATCH], draws=3), fragility(model, [BATCH], draws=3)
    np.testing.assert_array_equal(first.permuted, again.permuted)
    assert model.training
    assert not model.output.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_invalid_requests_are_refused():
    with pytest.raises(BadSetting, match="decisions of a classifier"):
        fragility(encoder_decoder(), [random_batch(4, seed=1, longest=4)])
    with pytest.raises(BadSetting, match="at least once"):
        fragility(classifier(), [BATCH], draws=0)
    with pytest.raises(BadSetting, match="there is no text"):
        fragility(classifier(), [])


def test_it_has_a_figure_and_one_sample_has_no_spread():
    result = fragility(classifier(), [BATCH], draws=1)
    assert np.isnan(result.losses()[2])
    assert isinstance(result.own, Decisions)
    _, (left, right) = plots.panels(1, 2)
    assert len(result.plot(left).patches) == 6
    assert fragility(classifier(), [BATCH], draws=3).plot(right) is right
