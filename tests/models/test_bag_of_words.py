"""The proxy against a loop over its definition, snell2021's equations, and the count table."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from attnscope.errors import BadSetting
from attnscope.models import uniform
from attnscope.models.bag_of_words import RECIPES, BagOfWords, BagOfWordsSettings
from attnscope.models.ibm import Bags
from attnscope.tasks import Batch, OneToOne, pad
from attnscope.training import CrossEntropy, TrainingSettings, fit

SOURCE, TARGET = 11, 6  # words


def build(size=8, source_words=SOURCE, target_words=TARGET, seed=0):
    torch.manual_seed(seed)
    return BagOfWords(BagOfWordsSettings(size=size), source_words, target_words).double()


def random_batch(sentences=9, outputs=None, target_words=TARGET, seed=0):
    """Words repeat; `outputs` fixes the target length: 1 makes a classification."""
    random = np.random.default_rng(seed)
    source = [random.integers(0, SOURCE, n) for n in random.integers(1, 8, sentences)]
    lengths = random.integers(1, 7, sentences) if outputs is None else [outputs] * sentences
    return Batch(*pad(source), *pad([random.integers(0, target_words, n) for n in lengths]))


def alone(batch, row):
    """One sentence pair of a batch, without padding."""
    source, target = batch.source_mask[row], batch.target_mask[row]
    words = (batch.source[row, source], source[source], batch.target[row, target], target[target])
    return Batch(*(part[None] for part in words))


@pytest.fixture
def model():
    return build()


@pytest.fixture(params=[None, 1], ids=["translation", "classification"])
def batch(request):
    return random_batch(outputs=request.param)


def test_every_target_word_is_predicted_from_the_mean_of_the_source_words(model, batch):
    """eq. 5, word by word."""
    logits = model(batch).logits
    assert logits.shape == (*batch.target.shape, TARGET)
    for row in range(len(batch)):
        words = batch.source[row][batch.source_mask[row]]
        mean = sum(model.output.weight @ model.embedding[word] for word in words) / len(words)
        for step in range(batch.target.shape[1]):
            torch.testing.assert_close(logits[row, step], mean)


def test_attention_is_uniform_and_the_states_are_the_embeddings(model, batch):
    trace = model(batch)
    torch.testing.assert_close(trace.attention, uniform(trace.scores, batch.source_mask))
    assert (trace.scores == 0).all()
    assert trace.encoder is trace.embedded
    torch.testing.assert_close(trace.last.values[:, 0], model.embedding[batch.source])
    torch.testing.assert_close(trace.context, (trace.attention @ trace.last.values)[:, 0])
    torch.testing.assert_close(trace.context, model.context_of(trace.attention @ trace.last.values))
    torch.testing.assert_close(model.readout(trace.context, trace.decoder), trace.logits)


def test_the_readout_of_one_word_is_the_lexical_probe(model, batch):
    """eq. 6 by way of the readout, by way of eq. 13, and as the model gives it."""
    trace, table = model(batch), model.translations()
    probe = model.readout(trace.last.values[:, 0], None).softmax(-1)  # batch x source x words
    result = model.translation_probabilities(batch)
    for row in range(len(batch)):
        for t in range(batch.target.shape[1]):
            for s in range(batch.source.shape[1]):
                real = batch.target_mask[row, t] and batch.source_mask[row, s]
                expected = table[batch.source[row, s], batch.target[row, t]]
                assert result[row, t, s] == pytest.approx(expected.item() if real else 0)
                torch.testing.assert_close(probe[row, s, batch.target[row, t]], expected)


def test_attention_to_one_word_equals_the_lexical_probe(model, batch):
    first = torch.zeros(*batch.target.shape, batch.source.shape[1])
    first[:, :, 0] = 1
    probabilities = model(batch, attention=first).logits.softmax(-1).gather(-1, batch.target[..., None])[..., 0]
    torch.testing.assert_close(probabilities * batch.target_mask, model.translation_probabilities(batch)[:, :, 0])


def test_attention_may_differ_from_step_to_step(model):
    batch = random_batch()
    steps = torch.arange(batch.target.shape[1]) % int(batch.source_mask.sum(1).min())
    one_hot = torch.nn.functional.one_hot(steps, batch.source.shape[1]).expand(len(batch), -1, -1)
    context = model(batch, attention=one_hot.double()).context
    torch.testing.assert_close(context, model.embedding[batch.source[:, steps]])
    result = model(batch, attention=uniform)
    torch.testing.assert_close(result.logits, model(batch).logits)


def test_two_classes_are_a_vote_in_log_odds():
    """eq. 12: the chance of the right class from the lexical probe and the attention."""
    model, batch = build(target_words=2), random_batch(outputs=1, target_words=2)
    trace, probe = model(batch), model.translation_probabilities(batch)
    log_odds = torch.logit(probe).masked_fill(~batch.source_mask[:, None], 0)
    expected = torch.sigmoid((trace.attention[:, 0] * log_odds).sum(-1))
    torch.testing.assert_close(trace.logits.softmax(-1).gather(-1, batch.target[..., None])[..., 0], expected)


def test_total_loss_is_the_sum_over_target_words_with_its_gradients(model, batch):
    """eq. 14."""
    mask = batch.target_mask
    by_word = cross_entropy(model(batch).logits[mask], batch.target[mask], reduction="sum")
    at_once = model.total_loss(batch)
    torch.testing.assert_close(at_once, by_word)
    weights = list(model.parameters())
    for ours, theirs in zip(torch.autograd.grad(at_once, weights), torch.autograd.grad(by_word, weights), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("attention", [None, lambda weights, mask: weights**2], ids=["own", "another"])
def test_its_loss_is_that_of_its_logits(model, batch, attention):
    trace, mask = model(batch, attention=attention), batch.target_mask
    by_word = cross_entropy(trace.logits[mask], batch.target[mask], reduction="none")
    torch.testing.assert_close(CrossEntropy()(model, batch, trace), by_word.mean())
    torch.testing.assert_close(CrossEntropy(total=True)(model, batch, trace), by_word.sum())


def test_a_batch_equals_its_sentences_one_by_one_and_padding_changes_nothing(model, batch):
    together, probe = model(batch), model.translation_probabilities(batch)
    for row in range(len(batch)):
        single = alone(batch, row)
        target, source = single.target.shape[1], single.source.shape[1]
        torch.testing.assert_close(together.logits[row, :target], model(single).logits[0])
        torch.testing.assert_close(together.attention[row, :, :target, :source], model(single).attention[0])
        torch.testing.assert_close(probe[row, :target, :source], model.translation_probabilities(single)[0])
    total = sum(model.total_loss(alone(batch, row)) for row in range(len(batch)))
    torch.testing.assert_close(model.total_loss(batch), total)


def test_predictions_do_not_depend_on_the_order_of_source_words(model):
    batch = alone(random_batch(), 0)
    backwards = Batch(batch.source.flip(1), batch.source_mask, batch.target, batch.target_mask)
    torch.testing.assert_close(model(backwards).logits, model(batch).logits)


def test_predicting_leaves_the_model_unchanged(model, batch):
    model.train()
    model.translation_probabilities(batch)
    model.translations()
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_translations_of_chosen_words_are_rows_of_the_table(model):
    chosen = torch.tensor([3, 0])
    torch.testing.assert_close(model.translations(chosen), model.translations()[chosen])
    torch.testing.assert_close(model.translations().sum(-1), torch.ones(SOURCE).double())


def test_the_first_update_of_a_wide_proxy_is_the_centred_counts():
    """eq. 53: d(We)/dτ under gradient flow tends to 2 (C - mean C) as the embeddings grow wider."""
    batch = random_batch(sentences=12)
    counts = torch.from_numpy(Bags.of([batch], SOURCE, TARGET).cooccurrences().toarray())
    limit = 2 * (counts - counts.mean(1, keepdim=True))
    errors = [((flow(build(size), batch) - limit).norm() / limit.norm()).item() for size in (16, 1024, 65536)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


def flow(model, batch):
    """The time derivative of We, source words x target words."""
    model.total_loss(batch).backward()
    embedding, output = model.embedding, model.output.weight
    with torch.no_grad():
        return -(embedding.grad @ output.T + embedding @ output.grad.T)


def test_it_trains_like_any_other_model():
    task = OneToOne(min_length=2, max_length=4, test_size=20)
    torch.manual_seed(0)
    model = BagOfWords(BagOfWordsSettings(size=16), len(task.source_vocabulary), len(task.target_vocabulary))
    log = fit(model, task, settings=TrainingSettings(steps=60, batch_size=32, evaluate_every=30)).log
    assert log[-1]["loss"] < log[0]["loss"]


def test_settings_are_the_papers():
    assert BagOfWordsSettings().size == 256
    assert RECIPES["imdb"].learning_rate == 5e-5
    assert RECIPES["sst"].learning_rate == 1.5e-4
    assert (RECIPES["multi30k"].learning_rate, RECIPES["multi30k"].epochs) == (1e-3, 30)
    assert {recipe.batch_size for recipe in RECIPES.values()} == {64}


def test_initial_embeddings_have_a_length_of_about_one():
    model = BagOfWords(BagOfWordsSettings(), 400, 300)
    for rows in (model.embedding, model.output.weight):  # N(0, I / d)
        assert rows.norm(dim=1).mean().item() == pytest.approx(1, abs=0.02)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(BadSetting, match="size must be positive, not 0"):
        BagOfWordsSettings(size=0)
    with pytest.raises(BadSetting, match="there is no initialisation 'zeros'"):
        BagOfWordsSettings(initialisation="zeros")


def test_attention_of_the_wrong_shape_is_refused(model):
    with pytest.raises(BadSetting, match="attention= has shape"):
        model(random_batch(), attention=torch.ones(2, 3, 5, 4))


def test_uniform_weights_are_exact_shares_and_zero_where_the_mask_is_empty():
    mask = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    weights = uniform(torch.zeros(3, 1, 2, 3), mask)[:, 0, 0]
    assert torch.equal(weights[:2], mask[:2] / mask[:2].sum(-1, keepdim=True))
    assert weights[2].tolist() == [0, 0, 0]
