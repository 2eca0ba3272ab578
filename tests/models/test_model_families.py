"""The table of docs/model-families.md: which families are read, and which are refused and why.

`ATTNSCOPE_WRITE_FAMILIES=1 pytest tests/models/test_model_families.py` writes it again.
"""

import os
from pathlib import Path

import language_examples
import pytest
import test_encoder_classifiers as encoders
import torch
from adapter_examples import CLASSIFIERS, ENCODER_DECODERS

import attnscope
from attnscope.errors import AttnscopeError
from attnscope.models.adapters.folder import OWN_ATTENTION
from attnscope.models.adapters.recording import UnsupportedAttention

PAGE = Path(__file__).parents[2] / "docs" / "model-families.md"
MARKS = ("<!-- table -->", "<!-- end of table -->")
IGNORES = "its attention does not go through the attention interface, or it has none"


def language_row(kind):
    """One row of a language model: what is special about its attention, or the kind of refusal."""
    if kind in language_examples.DIFFERENTIAL:
        with pytest.raises(AttnscopeError, match="attends more than once"):
            language_examples.language_model(kind)
        return "refused", "a block attends more than once: its attention is the difference of two"
    try:
        model = language_examples.language_model(kind)
    except UnsupportedAttention:
        return "refused", IGNORES
    with torch.no_grad():
        trace, blocks = model.trace(["the cat sat on the mat"]), model.module.num_blocks
    config = model.module.model.config
    grouping = hasattr(type(config)(), "num_key_value_heads")  # other configurations keep what they do not know
    notes = {
        "grouped queries": grouping and config.num_key_value_heads < config.num_attention_heads,
        "sliding windows": any((layer.weights[0, :, 5, 0] == 0).all() for layer in trace.layers),
        "capped scores": trace.last.queries is None,
        "sinks: rows sum to less than one": trace.last.sink is not None,
        f"{len(trace.layers)} of {blocks} blocks attend": len(trace.layers) < blocks,
    }
    return "yes", "; ".join(note for note, holds in notes.items() if holds)


def rows():
    for kind in (*ENCODER_DECODERS, "mt5"):
        yield kind, "encoder-decoder", "yes", "cross-attention"
    for kind in dict.fromkeys((*CLASSIFIERS, "xlm-roberta", *(name.split(",")[0] for name in encoders.FAMILIES))):
        yield kind, "classifier", "yes", ""
    for kind in OWN_ATTENTION:
        yield kind, "classifier", "refused", IGNORES
    for kind in (*language_examples.FAMILIES, *language_examples.REFUSED, *language_examples.DIFFERENTIAL):
        yield kind, "language model", *language_row(kind)


def test_the_page_shows_which_families_are_read():
    lines = ["| family (`model_type`) | kind | read | remarks |", "|---|---|---|---|"]
    lines += [f"| `{family}` | {kind} | {read} | {note} |" for family, kind, read, note in rows()]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    text = before + MARKS[0] + "\n" + "\n".join(lines) + "\n" + MARKS[1] + rest.partition(MARKS[1])[2]
    if os.environ.get("ATTNSCOPE_WRITE_FAMILIES"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text


def test_at_least_twenty_families_of_language_models_are_read():
    assert sum(kind == "language model" and read == "yes" for _, kind, read, _ in rows()) >= 20


def test_families_that_are_not_supported_are_refused_with_one_message():
    for kind in (*language_examples.REFUSED, *language_examples.DIFFERENTIAL):
        with pytest.raises(AttnscopeError, match="wrap the model in an adapter"):
            attnscope.load(language_examples.foreign(kind), tokenizer=language_examples.tokenizer())
