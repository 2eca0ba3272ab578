"""The network of baan2019 is the published one: its size, its first weights, and every number of a forward pass."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import linear

from attnscope.errors import BadSetting
from attnscope.models import PRESETS, EncoderDecoder, uniform
from attnscope.models.attention import MLP, Memory
from attnscope.probes.lexical import batch_lexical_scores
from attnscope.tasks import START, LookupTables

TASK = LookupTables(end=False)
SMALL = replace(PRESETS["lookup_tables"], units=6, input_size=4, target_input_size=5)
PUBLISHED_SIZE = 3_451_708


def build(seed=0, settings=SMALL, **changes):
    torch.manual_seed(seed)
    model = EncoderDecoder(replace(settings, **changes), len(TASK.source_vocabulary), len(TASK.target_vocabulary))
    with torch.no_grad():  # small first weights hide much: larger ones tell mistakes apart
        for parameter in model.parameters():
            parameter.mul_(10)
    return model.double()


@pytest.fixture
def batch():
    return TASK.part("all").batch([0, 100, 40, 300])  # of one table and of two


def said_by_the_papers_formulas(model, batch):
    """One sentence at a time, one word after the other, W applied to [s; h] as a whole."""
    score = torch.cat([model.attend.query.weight, model.attend.key.weight], 1)
    encoder_rnn, decoder_rnn = model.encoder.ahead[0].rnn, model.decoder.ahead[0].rnn
    spoken = []
    for source, mask, target in zip(batch.source, batch.source_mask, batch.target, strict=True):
        states = encoder_rnn(model.source_inputs.table[source[mask]][None])[0][0]  # source x units
        s, word = states[-1], torch.tensor(START)
        for _ in target:
            pairs = torch.cat([s.expand(len(states), -1), states], 1)
            hidden = torch.relu(linear(pairs, score, model.attend.key.bias))
            weights = (hidden @ model.attend.score[0] + model.attend.bias).softmax(0)
            context = weights @ states
            both = torch.cat([context, model.target_inputs.table[word]])
            focused = context * torch.relu(model.focus.weight @ both + model.focus.bias)
            s = decoder_rnn(focused[None, None], s[None, None])[0][0, 0]
            logits = model.output(s)
            word = logits.argmax()
            spoken.append((weights, context, s, logits))
    return [torch.stack([torch.nn.functional.pad(x, (0, 4 - len(x))) if k == 0 else x for x in column])
            for k, column in enumerate(zip(*spoken, strict=True))]  # fmt: skip


def test_it_has_exactly_as_many_parameters_as_the_published_one():
    """Its vocabularies are as large as ours: 19 source words, and 11 target words, though the specials differ."""
    model = EncoderDecoder(PRESETS["lookup_tables"], len(TASK.source_vocabulary), len(TASK.target_vocabulary))
    h, e, v, w = 512, 16, 19, 11
    parts = {
        "encoder embedding": v * e,
        "encoder GRU": 3 * h * (e + h + 2),
        "decoder embedding": w * h,
        "attention": h * 2 * h + h + h + 1,
        "focus": h * 2 * h + h,
        "decoder GRU": 3 * h * (h + h + 2),
        "output": w * h + w,
    }
    assert (len(TASK.source_vocabulary), len(TASK.target_vocabulary)) == (v, w)
    assert sum(parts.values()) == PUBLISHED_SIZE
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED_SIZE


def test_every_parameter_starts_uniform_between_minus_and_plus_0_08():
    torch.manual_seed(0)
    model = EncoderDecoder(PRESETS["lookup_tables"], 19, 11)
    for name, parameter in model.named_parameters():
        assert parameter.abs().max() <= 0.08, name
        if parameter.numel() >= 500:
            assert parameter.abs().max() > 0.078, name
            assert parameter.std().item() == pytest.approx(0.16 / 12**0.5, rel=0.1), name
    assert model.encoder.initial(1)[0][0].abs().sum() == 0  # the first state is zero, not trained


def test_every_number_follows_from_the_papers_formulas(batch):
    model = build()
    trace = model(batch, teacher_forcing=0.0)
    weights, context, states, logits = said_by_the_papers_formulas(model, batch)
    torch.testing.assert_close(trace.attention[:, 0].flatten(0, 1), weights)
    torch.testing.assert_close(trace.context.flatten(0, 1), context)
    torch.testing.assert_close(trace.decoder.flatten(0, 1), states)
    torch.testing.assert_close(trace.logits.flatten(0, 1), logits)
    assert torch.equal(trace.decoder_input[:, 1:], trace.predictions[:, :-1])


def test_the_score_is_one_layer_over_both_states_side_by_side():
    torch.manual_seed(0)
    layer = MLP(units=3, states=4, heads=2, combine="sum").double()
    decoder, encoder = torch.randn(1, 2, 3).double(), torch.randn(1, 5, 4).double()
    memory = layer.memorise(encoder, torch.ones(1, 5, dtype=torch.bool))
    assert isinstance(memory, Memory)
    record, _ = layer(decoder, memory)
    for head in range(2):
        rows = slice(4 * head, 4 * head + 4)
        whole = torch.cat([layer.query.weight[rows], layer.key.weight[rows]], 1)
        for t in range(2):
            for place in range(5):
                hidden = (whole @ torch.cat([decoder[0, t], encoder[0, place]]) + layer.key.bias[rows]).clamp(min=0)
                expected = hidden @ layer.score[head] + layer.bias[head]
                torch.testing.assert_close(record.scores[0, head, t, place], expected)
    assert record.queries is None


def test_a_batch_equals_its_sentences_one_by_one(batch):
    model = build()
    trace = model(batch, teacher_forcing=0.0)
    for i in range(len(batch)):
        width, steps = int(batch.source_mask[i].sum()), int(batch.target_mask[i].sum())
        single = replace(
            batch,
            source=batch.source[i : i + 1, :width],
            source_mask=batch.source_mask[i : i + 1, :width],
            target=batch.target[i : i + 1, :steps],
            target_mask=batch.target_mask[i : i + 1, :steps],
            gold_attention=batch.gold_attention[i : i + 1, :steps],
        )
        torch.testing.assert_close(model(single, teacher_forcing=0.0).logits[0], trace.logits[i, :steps])


def test_gates_are_those_of_the_decoder_input(batch):
    """h' = write · n + keep · h: from the gates and what the decoder heard, its next state follows."""
    model = build()
    trace = model(batch, gates=True)
    rnn = model.decoder.ahead[0].rnn
    words = model.target_inputs(trace.decoder_input)
    decoder_input = trace.context * torch.relu(model.focus(torch.cat([trace.context, words], -1)))
    last = trace.encoder[torch.arange(4), batch.source_mask.sum(1) - 1]
    before = torch.cat([last[:, None], trace.decoder[:, :-1]], 1)
    of_input = linear(decoder_input, rnn.weight_ih_l0, rnn.bias_ih_l0)[..., -6:]
    of_state = linear(before, rnn.weight_hh_l0, rnn.bias_hh_l0)[..., -6:]
    new = torch.tanh(of_input + trace.gates["decoder.reset"] * of_state)
    after = trace.gates["decoder.write"] * new + trace.gates["decoder.keep"] * before
    torch.testing.assert_close(after, trace.decoder)


def test_attention_can_be_given(batch):
    model = build()
    trace = model(batch, attention=uniform)
    mean = (trace.encoder * batch.source_mask[..., None]).sum(1) / batch.source_mask.sum(1, keepdim=True)
    torch.testing.assert_close(trace.context, mean[:, None].expand_as(trace.context))
    one_hot = torch.zeros_like(model(batch).attention)
    one_hot[..., 1] = 1
    torch.testing.assert_close(model(batch, attention=one_hot).context[:, 2], trace.encoder[:, 1])


def test_the_readout_of_the_state_alone_is_equal_at_all_positions(batch):
    model = build()
    trace = model(batch)
    torch.testing.assert_close(model.readout(torch.randn_like(trace.context), trace.decoder), trace.logits)
    odds = batch_lexical_scores(model, batch).log_odds
    real = batch.source_mask[:, None].expand_as(odds) & batch.target_mask[..., None]
    spread = torch.where(real, odds, odds[..., :1]).std(-1)
    torch.testing.assert_close(spread[batch.target_mask], torch.zeros_like(spread[batch.target_mask]))


def test_without_focus_the_decoder_input_is_word_and_context_concatenated(batch):
    model = build(focus=False)
    assert model.focus is None
    assert model.decoder.ahead[0].inputs == 5 + 6
    assert model(batch).logits.shape == (4, 3, 11)


@pytest.mark.parametrize("attention", ["dot", "bilinear", "additive", "query_key_value", "mlp"])
@pytest.mark.parametrize("cell", ["gru", "lstm", "ugrnn"])
def test_focus_works_with_every_cell_and_attention(cell, attention, batch):
    model = build(cell=cell, attention=attention, heads=2)
    trace = model(batch, teacher_forcing=0.0, gates=True)
    trace.logits.sum().backward()
    assert model.focus.weight.grad.abs().sum() > 0
    assert trace.attention.shape == (4, 2, 3, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"context": "readout"}, "focus gates the context before it enters the decoder: set context='input'"),
        ({"shared_inputs": True}, "target_input_size cannot be another than input_size"),
        ({"target_input_size": 0}, "target_input_size must be positive, not 0"),
        ({"initialisation": "uniform"}, "there is no initialisation 'uniform'; choose one of .*uniform_008"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(wrong, message):
    with pytest.raises(BadSetting, match=message):
        replace(SMALL, **wrong)
