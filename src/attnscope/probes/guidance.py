"""How much of the attention is where it should be? (baan2019 §2: what attentive guidance asks for)"""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.errors import AttnscopeError
from attnscope.models import EncoderDecoder
from attnscope.models.asking import traced
from attnscope.tasks.batch import Batch


def guided_attention(
    attention: Float[Tensor, "batch target source"],
    guide: Int[Tensor, "batch target"],
    target_mask: Bool[Tensor, "batch target"],
) -> Float[Tensor, " words"]:
    """For every output word, the attention to the position that the guide names; to the first where it names none.

    >>> guided_attention(torch.tensor([[[0.9, 0.1], [0.3, 0.7]]]), torch.tensor([[0, 1]]), torch.tensor([[True, True]]))
    tensor([0.9000, 0.7000])
    """
    return attention.gather(2, guide.clamp(min=0)[..., None])[..., 0][target_mask]


def followed(model: EncoderDecoder, batches: Iterable[Batch]) -> float:
    """The mean over all output words, while the decoder hears its own words."""
    found = []
    for batch, trace in traced(model, batches, teacher_forcing=0.0):
        if batch.guide is None:
            raise AttnscopeError("these sentences come without a guide, so it is not known where attention should be")
        found.append(guided_attention(trace.attention.mean(1), batch.guide, batch.target_mask))
    return torch.cat(found).mean().item()
