import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnscope.errors import BadSetting
from attnscope.tasks import Preparation
from attnscope.tasks.text import UNKNOWN_WORD
from attnscope.tasks.text.preparation import by_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Well-made, and fun!", "Well - made , and fun !"),
        ("It's what they're told; I'd go", "It 's what they 're told ; I 'd go"),
        ("can't CAN'T n't", "ca n't CA N'T n't"),
        ("'quoted' rock 'n' roll", "' quoted ' rock ' n ' roll"),
        ("\tTabs\nand  spaces ", "Tabs and spaces"),
        ("naïve café №5", "naïve café № 5"),
        ("snake_case stays", "snake_case stays"),
        ("", ""),
    ],
)
def test_raw_text_is_split_at_spaces_and_around_punctuation(text, words):
    assert by_words(text) == words.split()


@given(st.text())
def test_the_tokeniser_loses_nothing_but_spaces(text):
    assert "".join(by_words(text)) == "".join(text.split())


def test_published_tokens_are_split_at_single_spaces_only():
    assert Preparation("spaces", lower=False).words("a\u00a0b  c\tD") == ["a\u00a0b", "c\tD"]


def test_given_tokens_are_lower_cased_but_not_split():
    assert Preparation().words(["Don't", "U.S."]) == ["don't", "u.s."]
    assert Preparation(lower=False).words(["Don't", "U.S."]) == ["Don't", "U.S."]


def test_integers_of_more_than_one_digit_are_unknown_and_single_digits_are_not():
    words = Preparation(unknown_integers=True).words("in 1993 , 7 of 10 , 3.25 , 4th")
    assert words == ["in", UNKNOWN_WORD, ",", "7", "of", UNKNOWN_WORD, ",", "3", ".", UNKNOWN_WORD, ",", "4th"]


def test_underscores_split_words_if_asked_for():
    assert Preparation(split_underscores=True).words("a_b __c__") == ["a", "b", "c"]
    assert Preparation(split_underscores=True).words(["a_b", "__c__"]) == ["a", "b", "c"]


def test_headers_end_at_the_first_empty_line():
    message = "From: x\nSubject: y\n\nBody\n\nmore"
    assert Preparation(strip_headers=True).words(message) == ["body", "more"]
    assert Preparation().words(message)[:2] == ["from", ":"]
    assert Preparation(strip_headers=True).words("no headers") == ["no", "headers"]


def test_tags_are_spaces_and_comparisons_are_no_tags():
    assert Preparation(strip_tags=True).words("good.<br /><br />5 < 7 > 3 <b>x</b>") == [
        "good", ".", "5", "<", "7", ">", "3", "x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokeniser": "moses"}, "no tokeniser 'moses'; choose one of words, spaces"),
        ({"too_long": "split"}, "choose one of drop, truncate"),
        ({"max_length": 0}, "max_length must be positive or None"),
    ],
)
def test_invalid_settings_are_refused_with_a_message(settings, message):
    with pytest.raises(BadSetting, match=message):
        Preparation(**settings)
