"""The classifier of snell2021 §2.4, on padded input."""

from dataclasses import replace

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnscope.errors import BadSetting
from attnscope.models.attention import uniform
from attnscope.models.cells import LSTM
from attnscope.models.classifier import Classifier, ClassifierSettings
from attnscope.models.recurrent import Recurrent, in_order, reversal
from attnscope.tasks import END, PAD, Batch
from attnscope.training import CrossEntropy, evaluate

SMALL = ClassifierSettings(input_size=6, units=5, hidden=4)


def sentences(lengths=(7, 3, 1), classes=2):
    torch.manual_seed(0)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    source = torch.randint(3, 12, mask.shape).masked_fill(~mask, PAD)
    source[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = END
    target = torch.arange(len(lengths))[:, None] % classes + 3
    return Batch(source, mask, target, torch.ones_like(target, dtype=torch.bool))


def build(settings=SMALL, classes=2, **more):
    torch.manual_seed(1)
    return Classifier(settings, 12, 3 + classes, **more)


def test_the_papers_settings_give_the_papers_number_of_parameters():
    model = Classifier(ClassifierSettings(), 100, 5)
    assert sum(p.numel() for name, p in model.named_parameters() if not name.startswith("source_inputs")) == 1_274_882


@pytest.mark.parametrize("layers", [1, 3])
def test_padded_equals_packed_gradients_included(layers):
    torch.manual_seed(0)
    ours = Recurrent(LSTM, 4, 3, layers, bidirectional=True, trained_first=False).double()
    theirs = torch.nn.LSTM(4, 3, layers, batch_first=True, bidirectional=True).double()
    for layer in range(layers):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(theirs, f"{name}_l{layer}").data = getattr(ours.ahead[layer].rnn, f"{name}_l0").data
            getattr(theirs, f"{name}_l{layer}_reverse").data = getattr(ours.back[layer].rnn, f"{name}_l0").data
    lengths = torch.tensor([6, 2, 4])
    mask = torch.arange(6) < lengths[:, None]
    inputs = torch.randn(3, 6, 4, dtype=torch.float64)
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    output, (h, c) = theirs(packed)
    expected, _ = pad_packed_sequence(output, batch_first=True)
    read = ours.read(inputs, mask)
    states = read.states
    torch.testing.assert_close(states[mask], expected[mask])
    torch.testing.assert_close(ours.read(inputs, mask, ends=False).states[mask], expected[mask])
    for layer, (h_mean, c_mean) in enumerate(read.final):  # layers x directions: 2 layer, 2 layer + 1
        torch.testing.assert_close(h_mean, h[2 * layer : 2 * layer + 2].mean(0))
        torch.testing.assert_close(c_mean, c[2 * layer : 2 * layer + 2].mean(0))
    states[mask].square().sum().backward()
    expected[mask].square().sum().backward()
    torch.testing.assert_close(ours.back[0].rnn.weight_ih_l0.grad, theirs.weight_ih_l0_reverse.grad)


def test_reversing_twice_is_the_identity():
    mask = torch.arange(5) < torch.tensor([[5], [2]])
    sequence = torch.randn(2, 5, 3)
    assert torch.equal(in_order(in_order(sequence, reversal(mask)), reversal(mask)), sequence)


def test_the_probability_of_the_positive_class_is_a_sigmoid_of_one_logit():
    model, batch = build(), sentences()
    trace = model(batch)
    logit = (trace.attention[:, 0, 0, :, None] * trace.encoder).sum(1) @ model.output.weight[0] + model.output.bias
    torch.testing.assert_close(trace.logits.softmax(-1)[:, 0, 4], torch.sigmoid(logit))
    assert (trace.logits.softmax(-1)[..., :3] == 0).all()


def test_attention_is_the_feed_forward_network_of_the_paper():
    model, batch = build(), sentences()
    trace = model(batch)
    hidden = torch.relu(trace.encoder @ model.attend.key.weight.T + model.attend.key.bias)
    scores = (hidden @ model.attend.score.weight.T + model.attend.score.bias)[..., 0]
    expected = scores.masked_fill(~batch.source_mask, -torch.inf).softmax(-1)
    torch.testing.assert_close(trace.attention[:, 0, 0], expected)


@pytest.mark.parametrize("classes", [2, 5])
def test_any_number_of_classes_can_be_learned(classes):
    model, batch = build(classes=classes), sentences((7, 3, 4, 5, 2), classes)
    loss = CrossEntropy()(model, batch, model(batch))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    assert evaluate(model, [batch])["word_accuracy"] >= 0


def test_results_do_not_depend_on_padding_or_batch_size():
    model, batch = build(), sentences()
    whole = model(batch)
    for row, length in enumerate((7, 3, 1)):
        one = Batch(
            batch.source[row : row + 1, :length],
            batch.source_mask[row : row + 1, :length],
            batch.target[row : row + 1],
            batch.target_mask[row : row + 1],
        )
        alone = model(one)
        torch.testing.assert_close(alone.logits[0], whole.logits[row])
        torch.testing.assert_close(alone.attention[0, 0], whole.attention[row, 0, :, :length])


def test_interventions_take_effect():
    model, batch = build(), sentences()
    own = model(batch)
    torch.testing.assert_close(model(batch, attention=own.attention).logits, own.logits)
    even = model(batch, attention=uniform)
    mean = (even.encoder * batch.source_mask[..., None]).sum(1) / batch.source_mask.sum(1, keepdim=True)
    torch.testing.assert_close(even.context[:, 0], mean)


def test_special_tokens_can_be_left_out_of_attention():
    model, batch = build(ClassifierSettings(input_size=6, units=5, hidden=4, specials_attended=False)), sentences()
    weights = model(batch).attention[:, 0, 0]
    assert (weights[:2][batch.source[:2] == END] == 0).all()
    assert weights[2, 0] == 1  # a sentence of an end token only still attends to it


@pytest.mark.parametrize("query", ["parameter", "instance"])
def test_additive_attention_has_no_bias_behind_its_tanh(query):
    model, batch = build(replace(SMALL, attention="additive", query=query)), sentences()
    trace = model(batch)
    hidden_states = trace.encoder @ model.attend.key.weight.T + model.attend.key.bias
    if query == "instance":
        lengths = batch.source_mask.sum(1, keepdim=True)
        gist = (trace.encoder * batch.source_mask[..., None]).sum(1) / lengths
        hidden_states = hidden_states + (gist @ model.attend.query.weight.T)[:, None]
    scores = (torch.tanh(hidden_states) @ model.attend.score.weight.T)[..., 0].masked_fill(
        ~batch.source_mask, -torch.inf
    )
    torch.testing.assert_close(trace.attention[:, 0, 0], scores.softmax(-1))


@pytest.mark.parametrize("query", ["parameter", "instance"])
def test_dot_attention_is_scaled_and_shows_its_query(query):
    model, batch = build(replace(SMALL, attention="dot", query=query)), sentences()
    trace = model(batch)
    layer = trace.last
    torch.testing.assert_close(layer.queries @ layer.keys.mT, layer.scores)
    if query == "parameter":
        expected = trace.encoder @ model.attend.query.weight[0] / 10**0.5
        torch.testing.assert_close(layer.scores[:, 0, 0], expected)


def test_the_query_is_initialised_widely_or_as_in_torch():
    def query(start):
        return build(
            ClassifierSettings(input_size=4, units=400, attention="dot", query_start=start)
        ).attend.query.weight

    assert query("normal").std().item() == pytest.approx(1, abs=0.1)
    assert query("default").abs().max() <= 800**-0.5


def test_embeddings_can_be_added_or_concatenated_to_states():
    batch, alike = sentences(), ClassifierSettings(input_size=10, units=5, hidden=4)
    plain, added = build(alike), build(replace(alike, grounding="residual"))
    added.load_state_dict(plain.state_dict())
    torch.testing.assert_close(added(batch).encoder, plain(batch).encoder + plain(batch).embedded)
    beside = build(replace(alike, grounding="concat"))
    shown = beside(batch)
    assert shown.encoder.shape[-1] == beside.output.in_features == 20
    torch.testing.assert_close(shown.encoder[..., 10:], shown.embedded)
    with pytest.raises(BadSetting, match="adds words of size 6 to states of size 10"):
        replace(SMALL, grounding="residual")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": 0}, "units must be positive"),
        ({"dropout": 1.0}, "dropout must be from 0"),
        ({"layers": -1}, "layers"),
        ({"attention": "doc"}, "no attention of a classifier 'doc'"),
        ({"grounding": "tied"}, "grounding"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(settings, message):
    with pytest.raises(BadSetting, match=message):
        ClassifierSettings(**settings)
    with pytest.raises(BadSetting, match="at least two classes"):
        build(classes=1)
