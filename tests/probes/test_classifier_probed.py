"""Task, classifier, training and probes together: a classifier that has to find a keyword attends to it."""

from dataclasses import replace

import pytest
import torch

from attnscope.models import ClassifierSettings, build
from attnscope.probes.agreement import AgreementAccumulator
from attnscope.probes.lexical import batch_lexical_scores
from attnscope.probes.saliency import influence, leave_one_out
from attnscope.probes.scores import attention_scores
from attnscope.tasks import Keyword
from attnscope.training import TrainingSettings, evaluate, fit

TASK = Keyword(num_words=12, length=8, test_size=200)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    settings = ClassifierSettings(input_size=16, units=16, hidden=16)
    model = build(settings, len(TASK.source_vocabulary), len(TASK.target_vocabulary))
    fit(model, TASK, settings=TrainingSettings(steps=300, batch_size=32, learning_rate=5e-3, evaluate_every=300))
    return model.eval()


@pytest.fixture
def positives():
    batch = next(TASK.batches("test", 200))
    rows = batch.gold_attention[:, 0] >= 0
    return replace(batch, **{name: tensor[rows] for name, tensor in batch.tensors().items()})


@pytest.mark.slow
def test_it_learns_to_find_the_keyword(trained):
    assert evaluate(trained, TASK.batches("test"))["word_accuracy"] > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("method", [influence, leave_one_out])
def test_the_keyword_is_the_most_salient_word(trained, positives, method):
    most = method(trained, positives).values.nan_to_num(-torch.inf)[:, 0].argmax(-1)
    assert (most == positives.gold_attention[:, 0]).float().mean() > 0.9


@pytest.mark.slow
def test_attention_and_lexical_probe_agree_better_than_chance(trained, positives):
    agree = AgreementAccumulator()
    with torch.no_grad():
        attention = attention_scores(trained(positives)).values
    agree.update(attention, batch_lexical_scores(trained, positives).values, positives)
    result = agree.result()
    assert result.top > 2 * result.chance
