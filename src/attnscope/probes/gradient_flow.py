"""In which direction does the bag-of-words proxy begin to learn? (snell2021 §4.1, A.2)"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.models import BagOfWords
from attnscope.models.ibm import Pair
from attnscope.tasks import Batch, pad

AT_A_TIME = 1 << 24  # numbers in the embeddings of the sentences that are held at a time


def first_derivative(proxy: BagOfWords, pairs: list[Pair]) -> Float[Tensor, "sources targets"]:
    """d(We)/dτ under gradient flow: de/dτ = −dL/de and dW/dτ = −dL/dW, for the loss summed over all pairs."""
    e, w = proxy.embedding, proxy.output.weight
    of_e, of_w = torch.zeros_like(e), torch.zeros_like(w)
    for batch in batches(pairs, proxy.settings.size):
        of_one = torch.autograd.grad(proxy.total_loss(batch.to(e.device)), (e, w))
        of_e, of_w = of_e + of_one[0], of_w + of_one[1]
    return -(of_e @ w.T + e @ of_w.T).detach()


def through_softmax(
    probabilities: Float[Tensor, "sources targets"], logits: Float[Tensor, "sources targets"]
) -> Float[Tensor, "sources targets"]:
    """dθ/dτ, given θ and the derivative of its logits."""
    return probabilities * (logits - (probabilities * logits).sum(1, keepdim=True))


def batches(pairs: list[Pair], width: int) -> Iterator[Batch]:
    """All pairs, as many at a time as memory allows."""
    longest = max(len(source) for source, _ in pairs)
    size = max(1, AT_A_TIME // (width * longest))
    for start in range(0, len(pairs), size):
        sources, targets = zip(*pairs[start : start + size], strict=True)
        yield Batch(*pad(sources), *pad(targets))
