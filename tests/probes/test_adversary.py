"""Adversaries: a forward pass confirms feasible attention, and no attention is farther than the exact one."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lexical_examples import encoder_decoder, random_batch
from reweighing_examples import ByHand, Closed, by_hand, classifier, texts
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr

from attnscope import plots
from attnscope.errors import BadSetting
from attnscope.models import ClassifierSettings, build
from attnscope.probes.adversary import (
    Adversaries,
    ImitationLoss,
    SearchSettings,
    exact_adversaries,
    exact_adversaries_in_batch,
    imitation,
    search_adversaries,
    search_adversaries_in_batch,
    train_adversary,
)
from attnscope.probes.counterfactual import class_probabilities
from attnscope.probes.divergences import jsd, kl, tvd
from attnscope.tasks import Keyword
from attnscope.training import TrainingSettings

BATCH = texts()
SHORT = SearchSettings(steps=60, restarts=3, learning_rate=0.1)
LN2 = math.log(2)


def distributions(rows=50, positions=6, seed=0):
    """Some entries are exactly zero."""
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.full(positions, 0.5), rows) * (random.random((rows, positions)) < 0.6)
    weights[:, 0] += 1e-3
    return torch.from_numpy(weights / weights.sum(1, keepdims=True))


def one_by_one(batch):
    return [batch.rows(slice(i, i + 1)) for i in range(len(batch))]


def moved(model, batch, weights):
    """TVD between the predictions with these weights, by a forward pass, and with the model's own."""
    with torch.no_grad():
        other, own = model(batch, attention=weights[:, :, None]), model(batch)
    return tvd(class_probabilities(other.logits), class_probabilities(own.logits))


def test_divergences_are_those_of_scipy():
    p, q = distributions(seed=0), distributions(seed=1)
    np.testing.assert_allclose(jsd(p, q), jensenshannon(p, q, axis=1) ** 2, atol=1e-12)
    even = torch.full_like(q, 1 / 6)
    np.testing.assert_allclose(kl(p, even), rel_entr(p, even).sum(1), atol=1e-12)
    np.testing.assert_allclose(tvd(p, q), [(a - b).clamp(min=0).sum() for a, b in zip(p, q, strict=True)])


@given(st.integers(0, 10_000), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_jsd_is_symmetric_and_at_most_ln_2(seed, positions):
    p, q = distributions(5, positions, seed), distributions(5, positions, seed + 1)
    torch.testing.assert_close(jsd(p, q), jsd(q, p))
    assert (jsd(p, q) <= LN2).all()
    assert (jsd(p, q) >= 0).all()
    torch.testing.assert_close(jsd(p, p), torch.zeros(5).double())


def test_attentions_that_share_no_position_are_ln_2_apart():
    p, q = torch.eye(3)[0], torch.tensor([0.0, 0.25, 0.75])
    assert jsd(p, q).item() == pytest.approx(LN2)
    assert tvd(p, q).item() == pytest.approx(1)


@pytest.mark.parametrize("divergence", [jsd, kl])
def test_zeros_have_finite_gradients(divergence):
    scores = torch.randn(4, 6).double()
    scores[:, 4:] = -math.inf
    scores[0, 0] = -1000  # a weight that underflows to zero
    scores.requires_grad_()
    q = distributions(4)
    (slope,) = torch.autograd.grad(divergence(scores.softmax(-1), q).sum(), scores)
    assert slope.isfinite().all()
    inner = torch.rand(3, 5).double().add(0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: divergence(p.softmax(-1), q[:3, :5] + 0.1), inner)


@pytest.mark.parametrize("divergence", [jsd, kl])
def test_positions_outside_the_mask_are_ignored(divergence):
    p, q = distributions(seed=0), distributions(seed=1)
    mask = torch.arange(9) < 6
    wide = [torch.cat([one, torch.rand(50, 3).double()], 1) for one in (p, q)]
    torch.testing.assert_close(divergence(*wide, mask), divergence(p, q))


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("grounding", ["none", "residual"])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_forward_pass_confirms_feasible_attention(classes, grounding, precision):
    model = classifier(classes=classes, grounding=grounding, attention="dot").to(precision)
    batch = texts(20, classes=classes)
    result = search_adversaries_in_batch(model, batch, SHORT)
    assert result.feasible.any()
    assert (moved(model, batch, result.weights) <= 0.01).all()
    torch.testing.assert_close(moved(model, batch, result.weights), result.tvd, atol=1e-6, rtol=0)
    own = model(batch).attention[:, :, 0].detach()
    torch.testing.assert_close(jsd(result.weights.double(), own.double())[:, 0], result.jsd)
    torch.testing.assert_close(result.weights.sum(-1), torch.ones_like(result.weights[..., 0]))
    assert (result.weights[:, 0][~(batch.source_mask & (batch.source > 2))] == 0).all()
    torch.testing.assert_close(result.highest.to(own), own.amax(-1)[:, 0])


@pytest.mark.parametrize(
    "model",
    [
        Closed(classifier()),
        ByHand(
            [0.0] * 27, np.random.default_rng(0).normal(size=(27, 3)).tolist(), [[1.0, 0, 0], [0, 2, 1]], torch.tanh
        ),
        ByHand([0.0] * 27, np.random.default_rng(0).normal(size=(27, 3)).tolist(), [[1.0, 0, 0], [0, 2, 1]], heads=2),
    ],
    ids=["no second door", "bent readout", "two heads"],
)
def test_any_classifier_can_be_searched(model):
    result = search_adversaries_in_batch(model, BATCH, SHORT)
    assert result.feasible.any()
    assert (result.jsd[result.feasible] > 0.05).any()
    assert (moved(model, BATCH, result.weights) <= 0.01).all()


def test_without_a_readout_a_model_gives_the_same_result():
    model = classifier()
    result, slow = (
        search_adversaries_in_batch(model, BATCH, SHORT),
        search_adversaries_in_batch(Closed(model), BATCH, SHORT),
    )
    assert torch.equal(result.feasible, slow.feasible)
    torch.testing.assert_close(result.jsd, slow.jsd, atol=1e-6, rtol=0)


def test_if_the_output_ignores_attention_the_search_reaches_almost_the_maximum():
    model = ByHand([6.0, *[0.0] * 11], [[1.0]] * 12, [[-1.0], [1.0]])
    batch = by_hand(range(12), [0, 3, 4, 5, 6, 7, 8])
    assert (search_adversaries_in_batch(model, batch).jsd > 0.9 * LN2).all()
    assert (exact_adversaries_in_batch(model, batch).jsd > 0.98 * LN2).all()


def test_if_the_output_follows_attention_the_search_cannot_move():
    """Two words, one for each class: any shift of attention is one of the output."""
    model = ByHand([1.0, 0.0], [[2.0], [-2.0]], [[-1.0], [1.0]])
    batch = by_hand([0, 1])
    for result in (search_adversaries_in_batch(model, batch), exact_adversaries_in_batch(model, batch)):
        assert result.jsd.item() < 1e-4
        assert result.tvd.item() <= 0.01


def test_without_feasible_attention_the_models_own_is_returned():
    model = ByHand([40.0, 0.0, 0.0], [[9.0], [-9.0], [-9.0]], [[-1.0], [1.0]])
    result = search_adversaries_in_batch(model, by_hand([0, 1, 2]), SearchSettings(steps=1, noise=0, epsilon=1e-4))
    assert not result.feasible.any()
    assert result.jsd.item() == result.tvd.item() == 0
    torch.testing.assert_close(result.weights[0, 0], torch.tensor([1.0, 0, 0]).double())


def test_the_farthest_attention_over_two_words_has_a_closed_form():
    """p = σ(2α), and the bound of p that can be reached farther from its own is that below."""
    model = ByHand([math.log(4), 0.0], [[1.0], [0.0]], [[-1.0], [1.0]])  # its own attention: 4/5 and 1/5
    p = 1 / (1 + math.exp(-1.6))
    ends = [math.log(q / (1 - q)) / 2 for q in (p - 0.1, p + 0.1)]
    own = torch.tensor([0.8, 0.2]).double()
    feasible = [torch.tensor([a, 1 - a]).double() for a in (ends[0], min(ends[1], 1.0))]
    expected = max(jsd(one, own).item() for one in feasible)
    assert exact_adversaries_in_batch(model, by_hand([0, 1]), 0.1).jsd.item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_farthest_attention_equals_a_grid_search(seed):
    random = np.random.default_rng(seed)
    model = ByHand(
        random.normal(size=4).tolist(), random.normal(size=(4, 2)).tolist(), random.normal(size=(2, 2)).tolist()
    )
    batch = by_hand([0, 1, 2, 3])
    steps = 40
    three = np.array([row for row in product(range(steps + 1), repeat=3) if sum(row) <= steps])
    grid = np.column_stack([three, steps - three.sum(1)]) / steps
    weights = torch.from_numpy(grid)[:, None]
    everywhere = by_hand(*[[0, 1, 2, 3]] * len(grid))
    feasible = moved(model, everywhere, weights) <= 0.05
    best = jsd(weights[:, 0], model(batch).attention[0, 0].detach())[feasible].max().item()
    exact = exact_adversaries_in_batch(model, batch, 0.05).jsd.item()
    assert best <= exact + 1e-9
    assert exact - best < 0.05


@pytest.mark.parametrize("sharp", [1.0, 4.0])
def test_no_search_exceeds_the_farthest_attention(sharp):
    model, batch = classifier(sharp=sharp), texts(30, seed=5)
    result, limit = search_adversaries(model, [batch], SHORT), exact_adversaries(model, [batch])
    assert limit.feasible.all()
    assert (result.jsd <= limit.jsd + 1e-4).all()
    assert (moved(model, batch, exact_adversaries_in_batch(model, batch).weights) <= 0.01).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_batch_equals_its_texts_one_by_one(classes):
    model, batch = classifier(classes=classes), texts(6, classes=classes)
    whole = search_adversaries(model, [batch.widened(20, 1)], SHORT)
    alone = search_adversaries(model, one_by_one(batch), SHORT)
    np.testing.assert_allclose(alone.by_text().astype(float), whole.by_text().astype(float), atol=1e-6)
    if classes == 2:
        whole, alone = exact_adversaries(model, [batch.widened(20, 1)]), exact_adversaries(model, one_by_one(batch))
        np.testing.assert_allclose(alone.by_text().astype(float), whole.by_text().astype(float), atol=1e-9)


def test_the_model_is_left_as_it_was_even_where_gradients_are_off():
    model = classifier(dropout=0.5, layers=2).train()
    model.output.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        first = search_adversaries(model, [BATCH], SHORT)
    np.testing.assert_array_equal(first.jsd, search_adversaries(model, [BATCH], SHORT).jsd)
    search_adversaries(Closed(model), [BATCH], SearchSettings(steps=3))
    exact_adversaries(model, [BATCH])
    assert model.training
    assert not model.output.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_more_restarts_are_never_worse():
    few, more = (
        search_adversaries(classifier(), [BATCH], SearchSettings(steps=20, restarts=n, learning_rate=0.1))
        for n in (1, 4)
    )
    assert (more.jsd >= few.jsd - 1e-12).all()


def test_adversaries_have_a_figure_and_a_table():
    random = np.random.default_rng(0)
    adversaries = Adversaries(
        random.random(40) * LN2, random.random(40) / 100, random.random(40) > 0.1, random.random(40), 0.01
    )
    assert adversaries.summary()["jsd"] == pytest.approx(adversaries.jsd.mean())
    _, (left, middle, right) = plots.panels(1, 3)
    assert len(adversaries.plot(left).get_xticks()) == 4
    assert sum(bar.get_height() for bar in adversaries.plot(middle, by="texts").patches) == 40
    alike = Adversaries(np.zeros(2), np.zeros(2), np.zeros(2) > 0, np.array([0.1, 1.0]), 0.01)
    assert alike.plot(right) is right
    with pytest.raises(BadSetting, match="highest, texts"):
        adversaries.plot(left, by="words")


def test_models_that_cannot_be_searched_are_refused():
    with pytest.raises(BadSetting, match="epsilon must be positive"):
        SearchSettings(epsilon=0)
    with pytest.raises(BadSetting, match="at least one batch"):
        search_adversaries(classifier(), [])
    with pytest.raises(BadSetting, match="decisions of a classifier"):
        search_adversaries(encoder_decoder(), [random_batch(4, seed=1, longest=4)])
    with pytest.raises(BadSetting, match="two classes"):
        exact_adversaries(classifier(classes=3), [texts(classes=3)])


def test_imitation_equals_explicit_loops_and_is_perfect_for_the_model_itself():
    base, other = classifier(seed=0), classifier(seed=1)
    same = imitation(base, base, [BATCH])
    assert same.summary() == pytest.approx({"jsd": 0, "kl": 0, "tvd": 0, "changed": 0}, abs=1e-12)
    comparison = imitation(base, other, one_by_one(BATCH))
    for i, text in enumerate(one_by_one(BATCH)):
        a, b = (model(text).attention[0, 0, 0].detach() for model in (other, base))
        p, q = (class_probabilities(model(text).logits)[0].detach() for model in (other, base))
        assert comparison.jsd[i] == pytest.approx(jensenshannon(a, b) ** 2)
        assert comparison.tvd[i] == pytest.approx((p[1] - q[1]).abs().item())
        assert comparison.changed[i] == float(p.argmax() != q.argmax())
        inner = b > 0
        assert comparison.kl[i] == pytest.approx(rel_entr(a[inner], b[inner]).sum())
    assert comparison.by_text().shape == (len(BATCH), 4)
    assert comparison.plot(plots.panels()[1][0]).get_xlabel().startswith("JSD")


@pytest.mark.parametrize("divergence", ["jsd", "kl"])
def test_the_loss_is_equation_6_with_finite_gradients_on_padded_texts(divergence):
    base, fresh = classifier(seed=0), classifier(seed=1)
    price = ImitationLoss(base, 0.3, divergence)(fresh, BATCH, fresh(BATCH))
    comparison = imitation(base, fresh, [BATCH])
    assert price.item() == pytest.approx((comparison.tvd - 0.3 * getattr(comparison, divergence)).mean())
    price.backward()
    slopes = [parameter.grad for parameter in fresh.parameters() if parameter.grad is not None]
    assert slopes
    assert all(slope.isfinite().all() for slope in slopes)
    assert all(parameter.grad is None for parameter in base.parameters())


@pytest.fixture(scope="module")
def imitated():
    """A classifier that has learned the keyword, and adversaries of two weights λ."""
    from attnscope.training import fit

    task = Keyword(num_words=6, length=5, test_size=60)
    chosen = TrainingSettings(steps=100, batch_size=16, learning_rate=2e-2, evaluate_every=100)
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(build(ClassifierSettings(input_size=8, units=8, hidden=8), 9, 5))
    base, *adversaries = models
    fit(base, task, settings=chosen)
    before = {name: value.clone() for name, value in base.state_dict().items()}
    base.train()
    logs = [
        train_adversary(base, fresh, task, weight, settings=chosen).log
        for fresh, weight in zip(adversaries, (0.0, 1.0), strict=True)
    ]
    assert base.training
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())
    return task, base, adversaries, logs


@pytest.mark.slow
def test_a_trained_adversary_attends_elsewhere_and_the_log_shows_it(imitated):
    task, base, adversaries, logs = imitated
    faithful, hostile = (imitation(base, one, task.batches("test")).summary() for one in adversaries)
    assert faithful["tvd"] < 0.1
    assert hostile["jsd"] > faithful["jsd"] + 0.1
    shown = imitation(base, adversaries[1], task.batches("validation")).summary()
    assert logs[1][-1]["imitation.jsd"] == pytest.approx(shown["jsd"])
    assert logs[1][-1]["imitation.tvd"] == pytest.approx(shown["tvd"])


@pytest.mark.slow
def test_the_best_weights_have_the_lowest_validation_loss(imitated):
    task, base, _, _ = imitated
    torch.manual_seed(3)
    fresh = build(ClassifierSettings(input_size=8, units=8, hidden=8), 9, 5)
    chosen = TrainingSettings(steps=40, batch_size=8, learning_rate=5e-2, evaluate_every=5, keep_weights="best")
    log = train_adversary(base, fresh, task, 2.0, "kl", chosen).log
    prices = [row["imitation.tvd"] - 2 * row["imitation.kl"] for row in log]
    summary = imitation(base, fresh, task.batches("validation")).summary()
    assert summary["tvd"] - 2 * summary["kl"] == pytest.approx(min(prices))


def test_invalid_settings_of_an_adversary_are_refused():
    base, task = classifier(), Keyword(num_words=6, length=5)
    with pytest.raises(BadSetting, match="fresh model"):
        train_adversary(base, base, task, 1.0)
    with pytest.raises(BadSetting, match="jsd, kl"):
        ImitationLoss(base, 1.0, "hellinger")
    with pytest.raises(BadSetting, match="must not be negative"):
        ImitationLoss(base, -1.0)
    with pytest.raises(BadSetting, match="not by gold classes"):
        train_adversary(base, classifier(), task, 1.0, settings=TrainingSettings(best_metric="word_accuracy"))
    with pytest.raises(BadSetting, match="same architecture"):
        imitation(base, classifier(classes=3), [BATCH])
