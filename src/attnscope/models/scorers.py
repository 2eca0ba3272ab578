"""Which words of a text matter to its class? Scores without a decoder that asks. (snell2021 eq. 7; tutek2020 §2)"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class FeedForward(nn.Module):
    """a = v · f(W h): f is ReLU, and both layers have biases (snell2021); additive, it is tanh, with one (tutek2020).

    A query made from the instance adds U g to W h, where g is the gist of the text.
    """

    def __init__(self, size: int, hidden: int, additive: bool = False, from_instance: bool = False):
        super().__init__()
        self.key = nn.Linear(size, hidden)
        self.score = nn.Linear(hidden, 1, bias=not additive)
        self.query = nn.Linear(size, hidden, bias=False) if from_instance else None
        self.bend = torch.tanh if additive else torch.relu

    def forward(self, states: Float[Tensor, "batch source state"], mask: Bool[Tensor, "batch source"]) -> Tensor:
        asked = self.key(states)
        if self.query is not None:
            asked = asked + self.query(gist(states, mask))[:, None]
        return self.score(self.bend(asked)).squeeze(-1)  # type: ignore[no-any-return]


class ScaledDot(nn.Module):
    """a = q · h / √d (tutek2020 eq. 10), where q is a parameter, or made from the instance (footnote 8).

    A parameter starts from N(0, 1); by torch's default for a linear layer, uniform within 1 / √d, attention stays
    uniform (appendix C).
    """

    def __init__(self, size: int, start: str = "normal", from_instance: bool = False):
        super().__init__()
        self.query = nn.Linear(size, size if from_instance else 1, bias=False)
        self.from_instance = from_instance
        if start == "normal" and not from_instance:
            nn.init.normal_(self.query.weight)

    def queries(self, states: Tensor, mask: Tensor) -> Float[Tensor, "batch state"]:
        """Their scale included, so that a = q · h."""
        query = self.query(gist(states, mask)) if self.from_instance else self.query.weight.expand(len(states), -1)
        return query / math.sqrt(states.shape[-1])

    def forward(self, states: Float[Tensor, "batch source state"], mask: Bool[Tensor, "batch source"]) -> Tensor:
        return (states @ self.queries(states, mask)[..., None]).squeeze(-1)


Scorer = FeedForward | ScaledDot


def gist(states: Float[Tensor, "batch source state"], mask: Bool[Tensor, "batch source"]) -> Tensor:
    """What the text as a whole left behind: the mean of its states."""
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
