"""Saliency against finite differences, closed forms and sentences written out without the word."""

from dataclasses import replace

import pytest
import torch
from decomposition_examples import Tiny
from lexical_examples import WORDS, Added, Classifier, Proxy, encoder_decoder, labelled, one_by_one, random_batch, wider

from attnscope import plots
from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models.capabilities import EmbedsSource, needs
from attnscope.probes.saliency import (
    METHODS,
    gold_log_probability,
    gradient_norm,
    gradient_times_input,
    influence,
    integrated_gradients,
    leave_one_out,
    with_embeddings,
)
from attnscope.tasks.batch import PAD

BATCH = random_batch(3, seed=2, longest=4)
MODELS = {
    "gru": lambda: encoder_decoder(),
    "lstm, context to the input": lambda: encoder_decoder(cell="lstm", context="input"),
    "ugrnn, two heads": lambda: encoder_decoder(cell="ugrnn", heads=2, attention="query_key_value"),
    "classifier": Classifier,
    "shared embeddings": Added,
    "proxy": Proxy,
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]().eval()


def batch_for(model):
    return labelled(BATCH) if isinstance(model, Classifier) else BATCH


def real(found):
    return found.values[found.target_mask[:, :, None] & found.source_mask[:, None]]


@torch.no_grad()
def output_when(model, batch, change):
    with with_embeddings(model, batch, change):
        return gold_log_probability(model(batch))


def test_influence_is_the_finite_difference_of_a_scale_on_each_embedding(model):
    batch, step = batch_for(model), 1e-5
    result = influence(model, batch)
    for place in range(batch.source.shape[1]):
        scale = torch.zeros(batch.source.shape[1], 1).double()
        scale[place] = step
        up, down = (output_when(model, batch, lambda e, s=sign * scale: e * (1 + s)) for sign in (1, -1))
        both = batch.target_mask & batch.source_mask[:, place, None]
        torch.testing.assert_close(
            result.values[..., place][both], ((up - down) / (2 * step))[both], atol=1e-8, rtol=1e-6
        )


def test_gradient_times_input_is_the_same_number_by_another_route(model):
    batch = batch_for(model)
    torch.testing.assert_close(real(gradient_times_input(model, batch)), real(influence(model, batch)))


def test_the_gradient_norm_is_that_of_finite_differences():
    model, step = MODELS["gru"](), 1e-5
    result = gradient_norm(model, BATCH)
    squares = torch.zeros_like(result.values)
    for place in range(BATCH.source.shape[1]):
        for part in range(model.source_inputs.size):
            shift = torch.zeros(BATCH.source.shape[1], model.source_inputs.size).double()
            shift[place, part] = step
            up, down = (output_when(model, BATCH, lambda e, s=sign * shift: e + s) for sign in (1, -1))
            squares[..., place] += ((up - down) / (2 * step)) ** 2
    mask = BATCH.target_mask[:, :, None] & BATCH.source_mask[:, None]
    torch.testing.assert_close(result.values[mask], squares.sqrt()[mask], atol=1e-7, rtol=1e-5)


def test_of_the_proxy_influence_and_norm_have_a_closed_form():
    """d log p_y / d e_l = (W_y − Σ_o p_o W_o) / L (snell2021 eq. 44)."""
    model = Proxy()
    slopes, norms = influence(model, BATCH), gradient_norm(model, BATCH)
    weight = model.output.weight.detach()
    p = model(BATCH).logits.softmax(-1).detach()
    for b, t, place in (BATCH.target_mask[:, :, None] & BATCH.source_mask[:, None]).nonzero().tolist():
        gradient = (weight[BATCH.target[b, t]] - p[b, t] @ weight) / BATCH.source_mask[b].sum()
        embedding = model.source_inputs.weight.detach()[BATCH.source[b, place]]
        torch.testing.assert_close(slopes.values[b, t, place], gradient @ embedding)
        torch.testing.assert_close(norms.values[b, t, place], gradient.norm())


def copying_proxy():
    """Each word predicts itself."""
    model = Proxy(units=WORDS)
    with torch.no_grad():
        model.source_inputs.weight.copy_(torch.eye(WORDS))
        model.output.weight.copy_(3 * torch.eye(WORDS))
    return model


@pytest.mark.parametrize("method", [name for name in METHODS if name != "gradient_norm"])
def test_influence_has_the_sign_of_the_change_of_the_gold_output(method):
    batch = replace(
        BATCH, source=torch.tensor([[3, 4, 5]]), source_mask=torch.ones(1, 3, dtype=torch.bool),
        target=torch.tensor([[4]]), target_mask=torch.ones(1, 1, dtype=torch.bool), gold_attention=None,
    )  # fmt: skip
    result = METHODS[method](copying_proxy(), batch)
    assert result.values[0, 0].sign().tolist() == [-1, 1, -1]
    assert result.lowering.values[0, 0].sign().tolist() == [1, -1, 1]
    assert result.lowering.name == f"{result.name}, sign reversed"


@pytest.mark.parametrize("name", ["gru", "classifier", "shared embeddings"])
def test_leave_one_out_equals_the_sentence_without_the_word(name):
    model = MODELS[name]().eval()
    batch = batch_for(model)
    result = leave_one_out(model, batch)
    assert result.name == "leave-one-out, word dropped"
    for b, alone in enumerate(one_by_one(batch)):
        whole = gold_log_probability(model(alone))[0]
        for place in range(alone.source.shape[1]):
            keep = [i for i in range(alone.source.shape[1]) if i != place]
            less = replace(alone, source=alone.source[:, keep], source_mask=alone.source_mask[:, keep])
            change = whole - gold_log_probability(model(less))[0]
            torch.testing.assert_close(result.values[b, : len(change), place], change)


def test_a_zeroed_embedding_is_the_word_replaced_by_one_whose_embedding_is_zero():
    model = Added()
    with torch.no_grad():
        model.source_inputs.weight[PAD] = 0
    result = leave_one_out(model, BATCH, how="zero")
    assert result.name == "leave-one-out, embedding zeroed"
    whole = gold_log_probability(model(BATCH))
    for place in range(BATCH.source.shape[1]):
        source = BATCH.source.clone()
        source[:, place] = PAD
        change = whole - gold_log_probability(model(replace(BATCH, source=source)))
        both = BATCH.target_mask & BATCH.source_mask[:, place, None]
        torch.testing.assert_close(result.values[..., place][both], change[both])


def test_the_only_word_of_a_sentence_has_no_leave_one_out_value():
    mask = torch.tensor([[True, False], [True, True]])
    batch = replace(
        BATCH, source=torch.tensor([[3, PAD], [4, 5]]), source_mask=mask, target=BATCH.target[:2],
        target_mask=BATCH.target_mask[:2], gold_attention=None,
    )  # fmt: skip
    values = leave_one_out(encoder_decoder(), batch).values
    assert values[0].isnan().all()
    assert not values[1][batch.target_mask[1]].isnan().any()
    alone = one_by_one(batch)[0]
    assert leave_one_out(encoder_decoder(), alone).values.isnan().all()


def test_integrated_gradients_sum_to_the_difference_from_the_blank_sentence(model):
    batch = batch_for(model)
    result = integrated_gradients(model, batch)
    whole, blank = (output_when(model, batch, lambda e, s=scale: e * s) for scale in (1.0, 0.0))
    summed = result.values.nansum(-1)
    torch.testing.assert_close(summed[batch.target_mask], (whole - blank)[batch.target_mask], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        result.missed[batch.target_mask], (whole - blank - summed)[batch.target_mask], atol=1e-12, rtol=0
    )


def test_integrated_gradients_of_a_linear_output_are_its_gradient_times_the_way_from_the_baseline():
    model, baseline = Proxy(), torch.randn(5).double()
    result = integrated_gradients(model, BATCH, of=lambda trace: trace.logits[..., 3], baseline=baseline, points=2)
    share = model.output.weight[3].detach() / BATCH.source_mask.sum(1)[:, None]  # batch x input
    way = model.source_inputs(BATCH.source).detach() - baseline
    expected = (way * share[:, None]).sum(-1)[:, None].expand_as(result.values)
    mask = BATCH.target_mask[:, :, None] & BATCH.source_mask[:, None]
    torch.testing.assert_close(result.values[mask], expected[mask])


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_equals_its_sentences_one_by_one_and_padding_changes_nothing(method):
    model = encoder_decoder()
    whole = METHODS[method](model, BATCH)
    for i, alone in enumerate(one_by_one(BATCH)):
        one = METHODS[method](model, alone).values[0]
        torch.testing.assert_close(whole.values[i, : one.shape[0], : one.shape[1]], one, equal_nan=True)
    torch.testing.assert_close(real(METHODS[method](model, wider(BATCH))), real(whole))


def state_of(model):
    modes = {name: module.training for name, module in model.named_modules()}
    hooks = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    gradients = [parameter.grad for parameter in model.parameters()]
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    return modes, hooks, gradients, weights, torch.backends.cudnn.enabled, torch.is_grad_enabled()


@pytest.mark.parametrize("method", METHODS)
def test_the_model_runs_in_evaluation_mode_and_is_left_unchanged(method):
    model, batch = Classifier().train(), labelled(BATCH)
    model.output.eval()
    before = state_of(model)
    result = METHODS[method](model, batch)
    torch.testing.assert_close(real(METHODS[method](model, batch)), real(result))  # dropout was off
    assert str(state_of(model)) == str(before)
    assert not result.values.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_the_model_is_left_as_it_was_after_an_error_too(method):
    model, batch = Classifier().train(), labelled(BATCH)
    before = state_of(model)

    def fail(trace):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        METHODS[method](model, batch, of=fail)
    assert str(state_of(model)) == str(before)


def test_embeddings_of_the_target_pass_untouched_where_both_sides_share_a_table():
    model = Added()
    outputs = output_when(model, BATCH, lambda e: e * 0)
    with torch.no_grad():
        states, _ = model.encoder(torch.zeros_like(model(BATCH).embedded))
        trace = model(BATCH)
    weights = (trace.decoder @ states.mT).masked_fill(~BATCH.source_mask[:, None], -torch.inf).softmax(-1)
    logits = model.output(weights @ states + trace.decoder).log_softmax(-1)
    torch.testing.assert_close(outputs, logits.gather(-1, BATCH.target[..., None])[..., 0].detach())


def test_a_model_without_accessible_embeddings_is_refused():
    model = encoder_decoder()
    copied = replace(BATCH, source=BATCH.source.clone())
    with (
        pytest.raises(AttnscopeError, match=r"did not call source_inputs\(batch.source\)"),
        with_embeddings(model, BATCH, lambda e: e),
    ):
        model(copied)
    with pytest.raises(AttnscopeError, match="saliency needs a model that shows its source embedding"):
        needs(Tiny(), EmbedsSource, by="saliency")


def test_an_unknown_kind_of_leave_one_out_is_refused():
    with pytest.raises(BadSetting, match="no way to leave a word out 'mask'; choose one of drop, zero"):
        leave_one_out(encoder_decoder(), BATCH, how="mask")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", METHODS)
def test_recurrent_models_are_differentiated_in_evaluation_mode_on_a_gpu_too(method):
    model = encoder_decoder(cell="lstm")
    here = METHODS[method](model, BATCH)
    there = METHODS[method](model.cuda(), BATCH.to("cuda"))
    torch.testing.assert_close(there.values.cpu(), here.values, equal_nan=True, atol=1e-6, rtol=1e-5)


def test_it_has_a_table_and_a_figure():
    result = influence(encoder_decoder(), BATCH)
    assert result.table(1).shape == (int(BATCH.target_mask[1].sum()), int(BATCH.source_mask[1].sum()))
    _, (ax,) = plots.panels()
    assert result.plot(ax).get_title() == "influence Δ"
