"""A trace holds its tokens as strings, and shows its attention as a table and as a heat map."""

import matplotlib.pyplot as plt
import pytest
import torch

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.models import Attention, EncoderDecoderSettings, Trace, build
from attnscope.models.capabilities import TEACHER_FORCING
from attnscope.models.inference import traces
from attnscope.tasks import END, PAD, Batch, Vocabulary

VOCABULARY = Vocabulary.of(["a", "dog", "sleeps"])


@pytest.fixture
def batch():
    source, target = torch.tensor([[3, 4, 5, END], [4, END, PAD, PAD]]), torch.tensor([[5, 4, END], [4, END, PAD]])
    return Batch(source, source != PAD, target, target != PAD)


def model(**settings):
    torch.manual_seed(0)
    return build(EncoderDecoderSettings(**{"units": 8, "heads": 2} | settings), len(VOCABULARY), len(VOCABULARY))


def test_a_trace_and_a_layer_of_attention_are_built_by_keyword_only(batch):
    trace = model()(batch)
    with pytest.raises(TypeError):
        Trace(trace.source, trace.source_mask)
    with pytest.raises(TypeError):
        Attention(trace.last.queries, trace.last.keys)


def test_the_table_has_one_row_per_layer_head_and_pair_of_tokens_that_are_no_padding(batch):
    trace = model()(batch).with_tokens(VOCABULARY, VOCABULARY)
    table = trace.table()
    assert len(table) == 2 * (4 * 3 + 2 * 2)
    assert trace.source_tokens == (("a", "dog", "sleeps", "<end>"), ("dog", "<end>"))
    chosen = table.query("example == 1 and head == 1 and target_token == '<end>' and source_token == 'dog'")
    assert chosen["weight"].item() == trace.attention[1, 1, 1, 0].item()
    assert set(trace.table(example=0)["example"]) == {0}
    sums = table.groupby(["example", "layer", "head", "target"])["weight"].sum()
    assert sums.to_numpy() == pytest.approx(1, abs=1e-5)
    assert "source_token" not in model()(batch).table()


def test_the_plot_has_tokens_on_its_axes(batch):
    trace = model()(batch).with_tokens(VOCABULARY, VOCABULARY)
    ax = trace.plot(example=1, head=0)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["dog", "<end>"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["dog", "<end>"]
    assert ax.get_title() == "layer 0, head 0"
    plt.close("all")
    with pytest.raises(BadSetting, match="no head 2; heads are numbered from 0 to 1"):
        trace.plot(head=2)
    with pytest.raises(BadSetting, match="no example 2"):
        trace.plot(example=2)


def test_a_trace_is_printed_as_names_and_shapes(batch):
    trace = model()(batch)
    for shown in (repr(trace), repr(trace.last)):
        assert "tensor(" not in shown
        assert len(shown.splitlines()) < 25
    assert "batch × heads × target × source" in repr(trace.last)
    assert "decoder_input" in repr(trace)


def test_a_notebook_shows_shapes_and_the_attention_with_or_without_any(batch):
    shown = model()(batch)._repr_html_()
    assert "batch × target × units" in shown
    assert "<img" in shown
    without = model(attention="none", readout="state", heads=1)(batch)
    assert "<img" not in without._repr_html_()
    with pytest.raises(AttnscopeError, match="no attention"):
        without.table()


@pytest.mark.parametrize("decoding", ["teacher_forced", "greedy"])
def test_a_model_decodes_as_its_setting_says_unless_a_call_says_otherwise(batch, decoding):
    network = model(context="readout").eval()
    assert network.decoding == "teacher_forced"
    expected = network(batch, teacher_forcing=TEACHER_FORCING[decoding])
    other = network(batch, teacher_forcing=1 - TEACHER_FORCING[decoding])
    network.decoding = decoding
    assert torch.equal(network(batch).decoder_input, expected.decoder_input)
    assert not torch.equal(network(batch).decoder_input, other.decoder_input)
    (_, by_setting), (_, by_call) = (next(traces(network, [batch], decoding=how)) for how in (None, "teacher_forced"))
    torch.testing.assert_close(by_setting.logits, expected.logits.detach())
    assert torch.equal(by_call.decoder_input, network(batch, teacher_forcing=1.0).decoder_input)
