"""Any file is read or refused with a message, and what is read can be trained on."""

import json
import math
from uuid import uuid4

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from attnscope.errors import AttnscopeError
from attnscope.models import Classifier, ClassifierSettings
from attnscope.tasks import Classification, Translation
from attnscope.tasks.text.preparation import Splits

words = st.sampled_from(["a", "dog", "<script>", "<pad>", "é", "\u2028", "\ud83d\ude00", "0", "word" * 20])
texts = st.one_of(st.lists(words, max_size=6), st.lists(words, max_size=6).map(" ".join), st.text(max_size=20))
fields = st.fixed_dictionaries(
    {},
    optional={
        "text": st.one_of(texts, st.none(), st.integers()),
        "label": st.one_of(st.sampled_from("ab"), st.none(), st.integers(0, 2)),
        "source": texts, "target": texts, "split": st.sampled_from(["train", "dev", "test", ""]),
    },
)  # fmt: skip
well_formed = st.fixed_dictionaries({"text": texts, "label": st.sampled_from("ab"), "source": texts, "target": texts})
lines = st.one_of(
    well_formed.map(lambda row: json.dumps(row).encode()),
    fields.map(lambda row: json.dumps(row).encode()),
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"")),
    st.sampled_from([b"", b" ", b"null", b"[]", b"{", b"\xff\xfe", b'{"text": "a', b'{"text": NaN, "label": "a"}']),
)
whole = st.lists(well_formed.map(lambda row: json.dumps(row).encode()), min_size=8, max_size=20)
files = st.one_of(st.lists(lines, max_size=12), whole)


def learnt_from(task):
    for split in ("training", "validation", "test"):
        for batch in task.batches(split, 3):
            assert bool(batch.source_mask.any(1).all()), "a text without any word"
            assert int(batch.source.max()) < len(task.source_vocabulary)
    if isinstance(task, Classification):
        model = Classifier(
            ClassifierSettings(units=3, input_size=4), len(task.source_vocabulary), len(task.target_vocabulary)
        )
        with torch.no_grad():
            logits = model(task.training_batch(0, 0, 4)).logits
        assert math.isfinite(float(logits[..., 3:].sum()))


@pytest.mark.parametrize("kind", [Classification, Translation])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=files)
def test_any_file_is_read_or_refused_with_a_message(kind, rows, tmp_path):
    path = tmp_path / f"{uuid4().hex}.jsonl"
    path.write_bytes(b"\n".join(rows))
    try:
        task = kind(str(path), splits=Splits(validation_share=0.25, test_share=0.25))
        task.part("training")
    except AttnscopeError:
        event("refused")
    else:
        event("read")
        learnt_from(task)


def test_a_line_of_a_million_characters_is_a_text_like_others(tmp_path):
    path = tmp_path / "long.jsonl"
    rows = [{"text": f"dog {i}", "label": "ab"[i % 2]} for i in range(20)] + [{"text": "dog " * 250_000, "label": "a"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    task = Classification(str(path), splits=Splits(validation_share=0.25, test_share=0.25))
    widths = [batch.source.shape[1] for split in ("training", "validation", "test") for batch in task.batches(split)]
    assert max(widths) > 250_000
