"""Two trajectories with known answers: in the same direction, reversed, and one after the other."""

import numpy as np
import pytest
import torch

from attnscope.probes.decomposition.components import Components
from attnscope.probes.decomposition.trajectories import TemporalTrajectories, temporal_trajectories
from attnscope.probes.decomposition.words import max_deviation_from_simplex


def circle(steps):
    angles = torch.linspace(0, 3, steps, dtype=torch.float64)
    return torch.stack([angles.cos(), angles.sin()], 1)


def test_a_curve_matches_itself_and_peaks_at_its_own_step():
    same = TemporalTrajectories(circle(6), circle(6), steps=6)
    assert same.matching == pytest.approx(1)
    assert same.peak_at_own_step == 1
    assert same.table()["peak"].tolist() == list(range(6))


def test_a_reversed_trajectory_has_reversed_peaks():
    assert TemporalTrajectories(circle(6), circle(6).flip(0), steps=6).peaks.tolist() == [5, 4, 3, 2, 1, 0]


def test_steps_that_few_sentences_have_do_not_count():
    result = TemporalTrajectories(circle(6), circle(6), steps=3)
    assert len(result.peaks) == len(result.attention_near_diagonal) == len(result.table()) == 3


def test_nearness_to_the_diagonal_counts_three_positions():
    flat = TemporalTrajectories(torch.zeros(15, 2), torch.zeros(10, 2), steps=10)  # uniform attention over 15 positions
    assert flat.attention_near_diagonal.tolist() == pytest.approx([2 / 15] + [3 / 15] * 9)


def test_consecutive_trajectories_meet_at_the_end_of_the_first():
    line = torch.arange(12, dtype=torch.float64)[:, None] ** 1.1  # ever longer steps
    result = TemporalTrajectories(line[:7], line[7:], steps=5)
    assert result.meeting_step == 6
    assert result.adjacent == pytest.approx(11 / 12)  # the decoder's first is nearest to the encoder's last
    assert result.variance_explained(1) == pytest.approx(1)


def test_decoder_steps_of_half_of_the_sentences_count():
    components = Components(torch.randn(2, 4, 3), torch.randn(2, 1, 3), torch.tensor([[8, 8, 4, 3]]))
    result = temporal_trajectories(components, components, head=1)
    assert result.steps == 3
    assert torch.equal(result.encoder, components.temporal[1])
    assert result.plot().get_xlim()


def test_the_vertices_of_a_simplex_are_at_no_distance_from_one():
    corner = np.eye(4)
    assert max_deviation_from_simplex(corner * 3 + 7) == pytest.approx(0)
    corner[0] *= 5
    assert max_deviation_from_simplex(corner) > 0.2
