"""Words in a made-up batch, against loops over every sentence and step."""

import numpy as np
import pytest
import torch

from attnscope.probes.decomposition.components import Parts
from attnscope.probes.decomposition.words import (
    DecomposedBatch,
    scores_around_word,
    states_by_preceding_word,
    variance_between_groups,
    word_time_products,
)

OFFSETS = range(-1, 2)
TWICE, RUN, WALK = 3, 4, 5


def parts(batch, time):
    stacked = torch.randn(batch, 1, time, 3, 4, dtype=torch.float64)
    return Parts(stacked, stacked[..., 1:, :].sum(-2))


def sentences():
    """Three of up to eight words, with up to five answers."""
    lengths, answers = torch.tensor([8, 6, 7]), torch.tensor([5, 4, 5])
    masks = torch.arange(8) < lengths[:, None], torch.arange(5) < answers[:, None]
    return DecomposedBatch(torch.randint(3, 6, (3, 8)), *masks, parts(3, 5), parts(3, 8))


@pytest.fixture(scope="module")
def stream():
    torch.manual_seed(0)
    return [sentences(), sentences()]


def real_steps(batch):
    """Every sentence and every step at which something is real_steps."""
    return batch.target_mask.nonzero().tolist()


def test_states_of_a_word_are_separated_by_the_previous_word(stream):
    result = states_by_preceding_word(stream, TWICE, {"run": RUN, "walk": WALK})
    for name, number in (("run", RUN), ("walk", WALK)):
        expected = [
            batch.keys.input_delta[b, 0, t].numpy()
            for batch in stream
            for b in range(3)
            for t in range(1, 8)
            if batch.source_mask[b, t] and batch.source[b, t] == TWICE and batch.source[b, t - 1] == number
        ]
        np.testing.assert_allclose(result[name], expected)


def test_variance_between_groups_is_one_or_zero_in_the_extremes():
    apart = {name: np.full((5, 3), value) for name, value in (("run", 0.0), ("walk", 1.0), ("jump", 5.0))}
    assert variance_between_groups(apart) == pytest.approx(1)
    noise = np.random.default_rng(0).normal(size=(3000, 3))
    assert variance_between_groups({"run": noise[:1000], "walk": noise[1000:2000], "jump": noise[2000:]}) < 0.01


def test_attention_around_a_word_is_the_mean_over_all_places_with_room_on_both_sides(stream):
    windows, hits = [], []
    for batch in stream:
        whole = (batch.queries.stacked.sum(-2) @ batch.keys.stacked.sum(-2).mT)[:, 0]
        for b, s in real_steps(batch):
            length = int(batch.source_mask[b].sum())
            if batch.source[b, s] == TWICE and 1 <= s < length - 1:
                windows.append(whole[b, s, s - 1 : s + 2].numpy())
                hits.append(int(whole[b, s, :length].argmax()) == s - 1)
    result = scores_around_word(stream, TWICE, OFFSETS)
    np.testing.assert_allclose(result.curves["score"], np.mean(windows, 0))
    np.testing.assert_allclose(result.curves["score"], result.table().drop(columns="score").sum(axis=1))
    assert result.share == pytest.approx(np.mean(hits))
    assert len(result.plot().lines) >= 4


@pytest.mark.parametrize("temporal", [True, False])
@pytest.mark.parametrize("offset", OFFSETS)
def test_word_time_products_are_mean_dot_products(stream, temporal, offset):
    values = []
    for batch in stream:
        decoder = batch.queries.temporal if temporal else batch.queries.stacked.sum(-2)
        values += [
            float(decoder[b, 0, s] @ batch.keys.input_delta[b, 0, s + offset])
            for b, s in real_steps(batch)
            if 0 <= s + offset < 8 and batch.source_mask[b, s + offset] and batch.source[b, s + offset] == RUN
        ]
    assert word_time_products(stream, {"run": RUN}, OFFSETS, temporal).at("run", offset) == pytest.approx(
        np.mean(values)
    )


def test_the_gain_of_a_word_is_its_slope_over_offsets(stream):
    result = word_time_products(stream, {"twice": TWICE, "run": RUN}, OFFSETS)
    assert result.gain("run") == pytest.approx((result.at("run", 1) - result.at("run", -1)) / 2)
    assert result.largest("run") == max(result.table()["run"])
    assert len(result.plot().lines) >= 2
