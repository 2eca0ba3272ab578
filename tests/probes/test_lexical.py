"""The lexical probe by `readout` equals a forward pass with all attention on one position."""

import pytest
import torch
from decomposition_examples import Tiny
from lexical_examples import (
    WORDS,
    Added,
    Classifier,
    Proxy,
    encoder_decoder,
    labelled,
    one_by_one,
    random_batch,
    wider,
)

from attnscope import plots
from attnscope.errors import AttnscopeError
from attnscope.models import ATTENTIONS, uniform
from attnscope.models.capabilities import ReadsOut, needs
from attnscope.probes.lexical import batch_lexical_scores, lexical_scores, log_odds

BATCH = random_batch(4, seed=1, longest=4)


def slow_log_odds(logits, target):
    p = logits.softmax(-1).gather(-1, target[..., None])[..., 0]
    return p.log() - (1 - p).log()


def real(probe):
    return probe.values[probe.target_mask[:, :, None] & probe.source_mask[:, None]]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("heads", [1, 2])
def test_it_is_the_prediction_with_all_attention_on_one_position(attention, heads):
    model = encoder_decoder(attention=attention, heads=heads)
    probe = lexical_scores(model, model(BATCH))
    for place in range(BATCH.source.shape[1]):
        alone = torch.zeros(4, BATCH.target.shape[1], BATCH.source.shape[1])
        alone[..., place] = 1
        expected = slow_log_odds(model(BATCH, attention=alone.double()).logits, BATCH.target)
        both = BATCH.target_mask & BATCH.source_mask[:, place, None]
        torch.testing.assert_close(probe.log_odds[..., place][both], expected[both])


@pytest.mark.parametrize("head", [0, 1])
def test_the_probe_of_one_head_keeps_the_attention_of_the_others(head):
    model = encoder_decoder(attention="query_key_value", heads=2)
    own = model(BATCH).attention
    probe = lexical_scores(model, model(BATCH), head=head)
    for place in range(BATCH.source.shape[1]):
        weights = own.clone()
        weights[:, head] = 0
        weights[:, head, :, place] = 1
        expected = slow_log_odds(model(BATCH, attention=weights).logits, BATCH.target)
        both = BATCH.target_mask & BATCH.source_mask[:, place, None]
        torch.testing.assert_close(probe.log_odds[..., place][both], expected[both])


def test_of_a_binary_classifier_it_is_equation_9():
    model, batch = Classifier(classes=2).eval(), labelled(BATCH, classes=2)
    trace = model(batch)
    logit = trace.encoder @ (model.output.weight[1] - model.output.weight[0])
    logit = logit + model.output.bias[1] - model.output.bias[0]
    beta = torch.sigmoid((2 * batch.target - 1) * logit)[:, None]
    probe = lexical_scores(model, trace)
    mask = batch.source_mask[:, None]
    torch.testing.assert_close(probe.probability[mask], beta[mask])
    torch.testing.assert_close(probe.log_probability[mask], beta[mask].log())


def test_of_the_proxy_it_is_equation_6_for_every_output_word():
    model = Proxy()
    probe = lexical_scores(model, model(BATCH))
    for b, t, place in (BATCH.target_mask[:, :, None] & BATCH.source_mask[:, None]).nonzero().tolist():
        embedding = model.source_inputs.weight[BATCH.source[b, place]]
        beta = (model.output.weight @ embedding).softmax(-1)[BATCH.target[b, t]]
        torch.testing.assert_close(probe.probability[b, t, place], beta)


def test_padding_is_nan_and_nothing_else_is():
    probe = batch_lexical_scores(encoder_decoder(), BATCH)
    assert torch.equal(~probe.values.isnan(), BATCH.target_mask[:, :, None] & BATCH.source_mask[:, None])


@pytest.mark.parametrize("cells", [1, 100, 10_000])
def test_chunking_changes_memory_and_not_results(cells):
    model = encoder_decoder()
    rows = []
    readout = model.readout
    model.readout = lambda context, decoder: (rows.append(len(context)), readout(context, decoder))[1]
    probe = lexical_scores(model, (trace := model(BATCH)), max_elements=cells)
    width = WORDS + trace.decoder.shape[-1] + trace.context.shape[-1] + trace.last.values.shape[-1]
    assert max(rows[1:]) <= max(1, cells // width)
    del model.readout
    torch.testing.assert_close(real(probe), real(lexical_scores(model, trace)))


@pytest.mark.parametrize("model", [encoder_decoder(), encoder_decoder(cell="lstm", heads=2), Added()])
def test_a_batch_equals_its_sentences_one_by_one_and_padding_changes_nothing(model):
    whole = batch_lexical_scores(model, BATCH)
    for i, alone in enumerate(one_by_one(BATCH)):
        one = batch_lexical_scores(model, alone).values[0]
        torch.testing.assert_close(whole.values[i, : one.shape[0], : one.shape[1]], one)
    torch.testing.assert_close(real(batch_lexical_scores(model, wider(BATCH))), real(whole))


def test_the_model_runs_in_evaluation_mode_and_is_left_unchanged():
    model, batch = Classifier().train(), labelled(BATCH)
    model.output.eval()
    first, again = batch_lexical_scores(model, batch), batch_lexical_scores(model, batch)
    torch.testing.assert_close(real(first), real(again))  # the readout's dropout was off
    assert model.training
    assert model.dropout.training
    assert not model.output.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not first.values.requires_grad


def test_under_uniform_attention_the_probe_reads_the_states_of_that_pass():
    model = encoder_decoder(context="input")
    probe = batch_lexical_scores(model, BATCH, attention=uniform)
    torch.testing.assert_close(real(probe), real(lexical_scores(model, model(BATCH, attention=uniform))))
    assert not torch.allclose(real(probe), real(batch_lexical_scores(model, BATCH)))


def test_log_odds_distinguish_positions_where_the_probability_is_one():
    odds = log_odds(torch.tensor([[50.0, 0.0], [60.0, 0.0]]), torch.tensor([0, 0]))
    assert odds.tolist() == [50, 60]
    assert odds.sigmoid().tolist() == [1, 1]


def test_its_table_names_words_and_its_figure_has_a_cell_for_each_pair():
    probe = batch_lexical_scores(encoder_decoder(), BATCH)
    source, target = (int(mask[0].sum()) for mask in (BATCH.source_mask, BATCH.target_mask))
    names = [f"w{i}" for i in range(BATCH.source.shape[1])]
    table = probe.table(source=names)
    assert table.shape == (target, source)
    assert list(table.columns) == names[:source]
    assert not table.isna().any(axis=None)
    _, (ax,) = plots.panels()
    assert probe.plot(ax, source=names).get_title() == "lexical probe γ"


def test_an_unknown_head_and_a_model_without_readout_are_refused():
    model = encoder_decoder()
    with pytest.raises(AttnscopeError, match="no head 1; heads are numbered from 0 to 0"):
        lexical_scores(model, model(BATCH), head=1)
    with pytest.raises(AttnscopeError, match="no attention"):
        batch_lexical_scores(encoder_decoder(attention="none", readout="state"), BATCH)
    with pytest.raises(AttnscopeError, match=r"Tiny does not declare: .*ReadsOut and give it the methods context_of"):
        needs(Tiny(), ReadsOut, by="the lexical probe")
