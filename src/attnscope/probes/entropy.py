"""How far is attention from uniform? (tutek2020 appendix C)"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def relative_entropy(
    weights: Float[Tensor, "batch source"], attended: Bool[Tensor, "batch source"]
) -> Float[Tensor, " batch"]:
    """From 0, all on one word, to 1, uniform; NaN for a text of one word, which has no choice.

    >>> mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    >>> relative_entropy(torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]), mask)
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    entropy = torch.special.entr(weights.double()).sum(-1)
    most = attended.sum(-1).double().log()
    return torch.where(most > 0, entropy / most, torch.nan)
