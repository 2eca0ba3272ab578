"""The classifier of snell2021 §2.4, on padded input."""

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


def test_reversal_undoes_itself():
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
    hidden = torch.relu(trace.encoder @ model.attend[0].weight.T + model.attend[0].bias)
    scores = (hidden @ model.attend[2].weight.T + model.attend[2].bias)[..., 0]
    expected = scores.masked_fill(~batch.source_mask, -torch.inf).softmax(-1)
    torch.testing.assert_close(trace.attention[:, 0, 0], expected)


@pytest.mark.parametrize("classes", [2, 5])
def test_any_number_of_classes_can_be_learned_from(classes):
    model, batch = build(classes=classes), sentences((7, 3, 4, 5, 2), classes)
    loss = CrossEntropy()(model, batch, model(batch))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    assert evaluate(model, [batch])["word_accuracy"] >= 0


def test_padding_changes_nothing_and_a_batch_of_n_equals_n_of_one():
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


def test_word_vectors_can_be_given_and_frozen():
    vectors = torch.randn(12, 6)
    model = build(vectors=vectors, frozen_vectors=True)
    assert torch.equal(model.source_inputs.table, vectors)
    assert not model.source_inputs.table.requires_grad
    with pytest.raises(BadSetting, match=r"have shape \(12, 5\); 12 words of size 6 are needed"):
        build(vectors=torch.randn(12, 5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": 0}, "units must be positive"),
        ({"dropout": 1.0}, "dropout must be from 0"),
        ({"layers": -1}, "layers"),
    ],
)
def test_impossible_settings_are_refused_with_a_sentence(settings, message):
    with pytest.raises(BadSetting, match=message):
        ClassifierSettings(**settings)
    with pytest.raises(BadSetting, match="at least two classes"):
        build(classes=1)
