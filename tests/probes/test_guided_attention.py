"""Mean attention on the gold position, word by word."""

import pytest
import torch

from attnscope.models import PRESETS, EncoderDecoder
from attnscope.probes.word_alignment import attention_on_gold, mean_attention_on_gold
from attnscope.tasks import LookupTables


def test_padding_is_left_out():
    attention = torch.tensor([[[0.9, 0.1], [0.3, 0.7]], [[0.2, 0.8], [0.5, 0.5]]])
    mask = torch.tensor([[True, True], [True, False]])
    assert attention_on_gold(attention, torch.tensor([[0, 1], [1, -1]]), mask).tolist() == pytest.approx(
        [0.9, 0.7, 0.8]
    )


def test_it_equals_the_mean_over_words_of_single_sentences():
    task = LookupTables(end=False)
    torch.manual_seed(0)
    model = EncoderDecoder(PRESETS["lookup_tables"], len(task.source_vocabulary), len(task.target_vocabulary)).eval()
    weights = []
    for batch in task.batches("new_compositions", size=1):
        with torch.no_grad():
            attention = model(batch, teacher_forcing=0.0).attention[0, 0]
        weights += [attention[step, place].item() for step, place in enumerate(batch.gold_attention[0].tolist())]
    assert mean_attention_on_gold(model, task.batches("new_compositions")) == pytest.approx(sum(weights) / len(weights))
