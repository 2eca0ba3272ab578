"""How is a sentence read from both ends, whatever its length?

Padded, never packed: on a CPU packing costs several times the work. The backward direction reads each sentence reversed
within its own length, so that padding always comes last, and nothing that is real depends on it.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnscope.errors import require


class BidirectionalLSTM(nn.Module):
    """Layers of two LSTMs each, one for either direction; states are theirs side by side."""

    def __init__(self, inputs: int, units: int, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        require(layers > 0, f"layers must be positive, not {layers}")
        sizes = [inputs] + [2 * units] * (layers - 1)
        self.ahead = nn.ModuleList([nn.LSTM(size, units, batch_first=True) for size in sizes])
        self.back = nn.ModuleList([nn.LSTM(size, units, batch_first=True) for size in sizes])
        self.dropout = nn.Dropout(dropout)  # between layers, as nn.LSTM has it
        self.state_size = 2 * units

    def forward(
        self, inputs: Float[Tensor, "batch steps input"], mask: Bool[Tensor, "batch steps"]
    ) -> Float[Tensor, "batch steps state"]:
        order, states = reversal(mask), inputs
        for layer, (ahead, back) in enumerate(zip(self.ahead, self.back, strict=True)):
            heard = self.dropout(states) if layer else states
            from_behind = reordered(back(reordered(heard, order))[0], order)
            states = torch.cat([ahead(heard)[0], from_behind], -1)
        return states


def reversal(mask: Bool[Tensor, "batch steps"]) -> Int[Tensor, "batch steps"]:
    """Where to read at each step: the sentence from its end; padding stays where it is. Twice, it undoes itself.

    >>> reversal(torch.tensor([[True, True, True, False]]))
    tensor([[2, 1, 0, 3]])
    """
    steps = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - steps, steps)


def reordered(sequence: Float[Tensor, "batch steps size"], order: Int[Tensor, "batch steps"]) -> Tensor:
    return sequence.gather(1, order[..., None].expand_as(sequence))
