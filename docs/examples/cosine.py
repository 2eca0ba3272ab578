"""Cosine attention, which ignores the norm of states: a = sharpness · cos(s, h)."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from attnscope.errors import require
from attnscope.models import ATTENTIONS, EncoderDecoder, EncoderDecoderSettings, uniform
from attnscope.models.attention import AttentionLayer, Memory
from attnscope.tasks import OneToOne
from attnscope.testing import check_adapter


class Cosine(AttentionLayer):
    """Queries and keys of norm 1; the sharpness of the softmax is learned, starting at 5."""

    def __init__(self, units: int, states: int, heads: int, combine: str = "concatenate"):
        super().__init__(units, states, heads, combine)
        require(units == states, f"cosine attention compares states of one size, not {units} and {states}")
        # A network initialises all of its parameters again (`initialisation`), vectors and scalars mostly as 0.
        self.log_sharpness = torch.nn.Parameter(torch.tensor(0.0))

    def queries(self, decoder: Tensor) -> Tensor:
        directions = normalize(self.by_head(decoder), dim=-1)  # batch x heads x target x key
        return 5 * self.log_sharpness.exp() * directions

    def memorise(self, encoder: Tensor, mask: Tensor) -> Memory:
        states = self.by_head(encoder)  # batch x heads x source x value
        return Memory(keys=normalize(states, dim=-1), values=states, mask=mask)


ATTENTIONS["cosine"] = Cosine

if __name__ == "__main__":
    task = OneToOne(min_length=2, max_length=5, test_size=20)
    torch.manual_seed(0)
    settings = EncoderDecoderSettings(attention="cosine", units=16, heads=2)
    model = EncoderDecoder(settings, len(task.source_vocabulary), len(task.target_vocabulary)).eval()
    check_adapter(model, task.batches("test"))  # raises an AssertionError that lists broken clauses
    trace = model(next(task.batches("test")), attention=uniform)
    print("scores:", trace.scores[0, 0, 0].tolist())
    print("weights in place of its own:", trace.attention[0, 0, 0].tolist())
