"""How often are a model's predictions right?"""

from collections.abc import Iterable

from jaxtyping import Int
from torch import Tensor

from attnscope.models.capabilities import TEACHER_FORCING, Decoding, GivesTrace
from attnscope.models.inference import Model, module_of, traces
from attnscope.models.trace import Interventions
from attnscope.tasks import END, Batch
from attnscope.training.objectives import CrossEntropy


def evaluate(
    model: Model,
    data: Iterable[Batch],
    *,
    attention: Interventions | None = None,
    decoding: Decoding | None = None,
    teacher_forcing: float | None = None,
) -> dict[str, float]:
    """Return the loss per token, and how many tokens, whole sequences and last words are predicted right.

    Args:
        model: What gives Traces.
        data: Batches.
        attention: Weights in place of the model's own, as in a forward pass, such as `uniform`.
        decoding: "teacher_forced" or "greedy"; None: as the model's own `decoding` says.
        teacher_forcing: The probability that the decoder is given the gold token, in place of a decoding.

    Returns:
        `loss`, `word_accuracy`, `sentence_accuracy`, and `final_accuracy`: the fraction of sequences whose last token,
        the end token not counted, is right.
    """
    if teacher_forcing is None:
        teacher_forcing = TEACHER_FORCING[decoding or decoding_of(model)]
    price = CrossEntropy(total=True)
    words = sentences = 0
    loss = right = whole = final = 0.0
    for batch, trace in traces(model, data, attention=attention, teacher_forcing=teacher_forcing):
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


def decoding_of(model: Model) -> Decoding:
    """Return the decoding that a model declares; "greedy" where it declares none."""
    module = module_of(model)
    return module.decoding if isinstance(module, GivesTrace) else "greedy"


def last_words(batch: Batch) -> Int[Tensor, " batch"]:
    """Where each target ends: at its last word, the end token not counted, if there is any other."""
    mask = batch.target_mask
    ended = batch.target.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0] == END
    return (mask.sum(1) - 1 - ended.long()).clamp(min=0)
