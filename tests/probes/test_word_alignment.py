"""Links from scores, their file format, and error rates counted by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnscope import plots
from attnscope.errors import AttnscopeError, BadSetting
from attnscope.probes.word_alignment import (
    AlignmentAccumulator,
    AlignmentQuality,
    GoldAlignment,
    alignment_from_pharaoh,
    argmax_alignment,
    gold_from_pharaoh,
    intersect_alignments,
    read_pharaoh,
    subword_to_word_alignment,
    threshold_alignment,
    to_pharaoh,
    transpose_alignment,
)

SCORES = torch.tensor([
    [[0.1, 0.7, 0.2], [0.6, 0.3, 0.1], [0.0, 0.1, 0.9]],
    [[0.5, 0.5, 9.0], [0.2, 0.8, 9.0], [9.0, 9.0, 9.0]],
])  # fmt: skip
SOURCE_MASK = torch.tensor([[True, True, True], [True, True, False]])
TARGET_MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_each_target_word_is_linked_to_its_highest_source_word():
    links = argmax_alignment(SCORES, SOURCE_MASK, TARGET_MASK)
    assert links == [{(1, 0), (0, 1), (2, 2)}, {(0, 0), (1, 1)}]  # a tie goes to the first; padding is never linked


def test_a_target_word_won_by_an_unlinked_position_has_no_link():
    end = torch.tensor([[False, False, True], [False, True, False]])
    links = argmax_alignment(SCORES, SOURCE_MASK, TARGET_MASK, unlinked=end)
    assert links == [{(1, 0), (0, 1)}, {(0, 0)}]
    competing = argmax_alignment(SCORES, SOURCE_MASK & ~end, TARGET_MASK)
    assert competing[0] == {(1, 0), (0, 1), (1, 2)}


def test_scores_on_padding_may_be_nan():
    padding = ~(TARGET_MASK[:, :, None] & SOURCE_MASK[:, None])
    blank = SCORES.masked_fill(padding, torch.nan)
    assert argmax_alignment(blank, SOURCE_MASK, TARGET_MASK) == argmax_alignment(SCORES, SOURCE_MASK, TARGET_MASK)
    assert threshold_alignment(blank, SOURCE_MASK, TARGET_MASK, 0.5)[1] == {(0, 0), (1, 0), (1, 1)}


def test_a_threshold_links_whatever_reaches_it():
    links = threshold_alignment(SCORES, SOURCE_MASK, TARGET_MASK, threshold=0.3)
    assert links[0] == {(1, 0), (0, 1), (1, 1), (2, 2)}


def test_the_intersection_has_the_links_of_both_directions():
    forward = argmax_alignment(SCORES, SOURCE_MASK, TARGET_MASK)
    backward = argmax_alignment(SCORES.mT, TARGET_MASK, SOURCE_MASK)  # each source word to its highest target word
    both = intersect_alignments(forward, [transpose_alignment(links) for links in backward])
    assert both == [{(1, 0), (0, 1), (2, 2)}, {(0, 0), (1, 1)}]
    assert intersect_alignments([{(0, 0), (1, 1)}], [{(1, 1)}]) == [{(1, 1)}]
    with pytest.raises(BadSetting, match="alignments of 1 sentences, but of 2"):
        intersect_alignments([set()], [set(), set()])


def test_alignments_of_subwords_become_alignments_of_words():
    assert subword_to_word_alignment({(0, 1), (1, 2), (3, 0)}, [0, 0, 1, 2], [0, 0, 1]) == {(0, 0), (0, 1), (2, 0)}


# error rates


def quality(links, sure, possible=()) -> AlignmentQuality:
    align = AlignmentAccumulator()
    align.update(links, GoldAlignment.of(sure, possible))
    return align.result()


def test_the_four_numbers_of_an_example_counted_by_hand():
    """A = {00, 11, 22, 30}, S = {00, 11, 33}, P = S and {22}."""
    result = quality([(0, 0), (1, 1), (2, 2), (3, 0)], sure=[(0, 0), (1, 1), (3, 3)], possible=[(2, 2)])
    assert result.precision == pytest.approx(3 / 4)
    assert result.recall == pytest.approx(2 / 3)
    assert result.f1 == pytest.approx(2 * (3 / 4) * (2 / 3) / (3 / 4 + 2 / 3))
    assert result.error_rate == pytest.approx(1 - (2 + 3) / (4 + 3))


def test_where_every_possible_link_is_sure_the_error_rate_is_one_less_f1():
    result = quality([(0, 0), (1, 0), (2, 2)], sure=[(0, 0), (1, 1), (2, 2), (3, 3)])
    assert result.error_rate == pytest.approx(1 - result.f1)


def test_all_sure_links_and_any_possible_ones_make_no_error():
    assert quality([(0, 0), (5, 5)], sure=[(0, 0)], possible=[(5, 5), (6, 6)]).error_rate == 0


def test_an_empty_alignment_has_no_precision():
    result = quality([], sure=[(0, 0)])
    assert math.isnan(result.precision)
    assert result.recall == 0
    assert result.error_rate == 1
    assert quality([(1, 1)], sure=[(0, 0)]).f1 == 0


def test_counts_are_summed_over_sentences_before_they_are_divided():
    sentences = [([(0, 0)], [(0, 0)]), ([(0, 1), (1, 1)], [(1, 1), (2, 2), (3, 3)]), ([(4, 4)], [(4, 4)])]
    whole, first, second = AlignmentAccumulator(), AlignmentAccumulator(), AlignmentAccumulator()
    for i, (links, sure) in enumerate(sentences):
        whole.update(links, GoldAlignment.of(sure))
        (first if i < 2 else second).update(links, GoldAlignment.of(sure))
    first.merge(second)
    assert first.result() == whole.result()
    assert whole.result().precision == pytest.approx(3 / 4)
    assert whole.result().recall == pytest.approx(3 / 5)
    assert whole.result().sentences == 3


def test_sure_links_must_be_possible():
    with pytest.raises(BadSetting, match="a sure point is missing among the possible ones"):
        GoldAlignment(sure=frozenset({(0, 0)}), possible=frozenset())


def test_it_has_a_table_and_a_figure():
    result = quality([(0, 0)], sure=[(0, 0), (1, 1)])
    assert result.table()["recall"].tolist() == [0.5]
    _, (ax,) = plots.panels()
    assert result.plot(ax) is ax


@pytest.mark.corpus
def test_the_gold_links_of_the_hansards_are_all_there(corpus):
    """Och and Ney 2003: 447 sentence pairs, 4,038 sure links and 13,400 that are only possible."""
    rows = corpus("word_alignments/en-fr_hansards.jsonl.gz")
    gold = [GoldAlignment.of(row["alignment"], row["possible"]) for row in rows]
    assert len(gold) == 447
    assert sum(len(links.sure) for links in gold) == 4038
    assert sum(len(links.possible - links.sure) for links in gold) == 13400
    align = AlignmentAccumulator()
    for links in gold:
        align.update(links.sure, links)
    assert align.result().error_rate == 0


# Pharaoh format


positions = st.integers(0, 60)


@given(st.frozensets(st.tuples(positions, positions), max_size=20), st.sampled_from([0, 1]))
def test_the_pharaoh_format_is_read_back(links, base):
    assert alignment_from_pharaoh(to_pharaoh(links, base=base), base=base) == links


def test_the_index_base_is_stated_and_kept():
    assert to_pharaoh({(0, 0), (1, 2)}, base=0) == "0-0 1-2"
    assert to_pharaoh({(0, 0), (1, 2)}, base=1) == "1-1 2-3"
    with pytest.raises(TypeError, match="base"):
        to_pharaoh({(0, 0)})
    with pytest.raises(BadSetting, match="base is 0 or 1, not 2"):
        to_pharaoh({(0, 0)}, base=2)
    with pytest.raises(AttnscopeError, match="'0-1' counts from 0, but base=1"):
        alignment_from_pharaoh("0-1", base=1)


def test_possible_links_bear_a_p():
    gold = gold_from_pharaoh("1-1 2p3\n", base=1)
    assert gold.sure == {(0, 0)}
    assert gold.possible == {(0, 0), (1, 2)}


def test_a_malformed_line_is_named(tmp_path):
    path = tmp_path / "gold.txt"
    path.write_text("0-0 1-1\n\n2-2\n", encoding="utf-8")
    assert [len(gold.sure) for gold in read_pharaoh(path, base=0)] == [2, 0, 1]
    path.write_text("0-0\n1:1\n", encoding="utf-8")
    with pytest.raises(AttnscopeError, match=r"gold.txt, line 2: '1:1' is not an alignment point; expected"):
        read_pharaoh(path, base=0)
