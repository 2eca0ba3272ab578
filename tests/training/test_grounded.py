"""Objectives that keep a state close to its word, and one that hides the words that are used (tutek2020 §3.1)."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cosine_similarity

from attnscope.errors import BadSetting
from attnscope.models import PRESETS, ClassifierSettings, build
from attnscope.tasks import Copying, Keyword
from attnscope.training import Conicity, CrossEntropy, Hiding, MaskedWords, TrainingSettings, Tying, evaluate, fit
from attnscope.training.fit import TrainingRun, run_to_end
from attnscope.training.replicas import fit_together

TASK = Keyword(num_words=20, length=12, test_size=100)
SETTINGS = ClassifierSettings(input_size=12, units=6, hidden=8, attention="additive")


def network(settings=SETTINGS, seed=0):
    torch.manual_seed(seed)
    return build(settings, len(TASK.source_vocabulary), len(TASK.target_vocabulary))


@pytest.fixture
def batch():
    batch = TASK.training_batch(0, 0, 5)
    mask = batch.source_mask.clone()
    mask[0, 6:] = False
    return replace(batch, source_mask=mask, source=batch.source * mask)


def test_tying_is_the_mean_squared_distance_over_real_words(batch):
    model = network()
    trace = model(batch)
    apart = (trace.encoder - trace.embedded)[batch.source_mask]
    torch.testing.assert_close(Tying(10.0)(model, batch, trace), 10 * apart.square().sum(-1).mean())
    torch.testing.assert_close(Tying(10.0, squared=False)(model, batch, trace), 10 * apart.norm(dim=-1).mean())
    torch.testing.assert_close(Tying(10.0, per_dimension=True)(model, batch, trace), 10 * apart.square().mean())


def test_a_state_equal_to_its_word_has_zero_loss_and_finite_gradients(batch):
    model = network()
    trace = model(batch)
    same = replace(trace, encoder=trace.embedded)
    price = Tying(1.0, squared=False)(model, batch, same)
    price.backward()
    assert price < 1e-5
    assert torch.isfinite(model.source_inputs.table.grad).all()


def test_conicity_is_one_for_equal_states(batch):
    model = network()
    trace = model(batch)
    equal = replace(trace, encoder=torch.ones_like(trace.encoder) * 3)
    assert Conicity(2.0)(model, batch, equal).item() == pytest.approx(2.0)
    row = trace.encoder[0, :6]
    own = cosine_similarity(row, row.mean(0, keepdim=True)).mean()
    one = replace(batch, **{name: tensor[:1] for name, tensor in batch.tensors().items()})
    torch.testing.assert_close(Conicity(1.0)(model, one, model(one)), own)


def test_the_hiding_loss_penalises_attention_to_the_named_words(batch):
    model = network()
    trace = model(batch)
    word = int(batch.source[1, 2])
    shown = (trace.attention[:, 0, 0] * (batch.source == word)).sum(-1)
    torch.testing.assert_close(Hiding(3.0, (word,))(model, batch, trace), -3 * (1 - shown).log().mean())
    assert torch.isfinite(Hiding(1.0, tuple(range(40)))(model, batch, trace))


def test_masked_words_are_predicted_by_a_frozen_table(batch):
    model = network()
    price = MaskedWords(2.0)(model, batch, model(batch))
    price.backward()
    words = len(TASK.source_vocabulary)
    assert 0 < price.item() < 2 * 5 * math.log(words)
    assert all(torch.isfinite(p.grad).all() for p in model.encoder.parameters())
    blind = MaskedWords(2.0, p=0.999)
    torch.manual_seed(1)
    assert torch.isfinite(blind(model, batch, model(batch)))


def test_without_masked_words_the_loss_is_zero():
    """A share as small as this chooses no word: the loss is zero, not NaN."""
    model, batch = network(), TASK.training_batch(0, 0, 2)
    assert MaskedWords(1.0, p=1e-9)(model, batch, model(batch)).item() == 0


@pytest.mark.slow
def test_masked_words_can_be_learnt_where_context_tells_them():
    """Copying sentences of one word: what is hidden stands beside itself."""

    class Repeated(Keyword):
        def training_batch(self, seed, step, size):
            batch = super().training_batch(seed, step, size)
            first = batch.source[:, :1].expand_as(batch.source)
            return replace(batch, source=torch.where(batch.source_mask & (batch.source > 2), first, batch.source))

    model, task = network(), Repeated(num_words=20, length=12, test_size=50)
    batch = task.training_batch(1, 0, 50)
    before = MaskedWords(1.0)(model, batch, model(batch)).item()
    settings = TrainingSettings(steps=200, batch_size=32, learning_rate=1e-2, evaluate_every=200)
    fit(model, task, MaskedWords(1.0), settings)
    assert MaskedWords(1.0)(model, batch, model(batch)).item() < before / 2


@pytest.mark.slow
def test_tying_moves_states_towards_their_words_and_the_task_is_still_learnt():
    settings = TrainingSettings(steps=400, batch_size=32, learning_rate=1e-2, evaluate_every=400)
    free, tied = network(), network()
    fit(free, TASK, CrossEntropy(), settings)
    fit(tied, TASK, CrossEntropy() + Tying(1.0), settings)
    batch = next(TASK.batches("test"))
    apart = [Tying(1.0)(model, batch, model(batch)).item() for model in (free, tied)]
    assert apart[1] < apart[0] / 3
    assert evaluate(tied, TASK.batches("test"))["word_accuracy"] > 0.95


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        (Tying(1.0), {}),
        (MaskedWords(1.0), {"trained": "all but words"}),
        (Conicity(0.5), {"weight_decay": 1e-3, "amsgrad": True}),
        (Hiding(1.0, (3, 4)), {}),
    ],
    ids=lambda objective: type(objective).__name__,
)
@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_many_seeds_as_one_model_learn_the_same(objective, settings, attention):
    training = TrainingSettings(steps=8, batch_size=6, learning_rate=5e-3, evaluate_every=4, **settings)

    def new_run(seed):
        model = network(replace(SETTINGS, attention=attention, grounding="residual"), seed)
        return TrainingRun(model, TASK, CrossEntropy() + objective, training, seed, None, {})

    alone, together = [run_to_end(new_run(seed)) for seed in (0, 4)], [new_run(seed) for seed in (0, 4)]
    fit_together(together)
    for one, other in zip(alone, together, strict=True):
        for (name, expected), value in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5, msg=name)


def test_words_that_are_not_trained_stay_as_they_were():
    model = network()
    before = model.source_inputs.table.detach().clone()
    fit(model, TASK, settings=TrainingSettings(steps=3, evaluate_every=3, batch_size=4, trained="all but words"))
    assert torch.equal(model.source_inputs.table, before)


def test_models_that_tying_and_masking_do_not_fit_are_refused(batch):
    wide = network(ClassifierSettings(input_size=12, units=7, hidden=8))
    for objective in (Tying(1.0), MaskedWords(1.0)):
        with pytest.raises(BadSetting, match="states have 14 dimensions and words 12"):
            objective(wide, batch, wide(batch))
    copying = Copying(num_words=6, length=5, test_size=20)
    other_batch = copying.training_batch(0, 0, 2)
    other = build(PRESETS["copying"], len(copying.source_vocabulary), len(copying.target_vocabulary))
    with pytest.raises(BadSetting, match="need a classifier"):
        MaskedWords(1.0)(other, other_batch, other(other_batch))
    with pytest.raises(BadSetting, match="between 0 and 1"):
        MaskedWords(1.0, p=1.0)
