"""Matrices whose edges, components and polarities can be counted by hand."""

import numpy as np
import pytest
import torch
from lexical_examples import WORDS, encoder_decoder

from attnscope import plots
from attnscope.errors import BadSetting
from attnscope.probes.weights import (
    THRESHOLDS,
    embedding_table,
    gate_matrices,
    polarity,
    pooled_threshold,
    strengths,
    strongest_units,
    unit_strengths,
    weight_graph,
    weight_graphs,
)

#                  previous:  a     b     c     d
MATRIX = np.array([[0.30, -0.40, 0.00, 0.00],
                   [0.00, 0.50, 0.00, 0.19],
                   [0.00, 0.00, -0.90, 0.00]])  # fmt: skip


def test_statistics_of_a_known_graph():
    graph = weight_graph(MATRIX, 0.2)
    assert (graph.edges, graph.positive, graph.negative) == (4, 2, 2)
    assert graph.degrees("next").tolist() == [2, 1, 1]
    assert graph.degrees("previous").tolist() == [1, 2, 1, 0]
    assert (graph.connected("next"), graph.connected("previous")) == (3, 3)
    assert graph.largest_component == 4  # the first two of the next layer, a and b
    assert graph.table()["highest_degree_previous"].item() == 2


def test_a_graph_without_edges_has_no_component():
    graph = weight_graph(MATRIX, 1.0)
    assert (graph.edges, graph.largest_component, graph.connected()) == (0, 0, 0)
    assert np.isnan(graph.table()["edges_of_strongest_next"].item())


def test_one_threshold_for_all_models_gives_them_different_numbers_of_edges():
    random = np.random.default_rng(0)
    weak, strong = random.normal(0, 0.1, (50, 40)), random.normal(0, 0.2, (50, 40))
    graphs = weight_graphs({"weak": {"W": weak}, "strong": {"W": strong}}, share=0.01)
    edges = graphs.table().set_index("model")["edges"]
    assert edges["weak"] < edges["strong"]
    assert edges.sum() == 40  # one percent of both together
    assert graphs.table()["threshold"].nunique() == 1
    assert weight_graphs({"weak": {"W": weak}}, threshold=0.2).table()["threshold"].item() == 0.2


def test_each_side_has_one_threshold_for_all_of_its_matrices_given_or_pooled():
    random = np.random.default_rng(2)
    names = ("encoder.Whz", "encoder.Whr", "decoder.Wiz")
    models = {model: {name: random.normal(size=(20, 20)) for name in names} for model in ("baseline", "guided")}
    thresholds = weight_graphs(models, THRESHOLDS).table().groupby("matrix")["threshold"].first()
    assert thresholds.to_dict() == {"encoder.Whz": 0.2, "encoder.Whr": 0.2, "decoder.Wiz": 0.17}
    pooled = weight_graphs(models, share=0.05).table()
    assert pooled["threshold"].nunique() == 2
    assert pooled[pooled["matrix"].str.startswith("encoder")]["edges"].sum() == 0.05 * 4 * 400
    with pytest.raises(BadSetting, match="no side with a threshold 'decoder'; choose one of encoder"):
        weight_graphs(models, {"encoder": 0.2})


def test_the_pooled_threshold_is_a_quantile():
    sizes = np.random.default_rng(1).normal(size=(2, 50, 40))
    result = pooled_threshold(list(sizes), 0.01)
    assert (np.abs(sizes) > result).mean() == 0.01


def test_inverse_polarities_are_distinguished_from_equal_ones():
    random = np.random.default_rng(0)
    update = random.normal(size=(30, 1)) + random.normal(0, 0.01, (30, 20))
    inverse, alike = polarity(update, -update), polarity(update, 2 * update)
    assert (inverse.correlation, alike.correlation) == pytest.approx((-1, 1))
    assert (inverse.opposite, alike.opposite) == (1, 0)
    np.testing.assert_allclose(inverse.update, update.mean(1))
    assert polarity(update, update, "previous").update.shape == (20,)
    assert np.isnan(polarity(np.ones((3, 3)), update[:3, :3]).correlation)


def test_a_units_strength_counts_what_leads_to_it_and_from_it():
    incoming, outgoing = np.array([[1.0, -3.0], [0.0, 0.0]]), np.array([[0.0, 4.0], [0.0, -2.0]])
    assert strengths({"in": incoming}).tolist() == [2, 0]
    assert strengths(outgoing={"out": outgoing}).tolist() == [0, 3]
    assert strengths({"in": incoming}, {"out": outgoing}).tolist() == [1, 1.5]


def test_five_percent_of_512_units_are_26():
    assert len(strongest_units(np.random.default_rng(0).normal(size=512))) == 26
    assert strongest_units(np.array([1.0, 2.0])) == (1,)


@pytest.mark.parametrize(("cell", "parts"), [("gru", "rzn"), ("lstm", "ifgo")])
def test_the_matrices_of_a_model_are_torchs_in_its_order(cell, parts):
    model = encoder_decoder(cell=cell)
    matrices = gate_matrices(model)
    assert len(matrices) == 2 * 2 * len(parts)
    for side in ("encoder", "decoder"):
        rnn = getattr(model, side).ahead[0].rnn
        together = np.concatenate([matrices[f"{side}.Wh{part}"] for part in parts])
        np.testing.assert_array_equal(together, rnn.weight_hh_l0.detach())


def test_the_update_gates_matrix_opens_the_gate_that_keeps():
    model = encoder_decoder(cell="gru")
    with torch.no_grad():
        model.encoder.ahead[0].rnn.weight_ih_l0[8:16] = 20.0
    assert gate_matrices(model)["encoder.Wiz"].min() == 20
    inputs, first = torch.ones(1, 1, 12).double(), (torch.zeros(1, 8).double(),)
    cell = model.encoder.ahead[0]
    assert cell.gates(inputs, cell(inputs, first), first)["keep"].min() > 0.99


def test_layers_and_directions_are_in_the_names():
    model = encoder_decoder(layers=2, bidirectional=True, attention="bilinear")
    names = gate_matrices(model)
    assert {"encoder.1.ahead.Wiz", "encoder.2.back.Whr", "decoder.2.Whn"} <= set(names)
    with pytest.raises(BadSetting, match="one layer in one direction"):
        unit_strengths(model, "encoder")


def test_matrices_are_copies_of_the_parameters():
    model = encoder_decoder()
    gate_matrices(model)["encoder.Whz"][:] = 7
    assert (model.encoder.ahead[0].rnn.weight_hh_l0 < 7).all()


def test_the_strength_of_a_models_units_is_the_mean_over_its_matrices():
    model = encoder_decoder()
    rnn = model.encoder.ahead[0].rnn
    rows = [np.abs(w.detach().numpy()).reshape(3, 8, -1).mean(2) for w in (rnn.weight_ih_l0, rnn.weight_hh_l0)]
    columns = np.abs(rnn.weight_hh_l0.detach().numpy()).reshape(3, 8, 8).mean(1)
    np.testing.assert_allclose(unit_strengths(model, "encoder"), np.concatenate([*rows, columns]).mean(0))
    np.testing.assert_allclose(unit_strengths(model, "encoder", "incoming"), np.concatenate(rows).mean(0))
    np.testing.assert_allclose(unit_strengths(model, "encoder", "outgoing"), columns.mean(0))


def test_embeddings_are_words_by_dimensions():
    words = [f"w{i}" for i in range(WORDS)]
    model = encoder_decoder(inputs="learned")
    result = embedding_table(model, "decoder", words)
    np.testing.assert_array_equal(result.table().to_numpy(), model.target_inputs.table.detach())
    assert list(result.table().index) == words
    with pytest.raises(BadSetting, match="one-hot tokens have no embedding"):
        embedding_table(encoder_decoder(), "encoder", words)
    with pytest.raises(BadSetting, match="there are 1 words for the"):
        embedding_table(model, "encoder", ["w"])


def test_figures_are_drawn():
    graphs = weight_graphs({"baseline": {"W": MATRIX}, "guided": {"W": MATRIX}}, 0.2)
    words = [f"w{i}" for i in range(WORDS)]
    answers = (
        graphs, graphs.graphs["guided", "W"], polarity(MATRIX, -MATRIX),
        embedding_table(encoder_decoder(inputs="learned"), "encoder", words),
    )  # fmt: skip
    for answer in answers:
        _, (ax,) = plots.panels()
        assert answer.plot(ax) is ax


def test_invalid_input_is_refused():
    with pytest.raises(BadSetting, match="do not have the same matrices"):
        weight_graphs({"a": {"W": MATRIX}, "b": {"V": MATRIX}})
    with pytest.raises(BadSetting, match="must not be negative"):
        weight_graph(MATRIX, -0.1)
    with pytest.raises(BadSetting, match="not two gates of one network"):
        polarity(MATRIX, MATRIX.T)
    with pytest.raises(BadSetting, match="choose a 'gru' or an 'lstm'"):
        gate_matrices(encoder_decoder(cell="ugrnn"))
    with pytest.raises(BadSetting, match="different numbers of units"):
        strengths({"W": MATRIX}, {"W": MATRIX})
