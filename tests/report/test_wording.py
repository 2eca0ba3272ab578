"""The format of numbers and times."""

import pytest

from attnscope.report import wording
from attnscope.studies.result import row


def test_a_single_seed_shows_no_spread_and_no_seed_shows_no_number():
    assert wording.ours(row(values=[0.5])) == "0.5"
    assert wording.ours(row(values=[])) == "no number"
    assert wording.difference(row(values=[], published=0.5)) == "–"


def test_negative_numbers_have_a_minus_sign():
    assert wording.ours(row(values=[-0.5, -0.7])) == "−0.6 ± 0.14"
    assert wording.published(row(values=[1], published=-0.5)) == "−0.5"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59.4 s"), (60, "1 min 0 s"), (3599.7, "1 h 0 min"), (90061, "25 h 1 min")]
)
def test_durations_are_rounded_to_readable_units(seconds, text):
    assert wording.duration(seconds) == text


def test_zero_seeds_can_be_described():
    assert wording.seeds([]) == "0 ()"


def test_notes_about_limits_are_separated_from_other_notes(make):
    result = make(notes=["What this does not show: a cause.", "what this does not show, a reason", "Other."])
    assert wording.limits(result) == ["a cause.", "a reason"]
    assert wording.remarks(result) == ["Other."]
