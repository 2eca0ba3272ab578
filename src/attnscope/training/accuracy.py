"""How often is a model right?"""

from collections.abc import Iterable
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from attnscope.models.inference import traces
from attnscope.tasks import END, Batch
from attnscope.training.objectives import CrossEntropy


def evaluate(
    model: nn.Module, batches: Iterable[Batch], teacher_forcing: float = 0.0, **forward: Any
) -> dict[str, float]:
    """Loss, word accuracy and the share of sentences without an error, by default on the model's own words.

    `final_accuracy` is the share of sentences whose last word, before the end token, is right. What else is given, such
    as attention=uniform, goes to the forward pass.
    """
    price = CrossEntropy(total=True)
    words = sentences = 0
    loss = right = whole = final = 0.0
    for batch, trace in traces(model, batches, teacher_forcing=teacher_forcing, **forward):
        mask = batch.target_mask
        hit = trace.predictions == batch.target
        loss += price(model, batch, trace).item()
        right += hit[mask].sum().item()
        whole += (hit | ~mask).all(1).sum().item()
        final += hit.gather(1, last_words(batch)[:, None]).sum().item()
        words, sentences = words + int(mask.sum()), sentences + len(batch)
    return {
        "loss": loss / words,
        "word_accuracy": right / words,
        "sentence_accuracy": whole / sentences,
        "final_accuracy": final / sentences,
    }


def last_words(batch: Batch) -> Int[Tensor, " batch"]:
    """Where each target ends: at its last word, the end token not counted, if there is any other."""
    mask = batch.target_mask
    ended = batch.target.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0] == END
    return (mask.sum(1) - 1 - ended.long()).clamp(min=0)
