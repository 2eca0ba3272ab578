"""The optimal attention against the paper's counter-example, scipy, and the loss of the model under it."""

import numpy as np
import pytest
import torch
from lexical_examples import Added, Classifier, Proxy, encoder_decoder, labelled, one_by_one, random_batch, wider
from scipy.optimize import minimize

from attnscope import plots
from attnscope.errors import AttnscopeError
from attnscope.models import ATTENTIONS
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.optimal import minimise, one_head, solve_optimal_attention

BATCH = random_batch(3, seed=3, longest=5)


def problem(places, gold=0, held=None):
    """One output word."""
    places = torch.as_tensor(places).double()[None]
    held = torch.zeros(1, 1, places.shape[-1]) if held is None else torch.as_tensor(held)[None, None]
    return one_head(places, held.double(), torch.tensor([[gold]]), torch.ones(1, places.shape[1], dtype=torch.bool))


def solved(instance, **options):
    weights, gap = minimise(instance, torch.ones_like(instance.gold, dtype=torch.bool), **options)
    return weights, gap


def test_the_papers_counter_example():
    """Eq. 28 to 30: the position with the largest β gets no weight at all."""
    instance = problem([[0.0, 0, 0], [0, -10, 5], [0, 5, -10]])
    beta = instance.places[0].softmax(-1)[:, 0]
    assert beta.argmax() == 0
    assert beta[0] == pytest.approx(1 / 3)
    assert beta[1:].tolist() == pytest.approx([np.exp(-5)] * 2, rel=0.01)
    weights, gap = solved(instance, tolerance=1e-9)
    assert weights[0, 0].tolist() == pytest.approx([0, 0.5, 0.5], abs=1e-7)
    assert instance.loss(weights).item() == pytest.approx(np.log(1 + 2 * np.exp(-2.5)))
    assert gap.item() <= 1e-9


def by_scipy(instance):
    """The same problem by sequential quadratic programming, from the same start."""
    places, held, gold = instance.places[0].numpy(), instance.fixed[0, 0].numpy(), int(instance.gold)

    def loss(weights):
        logits = weights @ places + held
        return np.logaddexp.reduce(logits) - logits[gold]

    n = len(places)
    sums = {"type": "eq", "fun": lambda weights: weights.sum() - 1}
    return minimize(
        loss, np.full(n, 1 / n), bounds=[(0, 1)] * n, constraints=sums, method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    ).fun  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_its_loss_is_that_of_scipy(seed):
    random = np.random.default_rng(seed)
    places, words = random.integers(2, 8), random.integers(3, 12)
    instance = problem(random.normal(size=(places, words)) * 2, int(random.integers(words)), random.normal(size=words))
    weights, gap = solved(instance)
    assert instance.loss(weights).item() == pytest.approx(by_scipy(instance), abs=2e-6)
    assert gap.item() <= 1e-6


@pytest.mark.parametrize("scale", [0.01, 1, 20, 100])
def test_the_duality_gap_closes_at_any_scale_and_bounds_the_excess_loss(scale):
    torch.manual_seed(0)
    mask = torch.arange(9) < torch.randint(1, 10, (6, 1))
    places, fixed = scale * torch.randn(6, 9, 30), scale * torch.randn(6, 4, 30)
    instance = one_head(places, fixed, torch.randint(0, 30, (6, 4)), mask)
    exact, gap = solved(instance, tolerance=1e-9)
    assert (gap <= 1e-9).all()
    torch.testing.assert_close(exact.sum(-1), torch.ones(6, 4).double())
    assert (exact.masked_select(~mask[:, None]) == 0).all()
    rough, wide = solved(instance, tolerance=0.1)
    excess = instance.loss(rough) - instance.loss(exact)
    assert (excess <= wide + 1e-9).all()
    assert (wide <= 0.1).all()


def test_with_two_output_words_all_weight_goes_to_the_largest_beta():
    """Then the loss falls with the mean log-odds alone (eq. 12)."""
    torch.manual_seed(1)
    model, batch = Classifier(classes=2).eval(), labelled(BATCH, classes=2)
    trace = model(batch)
    best = lexical_scores(model, trace).values.nan_to_num(-torch.inf).argmax(-1)
    result = solve_optimal_attention(model, trace)
    torch.testing.assert_close(result.weights[:, 0].argmax(-1), best)
    torch.testing.assert_close(result.weights.amax((1, 3)), torch.ones(3, 1).double(), atol=1e-4, rtol=0)


def test_equal_words_share_the_weight():
    weights, _ = solved(problem([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]), tolerance=1e-9)
    assert weights[0, 0].tolist() == pytest.approx([0.5, 0.5, 0], abs=1e-6)


@pytest.mark.parametrize("model", [Added(), *(encoder_decoder(attention=name) for name in ATTENTIONS)])
def test_optimal_attention_has_the_reported_loss_and_no_other_has_less(model):
    trace = model(BATCH)
    result = solve_optimal_attention(model, trace)
    mask = BATCH.target_mask
    log_probabilities = model(BATCH, attention=result.weights).logits.log_softmax(-1)
    loss = -log_probabilities.gather(-1, BATCH.target[..., None])[..., 0]
    torch.testing.assert_close(result.loss[mask], loss[mask])
    own = -trace.logits.log_softmax(-1).gather(-1, BATCH.target[..., None])[..., 0]
    torch.testing.assert_close(result.own_loss[mask], own[mask])
    assert (result.gap[mask] <= 1e-6).all()
    torch.manual_seed(0)
    for _ in range(20):
        other = torch.rand(result.weights.shape).double() ** 4 * BATCH.source_mask[:, None, None]
        logits = model(BATCH, attention=other / other.sum(-1, keepdim=True)).logits.log_softmax(-1)
        tried = -logits.gather(-1, BATCH.target[..., None])[..., 0]
        assert (result.loss[mask] <= tried[mask] + 1e-6).all()


def test_several_heads_are_optimised_together():
    model = encoder_decoder(attention="query_key_value", heads=2)
    trace = model(BATCH)
    result = solve_optimal_attention(model, trace)
    mask = BATCH.target_mask
    torch.testing.assert_close(result.weights.sum(-1), torch.ones_like(result.weights[..., 0]))
    logits = model(BATCH, attention=result.weights).logits
    gold = logits.log_softmax(-1).gather(-1, BATCH.target[..., None])[..., 0]
    torch.testing.assert_close(result.loss[mask], -gold[mask])
    assert (result.gap[mask] <= 1e-6).all()
    assert (result.loss[mask] <= result.own_loss[mask] + 1e-6).all()


def test_the_proxy_without_a_decoder_has_an_optimal_attention():
    model = Proxy()
    result = solve_optimal_attention(model, model(BATCH))
    assert (result.gap[BATCH.target_mask] <= 1e-6).all()


def test_a_batch_equals_its_sentences_one_by_one_and_padding_changes_nothing():
    model = Added()
    whole = solve_optimal_attention(model, model(BATCH))
    for i, alone in enumerate(one_by_one(BATCH)):
        one = solve_optimal_attention(model, model(alone))
        torch.testing.assert_close(whole.loss[i, : one.loss.shape[1]], one.loss[0], atol=2e-6, rtol=0)
    more = solve_optimal_attention(model, model(wider(BATCH)))
    mask = BATCH.target_mask
    torch.testing.assert_close(more.loss[:, : mask.shape[1]][mask], whole.loss[mask], atol=2e-6, rtol=0)
    assert (more.weights[..., BATCH.source.shape[1] :] == 0).all()
    chunked = solve_optimal_attention(model, model(BATCH), max_elements=1)
    torch.testing.assert_close(chunked.loss[mask], whole.loss[mask], atol=2e-6, rtol=0)


class Hidden(Added):
    """A hidden layer, as N has (snell2021 eq. 2)."""

    def readout(self, context, decoder):
        return self.output((context + decoder).relu())


def test_a_readout_that_is_not_linear_is_refused():
    model = Hidden()
    with pytest.raises(AttnscopeError, match="linear in the context"):
        solve_optimal_attention(model, model(BATCH))


def test_the_model_is_left_as_it_was():
    model = Added()
    trace = model.eval()(BATCH)
    model.train()
    result = solve_optimal_attention(model, trace)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not result.weights.requires_grad


def test_it_has_a_table_and_a_figure():
    model = Added()
    result = solve_optimal_attention(model, model(BATCH))
    table = result.table()
    assert len(table) == int(BATCH.target_mask.sum())
    assert (table["loss"] <= table["own loss"] + 1e-6).all()
    _, (ax,) = plots.panels()
    assert result.plot(ax).get_title() == "optimal attention"
