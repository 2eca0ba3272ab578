import numpy as np
import pytest

from attnscope.errors import BadSetting
from attnscope.tasks import END, ExtendedSCAN
from attnscope.tasks.scan import all_commands

SCAN_ACTION = {"RUN": "I_RUN", "WALK": "I_WALK", "JUMP": "I_JUMP", "LTURN": "I_TURN_LEFT"}


@pytest.mark.corpus
def test_the_grammar_generates_the_phrases_of_scan(corpus):
    ours = {" ".join(c.words): " ".join(SCAN_ACTION[a] for a in c.actions) for c in all_commands(left_twice=True)}
    words = {"run", "walk", "jump", "left", "and", "twice"}
    theirs = {
        row["source"]: row["target"] for row in corpus("scan/simple.jsonl.gz") if set(row["source"].split()) <= words
    }
    assert len(theirs) == 156
    assert ours == theirs
    without = {phrase for phrase in theirs if "left twice" not in phrase}
    assert len(without) == 90
    assert {" ".join(c.words) for c in all_commands()} == without


@pytest.mark.parametrize(("shortest", "longest"), [(15, 20), (10, 15)])
def test_sentences_keep_to_the_length_rules(shortest, longest):
    task = ExtendedSCAN(min_length=shortest, max_length=longest, test_size=500)
    batch = next(task.batches(size=500))
    actions, words = batch.target_mask.sum(1) - 1, batch.source_mask.sum(1) - 1  # without the end token
    assert actions.min() >= shortest
    assert actions.max() <= longest
    assert words.max() <= 27
    assert (actions == shortest).any()
    assert actions.max() == shortest + 4  # one short of enough, then the longest command: 4 actions and a separator


def test_a_sentence_is_translated_command_by_command():
    task = ExtendedSCAN(test_size=200)
    answers = {c.words: c.actions for c in all_commands()}
    batch = next(task.batches(size=200))
    for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
        sentence = " ".join(task.source_vocabulary.decode(source[: source.index(END)]))
        commands = [tuple(part.split()) for part in sentence.split(" .") if part]
        expected = " ".join(" ".join([*answers[part], "."]) for part in commands)
        assert " ".join(task.target_vocabulary.decode(target[: target.index(END)])) == expected


def test_gold_attention_is_on_the_word_that_requires_the_action():
    task = ExtendedSCAN(test_size=100)
    batch = next(task.batches(size=100))
    for row in range(100):
        for step in range(int(batch.target_mask[row].sum())):
            action = task.target_vocabulary.tokens[batch.target[row, step]].lower()
            word = task.source_vocabulary.tokens[batch.source[row, batch.gold_attention[row, step]]]
            assert word == {"lturn": "left"}.get(action, action) or word == "twice"


def test_same_length_keeps_only_sentences_as_long_as_their_translation():
    batch = next(ExtendedSCAN(same_length=True, test_size=100).batches(size=100))
    assert (batch.source_mask.sum(1) == batch.target_mask.sum(1)).all()


def test_a_range_too_narrow_to_end_in_is_refused():
    with pytest.raises(BadSetting, match="at least 4 more than min_length"):
        ExtendedSCAN(min_length=15, max_length=16)


def test_all_commands_are_sampled_equally_often_before_the_end_of_a_sentence():
    """The first command of a sentence is never passed over, so it is uniform over the 90."""
    task = ExtendedSCAN()
    first = [sample[0] for sample in task._sample(np.random.default_rng(0), 20_000)]
    counts = np.bincount(first, minlength=90)
    expected = 20_000 / 90
    assert ((counts - expected) ** 2 / expected).sum() < 140  # chi square, 89 degrees of freedom: 0.9997 quantile
