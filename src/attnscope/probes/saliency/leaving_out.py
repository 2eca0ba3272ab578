"""What changes when a word is left out?"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.errors import choose
from attnscope.models.asking import as_it_was
from attnscope.probes.saliency.embeddings import (
    EmbedsSource,
    Output,
    Saliency,
    gold_log_probability,
    saliency,
    with_embeddings,
)
from attnscope.tasks.batch import Batch

WAYS = {"drop": "word dropped", "zero": "embedding zeroed"}


def leave_one_out(
    model: EmbedsSource, batch: Batch, of: Output = gold_log_probability, how: str = "drop", **forward: Any
) -> Saliency:
    """The output less the output without the word: positive where the word raises it.

    `how` is "drop", and the sentence closes over the gap, or "zero", and a zero embedding stands in the word's place.
    A word that is its whole sentence cannot be dropped: NaN.
    """
    choose("way to leave a word out", how, WAYS)
    without = dropped if how == "drop" else zeroed
    with as_it_was(model):
        whole = of(model(batch, **forward))
        changes = [whole - without(model, batch, place, of, forward) for place in range(batch.source.shape[1])]
    return saliency(torch.stack(changes, -1), batch, f"leave-one-out, {WAYS[how]}")


def dropped(
    model: EmbedsSource, batch: Batch, place: int, of: Output, forward: dict[str, Any]
) -> Float[Tensor, "batch target"]:
    """The output when every sentence lacks the word at this place."""
    kept = [i for i in range(batch.source.shape[1]) if i != place]
    mask = batch.source_mask[:, kept]
    nothing_left = ~mask.any(1)
    if nothing_left.all():
        return torch.full_like(batch.target, torch.nan, dtype=torch.get_default_dtype())
    # A pass over nothing has no meaning: such a sentence keeps a word, and its output is thrown away.
    filled = mask | (nothing_left[:, None] & (torch.arange(len(kept), device=mask.device) == 0))
    rest = replace(batch, source=batch.source[:, kept], source_mask=filled, guide=None, rationale=None)
    return of(model(rest, **forward)).masked_fill(nothing_left[:, None], torch.nan)


def zeroed(
    model: EmbedsSource, batch: Batch, place: int, of: Output, forward: dict[str, Any]
) -> Float[Tensor, "batch target"]:
    """The output when the word at this place has a zero embedding."""

    def change(embedded: Tensor) -> Tensor:
        return embedded.index_fill(1, torch.tensor([place], device=embedded.device), 0.0)

    with with_embeddings(model, batch, change):
        return of(model(batch, **forward))
