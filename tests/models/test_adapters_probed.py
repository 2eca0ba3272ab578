"""Every probe runs on a Hugging Face model as on one of ours."""

import pytest
import torch
from adapter_examples import adapter, texts

from attnscope.models import uniform
from attnscope.probes.agreement import AgreementAccumulator
from attnscope.probes.counterfactual import CounterfactualAttention
from attnscope.probes.erasure import ComprehensivenessAccumulator
from attnscope.probes.fragility import fragility
from attnscope.probes.lexical import batch_lexical_scores, log_odds
from attnscope.probes.saliency import METHODS, influence
from attnscope.probes.scores import attention_scores
from attnscope.tasks import SPECIALS
from attnscope.training.evaluation import decide

KINDS = ("marian", "t5", "bert", "roberta")


@pytest.mark.parametrize("kind", KINDS)
def test_the_lexical_probe_is_a_pass_with_all_attention_of_the_last_layer_on_one_word(kind):
    model = adapter(kind)
    batch = texts(model).batch
    probe = batch_lexical_scores(model, batch)
    for place in (0, 1):
        alone = torch.zeros(batch.source.shape).index_fill(1, torch.tensor([place]), 1.0)
        with torch.no_grad():
            trace = model(batch, attention=lambda weights, mask, alone=alone: alone[:, None, None].expand_as(weights))
        expected = log_odds(trace.logits[batch.target_mask], batch.target[batch.target_mask])
        torch.testing.assert_close(probe.log_odds[:, :, place][batch.target_mask], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_saliency_reaches_the_source_and_leaves_the_model_as_it_was(kind, method):
    model = adapter(kind)
    batch = texts(model).batch
    result = METHODS[method](model, batch)
    between = batch.target_mask[:, :, None] & batch.source_mask[:, None]
    assert (result.values[between].nan_to_num() != 0).any()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_influence_is_the_derivative_with_respect_to_the_size_of_a_word():
    model = adapter("bert").double()
    batch = texts(model).batch
    result = influence(model, batch)
    step = 1e-5

    def probability(scale):
        def change(_, inputs, embedded):
            factor = torch.ones(embedded.shape[:2], dtype=torch.float64).index_fill(1, torch.tensor([1]), scale)
            return embedded * factor[..., None]

        handle = model.source_inputs.register_forward_hook(change)
        try:
            with torch.no_grad():
                return model(batch).logits.log_softmax(-1).gather(-1, batch.target[..., None])[:, 0, 0]
        finally:
            handle.remove()

    expected = (probability(1 + step) - probability(1 - step)) / (2 * step)
    torch.testing.assert_close(result.values[:, 0, 1], expected, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_the_decision_of_a_classifier_follows_other_attention():
    model = adapter("distilbert")
    batch = texts(model).batch
    result = fragility(model, [batch], draws=2)
    expected = model(batch, attention=uniform).logits[:, 0, len(SPECIALS) :].double().softmax(-1)
    torch.testing.assert_close(torch.from_numpy(result.uniform.probabilities), expected, rtol=1e-5, atol=1e-6)
    assert decide(model, [batch]).probabilities.shape == (len(batch), 3)
    reading = CounterfactualAttention.of_classifier(model, batch)
    torch.testing.assert_close(reading.logits(reading.trace.attention), reading.trace.logits)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_counterfactual_logits_of_the_last_layer_equal_a_forward_pass(kind):
    model = adapter(kind)
    batch = texts(model).batch
    trace = model(batch)
    random = torch.rand(3, *trace.attention.shape) * batch.source_mask[:, None, None]
    weights = random / random.sum(-1, keepdim=True)
    assert model.readout_is_exact
    expected = torch.stack([model(batch, attention=one).logits for one in weights])
    result = CounterfactualAttention.of(model, batch).read_out(weights)
    torch.testing.assert_close(result[:, batch.target_mask], expected[:, batch.target_mask], rtol=1e-5, atol=1e-5)


def test_words_are_erased_and_special_tokens_are_not():
    model = adapter("bert")
    batch = texts(model).batch
    assert not batch.word_mask[:, 0].any()  # [CLS]
    probe = ComprehensivenessAccumulator(draws=1)
    probe.update(model, batch)
    assert probe.result().texts > 0


@torch.no_grad()
def test_agreement_can_leave_out_special_tokens():
    model = adapter("bart")
    batch = texts(model).batch
    scores = attention_scores(model(batch)).values
    agree = AgreementAccumulator(source_specials=False, target_specials=False)
    agree.update(scores, scores, batch)
    assert agree.result().words == int((batch.target_mask & (batch.target >= len(SPECIALS))).sum())
    assert agree.result().top == pytest.approx(1.0)
