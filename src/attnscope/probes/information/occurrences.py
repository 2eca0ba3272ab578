"""What do a model's embedding and state of a word look like, wherever it occurs? (tutek2020 §3.4)"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int
from torch import Tensor

from attnscope.errors import require
from attnscope.models.asking import as_it_was, beside
from attnscope.models.trace import Trace
from attnscope.probes.stream import Model, Stream, begun
from attnscope.tasks.batch import Batch

MOST = 1_000_000  # tutek2020 §3.4


@dataclass(frozen=True)
class Occurrences:
    """Each token's word, embedding e and state h; out of how many tokens of these words they were drawn."""

    words: Int[np.ndarray, " tokens"]
    embedded: Float32[np.ndarray, "tokens input"]
    states: Float32[np.ndarray, "tokens state"]
    total: int

    def __len__(self) -> int:
        return len(self.words)


def gathered(
    model: Model,
    batches: Stream[Batch],
    words: Int[np.ndarray, " words"],
    most: int = MOST,
    seed: int = 0,
    **forward: Any,
) -> Occurrences:
    """The occurrences of these words; of more than `most`, so many of them drawn at random.

    The batches are gone through twice. The first time, without the model, tokens are counted; then it is drawn which of
    them are kept: each is as likely, wherever it stands (batches of text come shortest first), and only the order of
    the sentences and the seed decide, not how they are cut into batches. So no more than `most` are ever in memory.
    What else is given goes to the model's forward pass. The model is left as it was.
    """
    require(most > 0, f"most={most}: at least one occurrence must be kept")
    require(len(words) > 0, "no words were chosen; give at least one")
    chosen = known(words)
    kept = drawn(sum(int(places(batch, chosen).sum()) for batch in begun(batches)), most, seed)
    with as_it_was(model):
        parts = each_batch(model, beside(model, begun(batches)), chosen, kept, forward)
        found, embedded, states = put_together(parts, int(kept.sum()))
    return Occurrences(found, embedded, states, len(kept))


def each_batch(
    model: Model, batches: Iterable[Batch], chosen: Tensor, kept: Bool[np.ndarray, " total"], forward: dict[str, Any]
) -> Iterator[tuple[np.ndarray, ...]]:
    """Word, e and h of what is kept of each batch; the model is not asked about a batch of which nothing is."""
    seen = 0
    for batch in batches:
        where = places(batch, chosen)
        here = kept[seen : seen + int(where.sum())]
        seen += len(here)
        if here.any():
            yield picked(model(batch, **forward), where, torch.from_numpy(here))


def put_together(parts: Iterator[tuple[np.ndarray, ...]], tokens: int) -> list[np.ndarray]:
    """Part after part into its place: to hold them all and then join them would take twice the memory."""
    whole: list[np.ndarray] = []
    start = 0
    for part in parts:
        whole = whole or [np.empty((tokens, *column.shape[1:]), column.dtype) for column in part]
        for column, values in zip(whole, part, strict=True):
            column[start : start + len(values)] = values
        start += len(part[0])
    return whole


def known(words: Int[np.ndarray, " words"]) -> Bool[Tensor, " vocabulary"]:
    table = torch.zeros(int(words.max()) + 2, dtype=torch.bool)  # the last place is for all words of a higher number
    table[torch.from_numpy(words)] = True
    return table


def places(batch: Batch, chosen: Bool[Tensor, " vocabulary"]) -> Bool[Tensor, "batch source"]:
    """Where one of the chosen words stands."""
    numbers = batch.source.clamp(max=len(chosen) - 1)
    return batch.source_mask & chosen.to(numbers.device)[numbers]


def drawn(total: int, most: int, seed: int) -> Bool[np.ndarray, " total"]:
    """Which of the tokens are kept."""
    require(total > 0, "none of the chosen words occurs in these batches")
    kept = np.zeros(total, dtype=bool)
    kept[np.random.default_rng(seed).permutation(total)[:most]] = True
    return kept


def picked(trace: Trace, where: Bool[Tensor, "batch source"], here: Bool[Tensor, " found"]) -> tuple[np.ndarray, ...]:
    """Word, e and h of those of the found places that are kept."""
    rows, steps = (place[here.to(place.device)] for place in where.nonzero(as_tuple=True))
    vectors = (side[rows, steps].float().cpu().numpy() for side in (trace.embedded, trace.encoder))
    return (trace.source[rows, steps].cpu().numpy(), *vectors)
