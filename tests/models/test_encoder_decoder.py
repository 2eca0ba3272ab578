"""Every combination of cell, attention and place for the context gives a whole Trace and takes any intervention."""

from dataclasses import fields, replace
from itertools import product

import pytest
import torch

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models import (
    ATTENTIONS,
    CELLS,
    PRESETS,
    EncoderDecoder,
    EncoderDecoderSettings,
    Positions,
    restart_heads,
    uniform,
)
from attnscope.models.encoder_decoder import PositionalCode
from attnscope.tasks import END, START, ExtendedSCAN, OneToOne

TASK = OneToOne(min_length=3, max_length=6, test_size=5)
COMBINATIONS = [
    (cell, attention, heads, context)
    for cell, attention, heads, context in product(CELLS, ATTENTIONS, (1, 2), ("readout", "input"))
    if CELLS[cell].recurrent or context == "readout"
]


def build(seed=0, task=TASK, **settings):
    torch.manual_seed(seed)
    settings = EncoderDecoderSettings(**{"units": 8, "input_size": 12} | settings)
    return EncoderDecoder(settings, len(task.source_vocabulary), len(task.target_vocabulary)).double()


@pytest.fixture(autouse=True)
def _in_double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def combined(combination):
    cell, attention, heads, context = combination
    return build(cell=cell, attention=attention, heads=heads, context=context, positions=Positions())


def named(combination):
    return "-".join(map(str, combination))


@pytest.fixture(params=COMBINATIONS, ids=named)
def model(request):
    return combined(request.param)


@pytest.fixture
def batch():
    return next(TASK.batches())


def test_attention_sums_to_one_and_is_zero_on_padding(model, batch):
    weights = model(batch).attention
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert (weights.masked_select(~batch.source_mask[:, None, None]) == 0).all()


def test_alignment_is_queries_times_keys(model, batch):
    layer = model(batch).last
    if model.settings.attention in ("additive", "mlp"):
        assert layer.queries is None
        assert layer.keys is None
    else:
        torch.testing.assert_close(layer.queries @ layer.keys.mT, layer.scores)


@pytest.mark.parametrize("teacher_forcing", [0.0, 1.0])
def test_passing_the_models_own_attention_changes_nothing(model, batch, teacher_forcing):
    own = model(batch, teacher_forcing=teacher_forcing)
    again = model(batch, attention=own.attention, teacher_forcing=teacher_forcing)
    unchanged = model(batch, attention=lambda weights, mask: weights, teacher_forcing=teacher_forcing)
    torch.testing.assert_close(again.logits, own.logits)
    torch.testing.assert_close(unchanged.logits, own.logits)


def test_uniform_attention_gives_the_mean_value_as_context(model, batch):
    trace = model(batch, attention=uniform)
    assert not torch.allclose(trace.logits, model(batch).logits)
    if model.settings.attention != "query_key_value":
        mask = batch.source_mask[..., None]
        mean = (trace.encoder * mask).sum(1) / mask.sum(1)
        torch.testing.assert_close(trace.context, mean[:, None].expand_as(trace.context))


def test_a_single_step_can_be_given_its_attention(model, batch):
    """A tensor of weights is taken step by step where the context enters the decoder's input."""
    weights = torch.zeros_like(model(batch).attention)
    weights[..., 1] = 1
    torch.testing.assert_close(model(batch, attention=weights).attention, weights)
    torch.testing.assert_close(model(batch, attention=weights[:, 0]).attention, weights)  # without the axis of heads


def test_a_wrong_shape_of_attention_is_refused_with_the_right_one(model, batch):
    heads = model.settings.heads
    with pytest.raises(BadSetting, match=rf"batch x heads x target x source = \(5, {heads},"):
        model(batch, attention=torch.ones(5, 3, 2, 2))


def test_free_running_feeds_predictions_back(model, batch):
    trace = model(batch, teacher_forcing=0.0)
    assert (trace.decoder_input[:, 0] == START).all()
    assert torch.equal(trace.decoder_input[:, 1:], trace.predictions[:, :-1])


def test_free_running_is_the_same_without_gradients(model, batch):
    shown = model(batch, teacher_forcing=0.0, gates=True)
    with torch.no_grad():
        with_gates = model(batch, teacher_forcing=0.0, gates=True)
    for field in fields(shown):
        ours, expected = (getattr(trace, field.name) for trace in (with_gates, shown))
        if field.name == "layers":
            ours, expected = ([vars(layer) for layer in layers] for layers in (ours, expected))
        torch.testing.assert_close(ours, expected, msg=field.name)


def test_teacher_forcing_feeds_gold_tokens(model, batch):
    trace = model(batch, teacher_forcing=1.0)
    assert torch.equal(trace.decoder_input[:, 1:], batch.target[:, :-1])


@pytest.mark.parametrize("combination", [c for c in COMBINATIONS if "readout" in c], ids=named)
def test_the_batched_decoder_equals_the_step_by_step_one_with_gradients(combination, batch):
    """The batched decoder (greedy decoding first, then all steps at once) against a loop that keeps gradients."""
    model = combined(combination)
    fast = model(batch, teacher_forcing=0.0)
    start = START * torch.ones_like(batch.target[:, :1])
    gold = torch.cat([start, -torch.ones_like(batch.target[:, 1:])], 1)
    read = model.encoder.read(model.source_inputs(batch.source), batch.source_mask)
    memory = model.attend.memorise(read.states, batch.source_mask)
    slow = model._step_by_step(gold, read.final, memory, None)
    torch.testing.assert_close(fast.logits, slow.logits)
    names = [name for name, _ in model.named_parameters()]
    parameters = list(model.parameters())
    ours = torch.autograd.grad(fast.logits.square().sum(), parameters, allow_unused=True)
    theirs = torch.autograd.grad(slow.logits.square().sum(), parameters, allow_unused=True)
    for name, a, b in zip(names, ours, theirs, strict=True):
        assert (a is None) == (b is None), name
        if a is not None:
            torch.testing.assert_close(a, b, msg=name)


def test_a_batch_of_n_equals_n_batches_of_one(model, batch):
    whole = model(batch, teacher_forcing=0.0)
    for row, single in enumerate(TASK.batches(size=1)):
        alone = model(single, teacher_forcing=0.0)
        steps, words = single.target.shape[1], single.source.shape[1]
        torch.testing.assert_close(alone.logits[0], whole.logits[row, :steps])
        torch.testing.assert_close(alone.attention[0], whole.attention[row, :, :steps, :words])


def test_gates_are_recorded_only_on_request(model, batch):
    assert model(batch).gates == {}
    trace = model(batch, gates=True)
    if model.settings.cell != "ungated_feedforward":
        sides = {name.split(".")[0]: values for name, values in trace.gates.items()}
        assert sides["encoder"].shape == trace.encoder.shape
        assert sides["decoder"].shape == trace.decoder.shape
        assert all(((gate >= 0) & (gate <= 1)).all() for gate in trace.gates.values())


def test_readout_of_context_and_state_gives_the_logits(model, batch):
    trace = model(batch)
    torch.testing.assert_close(model.readout(trace.context, trace.decoder), trace.logits)


def test_presets_are_the_papers_three_architectures():
    ved, aed, ao = (PRESETS[name] for name in ("ved", "aed", "ao"))
    assert (ved.attention, ved.readout, ved.cell) == ("none", "state", "gru")
    assert (aed.attention, aed.readout, aed.cell) == ("dot", "both", "gru")
    assert (ao.attention, ao.readout, ao.cell) == ("dot", "context", "feedforward")


def test_a_model_without_attention_has_none_to_read_or_replace(batch):
    model = build(attention="none", readout="state")
    with pytest.raises(AttnscopeError, match="has no attention"):
        model(batch).attention  # noqa: B018
    with pytest.raises(BadSetting, match="has no attention"):
        model(batch, attention=uniform)


def test_a_random_intervention_is_sampled_once_per_pass(batch):
    """The trace shows the intervention that was sampled during greedy decoding."""
    model = build()

    def shuffled(weights, mask):
        return torch.rand_like(weights).masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)

    trace = model(batch, attention=shuffled, teacher_forcing=0.0)
    assert torch.equal(trace.decoder_input[:, 1:], trace.predictions[:, :-1])


def test_scheduled_teacher_forcing_mixes_gold_and_predicted_tokens(batch):
    task = ExtendedSCAN(test_size=200)
    model = build(task=task)
    many = next(task.batches(size=200))
    trace = model(many, teacher_forcing=0.5)
    gold = (trace.decoder_input[:, 1:] == many.target[:, :-1])[many.target_mask[:, 1:]].double().mean()
    own = (trace.decoder_input[:, 1:] == trace.predictions[:, :-1])[many.target_mask[:, 1:]].double().mean()
    assert 0.4 < gold < 0.75
    assert 0.4 < own < 0.75


def test_generation_ends_with_the_end_token(batch):
    model = build()
    generated = model.generate(batch.source, batch.source_mask, max_length=12)
    trace = model(batch, teacher_forcing=0.0)
    for row in range(len(batch)):
        words = generated[row].tolist()
        stop = words.index(END) if END in words else len(words)
        assert all(word == END for word in words[stop:])
        steps = min(stop, trace.predictions.shape[1])
        assert words[:steps] == trace.predictions[row, :steps].tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": "feedforward"}, "set positions"),
        ({"cell": "rnn"}, "choose one of lstm, gru, ugrnn, feedforward, ungated_feedforward"),
        ({"attention": "cosine"}, "choose one of none, dot, bilinear, query_key_value, additive"),
        ({"heads": 3}, "heads=3 does not divide units=8"),
        ({"units": -1}, "units must be positive"),
        ({"attention": "none"}, "set readout='state'"),
        ({"attention": "none", "readout": "state", "context": "input"}, "no context to give"),
        ({"cell": "feedforward", "positions": Positions(), "context": "input"}, "has none"),
        ({"cell": "feedforward", "positions": Positions(), "attention": "none", "readout": "state"}, "passes nothing"),
        ({"inputs": "learned", "input_size": None}, "set input_size"),
        ({"input_size": 4}, "no room for 6 words"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(settings, message):
    with pytest.raises(BadSetting, match=message):
        build(**settings)


def test_learned_inputs_are_rows_of_a_table(batch):
    model = build(inputs="learned")
    torch.testing.assert_close(model(batch).embedded, model.source_inputs.table[batch.source])


def test_one_hot_inputs_leave_room_for_positions(batch):
    embedded = build()(batch).embedded
    assert embedded.shape[-1] == 12
    assert torch.equal(embedded.argmax(-1), batch.source)
    assert (embedded.sum(-1) == 1).all()


def test_the_positional_code_is_sines_and_cosines_and_its_rotation_keeps_lengths():
    plain, rotated = (PositionalCode(Positions(base=20.0, rotated=r), 6) for r in (False, True))
    code = plain(9)
    for t in range(9):
        for i in range(3):
            angle = torch.tensor(t / 20 ** (2 * i / 6))
            torch.testing.assert_close(
                code[t, 2 * i : 2 * i + 2].double(), torch.stack([angle.sin(), angle.cos()]), atol=1e-5, rtol=0
            )
    torch.testing.assert_close(rotated(9) @ rotated(9).T, code @ code.T, atol=1e-5, rtol=0)
    assert not torch.allclose(rotated(9), code)


def test_a_seed_fixes_the_weights():
    first, second, other = build(seed=1), build(seed=1), build(seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.output.weight, other.output.weight)


def test_the_context_half_of_the_readout_is_named():
    model = build()
    assert torch.equal(model.context_readout, model.output.weight[:, 8:])
    alone = EncoderDecoder(replace(model.settings, readout="context"), 6, 6)
    assert alone.context_readout.shape == (6, 8)


# The network of snell2021 §2.1 -----------------------------------------------------------------------------------

SMALL = {"units": 6, "input_size": 6, "hidden": 5}


def translator(**changes):
    torch.manual_seed(0)
    settings = replace(PRESETS["translation"], **SMALL | changes)
    return EncoderDecoder(settings, 12, 12).double().eval()


def test_the_papers_translation_settings_give_the_papers_number_of_parameters():
    model = EncoderDecoder(PRESETS["translation"], 8000, 8000)
    assert sum(p.numel() for name, p in model.named_parameters() if "inputs" not in name) == 6_132_544
    assert sum(p.numel() for p in model.parameters()) == 8_180_544


def test_translation_equals_equations_1_and_2(batch):
    """Against plain torch: packed bidirectional layers, states averaged over directions, s W h, and N([c, s])."""
    model = translator()
    trace = model(batch)
    e, d = model.source_inputs.table, trace.decoder
    theirs = torch.nn.LSTM(6, 6, 2, batch_first=True, bidirectional=True)
    decoder = torch.nn.LSTM(6, 6, 2, batch_first=True)
    for layer in range(2):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(theirs, f"{name}_l{layer}").data = getattr(model.encoder.ahead[layer].rnn, f"{name}_l0").data
            getattr(theirs, f"{name}_l{layer}_reverse").data = getattr(model.encoder.back[layer].rnn, f"{name}_l0").data
            getattr(decoder, f"{name}_l{layer}").data = getattr(model.decoder.ahead[layer].rnn, f"{name}_l0").data
    lengths = batch.source_mask.sum(1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(e[batch.source], lengths, batch_first=True, enforce_sorted=False)
    output, (h, c) = theirs(packed)
    states, _ = torch.nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    start = tuple(part.unflatten(0, (2, 2)).mean(1) for part in (h, c))
    torch.testing.assert_close(d, decoder(e[trace.decoder_input], start)[0])
    scores = (model.attend.query(d) @ states.mT).masked_fill(~batch.source_mask[:, None], -torch.inf)
    torch.testing.assert_close(trace.attention[:, 0], scores.softmax(-1))
    context = model.context_layer(scores.softmax(-1) @ states)
    first, last = model.hidden[0], model.output
    expected = torch.relu(torch.cat([d, context], -1) @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(trace.logits, expected)


def test_the_linear_variant_reads_the_sum_of_context_and_state(batch):
    model = translator(readout="sum", hidden=None)
    trace = model(batch)
    torch.testing.assert_close(trace.logits, model.output(trace.context + trace.decoder))


@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_whole_heads_are_added_or_averaged(batch, combine):
    """Equation 21: every head mixes whole states with weights of its own."""
    model = translator(heads=3, combine=combine)
    trace = model(batch)
    each = [trace.attention[:, head] @ trace.encoder for head in range(3)]
    picked = sum(each) if combine == "sum" else sum(each) / 3
    torch.testing.assert_close(trace.context, model.context_layer(picked))
    assert not torch.allclose(each[0], each[1])


def test_a_restarted_head_depends_on_its_seed_alone(batch):
    one, many = translator(heads=1, combine="sum"), translator(heads=3, combine="sum")
    restart_heads(one, (7,))
    restart_heads(many, (5, 7))
    query = many.attend.query
    assert torch.equal(query.weight.chunk(3)[1], one.attend.query.weight)
    assert torch.equal(query.bias.chunk(3)[1], one.attend.query.bias)
    assert not torch.equal(query.weight.chunk(3)[0], query.weight.chunk(3)[1])
    with pytest.raises(BadSetting, match="more heads than the 3"):
        restart_heads(many, (1, 2, 3, 4))
    with pytest.raises(BadSetting, match="bilinear"):
        restart_heads(build(), (1,))


def test_gates_of_layers_and_directions_have_names_and_lie_in_order(batch):
    model = translator()
    gates = model(batch, gates=True).gates
    cells = ("encoder.1.ahead", "encoder.1.back", "encoder.2.ahead", "encoder.2.back", "decoder.1", "decoder.2")
    assert set(gates) == {f"{cell}.{gate}" for cell in cells for gate in ("keep", "write", "expose")}
    # Read backwards, a sentence's last word comes first: its gates follow from that word and a state of zeros.
    back, last = model.encoder.back[0].rnn, int(batch.source_mask[0].sum()) - 1
    write = model.source_inputs.table[batch.source[0, last]] @ back.weight_ih_l0[:6].T
    expected = torch.sigmoid(write + back.bias_ih_l0[:6] + back.bias_hh_l0[:6])
    torch.testing.assert_close(gates["encoder.1.back.write"][0, last], expected)


def test_a_shared_table_is_one_parameter_and_is_trained_from_both_sides(batch):
    model = translator()
    assert model.source_inputs.table is model.target_inputs.table
    with pytest.raises(BadSetting, match="one vocabulary"):
        EncoderDecoder(replace(PRESETS["translation"], **SMALL), 12, 13)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bidirectional": True}, "use bilinear"),
        ({"combine": "multiply"}, "concatenate, sum, mean"),
        ({"attention": "query_key_value", "combine": "sum"}, "values of their own"),
        ({"dropout": 1.0}, "dropout must be from 0 to below 1"),
        ({"layers": 0}, "layers must be positive"),
        ({"attention": "bilinear", "bidirectional": True, "readout": "sum"}, "set context_layer"),
    ],
)
def test_what_does_not_fit_together_is_refused(settings, message):
    with pytest.raises(BadSetting, match=message):
        build(**settings)
