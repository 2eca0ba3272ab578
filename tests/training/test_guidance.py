"""Guidance is the cross entropy between attention and gold attention, and a guided network learns to compose."""

from dataclasses import replace
from math import log

import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.lab.configuration import describe, rebuild
from attnscope.models import PRESETS, Attention, Trace, build
from attnscope.models.capabilities import GivesTrace
from attnscope.tasks import END, NOWHERE, Batch, Copying, Keyword, LookupTables
from attnscope.training import CrossEntropy, TrainingSettings, evaluate, fit
from attnscope.training.fit import TrainingRun, run_to_end
from attnscope.training.objectives import MIN_WEIGHT, Guidance, hash_uniform
from attnscope.training.replicas import fit_together

TASK = LookupTables(end=False)
# One sentence of two words and one of one; sources of three and of two words.
WEIGHTS = [
    [[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], [[0.25, 0.5, 0.25], [0.2, 0.4, 0.4]]],
    [[[0.9, 0.1, 0.0], [0.5, 0.5, 0.0]], [[0.3, 0.7, 0.0], [0.5, 0.5, 0.0]]],
]  # batch x heads x target x source


def example(weights=WEIGHTS, guide=((0, 1), (1, NOWHERE))):
    """A batch and a trace with this attention."""
    weights = torch.tensor(weights, requires_grad=True)
    source = torch.tensor([[3, 4, 1], [5, 1, 0]])
    target = torch.tensor([[3, 4], [5, 0]])
    batch = Batch(source, source > 0, target, target > 0, torch.tensor(guide))
    layer = Attention(queries=None, keys=None, values=torch.zeros(2, 2, 3, 1), scores=weights, weights=weights)
    states, context = torch.zeros(2, 3, 1), torch.zeros(2, 2, 1)
    trace = Trace(
        source=source,
        source_mask=source > 0,
        target=target,
        target_mask=target > 0,
        decoder_input=target,
        embedded=states,
        encoder=states,
        decoder=context,
        layers=(layer,),
        context=context,
        logits=torch.zeros(2, 2, 6),
    )
    return batch, trace


def loss_of(objective, batch, trace):
    return objective(torch.nn.Identity(), batch, trace).item()


def test_the_loss_is_minus_the_log_of_the_weight_at_the_gold_position():
    """The mean over two heads of each of three words: (0, 0) at 0, (0, 1) at 1, and (1, 0) at 1."""
    words = [-(log(0.5) + log(0.25)) / 2, -(log(0.8) + log(0.4)) / 2, -(log(0.1) + log(0.7)) / 2]
    batch, trace = example()
    assert loss_of(Guidance(total=True), batch, trace) == pytest.approx(sum(words))
    assert loss_of(Guidance(), batch, trace) == pytest.approx(sum(words) / 3)
    assert loss_of(Guidance(0.25), batch, trace) == pytest.approx(sum(words) / 12)


def test_words_without_gold_attention_are_ignored():
    batch, trace = example(guide=((0, NOWHERE), (NOWHERE, NOWHERE)))
    expected = -(log(0.5) + log(0.25)) / 2
    assert loss_of(Guidance(total=True), batch, trace) == pytest.approx(expected)
    assert loss_of(Guidance(), batch, trace) == pytest.approx(
        expected / 3
    )  # a mean over the same words as CrossEntropy
    batch, trace = example(guide=((NOWHERE, NOWHERE), (NOWHERE, NOWHERE)))
    assert loss_of(Guidance(), batch, trace) == 0


def test_attention_of_zero_has_a_finite_loss_and_gradient():
    batch, trace = example(guide=((0, 1), (2, NOWHERE)))  # where the second sentence has a weight of exactly zero
    loss = Guidance(total=True)(torch.nn.Identity(), batch, trace)
    loss.backward()
    words = -(log(0.5) + log(0.25)) / 2 - (log(0.8) + log(0.4)) / 2 - log(MIN_WEIGHT)
    assert loss.item() == pytest.approx(words, rel=1e-5)
    assert trace.layers[0].weights.grad.isfinite().all()


def test_guidance_can_be_added_to_any_objective():
    batch, trace = example()
    both = CrossEntropy(total=True) + Guidance(0.5, total=True)
    parts = [loss_of(objective, batch, trace) for objective in (CrossEntropy(total=True), Guidance(total=True))]
    assert loss_of(both, batch, trace) == pytest.approx(parts[0] + 0.5 * parts[1])
    assert rebuild(describe(both)) == both


@pytest.mark.parametrize("attention", ["dot", "bilinear", "query_key_value", "additive", "mlp"])
def test_it_guides_every_attention_with_any_number_of_heads(attention):
    torch.manual_seed(0)
    model = build(replace(PRESETS["aed"], units=8, attention=attention, heads=2), 19, 11)
    batch = TASK.training_batch(0, 0, 4)
    trace = model(batch)
    expected = 0.0
    for b, t in batch.target_mask.nonzero().tolist():
        expected -= sum(trace.attention[b, k, t, batch.gold_attention[b, t]].log().item() for k in range(2)) / 2
    assert loss_of(Guidance(total=True), batch, trace) == pytest.approx(expected, rel=1e-5)


def test_what_cannot_be_guided_is_refused():
    batch, trace = example()
    with pytest.raises(BadSetting, match="a task with gold attention"):
        Guidance()(torch.nn.Identity(), replace(batch, gold_attention=None), trace)
    with pytest.raises(BadSetting, match=r"a model with attention; this one has none \(attention='none'\)"):
        Guidance()(torch.nn.Identity(), batch, replace(trace, layers=()))
    with pytest.raises(BadSetting, match="the share of guided words is from 0 to 1"):
        Guidance(share=1.5)
    with pytest.raises(BadSetting, match="must not be negative"):
        Guidance(-1.0)


def all_words():
    return next(TASK.batches("all", size=576))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_share_of_the_words_is_guided(share):
    batch = all_words()
    guided = Guidance(share=share).guided_mask(batch)
    words = int(batch.target_mask.sum())
    assert not guided[~batch.target_mask].any()
    deviation = (share * (1 - share) / words) ** 0.5
    assert guided.sum().item() / words == pytest.approx(share, abs=4 * deviation + 1e-9)
    each = guided.float().sum(0) / batch.target_mask.sum(0)  # no place in the sentence is preferred
    assert each.tolist() == pytest.approx([share] * 3, abs=0.08)


def test_guided_words_of_a_smaller_share_are_a_subset_of_those_of_a_larger_one():
    batch = all_words()
    few, many = (Guidance(share=share).guided_mask(batch) for share in (0.2, 0.6))
    assert (many | ~few).all()
    assert not torch.equal(Guidance(share=0.2, seed=1).guided_mask(batch), few)


def test_which_words_are_guided_does_not_depend_on_their_batch():
    batch = all_words()
    whole = hash_uniform(batch, seed=5)
    part = TASK.part("all")
    for i in (0, 63, 64, 575):
        single = part.batch([i])
        width = single.target.shape[1]
        assert torch.equal(hash_uniform(single, seed=5)[0], whole[i, :width])
        assert torch.equal(hash_uniform(single.widened(9, 7), seed=5)[0, :width], whole[i, :width])
    assert len(whole[batch.target_mask].unique()) == batch.target_mask.sum()
    assert 0 <= whole.min() < 0.01
    assert 0.99 < whole.max() < 1


def test_many_seeds_are_guided_together_as_they_are_alone():
    task = Copying(num_words=6, length=5, test_size=20)
    settings = TrainingSettings(steps=6, batch_size=4, teacher_forcing=1.0, evaluate_every=3)
    objective = CrossEntropy() + Guidance(0.7, share=0.5)

    def new_run(seed):
        torch.manual_seed(seed)
        small = replace(PRESETS["copying"], units=12, input_size=10, hidden=9)
        return TrainingRun(build(small, 9, 9), task, objective, settings, seed, None, {})

    alone, together = ([new_run(seed) for seed in (0, 4)] for _ in range(2))
    for run in alone:
        run_to_end(run)
    fit_together(together)
    for one, other in zip(alone, together, strict=True):
        for expected, value in zip(one.model.parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)


class FixedPredictions(GivesTrace, torch.nn.Module):
    """A model with given predictions."""

    def __init__(self, words):
        super().__init__()
        self.words = torch.tensor(words)

    def forward(self, batch, teacher_forcing=None):
        logits = torch.nn.functional.one_hot(self.words, 8).float()
        states = torch.zeros(*batch.source.shape, 1)
        return Trace.of(
            batch,
            decoder_input=None,
            embedded=states,
            encoder=states,
            layers=(),
            context=None,
            logits=logits,
        )


def test_final_accuracy_is_that_of_the_last_word_before_the_end():
    target = torch.tensor([[3, 4, END, 0], [5, 6, 7, END], [3, END, 0, 0], [END, 0, 0, 0], [4, 5, 6, 7]])
    batch = Batch(target, target > 0, target, target > 0)
    predictions = [
        [7, 4, 7, 0],
        [5, 6, 3, END],
        [3, 3, 0, 0],
        [END, 0, 0, 0],
        [3, 3, 3, 7],
    ]  # right, wrong, right, right, right
    result = evaluate(FixedPredictions(predictions), [batch])
    assert result["final_accuracy"] == pytest.approx(4 / 5)
    assert result["sentence_accuracy"] == pytest.approx(1 / 5)
    assert result["word_accuracy"] == pytest.approx((1 + 3 + 1 + 1 + 1) / 14)
    one_by_one = [
        evaluate(FixedPredictions([row]), [part]) for row, part in zip(predictions, singles(batch), strict=True)
    ]
    assert sum(row["final_accuracy"] for row in one_by_one) == 4


def singles(batch):
    for i in range(len(batch)):
        rows = {name: value[i : i + 1] for name, value in batch.tensors().items()}
        yield Batch(**rows)


def test_a_class_is_its_own_last_word():
    batch = next(Keyword(num_words=4, length=3, test_size=6).batches())
    result = evaluate(FixedPredictions(batch.target.tolist()), [batch])
    assert result["final_accuracy"] == result["sentence_accuracy"] == 1


def test_a_small_guided_network_learns_to_compose_tables_of_two_bits():
    """Pairs of tables that it never saw together, with gold attention."""
    task = LookupTables(
        bits=2, tables=6, heldout_tables=1, heldout_compositions=4, heldout_inputs=1, validation=5, end=False
    )
    torch.manual_seed(0)
    # First weights of at most 0.08 suit 512 units: those of so few start larger.
    small = replace(PRESETS["lookup_tables"], units=64, target_input_size=64, initialisation="torch")
    model = build(small, len(task.source_vocabulary), len(task.target_vocabulary))
    settings = TrainingSettings(
        steps=300, batch_size=16, learning_rate=1e-2, schedule="linear", max_grad_norm=5.0, evaluate_every=300
    )
    fit(model, task, CrossEntropy() + Guidance(), settings)
    assert evaluate(model, task.batches("training"))["sentence_accuracy"] == 1
    assert evaluate(model, task.batches("heldout_compositions"))["final_accuracy"] >= 0.7  # by chance: 0.25
    batch = next(task.batches("all"))
    weight_on_gold = model(batch).attention[:, 0].gather(-1, batch.gold_attention.clamp(min=0)[..., None])[..., 0]
    assert weight_on_gold[batch.target_mask].min() > 0.9


def test_one_head_can_be_guided_and_a_shifted_guide_stays_inside_the_source():
    """The second head; then all heads, one place further, which after the last of two words is the first."""
    batch, trace = example()
    assert loss_of(Guidance(total=True, head=1), batch, trace) == pytest.approx(-log(0.25) - log(0.4) - log(0.7))
    words = [-(log(0.25) + log(0.5)) / 2, -(log(0.1) + log(0.4)) / 2, -(log(0.9) + log(0.3)) / 2]
    assert loss_of(Guidance(total=True, shift=1), batch, trace) == pytest.approx(sum(words))
    padded = batch.widened(batch.source.shape[1], batch.target.shape[1], len(batch) + 1)  # an empty sentence more
    assert torch.equal(Guidance(shift=1).places(padded)[:-1], Guidance(shift=1).places(batch))
    with pytest.raises(BadSetting, match="there is no head 2 to guide: the last layer has 2"):
        Guidance(head=2)(torch.nn.Identity(), batch, trace)
    assert describe(Guidance()) == {"kind": "guidance", "weight": 1.0, "total": False, "share": 1.0, "seed": 0}
