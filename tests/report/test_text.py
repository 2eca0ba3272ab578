"""Verdicts in a terminal, and reports in Markdown."""

from io import StringIO

import pytest
from rich.console import Console

from attnscope.report import claims_table, write_markdown


def printed(result, width=100):
    stream = StringIO()
    Console(file=stream, width=width).print(claims_table(result))
    return stream.getvalue()


def test_each_claim_is_a_line_with_icon_word_and_evidence(result):
    text = printed(result, width=200)
    assert "✓ holds" in text
    assert "✗ fails" in text
    assert "? undecided" in text
    assert "undecided: there is no corpus" in text
    assert "claimed: at least 0.99" in text


def test_brackets_in_a_claim_are_escaped(result):
    assert "in every seed [/bold]" in printed(result, width=200)


def test_a_quick_profile_is_labelled(make):
    assert "(quick profile)" in printed(make())
    assert "quick" not in printed(make(profile="paper"))


@pytest.mark.parametrize("width", [40, 80])
def test_nothing_is_cut_off_in_a_narrow_terminal(result, width):
    text = printed(result, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_tags_and_entities_in_a_markdown_report_are_escaped(make, tmp_path):
    page = write_markdown([make(title="<b>bold</b> &amp; t < s", notes=["<script>"])], tmp_path / "page.md").read_text()
    assert ": &lt;b>bold&lt;/b> &amp;amp; t < s\n" in page
    assert "- &lt;script>" in page
