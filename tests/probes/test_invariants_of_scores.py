"""What holds of every score, whatever its numbers: of agreement, alignment, saliency and plausibility.

That batches and padding change nothing, that eq. 10 sees order alone, that τ is symmetric and turns its sign with a
score: see test_agreement, test_alignment, test_saliency and test_plausibility.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lexical_examples import WORDS, Classifier, encoder_decoder, labelled, random_batch
from torch.testing import assert_close

from attnscope.models import EncoderDecoder
from attnscope.probes.agreement import (
    AgreementAccumulator,
    LearningCurve,
    chance_agreement,
    in_top,
    kendall,
    top_agreement,
)
from attnscope.probes.lexical import lexical_scores
from attnscope.probes.plausibility import average_precision, iou_f1, precision_recall_auc, rationale_mass, token_f1
from attnscope.probes.saliency import (
    gold_log_probability,
    gradient_norm,
    influence,
    integrated_gradients,
    leave_one_out,
)
from attnscope.probes.scores import attention_scores
from attnscope.probes.word_alignment import (
    AlignmentAccumulator,
    GoldAlignment,
    argmax_alignment,
    intersect_alignments,
    subword_to_word_alignment,
    threshold_alignment,
    transpose_alignment,
)

few = settings(max_examples=20, deadline=None)
SEEDS = st.integers(0, 10_000)
LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12)
BATCH = random_batch(4, seed=1, longest=4)


def scored(seed, rows=5, places=12, levels=6):
    """Two scores with many ties, and a mask with gaps that leaves two positions at least."""
    random = torch.Generator().manual_seed(seed)
    u, v = torch.randint(levels, (2, rows, places), generator=random).double()
    mask = torch.rand(rows, places, generator=random) < 0.7
    mask[:, :2] = True
    return u, v, mask


def shuffled(seed, places=12):
    return torch.randperm(places, generator=torch.Generator().manual_seed(seed))


# Agreement


@few
@given(SEEDS)
def test_tau_of_a_score_with_itself_is_one_and_only_the_order_of_the_scores_counts(seed):
    u, v, mask = scored(seed)
    own, result = kendall(u, u, mask), kendall(u, v, mask)
    assert_close(own[~own.isnan()], torch.ones_like(own[~own.isnan()]))
    assert_close(kendall(u.exp(), v**3 - 7, mask), result, equal_nan=True, rtol=0, atol=0)


@few
@given(SEEDS)
def test_agreement_does_not_depend_on_the_order_of_words_or_on_padding(seed):
    u, v, mask = scored(seed)
    order = shuffled(seed)
    noise = v + torch.where(mask, 0.0, 100.0)
    for probe in (kendall, top_agreement):
        result = probe(u, v, mask)
        assert_close(probe(u[:, order], v[:, order], mask[:, order]), result, equal_nan=True)
        assert_close(probe(u, noise, mask), result, equal_nan=True)
    assert torch.equal(in_top(v[:, order], mask[:, order]), in_top(v, mask)[:, order])


@few
@given(SEEDS, st.integers(1, 40))
def test_a_larger_top_contains_the_smaller_one_and_has_a_higher_chance(seed, one_in):
    _, v, mask = scored(seed, places=50)
    wide, narrow = in_top(v, mask, one_in), in_top(v, mask, one_in + 1)
    assert (wide | ~narrow).all()
    assert (narrow.any(1) & ~(narrow & ~mask).any(1)).all()
    assert (chance_agreement(v, mask, one_in) >= chance_agreement(v, mask, one_in + 1)).all()


@few
@given(SEEDS)
def test_the_order_of_the_sentences_does_not_matter_and_tau_does_not_mind_which_score_comes_first(seed):
    batch = random_batch(6, seed=seed, longest=5)
    u, v = torch.randn(2, *batch.target.shape, batch.source.shape[1], generator=torch.Generator().manual_seed(seed))
    accumulators = [AgreementAccumulator() for _ in range(3)]
    for i in reversed(range(6)):
        fields = {name: value for name, value in vars(batch).items() if value is not None}
        row = replace(batch, **{name: value[i : i + 1] for name, value in fields.items()})
        accumulators[0].update(u[i : i + 1], v[i : i + 1], row)
    accumulators[1].update(u, v, batch)
    accumulators[2].update(v, u, batch)
    backwards, whole, exchanged = (one.result() for one in accumulators)
    assert backwards.table().iloc[0].to_dict() == pytest.approx(whole.table().iloc[0].to_dict(), nan_ok=True)
    assert exchanged.kendall == pytest.approx(whole.kendall, nan_ok=True)


@few
@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_higher_agreement_is_not_reached_earlier(reached, one, other):
    steps = tuple(range(len(reached)))
    curve = LearningCurve(steps, tuple(reached), tuple(0.1 * step for step in steps))
    low, high = (curve.contextualise(level) for level in sorted((one, other)))
    assert low.step <= high.step
    assert low.exceeded or not high.exceeded
    assert curve.on(steps) == curve


# Alignment


def quality(links, gold):
    align = AlignmentAccumulator()
    align.update(links, gold)
    return align.result()


@few
@given(LINKS, LINKS.filter(bool), LINKS)
def test_error_rates_lie_between_0_and_1_and_are_symmetric(found, sure, possible):
    gold, turned = (
        GoldAlignment.of(sure, possible),
        GoldAlignment.of(transpose_alignment(sure), transpose_alignment(possible)),
    )
    here, there = quality(found, gold), quality(transpose_alignment(found), turned)
    assert here == there
    assert -1e-12 <= here.error_rate <= 1
    assert quality(gold.sure, gold).error_rate == quality(gold.possible, gold).error_rate == 0
    assert 0 <= here.f1 <= 1 or not found


@few
@given(LINKS, LINKS.filter(bool), LINKS)
def test_adding_a_right_link_is_never_worse_and_a_wrong_one_never_better(found, sure, possible):
    gold = GoldAlignment.of(sure, possible)
    before = quality(found, gold).error_rate
    assert all(quality(found | {link}, gold).error_rate <= before + 1e-12 for link in gold.sure)
    assert quality(found | {(9, 9)}, gold).error_rate >= before - 1e-12


@few
@given(SEEDS)
def test_links_follow_their_words_and_a_higher_threshold_links_less(seed):
    scores = torch.rand(3, 5, 12, generator=torch.Generator().manual_seed(seed))
    source, target, order = torch.ones(3, 12).bool(), torch.ones(3, 5).bool(), shuffled(seed)
    moved = argmax_alignment(scores[:, :, order], source, target)
    assert [subword_to_word_alignment(links, order.tolist(), range(5)) for links in moved] == argmax_alignment(
        scores, source, target
    )
    low, high = (threshold_alignment(scores, source, target, threshold) for threshold in (0.3, 0.7))
    assert all(more >= fewer for more, fewer in zip(low, high, strict=True))
    assert intersect_alignments(low, high) == high


# Saliency

integrated = partial(integrated_gradients, points=3)


def renumbered(model: EncoderDecoder, batch, seed):
    """The same sentences where every proper source word has another number, and its embedding with it."""
    order = torch.cat([torch.arange(3), 3 + shuffled(seed, WORDS - 3)])
    made = encoder_decoder(inputs="learned")
    made.load_state_dict(model.state_dict())
    made.source_inputs.table.data[order] = model.source_inputs.table.data
    return made, replace(batch, source=order[batch.source])


@pytest.mark.parametrize("method", [influence, gradient_norm, leave_one_out, integrated])
def test_results_do_not_depend_on_token_ids(method):
    model = encoder_decoder(inputs="learned")
    other, batch = renumbered(model, BATCH, seed=5)
    assert_close(method(other, batch).values, method(model, BATCH).values, equal_nan=True)
    assert_close(attention_scores(other(batch)).values, attention_scores(model(BATCH)).values, equal_nan=True)
    assert_close(lexical_scores(other, other(batch)).values, lexical_scores(model, model(BATCH)).values, equal_nan=True)


@pytest.mark.parametrize("method", [influence, leave_one_out, integrated])
def test_saliency_is_linear_in_the_output(method):
    model, batch = Classifier(), labelled(BATCH)
    outputs = gold_log_probability, lambda trace: trace.logits[..., 0] ** 2
    both, one, other, flat = (
        method(model, batch, of=of).values.nan_to_num()
        for of in (
            lambda trace: 2 * outputs[0](trace) - 3 * outputs[1](trace),
            *outputs,
            lambda t: 0 * t.logits[..., 0],
        )
    )
    assert_close(both, 2 * one - 3 * other)
    assert not flat.any()


def test_the_gradient_norm_ignores_signs_and_scales_with_the_output():
    model, batch = Classifier(), labelled(BATCH)
    one, minus = (gradient_norm(model, batch, of=lambda t, by=by: by * t.logits[..., 1]).values for by in (1, -3))
    assert (one[~one.isnan()] >= 0).all()
    assert_close(minus, 3 * one, equal_nan=True)


# Plausibility


@few
@given(SEEDS)
def test_plausibility_depends_on_ranks_only_and_not_on_word_order(seed):
    values, other, words = scored(seed)
    marked, order = (other > 2) & words, shuffled(seed)
    for measure in (average_precision, precision_recall_auc):
        result = measure(values, marked, words)
        real = result[marked.any(1)]
        assert ((real > 0) & (real <= 1 + 1e-12)).all()
        assert_close(measure(values.exp() * 3, marked, words), result, equal_nan=True)
        assert_close(measure(values[:, order], marked[:, order], words[:, order]), result, equal_nan=True)
    perfect = average_precision(marked.double(), marked, words), precision_recall_auc(marked.double(), marked, words)
    assert all((one[marked.any(1)] == 1).all() for one in perfect)


@few
@given(SEEDS)
def test_f1_is_symmetric_and_mass_sums_to_one(seed):
    values, other, words = scored(seed)
    one, two = (values > 2) & words, (other > 2) & words
    one[:, 0] = two[:, 1] = True
    for measure in (token_f1, iou_f1):
        result = measure(one, two)
        assert ((result >= 0) & (result <= 1)).all()
        assert_close(measure(two, one), result)
        assert (measure(one, one) == 1).all()
    parts = [rationale_mass(values + 1, marked, words) for marked in (two, ~two & words)]
    assert_close(sum(parts), torch.ones(5).double())
