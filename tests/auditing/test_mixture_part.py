"""Mixtures of heads as a part of an audit: of models whose deciding head is known by construction."""

from dataclasses import replace

import pytest
import torch

from attnscope.auditing import Settings, audit
from attnscope.faithfulness import evidence
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.models.attention import intervene, masked_softmax
from attnscope.models.inputs import Inputs
from attnscope.models.loaded import LoadedModel
from auditing.known_answers import OneHead, honest, marked_examples


class ThreeHeads(OneHead):
    """Head 0 attends to the word that decides and is read out; the others attend to the first other word."""

    def forward(self, batch, attention=None, teacher_forcing=1.0, gates=False):
        one = super().forward(batch)
        telling = one.embedded.abs().mT[:, None]
        elsewhere = -20 * telling - 3.0 * torch.arange(telling.shape[-1])
        scores = torch.cat([5 * telling, elsewhere, elsewhere], 1)  # batch x heads x 1 x source
        weights = intervene(masked_softmax(scores, batch.source_mask), batch.source_mask, attention)
        layer = replace(one.last, values=one.last.values.expand(-1, 3, -1, -1), scores=scores, weights=weights)
        context = self.context_of(weights @ layer.values)
        return replace(one, layers=(layer,), context=context, logits=self.readout(context))


def test_the_head_that_decides_is_found_and_the_mean_is_not_enough():
    result = audit(ThreeHeads(honest=True), marked_examples(120), settings=Settings(quick=True)).parts["mixture"]
    mean, best, mixture = result.table
    assert best["score"] == "best of 3 heads (layer 0, head 0)"
    assert best["agreement"] > 0.95
    assert mixture["agreement"] > 0.95
    assert best["agreement would be"] == mixture["agreement would be"] == "yes"
    assert mean["agreement"] < 0
    assert mean["agreement would be"] == "no"
    assert mean["texts"] == best["texts"] <= 60  # the half that nothing was learned from
    assert "layer 0, head 0" in result.sentences[0]


def test_agreement_of_the_last_layer_is_that_of_the_verdict_on_the_same_texts():
    module = ThreeHeads(honest=True)
    model = LoadedModel(module, module.reader, "three heads")
    subject = Subject(model, Inputs.of(model, marked_examples(60), needs_targets=True))
    sample = Sample(subject, 60, quick=True)
    result = evidence.head_mixture(model, sample)
    everything = replace(result, test_keys=all_keys(sample))
    agreement = evidence.mixture_agreements(subject, sample, everything)["mean of the last layer"]
    tests = audit(model, marked_examples(60), settings=Settings(quick=True)).tests
    test = next(test for test in tests if test.name == "agreement")
    assert agreement.value == pytest.approx(test.value, abs=1e-6)


def all_keys(sample):
    return torch.cat([evidence.removal_keys(texts.batch, sample.seed) for texts in sample.texts()]).numpy()


def test_a_model_with_one_head_has_no_mixture():
    assert "mixture" not in audit(honest(), marked_examples(20), settings=Settings(quick=True)).parts
