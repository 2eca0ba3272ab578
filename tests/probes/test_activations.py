"""Concentration separates units with few values from those that use their whole range."""

import numpy as np
import pytest
import torch

from attnscope import plots
from attnscope.errors import BadSetting
from attnscope.probes.gates import activations, concatenate_activations, concentration

STEPS = 2001


def example():
    """A constant unit, one that uses its range evenly, one of two values."""
    even = np.linspace(-1, 1, STEPS)
    values = np.stack([np.full(STEPS, 0.3), even, np.sign(even + 1e-9)], 1)
    return torch.from_numpy(values)[None], torch.ones(1, STEPS, dtype=torch.bool)


def test_a_constant_unit_has_concentration_one_and_a_uniform_one_a_tenth():
    result = activations(*example(), num_sampled=None)
    np.testing.assert_allclose(result.concentration, [1, 0.1, 0.5], atol=1e-3)
    np.testing.assert_allclose(result.covered, [0, 1, 1])


def test_the_concentration_equals_an_explicit_search():
    values = np.random.default_rng(0).normal(size=(60, 4))
    slow = [max(((u >= low) & (u <= low + 0.2)).mean() for low in u) for u in values.T]
    np.testing.assert_allclose(concentration(values, 0.2), slow)


def test_padding_is_ignored_and_batches_are_merged():
    states, mask = torch.randn(6, 4, 5).tanh(), torch.ones(6, 4, dtype=torch.bool)
    mask[::2, 2:] = False
    states = states.masked_fill(~mask[..., None], torch.nan)
    whole = activations(states, mask, num_sampled=3, seed=1)
    parts = [activations(states[i : i + 2], mask[i : i + 2], num_sampled=3, seed=1) for i in (0, 2, 4)]
    np.testing.assert_array_equal(concatenate_activations(parts).values, whole.values)
    assert not np.isnan(whole.values).any()
    assert len(whole.values) == int(mask.sum())


def test_the_same_units_are_sampled_for_every_model_of_a_size():
    one, other = (activations(torch.randn(2, 3, 100).tanh(), torch.ones(2, 3, dtype=torch.bool)) for _ in range(2))
    assert one.units == other.units
    assert len(set(one.units)) == 50


def test_its_table_and_figure_have_one_entry_per_unit():
    result = activations(*example(), num_sampled=None)
    assert list(result.table()["unit"]) == [0, 1, 2]
    _, (ax,) = plots.panels()
    assert len(result.plot(ax).get_xticks()) == 3


def test_invalid_input_is_refused():
    states, mask = example()
    with pytest.raises(BadSetting, match="from 1 to the 3 units, not 50"):
        activations(states, mask)
    with pytest.raises(BadSetting, match="the mask leaves no step"):
        activations(states, ~mask, num_sampled=1)
    with pytest.raises(BadSetting, match="different units"):
        concatenate_activations([activations(states, mask, num_sampled=1, seed=seed) for seed in (0, 1)])
    with pytest.raises(BadSetting, match="is empty"):
        activations(states, mask, num_sampled=1, range=(1.0, 0.0))
