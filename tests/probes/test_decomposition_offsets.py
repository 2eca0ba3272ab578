"""Offsets of the temporal term, the expected offset of a task, and the alignment of readouts with input components."""

import math

import pytest
import torch
from decomposition_examples import WORDS, Tiny, batch_of, random_batch

from attnscope.probes.decomposition import (
    ComponentAccumulator,
    Components,
    ExpectedOffset,
    offset_profile,
    readout_alignment,
    readout_per_head,
)
from attnscope.tasks.batch import NOWHERE, Batch


def components(temporal: torch.Tensor) -> Components:
    time, key = temporal.shape
    return Components(temporal[None].double(), torch.zeros(1, 1, key).double(), torch.ones(1, time).long())


def test_the_profile_reads_the_temporal_products_along_the_offset() -> None:
    torch.manual_seed(0)
    decoder, encoder = components(torch.randn(6, 4)), components(torch.randn(8, 4))
    profile = offset_profile(decoder, encoder, max_offset=2)
    assert profile.offsets.tolist() == [-2, -1, 0, 1, 2]
    for s in range(6):
        for i, offset in enumerate(profile.offsets.tolist()):
            value = profile.values[0, s, i].item()
            if 0 <= s + offset < 8:
                assert value == pytest.approx(float(decoder.temporal[0, s] @ encoder.temporal[0, s + offset]))
            else:
                assert math.isnan(value)


def test_the_largest_offset_is_where_decoder_and_encoder_are_shifted_copies() -> None:
    curve = torch.eye(9)
    profile = offset_profile(components(curve[2:7]), components(curve))  # step s of the decoder looks like s + 2
    assert profile.largest[0].tolist() == [2] * 5


def test_a_decoder_step_out_of_reach_of_the_encoder_has_no_largest_offset() -> None:
    profile = offset_profile(components(torch.eye(9)), components(torch.eye(9)[:2]), max_offset=3)
    assert profile.largest[0].isnan().tolist() == [False] * 5 + [True] * 4


def guided(guide: list[list[int]], mask: list[list[bool]]) -> Batch:
    values, real = torch.tensor(guide), torch.tensor(mask)
    return Batch(values, real, values, real, values)


def test_the_expected_offset_is_the_mean_of_guide_less_step_without_padding_and_without_nowhere() -> None:
    expected = ExpectedOffset()
    expected.update(guided([[0, 3, 5], [2, NOWHERE, 9]], [[True, True, True], [True, True, False]]))
    torch.testing.assert_close(expected.result(), torch.tensor([1.0, 2.0, 3.0]).double())


def test_halves_of_the_expected_offset_merged_equal_the_whole() -> None:
    batches = [random_batch(4, seed=i, longest=2 + 2 * i) for i in range(4)]
    whole, first, second = ExpectedOffset(), ExpectedOffset(), ExpectedOffset()
    for i, batch in enumerate(batches):
        whole.update(batch)
        (first if i < 2 else second).update(batch)
    first.merge(second)
    torch.testing.assert_close(first.result(), whole.result(), equal_nan=True)


def test_without_a_guide_nothing_is_expected() -> None:
    expected = ExpectedOffset()
    batch = batch_of([[3]], [[3]])
    expected.update(Batch(batch.source, batch.source_mask, batch.target, batch.target_mask))
    assert expected.result() is None


def test_the_table_puts_the_expected_offset_beside_the_largest() -> None:
    same = components(torch.eye(5))
    table = offset_profile(same, same, expected=torch.tensor([0.0, 0.5])).table()
    assert list(table.columns) == [*range(-5, 6), "largest", "expected"]
    assert table["largest"].tolist() == [0] * 5
    assert table["expected"].tolist()[:2] == [0, 0.5]
    assert table["expected"][2:].isna().all()


def translation() -> tuple[torch.Tensor, Components]:
    """Input word 3 becomes 5, 4 becomes 4, 5 becomes 3; word 6 has no output of its own, and word 7 was never seen."""
    axes = torch.eye(8).double()
    readout = torch.stack([axes[0], axes[1], axes[2], axes[5], axes[4], axes[3]])
    input_ = axes.clone()
    input_[1] = 9 * axes[3]  # the end token is larger than any word, and yet has no say
    input_[6] = 0.1 * axes[3] + axes[6]
    input_[7] = 20 * axes.sum(0)
    counts = torch.tensor([0, 2, 0, 5, 5, 5, 5, 0])[:, None]
    return readout, Components(torch.zeros(1, 1, 8).double(), input_[None], counts)


def test_readout_alignment_covers_the_words_that_occurred() -> None:
    alignment = readout_alignment(*translation())
    assert alignment.dictionary() == {3: 5, 4: 4, 5: 3}
    assert alignment.inverse() == {3: 5, 4: 4, 5: 3, 6: 5}
    torch.testing.assert_close(alignment.products[3, 5], torch.tensor(1.0).double())


def test_the_readout_table_names_words() -> None:
    names = ["<pad>", "<end>", "<start>", "run", "walk", "jump", "and", "never"]
    table = readout_alignment(*translation()).table(inputs=names, outputs=names)
    assert list(table.columns) == ["run", "walk", "jump", "and"]
    assert table.loc["run"].idxmax() == "jump"


def test_a_readout_is_split_by_head() -> None:
    model = Tiny(heads=2).eval()
    fit = ComponentAccumulator()
    fit.update(model(random_batch(10, seed=0)))
    pieces = readout_per_head(model.output.weight, 2)
    assert pieces.shape == (2, WORDS, 4)
    alignments = [readout_alignment(piece, fit.result().encoder, head) for head, piece in enumerate(pieces)]
    together = sum(alignment.products for alignment in alignments)
    whole = torch.cat(list(fit.result().encoder.input), -1)
    torch.testing.assert_close(together, model.output.weight.detach() @ whole.T)
