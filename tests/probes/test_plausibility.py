"""Agreement with human rationales: against scikit-learn, ERASER's definitions as explicit loops, and by hand."""

from dataclasses import replace
from itertools import combinations, permutations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve

from attnscope.errors import AttnscopeError, BadSetting
from attnscope.probes.plausibility import (
    PlausibilityAccumulator,
    average_precision,
    expected_average_precision,
    expected_token_f1,
    iou_f1,
    number_runs,
    precision_recall_auc,
    rationale_mass,
    text_plausibility,
    token_f1,
)
from attnscope.probes.removal import random_score
from attnscope.probes.scores import TokenScores
from attnscope.tasks import CORPORA, END, PAD, SPECIALS, START, Batch


def texts(marks, seed=0, soft=0.0):
    """Random words around which special tokens stand; each row of marks is a text."""
    torch.manual_seed(seed)
    width = max(map(len, marks)) + 2
    source, rationale = torch.full((len(marks), width), PAD), torch.zeros(len(marks), width)
    for i, row in enumerate(marks):
        source[i, : len(row) + 2] = torch.tensor([START, *torch.randint(3, 50, (len(row),)).tolist(), END])
        rationale[i, 1 : len(row) + 1] = torch.tensor(row).float().clamp(min=soft)
    target = torch.full((len(marks), 1), len(SPECIALS))
    return Batch(source, source != PAD, target, target > 0, rationale=rationale)


@st.composite
def marked_texts(draw):
    """TokenScores with many ties and marks with at least one."""
    length = draw(st.integers(1, 12))
    values = draw(st.lists(st.integers(-3, 3), min_size=length, max_size=length))
    marks = draw(st.lists(st.booleans(), min_size=length, max_size=length).filter(any))
    return values, marks


def rows_of(examples):
    """Several texts as one batch behind padding that is wrong on purpose."""
    width = max(len(values) for values, _ in examples) + 2
    scores, marked = torch.full((len(examples), width), torch.nan), torch.ones(len(examples), width) > 0
    words = torch.zeros(len(examples), width) > 0
    for i, (values, marks) in enumerate(examples):
        there = slice(1, len(values) + 1)
        scores[i, there], marked[i, there], words[i, there] = torch.tensor(values).float(), torch.tensor(marks), True
    return scores, marked, words


@settings(max_examples=60, deadline=None)
@given(st.lists(marked_texts(), min_size=1, max_size=5))
def test_average_precision_and_area_are_those_of_scikit_learn(examples):
    precision, area = average_precision(*rows_of(examples)), precision_recall_auc(*rows_of(examples))
    for i, (values, marks) in enumerate(examples):
        assert float(precision[i]) == pytest.approx(average_precision_score(marks, values))
        p, r, _ = precision_recall_curve(marks, values)
        assert float(area[i]) == pytest.approx(auc(r, p))


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 1), (5, 1), (5, 2), (5, 5), (6, 3)])
def test_the_chance_of_average_precision_is_the_mean_over_all_orders(size, count):
    marks = np.arange(size) < count
    every = [average_precision_score(marks, order) for order in permutations(range(size))]
    words = torch.ones(1, size) > 0
    result = expected_average_precision(torch.from_numpy(marks)[None], words)
    assert float(result) == pytest.approx(np.mean(every))


@pytest.mark.parametrize(("size", "count", "chosen"), [(5, 2, 2), (5, 2, 4), (6, 1, 3), (4, 4, 1)])
def test_the_chance_of_token_f1_is_the_mean_over_all_choices(size, count, chosen):
    marked = torch.arange(size)[None] < count
    every = []
    for some in combinations(range(size), chosen):
        mine = torch.zeros(1, size, dtype=torch.bool)
        mine[0, list(some)] = True
        every.append(float(token_f1(mine, marked)))
    result = expected_token_f1(*(torch.tensor([n]) for n in (chosen, count, size)))
    assert float(result) == pytest.approx(np.mean(every))


def bits(text):
    return torch.tensor([[letter == "x" for letter in text]])


@pytest.mark.parametrize(
    ("chosen", "marked", "token", "iou"),
    [
        ("xx..xx", "xx..xx", 1.0, 1.0),
        ("xx....", "xx..xx", 2 / 3, 2 / 3),  # one run of one is right, of two that are wanted
        ("x.....", "xx....", 2 / 3, 1.0),  # half of the union is enough
        ("x.....", "xxx...", 1 / 2, 0.0),  # a third is not
        ("xxx.xx", "xxxxxx", 10 / 11, 2 / 3),  # 3 of 6 overlaps, 2 of 6 does not: one of two, one of one
        (".xx...", "xx....", 1 / 2, 0.0),  # 1 of 3
        ("......", "xx....", 0.0, 0.0),
        ("xx..xx", "......", np.nan, np.nan),
        ("x.x.x.", "xxxxxx", 2 / 3, 0.0),
    ],
)
def test_f1_of_words_and_of_runs_by_hand(chosen, marked, token, iou):
    assert float(token_f1(bits(chosen), bits(marked))) == pytest.approx(token, nan_ok=True)
    assert float(iou_f1(bits(chosen), bits(marked))) == pytest.approx(iou, nan_ok=True)


def spans(row):
    """Begin and end of each run, by a loop."""
    result, start = [], None
    for i, there in enumerate([*row, False]):
        if there and start is None:
            start = i
        if not there and start is not None:
            result.append(range(start, i))
            start = None
    return result


def slow_iou_f1(chosen, marked):
    """As ERASER's code has it: a chosen run counts where its best overlap with a marked one reaches a half."""
    mine, theirs = spans(chosen), spans(marked)
    best = [max((len({*a} & {*b}) / len({*a} | {*b}) for b in theirs), default=0) for a in mine]
    right = sum(overlap >= 0.5 for overlap in best)
    precision, recall = right / len(mine) if mine else 0, right / len(theirs)
    return 2 * precision * recall / (precision + recall) if right else 0.0


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(*[st.lists(st.booleans(), min_size=10, max_size=10)] * 2), min_size=1, max_size=4))
def test_f1_of_runs_equals_the_definition_of_eraser(examples):
    chosen, marked = (torch.tensor([pair[side] for pair in examples]) for side in (0, 1))
    result = iou_f1(chosen, marked)
    for i, (mine, theirs) in enumerate(examples):
        if any(theirs):
            assert float(result[i]) == pytest.approx(slow_iou_f1(mine, theirs))
        else:
            assert torch.isnan(result[i])
    assert number_runs(chosen).amax(1).tolist() == [len(spans(mine)) for mine, _ in examples]


def test_a_score_that_is_the_rationale_is_perfect():
    batch = texts([[1, 0, 0, 1, 1, 0], [0, 1, 0], [0, 0, 0, 1]])
    table = text_plausibility(batch, batch.rationale).table()
    for measure in ("average_precision", "area", "token_f1", "iou_f1", "mass"):
        assert (table[measure] == 1).all()
    assert table["mass_chance"].tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 4])
    assert table["token_f1_chance"].tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 4])


def test_random_scores_have_the_expected_chance_level():
    marks = (torch.rand(60, 30, generator=torch.Generator().manual_seed(0)) < 0.3).int().tolist()
    batch = texts(marks)
    means = pd.DataFrame(
        [text_plausibility(batch, random_score(batch, 100 + i)).table().mean() for i in range(10)]
    ).mean()
    for measure in ("average_precision", "area", "token_f1", "iou_f1", "mass"):
        assert means[measure] == pytest.approx(means[f"{measure}_chance"], abs=0.02)


def test_a_constant_score_has_the_chance_level():
    """Ties are broken at random: it is not the first words of a text that are chosen."""
    batch = texts([[1] * 10 + [0] * 20] * 200)
    batch = replace(
        batch, source=torch.where(batch.source >= 3, torch.randint(3, 50, batch.source.shape), batch.source)
    )
    table = text_plausibility(batch, torch.ones(batch.source.shape)).table().mean()
    assert table["token_f1"] == pytest.approx(1 / 3, abs=0.03)
    assert table["average_precision"] == pytest.approx(1 / 3)  # all words pass the one threshold together
    assert table["mass"] == pytest.approx(1 / 3)


def test_a_word_that_half_of_the_people_marked_is_marked():
    batch = texts([[0.5, 0.49, 0.0, 1.0]])
    assert text_plausibility(batch, batch.rationale).mass_chance.tolist() == [0.5]


def test_the_mass_on_marked_words_is_of_words_alone_and_needs_a_score_without_negative_values():
    values = torch.tensor([[0.5, 0.3, 0.2, 9.0], [0.5, -0.3, 0.2, 0.0]])
    words, marked = torch.tensor([[True, True, True, False]] * 2), torch.tensor([[True, False, False, True]] * 2)
    assert rationale_mass(values, marked & words, words).tolist() == pytest.approx([0.5, np.nan], nan_ok=True)


def test_a_fixed_share_of_words_may_be_chosen_in_place_of_as_many_as_are_marked():
    batch = texts([[1, 0, 0, 0, 0, 0, 0, 0, 0, 1]])
    result = text_plausibility(batch, batch.rationale, share=0.4)
    assert result.token_f1.tolist() == pytest.approx([2 * 2 / (4 + 2)])
    assert result.token_f1_chance.tolist() == pytest.approx([2 * 4 * 0.2 / (4 + 2)])


def test_texts_without_a_marked_word_are_left_out_and_counted():
    accumulator = PlausibilityAccumulator()
    batch = texts([[1, 0, 0], [0, 0, 0], [0, 1]])
    accumulator.update(batch, {"attention": random_score(batch, 0)})
    assert (accumulator.result().texts, accumulator.result().left_out) == (2, 1)


def test_results_do_not_depend_on_batches_or_padding():
    marks = [[1, 0, 0, 1, 0, 1, 1], [0, 1, 0], [0, 1, 1, 0, 0]]
    batch = texts(marks)
    whole, wide = text_plausibility(batch, random_score(batch, 1)), batch.widened(15, 1)
    padded = text_plausibility(wide, random_score(wide, 1))
    for i, row in enumerate(marks):
        length = len(row) + 2
        tensors = {name: value[i : i + 1, :length] for name, value in batch.tensors().items()}
        one = Batch(**tensors)
        single = text_plausibility(one, random_score(one, 1))
        for name, value in vars(whole).items():
            torch.testing.assert_close(getattr(single, name)[0], value[i])
            torch.testing.assert_close(getattr(padded, name)[i], value[i])


def test_two_halves_merged_are_the_whole_and_scores_stand_beside_each_other():
    batch, other = texts([[1, 0, 0], [0, 1, 1, 0]]), texts([[0, 0, 1, 0, 0]], seed=1)
    whole, one, two = PlausibilityAccumulator(), PlausibilityAccumulator(), PlausibilityAccumulator()
    for gathered, some in ((whole, batch), (whole, other), (one, batch), (two, other)):
        score = TokenScores(random_score(some, 4)[:, None], some.source_mask, some.target_mask, "mine")
        gathered.update(some, {"mine": score, "theirs": some.rationale})
    one.merge(two)
    table = one.result().table()
    pd.testing.assert_frame_equal(table, whole.result().table())
    assert list(table.index) == ["mine", "theirs"]
    ax = one.result().plot()
    assert [bar.get_text() for bar in ax.get_legend().get_texts()] == ["mine", "theirs", "chance"]
    plt.close(ax.figure)


def test_invalid_requests_are_refused_with_a_message():
    batch = texts([[1, 0]])
    with pytest.raises(AttnscopeError, match="no rationales; add a field `rationale`"):
        text_plausibility(replace(batch, rationale=None), random_score(batch, 0))
    with pytest.raises(BadSetting, match="share must be above 0 and at most 1, not 0"):
        PlausibilityAccumulator(share=0.0)
    with pytest.raises(BadSetting, match="there are no scores"):
        PlausibilityAccumulator().update(batch, {})
    empty, accumulator = texts([[0, 0]]), PlausibilityAccumulator()
    accumulator.update(empty, {"mine": random_score(empty, 0)})
    with pytest.raises(AttnscopeError, match="all 1 texts were left out"):
        accumulator.result()
    accumulator = PlausibilityAccumulator()
    accumulator.update(batch, {"mine": random_score(batch, 0)})
    with pytest.raises(AttnscopeError, match="every text needs the same scores: first mine, then yours"):
        accumulator.update(batch, {"yours": random_score(batch, 0)})


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "share"), [("eraser_movies", 0.314), ("yelp_rationales", 0.125)])
def test_a_random_score_gets_chance_on_real_rationales(corpus, name, share):
    accumulator = PlausibilityAccumulator(draws=2)
    for batch in CORPORA[name].batches("test", 64):
        accumulator.update(batch, {"random": random_score(batch, 50)})
    table = accumulator.result().table().loc["random"]
    assert table["mass_chance"] == pytest.approx(share, abs=0.02)
    for measure in ("average_precision", "token_f1", "mass"):
        assert table[measure] == pytest.approx(table[f"{measure}_chance"], abs=0.03)
