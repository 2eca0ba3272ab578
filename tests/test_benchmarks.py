"""The benchmarks run at a tiny size."""

import pytest
from benchmarks import decomposition, information, kendall


@pytest.mark.parametrize("decoding", ["teacher_forced", "greedy"])
def test_decomposition_is_compared_with_its_forward_passes(decoding: str) -> None:
    times = decomposition.time_ratio(640, decoding)
    assert times["decompose_s"] > 0
    assert times["alone_s"] > 0


def test_kendall_and_information_report_numbers() -> None:
    assert kendall.main(rows=20)
    assert information.main(tokens=2_000)
