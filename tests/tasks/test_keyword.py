import numpy as np
import pytest
import torch

from attnscope.errors import BadSetting
from attnscope.tasks import END, NOWHERE, SPECIALS, Keyword

KEYWORD = len(SPECIALS)  # the word "1"


def labels(task, batch):
    return np.array(task.target_vocabulary.decode(batch.target[:, 0].tolist()))


def test_a_positive_sentence_has_the_keyword_once_and_a_negative_one_never():
    task = Keyword()
    batch = task.training_batch(0, 0, 500)
    count = (batch.source == KEYWORD).sum(1).numpy()
    assert (count == (labels(task, batch) == "present")).all()


@pytest.mark.parametrize("size", [1, 2, 31, 1000])
def test_half_of_the_sentences_are_positive(size):
    task = Keyword()
    positive = (labels(task, task.training_batch(0, 0, size)) == "present").sum()
    assert size // 2 <= positive <= (size + 1) // 2


def test_the_target_is_one_word_without_an_end():
    batch = next(Keyword().batches())
    assert batch.target.shape[1] == 1
    assert batch.target_mask.all()
    assert (batch.target != END).all()


def test_the_source_is_forty_words_and_an_end_or_forty_words():
    assert (next(Keyword().batches()).source[:, -1] == END).all()
    batch = next(Keyword(end=False).batches())
    assert batch.source.shape[1] == 40
    assert (batch.source >= len(SPECIALS)).all()


def test_gold_attention_is_on_the_keyword_where_there_is_one():
    batch = Keyword().training_batch(0, 7, 200)
    guide = batch.gold_attention[:, 0]
    there = (batch.source == KEYWORD).any(1)
    assert torch.equal(guide[there], (batch.source == KEYWORD).int().argmax(1)[there])
    assert (guide[~there] == NOWHERE).all()


def test_the_keyword_stands_anywhere_and_the_other_words_are_uniform():
    """Given how often the keyword occurs, the paper's rejected draws leave exactly this."""
    batch = Keyword(num_words=6, length=5).training_batch(0, 0, 6000)
    places = batch.gold_attention[batch.gold_attention != NOWHERE]
    others = batch.source[:, :-1][batch.source[:, :-1] != KEYWORD] - KEYWORD - 1
    for sample, kinds in ((places, 5), (others, 5)):
        share = np.bincount(sample.numpy(), minlength=kinds) / len(sample)
        assert share == pytest.approx(np.full(kinds, 1 / kinds), abs=4 * (0.16 / len(sample)) ** 0.5)


@pytest.mark.parametrize(
    ("settings_", "message"), [({"num_words": 1}, "num_words must be at least 2"), ({"length": 0}, "at least one word")]
)
def test_invalid_settings_are_refused_with_a_message(settings_, message):
    with pytest.raises(BadSetting, match=message):
        Keyword(**settings_)
