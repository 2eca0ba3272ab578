"""What does the model itself say? Its own output in the place of the gold one, to be heard with teacher forcing."""

from dataclasses import replace
from typing import Any

from attnscope.errors import BadSetting
from attnscope.models.adapters.encoder_decoder import HFEncoderDecoder, ended
from attnscope.models.asking import as_it_was
from attnscope.probes.heads.stream import Sentences
from attnscope.probes.stream import Model
from attnscope.tasks.batch import PAD, Batch

LONGEST = 128  # words of an output; the same for every batch, so that batches do not matter


def replayed(model: Model, sentences: Sentences) -> Sentences:
    with as_it_was(model):
        batch = own_words(model, sentences.batch)
    reader: Any = getattr(model, "reader", None)
    target = sentences.target
    if target is not None and hasattr(reader, "said"):
        target = reader.said(batch.target, batch.target_mask)
    return Sentences(batch, sentences.source, target)


def own_words(model: Any, batch: Batch) -> Batch:
    if isinstance(model, HFEncoderDecoder):  # which can say no more than it has positions for
        return model.replayed(batch, min(LONGEST, model.reader.longest))
    if hasattr(model, "replayed"):
        found: Batch = model.replayed(batch)
        return found
    if hasattr(model, "generate"):
        said = model.generate(batch.source, batch.source_mask, LONGEST)
        mask = ~ended(said)
        mask = mask[:, : int(mask.sum(1).max())]
        return replace(batch, target=said[:, : mask.shape[1]].masked_fill(~mask, PAD), target_mask=mask, guide=None)
    if batch.target.shape[1] == 1:
        return replace(batch, target=model(batch).predictions)
    raise BadSetting(
        f"{type(model).__name__} has neither replayed(batch) nor generate(source, source_mask, longest), so that its "
        "own output is not known; ask about the gold one, of='gold'"
    )
