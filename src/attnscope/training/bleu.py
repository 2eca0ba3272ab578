"""How good are a model's translations? BLEU of its greedy ones (snell2021 tables 4, 6 and 8)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from attnscope.errors import require
from attnscope.models.capabilities import Generates
from attnscope.models.inference import device_of, evaluating
from attnscope.tasks import Translation
from attnscope.tasks.buckets import by_length
from attnscope.tasks.text.corpus import Part
from attnscope.tasks.text.extras import optional

DRAW = 0  # the seed of `most` sentences: those that task.draw gives
ROOM = 10  # a translation has room for twice as many words as the longest source, and these


@dataclass(frozen=True)
class Bleu:
    """From 0 to 100. The signature says how it was counted: scores with another one are another measure."""

    score: float
    signature: str
    sentences: int


def bleu(
    model: Generates, task: Translation, split: str = "validation", most: int | None = None, batch_size: int = 128
) -> Bleu:
    """BLEU of a split, or of so many sentences of it, drawn by seed, against the targets as published.

    Where the task is in lower case, so is the comparison. Words that the vocabulary does not hold count as wrong.
    """
    require(most is None or most > 0, f"most must be positive or None, not {most}")
    library = optional("sacrebleu", "BLEU")
    part = task.part(split)
    chosen = drawn(part, most)
    said = list(translations(model, task, part, chosen, batch_size))
    # Forced: a text of words has spaces before its full stops, which sacrebleu would warn of.
    metric = library.BLEU(lowercase=task.preparation.lower, force=True)
    score = metric.corpus_score(said, [[part.references[i] for i in chosen]]).score
    return Bleu(float(score), str(metric.get_signature()), len(chosen))


def drawn(part: Part, most: int | None) -> Int[np.ndarray, " chosen"]:
    """All sentences of a split, or those of `task.draw`, the shortest first."""
    if most is None:
        return part.order
    chosen = np.random.default_rng(DRAW).permutation(len(part))[:most]
    return np.asarray(chosen[by_length(part.lengths[chosen])])


def translations(
    model: Generates, task: Translation, part: Part, chosen: Int[np.ndarray, " chosen"], batch_size: int
) -> Iterator[str]:
    """What the model says, as text."""
    device = device_of(model)
    with evaluating(model):
        for start in range(0, len(chosen), batch_size):
            batch = part.batch(chosen[start : start + batch_size]).to(device)
            said = model.generate(batch.source, batch.source_mask, 2 * batch.source.shape[1] + ROOM)
            yield from (task.sentence(numbers) for numbers in said.tolist())
